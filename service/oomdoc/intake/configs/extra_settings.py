"""Settings that no job field has, but by which the memory model computes: they travel in the job's ``extra``.

Which they are is the memory model's business (``oomkb/memory``: ``ranks``, ``setting``, ``history``, ``images``,
``evaluating``); this reads them under every framework's spelling, and hands them on under one.

An evaluation keeps logits where metrics are computed from them: of arguments of a Trainer in code
(``compute_metrics=``), any value counts that is not nothing. LLaMA-Factory's ``compute_accuracy`` gives the Trainer
metrics and, with them, an argmax that is all it keeps (``train/sft/workflow.py``, ``eval_logit_processor``). Text that
is generated, a loss alone, and metrics of each batch keep no logits (transformers 5.23, ``trainer.py``,
``evaluation_loop``; ``trainer_seq2seq.py``, ``prediction_step``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from oomdoc.evidence import Fact
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.table import norm
from oomdoc.intake.configs.values import flag, whole
from oomdoc.intake.configs.wordlist import word_set

if TYPE_CHECKING:
    from oomdoc.intake.configs.analysis import Doc
    from oomdoc.intake.configs.lines import Lines

PREFIX: Final = "extra."
_WHOLE: Final = word_set("extra_numbers")
_NAMES: Final = {
    "modules_to_save": "modules_to_save",
    "lora_modules_to_save": "modules_to_save",
    "additional_target": "modules_to_save",
}
_FLAGS: Final = word_set("extra_switches")
_METRICS: Final = "compute_metrics"
_ARGMAX: Final = "preprocess_logits_for_metrics"
_ARGUMENTS: Final = frozenset({_METRICS, _ARGMAX})
"""Arguments of a Trainer that are functions: that they are given is all there is to read."""
_NO_LOGITS: Final = frozenset({"predict_with_generate", "prediction_loss_only", "batch_eval_metrics"})
"""Flags under which an evaluation keeps no logits, whatever computes its metrics."""
_MAX_MODULES: Final = 32
"""Modules of one list."""
_ROLES: Final = frozenset({"ref", "critic", "reward_model", "teacher", "rollout"})
"""Whose settings are not those of the model that is trained."""


def extra_facts(docs: Iterable[Doc], lines: Lines) -> Iterator[Fact]:
    """Facts ``extra.<name>``, the first of each name."""
    seen: set[str] = set()
    found = list(_entries(docs))
    if any(parts[-1] in _NO_LOGITS and entry.value is True for parts, entry in found):
        seen.add(_METRICS)
    if any(parts[-1] == "packing" and entry.value is True for parts, entry in found):
        seen.add("padding_free")  # rows that are filled to the limit have no padding either
    for parts, entry in found:
        for name, value in _read(parts, entry):
            if name not in seen:
                seen.add(name)
                yield Fact(PREFIX + name, value, lines.span(entry.key_span[0]), "config", 0.95)


def _entries(docs: Iterable[Doc]) -> Iterator[tuple[list[str], Entry]]:
    """Settings in effect of the model that is trained, with the parts of their keys; of pieces that no table knows,
    the arguments of a Trainer alone.
    """
    for doc in docs:
        for entry in doc.entries:
            parts = norm(entry.key).split(".")
            if not entry.off and _ROLES.isdisjoint(parts) and (doc.table is not None or _of_trainer(entry)):
                yield parts, entry


def _of_trainer(entry: Entry) -> bool:
    """Whether it is an argument of ``Trainer(...)``, ``SFTTrainer(...)``, one's own trainer or their arguments."""
    return entry.style == "kwarg" and ("Trainer" in entry.scope or "TrainingArguments" in entry.scope)


def _read(parts: list[str], entry: Entry) -> Iterator[tuple[str, Any]]:
    last = parts[-1]
    if last in _WHOLE:
        number = whole(entry.value)
        if number is not None and number > 0:
            yield last, number
    elif last in _FLAGS and (on := flag(entry.value)) is not None:
        yield last, on
    elif last == "optimizer_offload_fraction" and isinstance(entry.value, int | float) and 0 < entry.value <= 1:
        yield last, float(entry.value)
    elif last == "pin_memory" and parts[-2:-1] in (["offload_optimizer"], ["offload_param"]):
        yield last, entry.value is True
    elif last in _NAMES and (names := _list(entry)):
        yield _NAMES[last], names
    elif last in _ARGUMENTS and _of_trainer(entry) and entry.value not in (None, False):
        yield last, True
    elif last == "entropy_coeff" and isinstance(entry.value, int | float) and entry.value:
        yield "calculate_entropy", True
    elif last == "compute_accuracy" and entry.value is True:
        yield from ((_METRICS, True), (_ARGMAX, True))


def _list(entry: Entry) -> list[str]:
    """The modules, written as a list or with commas."""
    value = [item.value for item in entry.items] or entry.value
    if isinstance(value, str):
        value = value.strip("[]() ").split(",")
    if not isinstance(value, list | tuple):
        return []
    return [str(v).strip("\"' ") for v in value if str(v).strip("\"' ")][:_MAX_MODULES]
