"""What sizes alone rule out: a request larger than any weight, weights far smaller than the card, low ends of steps."""

from __future__ import annotations

import re
from typing import Final

from oomdoc.diagnosis.view import View
from oomdoc.intake.sieve import alternatives
from oomkb.units import GIB, MIB

__all__ = ["OVER_RANKS", "beyond_weights", "held_little", "of_whole_model", "peaks_over_rest", "weights_fit"]

_WIDEST_BYTES: Final = 4
"""fp32: the widest a weight, a gradient or a moment is kept in."""
_SLACK: Final = 1.1
_NEAR: Final = 0.03
OVER_RANKS: Final = frozenset({"zero1", "zero2", "zero3", "fsdp", "fsdp2", "hsdp"})
"""Sharding that divides states over the ranks of data parallelism."""
_FLAT: Final = OVER_RANKS | {"megatron"}
"""Sharding that joins many parameters in one buffer, of whatever size."""
_LITTLE: Final = 0.4
_STEP: Final = alternatives(
    r"\balloc\w{0,8}[ =:]{1,3}(?P<kept>\d{1,4}(?:\.\d{1,3})?)[^\n]{0,12}\bpeak\w{0,10}[ =:]{1,3}"
    r"(?P<peak>\d{1,4}(?:\.\d{1,3})?)"
)
_PROGRAM: Final = re.compile(
    r"parameter allocation: +(\d{1,4}(?:\.\d{1,2})?)([gm])i?b[^~]{0,300}?"
    r"temp allocation: +(\d{1,4}(?:\.\d{1,2})?)([gm])i?b"
)
_HELD: Final = re.compile(
    r"(?:after|once) [^\n]{0,40}(?:from_pretrained|load(?:ing"
    r"|ed)?\b)[^\n]{0,90}?(?<![\d.])(\d{1,6}(?:\.\d{1,2})?) ?(mi?b|gi?b|g)\b"
    r"|(?:加载)(?:完|后|完成)[^\n]{0,24}?(?<![\d.])(\d{1,6}(?:\.\d{1,2})?) ?(mi?b|gi?b|g)\b"
)
_OVER: Final = 2.5


def beyond_weights(view: View) -> bool:
    """Whether the request is larger than the largest matrix of the model in fp32.

    Then no weight, gradient or moment was asked for, where each parameter has its own tensor.
    """
    requested, shape = view.bytes_of("requested"), view.shape
    if not requested or shape is None or view.job.model is None or shape.dims.experts:
        return False
    if view.job.sharding in _FLAT or view.phase in ("load", "save", "optimizer-init"):
        return False
    dims = shape.dims
    largest = max(dims.vocab, 2 * dims.ffn) * dims.hidden * _WIDEST_BYTES
    return requested > _SLACK * largest


def of_whole_model(view: View) -> bool:
    """Whether the request is all parameters at once, in 16 or 32 bit: buckets of gradients, flattened states."""
    requested, estimate = view.bytes_of("requested"), view.estimate
    if not requested or estimate is None or view.job.model is None:
        return False
    return any(abs(requested / (size * estimate.params) - 1) < _NEAR for size in (2, _WIDEST_BYTES))


def weights_fit(view: View) -> bool:
    """Whether even fp32 weights would take less than two fifths of the card they are loaded to."""
    if held_little(view):
        return True
    capacity, estimate = view.bytes_of("capacity"), view.estimate
    known = view.stated("model") is not None or view.stated("params_b") is not None
    if not capacity or estimate is None or not known:
        return False
    return estimate.params * _WIDEST_BYTES < _LITTLE * capacity


def held_little(view: View) -> bool:
    """Whether it is told that the model, once loaded, left most of the card free."""
    capacity = view.bytes_of("capacity")
    for found in _HELD.finditer(view.prose) if capacity else ():
        unit = GIB if (found[2] or found[4]).startswith("g") else MIB
        if 0 < float(found[1] or found[3]) * unit < _LITTLE * (capacity or 0):
            return True
    return False


def peaks_over_rest(view: View) -> bool:
    """Whether steps peak at several times what stays between them, or a program at several times its inputs."""
    program = _PROGRAM.search(view.text)
    if program is not None:
        inputs, temporaries = (float(program[n]) * (1 if program[n + 1] == "m" else 1024) for n in (1, 3))
        return temporaries > _OVER * inputs
    found = _STEP.search(view.text)
    return found is not None and 0 < _OVER * float(found["kept"]) < float(found["peak"])
