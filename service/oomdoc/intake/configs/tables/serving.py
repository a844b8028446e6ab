"""Groups that inference engines share."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from oomdoc.intake.configs.table import DROP, Group, Reading, View
from oomdoc.intake.configs.values import flag, number

__all__ = ["cpu_offload", "graphs", "model_argument", "quantization"]

_QUANT: Final = {
    "awq": "awq-int4",
    "awq_marlin": "awq-int4",
    "gptq": "gptq-int4",
    "gptq_marlin": "gptq-int4",
    "fp8": "fp8",
    "w8a8_fp8": "fp8",
    "bitsandbytes": "nf4",
    "mxfp4": "mxfp4",
    "w4a16": "awq-int4",
    "int8": "int8",
    "w8a8_int8": "int8",
    "eetq": "int8",
    "bitsandbytes-nf4": "nf4",
}
_WRITE: Final = {
    "awq-int4": "awq",
    "gptq-int4": "gptq",
    "fp8": "fp8",
    "nf4": "bitsandbytes",
    "nf4-double": "bitsandbytes",
    "mxfp4": "mxfp4",
}


def model_argument(flags: tuple[str, ...], before: tuple[str, ...]) -> Group:
    """The model by flag, or as the word after the subcommand."""

    def read(view: View) -> Iterator[Reading]:
        name = view.first(*flags)
        if name is not None and isinstance(view[name].value, str):
            yield "model", view[name].value, view[name]
            return
        words = [view[f"@{i}"] for i in range(10) if f"@{i}" in view]
        for first, second in pairwise(words):
            if str(first.value) in before and isinstance(second.value, str):
                yield "model", second.value, second
                return
        for name in ("LLM:@0", "pipeline:@0", "Engine:@0"):
            if name in view and isinstance(view[name].value, str):
                yield "model", view[name].value, view[name]
                return

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        name = view.first(*flags)
        if name is None:
            words = [f"@{i}" for i in range(10) if f"@{i}" in view]
            name = next((b for a, b in pairwise(words) if str(view[a].value) in before), None)
        return {name or flags[0]: value}

    return Group(("model",), flags, read, write)


def quantization(names: tuple[str, ...] = ("quantization", "quantize")) -> Group:
    """``--quantization awq``."""

    def read(view: View) -> Iterator[Reading]:
        name = view.first(*names)
        if name is not None:
            yield "quant", _QUANT.get(str(view[name].value).lower()), view[name]

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        name = view.first(*names) or names[0]
        if value == "none":
            return {name: DROP} if name in view else {}
        return {name: _WRITE[value]} if value in _WRITE else None

    return Group(("quant",), names, read, write)


def graphs(off: tuple[str, ...]) -> Group:
    """CUDA graphs, which a flag turns off."""

    def read(view: View) -> Iterator[Reading]:
        name = view.first(*off)
        if name is not None and flag(view[name].value) is not None:
            yield "serving.cuda_graphs", not flag(view[name].value), view[name]

    def write(view: View, _field: str, value: Any) -> dict[str, Any] | None:
        name = view.first(*off)
        if value:
            return {name: False if view.form == "python" else DROP} if name else {}
        return {name or off[0]: True}

    return Group(("serving.cuda_graphs",), off, read, write)


def cpu_offload(names: tuple[str, ...] = ("cpu_offload_gb",)) -> Group:
    """Weights held in host memory."""

    def read(view: View) -> Iterator[Reading]:
        name = view.first(*names)
        if name is not None and (number(view[name].value) or 0) > 0:
            yield "offload", ["param"], view[name]

    return Group(("offload",), names, read, lambda v, f, x: None)
