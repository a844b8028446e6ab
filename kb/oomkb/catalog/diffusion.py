"""Models that make images or video: how large the part that denoises is, and the text encoders beside it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from oomkb.dataclass import dataclass
from oomkb.tables import read_toml

__all__ = ["Pipeline", "pipeline"]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Parameters of a pipeline's parts, and the page that tells them."""

    name: str
    names: tuple[str, ...]
    denoiser: float
    encoders: float
    source: str


@cache
def _pipelines() -> tuple[Pipeline, ...]:
    rows = read_toml(Path(__file__).with_name("data") / "diffusion.toml")["model"]
    return tuple(
        Pipeline(row["name"], tuple(row["names"]), row["denoiser_b"] * 1e9, row["encoders_b"] * 1e9, row["source"])
        for row in rows
    )


def pipeline(name: str) -> Pipeline | None:
    """The pipeline of a name as people and files write it."""
    plain = "".join(c for c in name.lower() if c.isalnum())
    return next((one for one in _pipelines() if plain in one.names), None)
