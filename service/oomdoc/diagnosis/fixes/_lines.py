"""The same setting as each framework spells it, for instructions that quote a line to type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["hf_line"]

_YAML: Final = frozenset({"llama-factory", "axolotl"})
_FLAGS: Final = frozenset({"ms-swift", "transformers", "accelerate", "deepspeed", "fsdp", "openrlhf", "lightning"})


def hf_line(framework: str | None, settings: Mapping[str, object]) -> str:
    """Training arguments of the Hugging Face layer: YAML, flags, or keyword arguments."""
    if framework in _YAML:
        return "\n".join(f"{key}: {_word(value, 'true')}" for key, value in settings.items())
    if framework in _FLAGS:
        return " ".join(f"--{key} {_word(value, 'true')}" for key, value in settings.items())
    return ", ".join(f"{key}={value!r}" for key, value in settings.items())


def _word(value: object, true: str) -> str:
    return {"True": true, "False": "false"}.get(str(value), str(value))
