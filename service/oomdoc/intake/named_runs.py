"""What a question may set against something else: one alternative, and the models, cards that a text names as such."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from oomdoc.intake.patterns import patterns
from oomdoc.intake.prose.hardware import named_card
from oomkb.catalog import gpus, models
from oomkb.dataclass import dataclass
from oomkb.memory.device import Device

ROWS: Final = patterns(str(Path(__file__).with_name("asked.py")))
"""Words of questions."""
_BEFORE: Final = 64
"""Characters before a card in which words ask for it."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One side of a comparison."""

    name: str
    """As the question writes it."""
    fields: Mapping[str, Any]
    """Job fields that make the difference."""
    value: str = ""
    """Of one number, as it is written; of a setting, ``on`` or ``off``."""
    parts: tuple[Alternative, ...] = ()
    """Where it differs in several ways that the question sets apart: one for each."""


Mention = tuple[int, int, Alternative]


def models_in(text: str) -> list[Mention]:
    """Every model that is named, and sizes behind one."""
    found: list[Mention] = []
    for m in models.find_all(text):
        if m.entry is None or not m.named:
            continue
        found.append((m.start, m.end, Alternative(m.text, {"model": m.entry.name, "params_b": None})))
        end = m.end
        while (behind := ROWS["other_size"].match(text, end)) is not None:  # "Qwen3-8B, 14B or 32B"
            other = models.find(re.sub(r"\d[\d.]*[bB]", behind["size"], m.text, count=1))
            if other is None or other.name == m.entry.name:
                break
            side = Alternative(behind["size"], {"model": other.name, "params_b": None})
            found.append((*behind.span("size"), side))
            end = behind.end("size")
    if not found:
        sizes = ROWS["bare_size"].finditer(text)
        found = [(*s.span(), Alternative(s[0], {"model": None, "params_b": float(s[1])})) for s in sizes]
    return found


def cards_in(text: str) -> list[Mention]:
    """Every card that is named, with its count."""
    found: list[Mention] = []
    for mention in gpus.find_all(text):
        named = named_card(text, mention)
        if named is not None:
            name, start, count = named
            device = _single(mention.device, gpus.find(name), count or 1)
            shared = ROWS["shared_size"].match(text, mention.end) if device.unified else None
            size = float(shared["n"]) if shared is not None else None
            fields = {"gpu": device.name, "capacity_gib": size, **({"gpus": count} if count else {})}
            name = re.sub(r"(?<=\d)(?<!l40)s\Z", "", name)
            shown = f"{count} × {name}" if count and count > 1 else name
            found.append((start, mention.end, Alternative(shown, fields)))
    return found


def needed_card(text: str) -> str | None:
    """The card of which it is asked whether it takes that one: ``do I need an A100?``."""
    for mention in gpus.find_all(text):
        named = named_card(text, mention)
        if named is not None and ROWS["needs_card"].search(text[max(0, named[1] - _BEFORE) : named[1]]):
            return named[0]
    return None


def _single(device: Device, plain: Device | None, count: int) -> Device:
    """The card itself where the size at its name is what all of them hold together."""
    if plain is None or not plain.nominal_bytes or count < 2:
        return device
    return plain if device.nominal_bytes == count * plain.nominal_bytes else device
