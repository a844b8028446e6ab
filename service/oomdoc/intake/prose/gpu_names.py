"""The names of accelerators as people write them: one bounded expression, the place kept.

Which device a name means is the catalogue's business (:mod:`oomkb.catalog.gpus`); this finds where one is named.
"""

from __future__ import annotations

import re
from typing import Final

from oomdoc.intake.sieve import Expression

__all__ = ["GPU_NAME", "is_consumer"]

_NVIDIA: Final = (
    r"(?:GB?200|GB300|GH200|H200|H100|H800|H20|B100|B200|B300|A-?100"
    r"|A800|A6000|A5000|A4500|A4000|A2000|A10G|A10|A16|A30|A40|V100S?"
    r"|P100|P40"
    r"|T4|L40S|L40|L20|L4|K80|M40)(?:s(?![A-Za-z0-9]))?(?:[- ]?(?:SXM\d?"
    r"|PCIe|NVL|HBM\d?e?)(?![A-Za-z]))?(?:[- ](?:SXM\d?|PCIe|\d{2,3} ?G(?:i?B)?)"
    r"(?![A-WY-Za-wyz0-9]|x(?!\d))){0,2}"
)
_GEFORCE: Final = (
    r"(?:(?:NVIDIA )?(?:GeForce )?(?:RTX|GTX) ?(?:PRO ?)?[A-Z]?\d{3,4}(?: ?(?:Ti"
    r"|SUPER|D|Ada|Blackwell|Laptop)(?![A-Za-z])){0,2}(?: Generation)?"
    r"|(?:10[5-8]0|20[678]0|30[5-9]0|40[6-9]0|50[6-9]0)(?: ?(?:Ti|SUPER|D)(?![A-Za-z])){0,2}s?(?!\w|\.\w|:\d|[/%]|,\d)"
    r"|TITAN ?(?:RTX|V|Xp?)(?![A-Za-z])|Quadro (?:RTX|GV|P) ?\d{3,4})"
)
_OTHERS: Final = (
    r"(?:MI(?:50|60|100|210|250X?|300X|300A|308X|325X|350X|355X)|(?:Radeon )?RX ?\d{4}(?: ?("
    r"?:XTX?|GRE))?|Radeon (?:PRO|VII|AI PRO)[ \w]{0,12}"
    r"|(?:昇腾|Ascend|ascend) ?\d{3}[A-Z]?\d?(?:-\d)?|910[ABC]\d?|310P\d?|Atlas ?\d{3}[A-Z]?(?: ?A\d| ?I ?A2)?"
    r"|Jetson (?:AGX )?(?:Orin|Xavier|Thor)(?: ?(?:NX|Nano|AGX))?|GB10(?!\d)|(?:6[89]|7[6-9]|90)\d0 ?(?:XTX?"
    r"|GRE)(?![A-Za-z])"
    r"|TPU ?v\d[a-z]?(?:-\d{1,4})?|(?<![\w-])v[2-6][ep]?-\d{1,4}|Gaudi ?\d|Arc ?[AB]\d{3}|Data Center GPU Max \d{4}"
    r"|(?:Mac[Bb]ook(?: ?[Pp]ro| ?[Aa]ir)?|Mac ?[Ss]tudio|Mac ?[Mm]ini|Apple|苹果|芯片) ?M[1-5](?: ?(?:Pro|Max|Ultra))?"
    r"|MTT ?S\d{2,4}0?|MLU\d{3}|DCU ?[A-Z]?\d{0,4}|(?:海光)?K100(?:[_ ]AI)?|沐曦 ?C500|天数[^\s]{0,6})"
)
GPU_NAME: Final = Expression(
    r"(?:(?<![A-Za-z0-9_.])|(?<=\d[xX]))(?:(?:NVIDIA|Nvidia|nvidia"
    rf"|英伟达|AMD|Tesla|tesla|Intel)[ -]{{0,2}}){{0,2}}(?:{_GEFORCE}"
    rf"|{_NVIDIA}|{_OTHERS})(?![A-Za-z0-9]{{3,}}|_[A-Za-z])",
    re.IGNORECASE | re.ASCII,
)

_CONSUMER: Final = re.compile(r"RTX|GTX|GeForce|TITAN|\b[2-5]0[5-9]0|Mac|Apple|Radeon|Arc", re.IGNORECASE | re.ASCII)


def is_consumer(name: str) -> bool:
    """Whether one such card per machine is the rule."""
    return _CONSUMER.search(name) is not None
