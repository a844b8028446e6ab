"""The keys of a framework by which a job field is set, for a question that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from oomdoc.diagnosis.fixes._remedy import as_written
from oomdoc.diagnosis.planning.spelling import DASHED, key_of, names_of, own_words, spelled
from oomdoc.evidence import Message, say
from oomdoc.intake.named_fields import KeyQuestion
from oomkb.frameworks import ENGINES, line

_IN_8_BITS: Final = ("fp8", "int8")
"""What engines call a KV cache of one byte a value, the usual word first."""
_SERVED: Final = {"seq_len": "serving.max_model_len", "micro_batch": "serving.max_num_seqs"}
"""What an engine has in place of a field of training."""
_TRAINED: Final = {"serving.gpu_memory_utilization": "rollout.gpu_memory_utilization"}
"""What a trainer has in place of a field of an engine: that of the engine which makes its rollouts."""
_EXAMPLE, _EXAMPLE_SHARE = 2, 0.5
"""Values of numbers of which only the key is asked for."""
_ON: Final = {
    **dict.fromkeys(("grad_ckpt", "packing", "fused_ce", "rollout.colocated", "rollout.sleep"), True),
    "offload": ("optimizer",),
    "method": "lora",
}
"""The value of a switch that is only named."""


def keys_asked(asked: KeyQuestion | None) -> Iterator[Message]:
    """A line for each framework and setting, where its key is known."""
    for framework in asked.frameworks if asked is not None else ():
        for field, value in asked.fields if asked is not None else ():
            written = written_as(framework, field, value)
            if written:
                yield say("answer.key", framework=framework, written=written)


def written_as(framework: str, field: str, value: Any) -> str:
    """The framework's key for a field, with the value where one is given; empty where none is known."""
    field = (_SERVED if framework in ENGINES else _TRAINED).get(field, field)
    value = _ON.get(field) if value is None else value
    if field == "serving.kv_dtype" and (own := line(framework, "kv-q8_0")) is not None:
        return own
    for one in _IN_8_BITS if field == "serving.kv_dtype" and value in (None, "int8") else (value,):
        found = (spelled(framework, field, one) or own_words(framework, field, one)) if one is not None else ()
        if found:
            return ", ".join(_pair(_as_option(framework, key), said) for key, said in found)
    if not names_of(framework, field):
        return ""
    if value is not None:
        return "" if isinstance(value, str) else _pair(key_of(framework, field), value)
    example = _EXAMPLE_SHARE if "utilization" in field else _EXAMPLE
    return ", ".join(key for key, _ in spelled(framework, field, example)) or key_of(framework, field)


def _as_option(framework: str, key: str) -> str:
    """A key as the framework's command takes it, where it is started by one."""
    return f"--{key}" if framework in DASHED and key[:1] != "-" and "." not in key else key


def _pair(key: str, value: Any) -> str:
    """A key with its value, as a command or a file has it."""
    if key.startswith("--"):
        return key if value is True else f"{key} {as_written(value)}"
    return f"{key}={as_written(value)}" if key.count(".") > 1 else f"{key}: {as_written(value)}"
