"""Weights on their way to the card: one matrix is asked for, and less is allocated than all of them take.

Once a model is in place its process holds every weight. A request of the size of one weight matrix while less than that
is allocated is therefore the next matrix of a model that is being put there, whatever is done with it later.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from oomdoc.diagnosis.view import View
from oomkb.units import GIB, MIB

__all__ = ["LATER", "is_common_matrix", "still_placed"]

_ALL: Final = 0.98
"""Above this part of the weights nothing can be told: buffers and rounding make up for the rest."""
_BEGUN: Final = 0.4
_FILLED: Final = 0.85
_PART: Final = 0.025
_BLOCK: Final = 2 * MIB
_LEAST: Final = 80 * MIB
_WIDE: Final = 2048
_WIDTHS: Final = {"bfloat16": 2, "float16": 2, "float32": 4}
_SPLIT: Final = frozenset({"zero3", "fsdp", "fsdp2", "hsdp", "megatron"})
LATER: Final = frozenset({"forward", "backward", "loss", "optimizer-init", "optimizer-step", "save", "eval"})
"""Phases in which every weight is in its place."""


def still_placed(view: View) -> int:
    """Bytes of all weights in the width that the request shows, where less than that is allocated; else 0."""
    allocated, estimate = view.bytes_of("allocated"), view.estimate
    capacity = view.bytes_of("capacity")
    width = _matrix_width(view)
    if not width or not allocated or estimate is None or not capacity or allocated < _BEGUN * capacity:
        return 0
    if view.job.sharding in _SPLIT or (view.stated("tp") or 1) > 1 or (view.phase in LATER and view.phase_shown):
        return 0
    whole = round(width * estimate.params)
    return whole if allocated < _ALL * whole and whole > _ALL * capacity else 0


def _matrix_width(view: View) -> int:
    """Bytes of each number of the weight matrix that the request is, 0 where it is none."""
    for tensor in view.tensors:
        if tensor.name.startswith("weight "):
            return _WIDTHS.get(tensor.dtype, 0)
    return 0


def is_common_matrix(view: View) -> bool:
    """Whether a card that the process itself filled refuses what is one weight matrix of a language model in use."""
    requested, allocated, capacity = (view.bytes_of(name) for name in ("requested", "allocated", "capacity"))
    if not requested or not allocated or not capacity or requested < _LEAST:
        return False
    if requested > _PART * capacity or allocated < _FILLED * capacity:
        return False
    rounding = 0.005 * (GIB if requested >= GIB else MIB)
    return any(requested - _BLOCK - rounding < size <= requested + rounding for size in _matrices())


@lru_cache(maxsize=1)
def _matrices() -> frozenset[int]:
    """Sizes in 16 and 32 bit of the weight matrices of the catalogue's models, in bytes."""
    from oomkb.catalog.models import all_models

    sizes: set[int] = set()
    for entry in all_models():
        config = entry.config
        hidden = next((config[k] for k in ("hidden_size", "n_embd", "d_model") if config.get(k)), 0)
        inner = next(
            (config[k] for k in ("intermediate_size", "ffn_hidden_size", "n_inner", "d_ff") if config.get(k)), 0
        )
        if isinstance(hidden, int) and isinstance(inner, int) and hidden >= _WIDE:
            sizes.update(width * hidden * columns for width in (2, 4) for columns in (inner or 4 * hidden, 3 * hidden))
    return frozenset(sizes)
