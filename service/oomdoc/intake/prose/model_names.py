"""Names of models by structure: owner, family, version, size, variant. The catalogue knows the families."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from oomdoc.intake.patterns import patterns
from oomdoc.intake.sieve import Expression
from oomkb.lazy import compiled

MODEL_NAME: Final = Expression(r"(?<![A-Za-z0-9_.-])(?P<name>[A-Za-z][A-Za-z0-9_.\-]{2,120})", re.ASCII)
"""What could be a model's name; :func:`looks_like_model` tells whether it is."""
_RE: Final = patterns(__file__)
PLAIN_NAME: Final = compiled(
    r"(?:base_?|my_?|final_?|merged_?|me[rg]{2}ed-)?(?:model|models|ckpt|checkpoints?|weights|output|llm|best|last"
    r"|model[-_](?:path|name)|path)|initiali[sz]ing|loading|config|python3?|zero[-_]?offload|<.{0,60}>|\$.{0,60}|nvfp4|fp8|auto|hf|huggingface|local-[\w-]{1,24}|lora_?model"
    r"|(?:reward|actor|critic|ref|sft|rm)_?model",
    re.IGNORECASE,
)
"""What a folder is called that could hold any model."""


@lru_cache(maxsize=2048)
def looks_like_model(name: str) -> bool:
    """Whether a word names a model of a family that the catalogue knows, not a tool, a class or a file."""
    from oomkb.catalog import models

    return not _RE["file"].search(name.rstrip(".:;,-_")) and any(m.named for m in models.find_all(name[:200]))


def tidy_model(value: str) -> str:
    """A model setting as a name: hub ids stay, local paths give their last telling part."""
    text = value.replace("___", ".").strip("\"'`,;()[]{}<> ").replace("\\", "/").rstrip("/")
    if re.fullmatch(r"[A-Za-z0-9][\w.\-]{0,95}/[\w.\-]{1,95}", text) and not text.startswith(
        ("data/", "models/", "model/", "checkpoints/", "output/")
    ):
        return text
    parts = [p for p in text.split("/") if p]
    hub = [p for p in parts if p.startswith("models--")]
    if hub:
        return "/".join(hub[0].split("--")[1:])
    named = [p for p in parts if looks_like_model(p)]
    return named[-1] if named else (parts[-1] if parts else text)
