"""What a framework's own settings can do, and the lines by which a remedy is said in its words.

A record's ``features`` are what a remedy may ask for, as read in the framework's source at the versions of the record;
``feature@since`` needs at least that version (an unknown one counts as recent), and the name of another framework
stands for all of its features. Its ``lines`` are a remedy's name and the text to type. A record with neither has those
of its base. What is in no record is taken to be written in plain PyTorch and transformers, where everything of the
Hugging Face layer is one argument away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from oomkb.frameworks.declared import Record, records
from oomkb.frameworks.lookup import lineage
from oomkb.frameworks.model import ENGINE, PLAIN, in_range

_ANYWHERE: Final = "precompute_ref packing padding_free"
"""What a script of one's own can be given, beside the features of its Hugging Face layer."""
_NOT_IN_OLD: Final = "grad_ckpt.offload"
_UNRECORDED: Final[Mapping[str, str]] = {
    "lightning": PLAIN,
    "colossalai": "micro_batch seq_len grad_ckpt attention zero.gemini tp pp lora env",
}


@cache
def _by_name() -> Mapping[str, Record]:
    return {record.name: record for record in records()}


def _spelled_out(features: str) -> Iterator[str]:
    for word in features.split():
        other = _by_name().get(word)
        if other is None or not other.features:  # ``fsdp`` is a word of both
            yield word
        else:
            yield from _spelled_out(other.features)


@cache
def _features(framework: str | None, serving: bool) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """Features with the version since which they are there, and the packages whose version that is."""
    owner = next((record for record in lineage(framework) if record.features), None)
    packages: tuple[str, ...] = ()
    if owner is not None:
        text, packages = owner.features, (owner.package, owner.name)
    elif framework in _UNRECORDED:
        text, packages = _UNRECORDED[framework or ""], (framework or "",)
    else:
        text = ENGINE if serving else f"{PLAIN} {_ANYWHERE}"
    pairs = (word.partition("@") for word in _spelled_out(text))
    return {feature: since for feature, _, since in pairs if packages or feature != _NOT_IN_OLD}, packages


def has(
    framework: str | None, feature: str, versions: Mapping[str, str] | None = None, *, serving: bool = False
) -> bool:
    """Whether the framework (at its version, where known) has a setting for ``feature``."""
    features, packages = _features(framework, serving)
    since = features.get(feature)
    if not since:
        return since is not None
    # The Hugging Face layer's "since" counts versions of transformers.
    packages = (PLAIN,) if since[0] in "45" else packages
    stated = versions or {}
    return in_range(f">={since}", next((stated[p] for p in packages if p in stated), None))


def min_compute(framework: str | None) -> float:
    """The lowest compute capability of NVIDIA's cards that the framework runs on; 0 where it has no bound."""
    return next((record.min_compute for record in lineage(framework) if record.min_compute), 0.0)


def line(framework: str | None, remedy: str) -> str | None:
    """The line that switches a remedy on in the framework, where its record has one."""
    owner = next((record for record in lineage(framework) if record.features or record.lines), None)
    return owner.lines.get(remedy) if owner is not None else None
