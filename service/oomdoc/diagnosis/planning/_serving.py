"""Whether a server starts and stays up: what it takes, and what its cache holds.

vLLM (0.33 ``v1/worker/gpu_worker.py``) and SGLang size the key/value pool from what they measured after loading. What
is uncertain is how much that leaves, not how much of the card they take.
"""

from __future__ import annotations

import math
from typing import Final

from oomkb.memory.device import Device
from oomkb.memory.estimate import Estimate
from oomkb.memory.job import Job
from oomkb.memory.serving import serving_bytes
from oomkb.memory.setting import settle
from oomkb.memory.shape import ModelShape
from oomkb.units import GIB

__all__ = ["starts"]

_SHARE_SIGMA: Final = 0.02
"""How closely the process keeps to its share of the card, graphs and context included."""
_WEIGHTS_SIGMA: Final = 0.03
_ACTIVATIONS_SIGMA: Final = 0.25
_OUTSIDE_SIGMA_BYTES: Final = 0.25 * GIB


def starts(job: Job, shape: ModelShape, device: Device | None, estimate: Estimate, room_bytes: float) -> float:
    """The probability that one request of the longest length finds its cache, and that the process fits the card."""
    found = serving_bytes(job, settle(job, shape), shape, device)
    sigma = _WEIGHTS_SIGMA * found.weights + _ACTIVATIONS_SIGMA * found.activations + _OUTSIDE_SIGMA_BYTES
    cache = _normal((found.kv_pool - found.kv_needed) / sigma) if found.kv_pool > 0 else 0.0
    card = _normal(math.log(room_bytes / max(estimate.process_bytes, 1.0)) / _SHARE_SIGMA)
    return round(min(cache, card), 4)


def _normal(z: float) -> float:
    return 0.5 * (1 + math.erf(z / math.sqrt(2)))
