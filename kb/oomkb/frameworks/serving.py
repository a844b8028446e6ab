"""What inference engines have in common."""

from __future__ import annotations

from oomkb.frameworks.model import Default

__all__ = ["COMMON"]

COMMON = (
    Default("objective", "inference", "an inference engine", "the engine's purpose"),
    Default("method", "none", "nothing is trained", "the engine's purpose"),
    Default("param_dtype", "bf16", "dtype auto takes the checkpoint's dtype", "engine arguments"),
    Default("tp", 1, "tensor parallelism is off unless set", "engine arguments"),
    Default("pp", 1, "pipeline parallelism is off unless set", "engine arguments"),
)
