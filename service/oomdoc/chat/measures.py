"""Figures that a person measured, held against the estimate: which meter showed what, and what would explain it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from oomdoc.chat import parts
from oomdoc.chat.parts import joined
from oomdoc.chat.prices import price_of, with_world
from oomdoc.chat.session import Reply, Session
from oomdoc.report.words import word
from oomkb.dataclass import dataclass
from oomkb.errors import OomdocError
from oomkb.frameworks import has
from oomkb.kept import compiled
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.units import GIB

_SIZE: Final = r"(?<![\d.])(?P<{0}>\d{{1,6}}(?:\.\d{{1,3}})?)\s?(?P<{0}_unit>[GM]i?B?)(?![A-Za-z])"
_METERS: Final = {
    "allocated": r"(?:max_)?memory_allocated|\ballocated\b|torch\s(?:peak|says|reports)|pytorch\s(?:peak|says|reports)",
    "reserved": r"(?:max_)?memory_reserved|\breserved\b",
    "process": r"nvidia-?\s?smi|\bnvtop\b|\bnvitop\b|\bgpustat\b|\bthe\sprocess\b|进程",
}
"""Meters of an estimate, and how people name them."""
_READS: Final = {
    meter: compiled(
        rf"(?i)(?:{names})(?:\(\))?[^\d\n.;；。?？]{{0,32}}?{_SIZE.format('n')}"
        rf"|{_SIZE.format('m')}\s?(?:(?:in|by|from|on|per|according\sto|as|of)\s)?(?:the\s)?(?:{names})"
    )
    for meter, names in _METERS.items()
}
_COMPARES: Final = compiled(
    r"(?i)\bcompar\w{1,5}|\bmatch\w{0,3}\b|\byours\b|\byour\s(?:\w{3,10}\s)?(?:estimates?|figures?|numbers?|predictions?|model|calc\w{0,8})\b"
    r"|\b(?:you|oomdoc)\s(?:say|said|predict\w{0,3}|estimat\w{1,3}|comput\w{1,3})\b|\b(?:the|off\sfrom\sthe|vs\.?\s(?:the\s)?)\s?(?:estimate|prediction)\b"
    r"|(?:你|您)(?:这边|那边|们)?(?:算|估|预[测计]|说|给)|对比|对得上|对不上|差多少|差这么多|估[算计]值?|预测"
)
_AGREES: Final = 0.05
"""Share by which a figure may differ from an estimate that it agrees with."""
_EXPLAINS: Final = 0.1
"""Share up to which a figure is explained by a setting that nobody stated."""
_OPEN: Final[Mapping[str, tuple[Any, ...]]] = {
    "fused_ce": (True, False),
    "grad_ckpt": (True, False),
    "attention": ("eager", "flash2"),
    "packing": (True,),
    "param_dtype": ("fp32", "bf16"),
    "optimizer": ("adamw", "adamw_8bit"),
}
"""Settings that may be otherwise than they were taken to be, with their values."""
_NO_SETTING: Final = frozenset({"capacity_gib", "others_gib", "free_gib", "host_gib"})
"""Fields for which a measured size may be taken."""


@dataclass(frozen=True, slots=True)
class _Measured:
    meter: str
    seen_bytes: float

    def off(self, estimate: Estimate) -> float:
        """How far the estimate is from it, as a logarithm."""
        return math.log(self.estimated(estimate) / self.seen_bytes)

    def estimated(self, estimate: Estimate) -> float:
        """What the estimate has for this meter."""
        return max(1.0, float(getattr(estimate, f"{self.meter}_bytes")))


def asks_to_compare(text: str) -> bool:
    """Whether a turn tells what a meter showed, and asks how the estimate compares with it."""
    return _COMPARES.search(text) is not None and next(_measured(text), None) is not None


def _measured(text: str) -> Iterator[_Measured]:
    for meter, pattern in _READS.items():
        if (match := pattern.search(text)) is not None:
            written, unit = match["n"] or match["m"], match["n_unit"] or match["m_unit"]
            yield _Measured(meter, float(written) * (GIB if unit[0] in "Gg" else GIB / 1024))


def held_against(session: Session, text: str, changes: Mapping[str, Any]) -> Reply | None:
    """Each figure beside the estimate for its meter, and the setting that would explain what they differ by.

    :param changes: what the turn names besides: sizes of the run that was measured.
    """
    if not asks_to_compare(text):
        return None
    named = {name: value for name, value in changes.items() if name not in _NO_SETTING}
    job, language = with_world(session.job.with_fields(named)), session.language
    priced, _ = price_of(job, language)
    if priced is None:
        return None
    seen = list(_measured(text))
    said = [_beside(one, priced.estimate, language) for one in seen]
    if job.objective == "inference" and has(job.framework, "serving.utilization", serving=True):
        said.append(word("chat.measured-share", language))
    elif max(abs(one.off(priced.estimate)) for one in seen) > _EXPLAINS:
        said += _explained(job, priced.estimate, seen, language)
    stands = parts.standing(job, language, plans=False).said[:2]
    return Reply(joined([*said, *stands]), {}, session.job, priced.estimate.process_bytes)


def _beside(one: _Measured, estimate: Estimate, language: str) -> str:
    estimated = one.estimated(estimate)
    share = abs(one.seen_bytes - estimated) / estimated
    key = "agrees" if share <= _AGREES else "more" if one.seen_bytes > estimated else "less"
    sizes = {"seen_bytes": one.seen_bytes, "estimated_bytes": estimated, "delta_bytes": abs(one.seen_bytes - estimated)}
    meter = word(f"chat.meter-{one.meter}", language)
    return word(f"chat.measured-{key}", language, meter=meter, percent=max(1, round(100 * share)), **sizes)


def _explained(job: Job, estimate: Estimate, seen: list[_Measured], language: str) -> list[str]:
    """The one setting that nobody stated with which the estimate comes nearest to the figures."""
    with_each: list[tuple[float, str, Any, Estimate]] = []
    for name, values in _OPEN.items():
        for value in values if job.get(name) is None else ():
            try:
                other, _ = price_of(job.with_fields({name: value}), language)
            except OomdocError:
                continue
            if other is not None:
                off = max(abs(one.off(other.estimate)) for one in seen)
                with_each.append((off, name, value, other.estimate))
    best = min(with_each, key=lambda found: found[0], default=None)
    before = max(abs(one.off(estimate)) for one in seen)
    if best is None or best[0] > before / 2:
        return [word("chat.measured-unexplained", language)]
    off, name, value, other_estimate = best
    sizes = {
        "estimated_bytes": seen[-1].estimated(other_estimate),
        "meter": word(f"chat.meter-{seen[-1].meter}", language),
    }
    key = "measured-with" if off <= 2 * _EXPLAINS else "measured-nearer"
    return [word(f"chat.{key}", language, setting=parts.shown_changes({name: value}, language), **sizes)]
