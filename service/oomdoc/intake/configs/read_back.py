"""Whether a text says what was to be written into it."""

from __future__ import annotations

import ast
import contextlib
import difflib
import json
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final

from oomdoc.intake.configs.wordlist import word_set
from oomkb.catalog.model_text import quant_hint
from oomkb.errors import InputError, JobError
from oomkb.frameworks import ENGINES, complete, has, supports
from oomkb.frameworks.circumstances import NAMED
from oomkb.kept import compiled
from oomkb.memory.job import Job
from oomkb.memory.setting import WITHOUT_LOGITS
from oomkb.untrusted import look_through

_ENGINE: Final = {"serving.gpu_memory_utilization": "rollout.gpu_memory_utilization"}


_FSDP: Final = ("fsdp", "fsdp2", "hsdp", "shard-grad-op")


def same(a: Any, b: Any) -> bool:
    """Whether two values mean the same; the order in a list means nothing."""
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return bool({str(x) for x in a} == {str(x) for x in b})
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return float(a) == float(b)
    return str(a) == str(b) or {str(a), str(b)} == _SAME_FP8


_SAME_FP8: Final = {"fp8", "fp8_e4m3"}
"""``fp8`` is this layout wherever both words are taken (vLLM ``config/cache.py``)."""


def as_counted(said: Mapping[str, Any], name: str, value: Any) -> tuple[str, Any]:
    """The field under which the file says it: GPUs of a machine or processes in all, whichever it counts."""
    nodes = said.get("nodes") or 1
    if name not in said and _ENGINE.get(name) in said:
        return _ENGINE[name], value  # the engine's own settings, where a trainer runs it
    if value is None or name in said or not isinstance(nodes, int):
        return name, value
    if name == "gpus" and "world" in said:
        return "world", value * nodes
    if name == "world" and "gpus" in said and value % nodes == 0:
        return "gpus", value // nodes
    return name, value


def says(said: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether the text says the value, or (for what is off by being absent) says nothing against it."""
    name, value = as_counted(said, name, value)
    found = said.get(name)
    if value is None:
        return found is None
    if found is None:
        by_absence = is_off(name, value) or name == "serving.cuda_graphs"
        return name == "model" or (by_absence and same(_by_default(said, name), value))
    if name == "sp" and value is True:
        return bool(found == said.get("tp") and found > 1)  # within the group of tensor parallelism
    if name == "quant" and has(str(said.get("framework")), "nf4.one_kind") and {found, value} <= {"nf4", "nf4-double"}:
        return True  # there is one kind, whose scales are quantized as well
    if name == "offload" and "param" in value and str(said.get("sharding")) in _FSDP:
        return set(value) <= set(found)  # FSDP has one switch for both
    if name == "method" and {found, value} <= {"lora", "qlora"}:
        quantised = found == "qlora" or said.get("quant") in ("nf4", "nf4-double", "int8")
        return bool(quantised == (value == "qlora"))
    return same(found, value)


_ONE_BY_ABSENCE: Final = frozenset("tp pp cp sp ep dp gpus nodes world grad_accum".split())  # noqa: SIM905


def is_off(name: str, value: Any) -> bool:
    """Whether a value is what a setting has by being absent."""
    if isinstance(value, bool):
        return not value
    return (value == 1 and name in _ONE_BY_ABSENCE) or value in ("none", "ddp", "fp32", "full") or value == []


def _completed(said: Mapping[str, Any]) -> Job:
    """The job that a file describes, with what its framework does where it is silent."""
    job = Job()
    for field_name, value in said.items():
        if field_name.startswith("env.") or field_name == "model_config":
            continue
        with contextlib.suppress(JobError):
            job = job.with_fields({field_name: value})
    return complete(job)


_OF_CHECKPOINTS: Final = ("awq-int4", "gptq-int4", "mxfp4", "nvfp4")
"""Ways in which weights are stored and never made while a model is loaded."""
_FEWER_BITS: Final = ("nf4", "nf4-double", "int8")
_TRAINING: Final = frozenset(("objective", "method", "micro_batch", "grad_accum", "optimizer"))
"""Fields whose being stated says that something is trained."""


_OF_TRAINING: Final = word_set("of_training")


def stored_otherwise(said: Mapping[str, Any], value: Any) -> bool:
    """Whether a form of weights is not that of the model's files and not one that is made while they are loaded."""
    stored = quant_hint(str(said.get("model") or ""))
    if value in (None, stored):
        return False
    if value == "none":
        return stored in _FEWER_BITS  # bitsandbytes' own files stay as they are, whatever the switch says
    on_load = has(str(said.get("framework")), "quant-on-load") or said.get("framework") not in ENGINES
    return stored is not None or value in _OF_CHECKPOINTS or not (value in _FEWER_BITS or on_load)


def has_use(said: Mapping[str, Any], name: str, value: Any) -> bool:
    """Whether the run that a file describes makes use of a field that it does not state.

    Only a run with adapters has a rank, only one that generates has completions, only one that trains a batch of its
    own, and a base in fewer bits is trained through adapters alone.
    """
    of_adapters = name.startswith("lora.") or (name == "quant" and value in _FEWER_BITS)
    framework = str(said.get("framework"))
    if name == "sharding" and value in _FSDP and supports(framework, name) and not supports(framework, name, value):
        return False  # it shards otherwise, or not at all
    if name == "micro_batch" and "micro_tokens" in said:
        return False  # batches are filled up to a number of tokens
    if name in said and not of_adapters:
        return True
    job = _completed(said)
    if name == "seq_len" and ("completion_len" in said or NAMED["rl"](job)):
        return False  # prompt and completion are counted apart
    if name in ("generations", "completion_len") or name.startswith("rollout."):
        generated = name[:8] != "rollout." or name == "rollout.engine" or job.get("rollout.engine") is not None
        return job.objective is None or (NAMED["rl"](job) and generated)
    of_training = name in _OF_TRAINING or (name == "offload" and framework not in ENGINES)
    if job.objective == "inference" and (of_training or of_adapters):
        return name == "quant" or name in said
    if name == "fused_ce" and job.objective in WITHOUT_LOGITS:
        return False
    if name in ("prompt_len", "packing"):
        return job.objective is None or (job.objective in ("sft", "pretrain")) is (name == "packing")
    if name == "quant":
        trained = not _TRAINING.isdisjoint(said) and job.objective != "inference"
        return not trained or job.method is None or "lora" in job.method or job.quant in _FEWER_BITS
    return not of_adapters or name in said or job.method is None or "lora" in job.method


def _by_default(said: Mapping[str, Any], name: str) -> Any:
    """What the framework does where the file is silent."""
    value = _completed(said).get(name)
    if value is None and name.startswith(("serving.", "rollout.")):
        return True if name == "serving.cuda_graphs" else None
    return list(value) if isinstance(value, tuple) else value if value is not None else False


def breaks(before: str, after: str, form: str | None) -> bool:
    """Whether a text that its form's own parser took is one no longer."""
    return form is not None and form in _PARSERS and _parses(before, form) and not _parses(after, form)


def _parses(text: str, form: str) -> bool:
    try:
        _PARSERS[form](text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _compose(text: str) -> None:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        look_through(text, loader, "the file")
        list(yaml.compose_all(text, loader))
    except (yaml.YAMLError, InputError) as error:
        raise ValueError("not YAML") from error


_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "yaml": _compose,
    "json": json.loads,
    "toml": tomllib.loads,
    "python": ast.parse,
}


def unified(before: str, after: str, filename: str, first_line: int = 1) -> str:
    """A unified diff; lines keep their endings, so that it applies byte for byte.

    :param first_line: where ``before`` begins in its file.
    """
    if before == after:
        return ""
    out = []
    lines = difflib.unified_diff(
        before.splitlines(keepends=True),
        after.splitlines(keepends=True),
        f"a/{filename.lstrip('/')}",
        f"b/{filename.lstrip('/')}",
    )
    for line in lines:
        placed = _HUNK.sub(lambda at: f"{at[1]}{int(at[2]) + first_line - 1}", line) if line[:2] == "@@" else line
        out.append(placed if placed.endswith("\n") else placed + "\n\\ No newline at end of file\n")
    return "".join(out)


_HUNK: Final = compiled(r"([-+])(\d{1,7})(?=[, ])")
