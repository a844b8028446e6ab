"""A request that is one flat copy of all parameters, or one rank's part of it: what an optimizer asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oomdoc.diagnosis.view import View
from oomkb.units import GIB, MIB

__all__ = ["FlatCopy", "flat_copy"]

_LEAST: Final = 100 * MIB
_CLOSE: Final = 0.04
"""How far the nominal size of a model, "13B", is from its parameters, padding included."""
_COMMON: Final = (
    *(1.10, 1.24, 1.54, 1.78, 2.51, 2.61, 3.09, 3.21, 3.75, 4.02, 6.24, 6.74, 7.06, 7.24, 7.62, 8.03, 8.19, 8.29, 8.54),
    *(9.24, 13.02, 13.26, 13.9, 14.17, 14.77, 32.5, 32.8, 33.7, 46.7, 70.6, 72.7),
)
"""Parameters of models that many people train, in units of 1e9, from their configurations."""
_VERY_CLOSE: Final = 0.012


@dataclass(frozen=True, slots=True)
class FlatCopy:
    """So many parameters (in units of 1e9) of so many bytes each, over so many ranks."""

    params_b: float
    width_bytes: int
    ranks: int


def flat_copy(view: View) -> FlatCopy | None:
    """The copy that the request of a training is, if it is one."""
    requested = view.bytes_of("requested") or 0
    params = view.estimate.params if view.estimate is not None else (view.stated("params_b") or 0) * 1e9
    if not view.training or requested < _LEAST:
        return None
    if params:
        return _of_known(requested, params, view.ranks or 1)
    return _of_common(requested, view.ranks or 1, view.bytes_of("allocated") or 0)


def _of_known(requested: int, params: float, ranks: int) -> FlatCopy | None:
    for count in sorted({ranks, 1}, reverse=True):
        for width in (4, 2):
            if abs(requested * count / (params * width) - 1) < _CLOSE:
                return FlatCopy(round(params / 1e9, 2), width, count)
    return None


def _of_common(requested: int, ranks: int, allocated: int) -> FlatCopy | None:
    """Without a model's name: parts that make up a size that is common, or all of it beside copies like it."""
    if requested < GIB:
        return None
    for count in sorted({ranks, 1}, reverse=True):
        whole = requested * count / 4 / 1e9
        common = next((size for size in _COMMON if abs(whole / size - 1) < _VERY_CLOSE), None)
        if common is not None and (count > 1 or _beside_copies(requested, allocated)):
            return FlatCopy(common, 4, count)
    return None


def _beside_copies(requested: int, allocated: int) -> bool:
    """Whether what is there is a multiple of a 16-bit copy: weights, a master copy, one moment."""
    copies = 2 * allocated / requested
    return 1 < round(copies) <= 10 and abs(copies - round(copies)) < _WHOLE


_WHOLE: Final = 0.05
