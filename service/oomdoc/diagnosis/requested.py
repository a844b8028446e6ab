"""Causes that the size of the refused request proves: what it is the size of, or that nothing else is so large."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.accounts import EQUAL, WEIGHT_BYTES, Account, account_of
from oomdoc.diagnosis.features.sizes import requested_tensors, size_matches
from oomdoc.diagnosis.view import View
from oomkb.records.taxonomy import CAUSES
from oomkb.units import GIB

_SAME_TENSOR: Final = 0.75
"""Probability that a request is a tensor of one cause, from which it is."""
_MARGINAL: Final = frozenset({"activations", "attention-scores"})
"""Tensors that every pass makes: whatever fills the card, they may be what no longer fits."""


def second_copy(view: View) -> Iterator[Account]:
    """A run that trains asks for as much again as all that it holds, its weights: gradient buckets of
    DistributedDataParallel when it is made, flat buffers or masters of DeepSpeed's engine.
    """
    wanted, held = view.bytes_of("requested"), view.bytes_of("allocated")
    if not wanted or not held or abs(wanted - held) > EQUAL * held:
        return
    made = "_ddp_init_helper" in view.trace
    early = view.training and wanted >= _LEAST_COPY and view.phase in ("unknown", "load", "optimizer-init")
    if made or early:
        words = "second-copy" if made else "second-copy-all"
        yield from account_of(view, "model-states", words, {"weight_bytes": held})


_LEAST_COPY: Final = 2 * GIB


def square_of_many(view: View) -> Iterator[Account]:
    """One tensor larger than any card, or than this one and a multiple of the stated length's square: what grows with
    the square of the number of tokens, patches or pixels.
    """
    wanted, failure, capacity = view.bytes_of("requested"), view.failure, view.bytes_of("capacity")
    if failure is None or failure.kind != "device" or not wanted or wanted > _ABSURD:
        return
    length = view.stated("seq_len") or 0
    sizes: dict[str, int | str]
    squares = wanted / (WEIGHT_BYTES * length**2) if length >= _LONG else 0.0
    of_square = round(squares) >= _LEAST_SQUARES and abs(squares - round(squares)) <= _EXACT * squares
    if wanted >= _BEYOND_ANY_CARD:
        yield from account_of(view, "attention-scores", "square-of-many", {"requested_bytes": wanted})
    elif of_square and capacity and wanted > capacity:
        sizes = {"requested_bytes": wanted, "count": round(squares), "length": f"{length:,}"}
        yield from account_of(view, "attention-scores", "square-of-length", sizes)
    elif capacity and _dwarfs(view, wanted, capacity):
        sizes = {"requested_bytes": wanted, "capacity_bytes": capacity}
        yield from account_of(view, "attention-scores", "square-beyond-card", sizes)


def _dwarfs(view: View, wanted: int, capacity: int) -> bool:
    """Whether PyTorch was asked for one tensor of several cards' size, larger than fp32 weights and their states, which
    is none that a batch of the job makes.
    """
    if view.failure is None or view.failure.signal.name not in _OF_TORCH:
        return False
    likely = max((p for p, _ in requested_tensors(view).values()), default=0.0)
    least = max(_TIMES_CARD * capacity, _STATE_BYTES / WEIGHT_BYTES * view.weight_bytes)
    return wanted >= least and bool(view.weight_bytes) and likely < _LIKELY_TENSOR


_OF_TORCH: Final = frozenset({"torch-cuda-oom", "hip-oom", "npu-oom", "xpu-oom", "musa-oom"})
_TIMES_CARD: Final = 2
_STATE_BYTES: Final = 8
"""Bytes of a weight in the largest single buffer of training: both moments in fp32, flat."""
_LIKELY_TENSOR: Final = 0.5
_BEYOND_ANY_CARD: Final = 256 * GIB
_LONG: Final = 2048
"""Tokens from which their square is telling."""
_LEAST_SQUARES: Final = 16
"""Heads times samples of a tensor of attention scores, at least."""
_EXACT: Final = 1e-4
"""Part by which a printed size may differ from what it was rounded from."""
_ABSURD: Final = 1 << 46
"""A number beyond it is damaged rather than a size."""


def mask_of_patches(view: View) -> Iterator[Account]:
    """The vision tower's mask has a row and a column for each patch: its size tells how many an image has.

    transformers ``models/qwen2_vl/modeling_qwen2_vl.py``: bool for SDPA, the activations' dtype for eager attention.
    """
    wanted, signs = view.bytes_of("requested"), {sign.name for sign in view.evidence.signs}
    if view.failure is None or not wanted or not {"attention-scores/mask", "vision-tokens/tower"} <= signs:
        return
    code = " ".join(frame.code for frame in view.failure.frames[-1:])
    width = 1 if "torch.bool" in code else WEIGHT_BYTES
    patches = math.isqrt(wanted // width)
    if patches >= _MANY_PATCHES:
        sizes = {"patches": f"{patches:,}", "width": width, "tokens": f"{patches // 4:,}", "mask_bytes": wanted}
        yield from account_of(view, "vision-tokens", "mask-of-patches", sizes, view.failure.frames[-1].span)


_MANY_PATCHES: Final = 8192
"""Patches of an image, four to a token, from which its mask is no longer small."""


def known_tensor(view: View) -> Iterator[Account]:
    """The size asked for is that of a tensor which one cause makes: logits, optimizer states, a gathered buffer."""
    if view.failure is None or view.phase == "eval" or view.shape is None or _is_last_straw(view):
        return  # of a model that nobody names a size is a hint: some vocabulary times some batch fits most of them
    for cause, (probability, tensor) in requested_tensors(view).items():
        if cause in CAUSES and cause not in _MARGINAL and probability >= _SAME_TENSOR:
            yield Account(cause, size_matches(tensor), view.failure.signal.span)


def _is_last_straw(view: View) -> bool:
    """Whether states fill the card by themselves, and what was asked for beside them is little: either explains it."""
    wanted, held, capacity = (view.bytes_of(n) for n in ("requested", "allocated", "capacity"))
    states = view.state_bytes
    if not wanted or not held or not capacity or not states or not view.training:
        return False
    fills = _MOST_OF_HELD * held <= states <= held and states + wanted >= _MOST_OF_HELD * capacity
    return fills and wanted <= _LITTLE * capacity


_MOST_OF_HELD: Final = 0.8
_LITTLE: Final = 0.05
"""Share of a card below which a request is not what fills it."""
