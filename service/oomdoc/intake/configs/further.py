"""Settings that no job field has, but by which the memory model computes: they travel in the job's ``extra``.

Which they are is the memory model's business (``oomkb/memory``: ``ranks``, ``setting``, ``history``, ``images``); this
reads them under every framework's spelling, and hands them on under one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from oomdoc.evidence import Fact
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import norm
from oomdoc.intake.configs.values import whole

if TYPE_CHECKING:
    from oomdoc.intake.configs.analysis import Doc
    from oomdoc.intake.configs.reading import Lines

__all__ = ["PREFIX", "further_facts"]

PREFIX: Final = "extra."
_WHOLE: Final = {
    "virtual_pipeline_model_parallel_size": "virtual_pipeline_model_parallel_size",
    "num_layers_per_virtual_pipeline_stage": "num_layers_per_virtual_pipeline_stage",
    "expert_tensor_parallel_size": "expert_tensor_parallel_size",
    "freeze_trainable_layers": "freeze_trainable_layers",
    "torch_empty_cache_steps": "torch_empty_cache_steps",
}
_NAMES: Final = {
    "modules_to_save": "modules_to_save",
    "lora_modules_to_save": "modules_to_save",
    "additional_target": "modules_to_save",
}
_FLAGS: Final = {
    "lora_mlp_kernel": "lora_mlp_kernel",
    "freeze_vision_tower": "freeze_vision_tower",
    "freeze_vit": "freeze_vit",
}
_MOST: Final = 32
"""Modules of one list."""
_ROLES: Final = frozenset({"ref", "critic", "reward_model", "teacher", "rollout"})
"""Whose settings are not those of the model that is trained."""


def further_facts(docs: Iterable[Doc], lines: Lines) -> Iterator[Fact]:
    """Facts ``extra.<name>``, the first of each name."""
    seen: set[str] = set()
    for doc in docs:
        if doc.table is None:
            continue
        for entry in doc.entries:
            parts = norm(entry.key).split(".")
            if entry.off or not _ROLES.isdisjoint(parts):
                continue
            found = _read(parts, entry)
            if found is not None and found[0] not in seen:
                seen.add(found[0])
                yield Fact(PREFIX + found[0], found[1], lines.span(entry.key_span[0]), "config", 0.95)


def _read(parts: list[str], entry: Entry) -> tuple[str, Any] | None:
    last = parts[-1]
    if last in _WHOLE:
        number = whole(entry.value)
        return (_WHOLE[last], number) if number is not None and number > 0 else None
    if last in _FLAGS:
        return (_FLAGS[last], entry.value) if isinstance(entry.value, bool) else None
    if last in _NAMES:
        names = _list(entry)
        return (_NAMES[last], names) if names else None
    return None


def _list(entry: Entry) -> list[str]:
    """The modules, written as a list or with commas."""
    value = [item.value for item in entry.items] or entry.value
    if isinstance(value, str):
        value = value.strip("[]() ").split(",")
    if not isinstance(value, list | tuple):
        return []
    return [str(v).strip("\"' ") for v in value if str(v).strip("\"' ")][:_MOST]
