"""The same setting as each framework spells it, for instructions that quote a line to type."""

from __future__ import annotations

from collections.abc import Mapping

from oomkb.frameworks import line
from oomkb.records.versions import version_of

__all__ = ["dtype_key", "hf_line"]


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


def dtype_key(versions: Mapping[str, str]) -> str:
    """The argument of ``from_pretrained`` that every release takes, or its newer name from the release that has it.

    ``dtype`` came with transformers 4.56; ``torch_dtype`` is still taken by 5.
    """
    installed, renamed = version_of(versions.get("transformers", "")), version_of("4.56")
    return "dtype" if installed and renamed and installed >= renamed else "torch_dtype"
