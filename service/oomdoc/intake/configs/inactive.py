"""Settings that are given but not in effect: cut off, not passed on, set too late, contradicted or misspelt."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from oomdoc.evidence import Inactive, Source
from oomdoc.intake.configs.companions import LINKS
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.launch import LAUNCH_KEYS, launch_facts, visible_gpus
from oomdoc.intake.configs.table import Reading, norm
from oomdoc.intake.configs.values import flag
from oomdoc.intake.configs.wordlist import word_set
from oomkb.frameworks import LAUNCHERS, PLAIN, has
from oomkb.frameworks.declared import records
from oomkb.kept import compiled

if TYPE_CHECKING:
    from oomdoc.intake.configs.analysis import Doc
    from oomdoc.intake.configs.lines import Lines

_STARTS: Final = frozenset[str]().union(*(record.starts for record in records()))
_ALLOCATOR: Final = word_set("allocator_variables")
_PASSED: Final = _ALLOCATOR | word_set("passed_variables")
_LAUNCHED: Final = (*LAUNCHERS, "torchrun", "torch.distributed", "mpirun", "srun", "ray ")
_ENGINE: Final = ("offload_optimizer", "offload_model", "sleep_level", "vllm_enable_sleep_mode")
"""What saves memory while a rollout engine works: without an engine the trainer does not look at it."""
_ADAPTERS: Final = ("lora_rank", "lora_r", "lora_target", "lora_target_modules", "lora_target_linear")
_AUTO_WRAP: Final = "fsdp_auto_wrap_policy"
"""accelerate ``utils/dataclasses.py``; with ``NO_WRAP`` FSDP1 makes one unit of the model and gathers it whole."""
_MIN_RATIO: Final = 0.86
_MAX_FOUND: Final = 40


def find_inactive(docs: Sequence[Doc], lines: Lines, others: Sequence[Source]) -> Iterator[Inactive]:
    """Every setting of the documents that something keeps from being in effect; ``reason`` is a key of the words."""
    count = 0
    for doc in docs:
        for entry, reason, values in (
            *_cut_off(doc),
            *_contradicted(doc),
            *_late(doc),
            *_processes(doc),
            *_unknown(doc),
        ):
            yield Inactive(entry.key, f"inactive.{reason}", lines.span(entry.key_span[0]), values)
            count += 1
            if count >= _MAX_FOUND:
                return
    for entry, reason, values in _not_passed(docs, others):
        yield Inactive(entry.key, f"inactive.{reason}", lines.span(entry.key_span[0]), values)
    yield from _in_eval_mode(lines)


_Found = tuple[Entry, str, dict[str, Any]]


def _cut_off(doc: Doc) -> Iterator[_Found]:
    for entry in doc.entries:
        if entry.off and not entry.key.startswith("@"):
            yield entry, entry.off_reason, {}


def _said(doc: Doc) -> dict[str, Any]:
    return {name: value for name, value, _ in doc.readings()}


def _contradicted(doc: Doc) -> Iterator[_Found]:
    """Adapters beside full-parameter training, an engine that is off, one FSDP unit of the whole model."""
    if doc.table is None or doc.form == "ini":
        return
    view, said, names = doc.view(), _said(doc), doc.table.names
    full = said.get("method") == "full"
    if has(doc.table.name, "adapters.by_switch") and (full or ("adapter" in names and "adapter" not in view)):
        yield from ((view[key], "adapters-in-full", {}) for key in _ADAPTERS if key in view)
    if "use_vllm" in view and flag(view["use_vllm"].value) is False:
        yield from [(view[k], "engine-off", {}) for k in _ENGINE if k in view][:1]
    for entry in doc.entries:
        if norm(entry.key).endswith(_AUTO_WRAP) and str(entry.value).upper() == "NO_WRAP" and not entry.off:
            yield entry, "one-unit", {}


def _late(doc: Doc) -> Iterator[_Found]:
    """Variables set after they are read, or that never leave the shell."""
    if doc.form == "python":
        imports = [at for note, at in doc.notes if note == "import:torch" or note.startswith("import:")]
        for entry in doc.env:
            if entry.key in _ALLOCATOR and imports and entry.key_span[0] > min(imports):
                yield entry, "set-after-import", {}
    elif doc.form == "shell":
        starts = [e.key_span[0] for e in doc.entries if not e.off]
        for entry in doc.env:
            if entry.key not in _PASSED or not starts:
                continue
            if entry.scope == "local" and (doc.whole_file or doc.fenced):
                yield entry, "not-exported", {"name": entry.key, "value": entry.value}
            elif entry.scope != "local" and doc.whole_file and entry.key_span[0] > max(starts):
                yield entry, "set-after-launch", {}


def _processes(doc: Doc) -> Iterator[_Found]:
    """Sharding over one process, and one process over several GPUs."""
    if doc.table is None or doc.form != "shell":
        return
    found = {n: (v, e) for n, v, e in launch_facts(doc.entries, doc.env)}
    count = found.get("world") or found.get("gpus")
    sharding = next((r for r in doc.readings() if r[0] == "sharding"), None)
    sharded = sharding is not None and str(sharding[1]).startswith(("zero", "fsdp"))
    nodes = found.get("nodes")
    if sharding is not None and sharded and count is not None and count[0] == 1 and (nodes is None or nodes[0] == 1):
        yield sharding[2], "one-process", {"setting": _as_written(sharding), "launch": count[1].key}
    started = any(p in doc.programs for p in _LAUNCHED) or not _STARTS.isdisjoint(doc.programs.split())
    plain = "python" in doc.programs and not started
    if not plain or not _of_trainer(doc):
        return
    visible = next(
        (e for e in doc.env if e.key == "CUDA_VISIBLE_DEVICES" and (visible_gpus(str(e.value)) or 0) > 1), None
    )
    if visible is not None and not sharded:
        yield visible, "data-parallel", {"count": visible_gpus(str(visible.value)) or 0}


def _of_trainer(doc: Doc) -> bool:
    """Whether the run has the arguments of a Trainer."""
    return doc.table is not None and any(level.name == PLAIN for level in doc.table.levels())


def _as_written(reading: Reading) -> str:
    """What a person recognises the sharding by: ``zero2`` of ``--deepspeed zero2``, the key of a longer value."""
    value = reading[2].value
    return value if isinstance(value, str) and len(value) <= 40 else reading[2].key


def _unknown(doc: Doc) -> Iterator[_Found]:
    """Keys the framework does not know that are nearly one it does."""
    if doc.table is None or not has(doc.table.name, "keys.checked") or doc.form not in ("yaml", "shell"):
        return
    known = doc.table.known | LAUNCH_KEYS
    likely: list[str] = []
    for entry in doc.entries[:300]:
        key = norm(entry.key)
        if (
            entry.off
            or entry.style not in ("pair", "flag", "flag=", "bare")
            or "." in key
            or "[" in key
            or not 6 <= len(key) <= 60
        ):
            continue
        if key in known or entry.value is None:
            continue
        if not likely:
            likely = sorted(n for n in known if len(n) > 5 and ":" not in n and not n.startswith("@"))
        room = len(key) * (2 / _MIN_RATIO - 1)
        alike = [n for n in likely if len(n) <= room and len(key) <= len(n) * (2 / _MIN_RATIO - 1)]
        near = difflib.get_close_matches(key, alike, 1, _MIN_RATIO)
        if near and near[0] not in {norm(e.key) for e in doc.entries}:
            yield entry, "unknown-key", {"nearest": near[0]}


def _in_eval_mode(lines: Lines) -> Iterator[Inactive]:
    """A training loop on a model in evaluation mode: transformers 4.28-5.23 recomputes only ``if self.training``
    (``modeling_layers.py``, ``GradientCheckpointingLayer``).
    """
    text = lines.source.text
    if "gradient_checkpointing" not in text or (found := _EVAL_MODE.search(text)) is None:
        return
    behind = text[found.end() :]
    if ".backward(" in behind and ".train(" not in behind:
        yield Inactive(found["call"], "inactive.eval-mode", lines.span(found.start("call")))


_EVAL_MODE: Final = compiled(r"^[ \t]{0,16}(?P<call>(?:\w{1,30}\.){1,3}eval\(\))", re.MULTILINE)


def _not_passed(docs: Sequence[Doc], others: Sequence[Source]) -> Iterator[_Found]:
    """A DeepSpeed configuration that nothing names."""
    files = [d for d in docs if d.table is not None and d.table.name in LAUNCHERS and d.form == "json"]
    runs = [d for d in docs if _of_trainer(d) and d.form in ("shell", "yaml") and len(d.entries) > 3]
    if not files or not runs:
        return
    for run in runs:
        named = any(norm(e.key) in LINKS or "zero_stage" in norm(e.key) for e in run.entries)
        if named or any(name in run.programs for name in LAUNCHERS) or _said(run).get("sharding"):
            return
    first = next(
        (e for e in files[0].entries if e.key == "zero_optimization.stage"),
        files[0].entries[0] if files[0].entries else None,
    )
    if first is not None:
        yield first, "not-passed", {}
