"""What can be compared outright: framework, method, objective, phase, hardware generation, affected versions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from oomkb.catalog import gpus
from oomkb.dataclass import dataclass
from oomkb.kept import lazy
from oomkb.records.case import Case
from oomkb.records.taxonomy import FRAMEWORKS
from oomkb.records.versions import affects
from oomkb.retrieval.dense import Array

_TOKEN: Final = lazy(r"[a-z][a-z0-9]*(?:[-_.][a-z0-9]+)*")
_SPELLINGS: Final[Mapping[str, str]] = {
    "llama-factory": "llamafactory",
    "swift": "ms-swift",
    "llama.cpp": "llama-cpp",
    "hf": "transformers",
    "huggingface": "transformers",
    "megatron": "megatron-lm",
    "torch": "pytorch",
    "mcore": "megatron-lm",
    "text-generation-inference": "tgi",
    "trt-llm": "tensorrt-llm",
}
_METHODS: Final = frozenset({"lora", "qlora", "dora", "galore", "lisa", "badam", "oft", "apollo"})
_OBJECTIVES: Final = frozenset({"sft", "dpo", "orpo", "simpo", "kto", "ppo", "grpo", "distill"})
_OBJECTIVE_SPELLINGS: Final[Mapping[str, str]] = {
    "pretrain": "pretrain",
    "pretraining": "pretrain",
    "pre-training": "pretrain",
    "distillation": "distill",
    "rlhf": "ppo",
    "dapo": "grpo",
    "serving": "inference",
    "inference": "inference",
}
_FRAMEWORK: Final = 1.0
_WEIGHTS: Final = (("phase", 1.0), ("objective", 0.6), ("method", 0.4), ("generation", 0.3))
"""What agreeing in a fact counts; contradicting each other counts half of it, the other way."""
_FULL: Final = lazy(r"full(?:[- ]parameter)?[- ]?(?:fine[- ]?tun|ft\b|parameter)|全参|全量微调")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """The comparable facts of a case or of a question; empty means not known."""

    frameworks: tuple[str, ...] = ()
    method: str = ""
    objective: str = ""
    phase: str = ""
    generation: str = ""
    """Of the GPU: ``volta``, ``ampere`` ..."""
    versions: Mapping[str, str] | None = None
    """library -> installed version; only a question has them."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """One thing that question and case share (``weight`` > 0) or contradict each other in (< 0)."""

    key: str
    weight: float
    value: str


def case_facets(case: Case) -> Facets:
    """What a record says."""
    return Facets(
        frameworks=tuple(sorted({_framework(f) for f in case.frameworks})),
        method=case.method or "",
        objective=case.objective or "",
        phase="" if case.phase == "unknown" else case.phase,
        generation=_generation(case.hardware.gpu or ""),
    )


def query_facets(text: str, context: Mapping[str, Any]) -> Facets:
    """What the context states, completed by what the text names."""
    tokens = [token.replace("_", "-") for token in _TOKEN.findall(text.lower())]
    stated = context.get("framework")
    named = {_framework(t) for t in tokens} & FRAMEWORKS | ({_framework(str(stated))} if stated else set())
    methods = [t for t in tokens if t in _METHODS] or (["full"] if _FULL.search(text.lower()) else [])
    objectives = [_OBJECTIVE_SPELLINGS.get(t, t) for t in tokens if t in _OBJECTIVES or t in _OBJECTIVE_SPELLINGS]
    phase = str(context.get("phase") or "")
    return Facets(
        frameworks=tuple(sorted(named)),
        method=str(context.get("method") or (methods[0] if methods else "")),
        objective=str(context.get("objective") or (objectives[0] if objectives else "")),
        phase="" if phase == "unknown" else phase,
        generation=_generation(str(context.get("gpu") or text[:4000])),
        versions=dict(context.get("versions") or {}) or None,
    )


def agreements(question: Facets, known: Facets, case: Case) -> Iterator[Agreement]:
    """Where a question and a case agree or contradict each other."""
    shared = sorted(set(question.frameworks) & set(known.frameworks))
    if shared:
        yield Agreement("framework", _FRAMEWORK, ", ".join(shared))
    for key, weight in _WEIGHTS:
        asked, has = getattr(question, key), getattr(known, key)
        if asked and has:
            yield Agreement(key, weight if asked == has else -weight / 2, has)
    yield from _versions(question, case)


def _versions(question: Facets, case: Case) -> Iterator[Agreement]:
    if question.versions and case.affected:
        hit = affects(case.affected, question.versions)
        installed = {name.lower() for name in question.versions}
        if hit is not None:
            yield Agreement("version", 2.0, f"{hit.package} {hit.version}")
        elif any(item.ranges and item.package.lower() in installed for item in case.affected):
            yield Agreement("version", -1.0, case.affected[0].package)


@dataclass(frozen=True, slots=True)
class Columns:
    """The facets of all cases by fact, so that a question is compared with hundreds of cases at once."""

    cases: Sequence[Case]
    facts: Mapping[str, Array]
    frameworks: Mapping[str, Array]
    """Framework -> the numbers of its cases."""
    affected: tuple[int, ...]
    """The numbers of the cases with version ranges."""

    @classmethod
    def of(cls, known: Sequence[Facets], cases: Sequence[Case]) -> Columns:
        """From the facets of each case."""
        names = sorted({name for facets in known for name in facets.frameworks})
        return cls(
            cases,
            {key: np.asarray([getattr(facets, key) for facets in known], dtype=str) for key, _ in _WEIGHTS},
            {n: np.asarray([i for i, f in enumerate(known) if n in f.frameworks], dtype=np.int64) for n in names},
            tuple(number for number, case in enumerate(cases) if case.affected),
        )

    def weights(self, question: Facets) -> Array:
        """float32 per case: the sum of :func:`agreements`."""
        total = np.zeros(len(self.cases), dtype=np.float32)
        shared = [self.frameworks[name] for name in question.frameworks if name in self.frameworks]
        if shared:
            total[np.concatenate(shared)] = _FRAMEWORK
        for key, weight in _WEIGHTS:
            asked = getattr(question, key)
            if asked:
                column = self.facts[key]
                total += np.where(column == asked, weight, np.where(column == "", 0.0, -weight / 2)).astype(np.float32)
        if question.versions:
            for number in self.affected:
                total[number] += sum(a.weight for a in _versions(question, self.cases[number]))
        return total


def _framework(name: str) -> str:
    plain = name.strip().lower().replace("_", "-")
    return _SPELLINGS.get(plain, plain)


@lru_cache(maxsize=512)
def _generation(text: str) -> str:
    if not text:
        return ""
    device = gpus.find(text)
    return device.generation if device is not None else ""
