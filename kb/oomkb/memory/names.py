"""What the keys, activations and types of a ``config.json`` are called, family by family."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from oomkb.tables import read_table, spellings

_TABLE: Final = read_table(Path(__file__).with_name("families") / "spellings.toml", "dimensions", "activations")
NAMES: Final[Mapping[str, tuple[str, ...]]] = {name: tuple(keys.split()) for name, keys in _TABLE["dimensions"].items()}
"""Dimension -> the keys of a ``config.json`` that state it, the first that is given counts."""
ACTS: Final[Mapping[str, str]] = dict(spellings(_TABLE["activations"]))
"""Spelling of an activation function -> its name here."""
_TEXT_KEYS: Final = (
    "text_config",
    "llm_config",
    "language_config",
    "thinker_config",
    "decoder",
    "vlm_config",
    "decoder_config",
)
_READ: Final = ("vision_config", "visual", "vision_tower_config", "vit_config", "audio_config", "perceiver_config")


def of(config: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The value of a dimension under the first of its spellings that is given."""
    for key in NAMES.get(name, (name,)):
        value = config.get(key)
        if value is not None:
            return value
    return default


def whole(config: Mapping[str, Any], *keys: str, default: int = 0) -> int:
    """The first of the keys that holds a number, as a whole one."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return int(value)
    return default


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The decoder's own part of a (possibly multimodal) configuration."""
    for key in _TEXT_KEYS:
        inner = config.get(key)
        if isinstance(inner, Mapping):
            nested = text_config(inner)
            merged = {**nested}
            for shared in ("vocab_size", "tie_word_embeddings"):
                if shared not in merged and shared in config:
                    merged[shared] = config[shared]
            if isinstance(config.get("tie_word_embeddings"), bool):  # the head belongs to the whole model
                merged["tie_word_embeddings"] = config["tie_word_embeddings"]
            merged.setdefault("model_type", config.get("model_type", ""))
            return merged
    return config


def unread_parts(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of whole sub-models in a composed configuration that are neither its decoder nor a tower that is read."""
    used = {next((k for k in _TEXT_KEYS if isinstance(config.get(k), Mapping)), ""), *_READ}
    sizes = (*NAMES["hidden"], "vocab_size")
    return tuple(
        sorted(
            k for k, v in config.items() if isinstance(v, Mapping) and k not in used and any(v.get(s) for s in sizes)
        )
    )
