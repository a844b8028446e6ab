"""The same setting as each framework spells it, for instructions that quote a line to type."""

from __future__ import annotations

from collections.abc import Mapping

from oomkb.frameworks import line

__all__ = ["ZERO_FIRST", "hf_line"]

ZERO_FIRST = "training_args = TrainingArguments(..., deepspeed='ds_z3.json'); model = AutoModel.from_pretrained(...)"
"""ZeRO-3's configuration has to exist before the weights are read: ``is_deepspeed_zero3_enabled``."""


def hf_line(framework: str | None, settings: Mapping[str, object]) -> str:
    """Training arguments of the Hugging Face layer: YAML, flags, or keyword arguments."""
    form = line(framework, "arguments")
    if form == "yaml":
        return "\n".join(f"{key}: {_word(value, 'true')}" for key, value in settings.items())
    if form == "flags" or framework == "lightning":
        return " ".join(f"--{key} {_word(value, 'true')}" for key, value in settings.items())
    return ", ".join(f"{key}={value!r}" for key, value in settings.items())


def _word(value: object, true: str) -> str:
    return {"True": true, "False": "false"}.get(str(value), str(value))
