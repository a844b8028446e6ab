"""What several rules say in the same way: a tensor of the size asked for, and a share of the predicted peak."""

from collections.abc import Iterator, Sequence
from typing import Final

from oomdoc.diagnosis.result import Reason, TensorMatch
from oomdoc.diagnosis.rules._network import scores_no_words
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, View
from oomdoc.messages import Message, say
from oomkb.memory.estimate import Estimate

__all__ = ["peak_share", "tensor_reasons"]

_MATRIX = 0.35
"""One matrix of weights may be a weight, a gradient or a state, at load or later: it says less than it seems."""
_BELIEVED = 0.3
"""A match below this is as likely to be chance."""


def tensor_reasons(view: View, cause: str, found: Sequence[TensorMatch] = ()) -> Iterator[Reason]:
    """The best matched tensor of this cause, weighed by how sure the matches of this cause are together.

    :param found: the matches to weigh, best first, where they are not those of the view.
    """
    found = found or view.tensors_for(cause)
    if not found:
        return
    tensor, matrix = found[0], _is_matrix(found[0])
    match = min(1.0, sum(other.match for other in found if _is_matrix(other) == matrix))
    if match < _BELIEVED:
        return
    yield Reason(
        DECISIVE * match * (_MATRIX if matrix and cause != "zero3-gather" else 1),
        say(
            "cause.size-matches",
            tensor=tensor.note or tensor.name,
            shape=" × ".join(f"{n:,}" for n in tensor.shape),
            dtype=tensor.dtype,
            size_bytes=tensor.size_bytes,
        ),
        (view.failure.signal.span,) if view.failure is not None else (),
    )


def _is_matrix(tensor: TensorMatch) -> bool:
    return tensor.name.startswith("weight ")


def peak_share(view: View, cause: str) -> Iterator[Reason]:
    """How much of the predicted peak this cause owns, where the estimate says that the job does not fit."""
    share, fullness, estimate = view.shares.get(cause, 0.0), view.fullness, view.estimate
    if scores_no_words(view):  # the estimate counts logits that are not there
        rest = 1 - view.shares.get("logits", 0.0)
        share = 0.0 if cause == "logits" else share / max(rest, 0.1)
        fullness = fullness and fullness * rest
    if estimate is None or share < 0.2 or (view.failure is not None and view.failure.kind != "device"):
        return
    told = _TOLD if cause in _OF_TOKENS and not any(view.stated(name) for name in ("micro_batch", "seq_len")) else 1.0
    if fullness is None:
        refused = view.failure is not None and view.failure.kind == "device"
        if refused and share >= _MOST_OF_IT:  # on whatever card: what the peak is made of is what does not fit
            yield Reason(FAIR * share * told * view.sureness, _owns(estimate, share))
        return
    # Below the capacity the owner of the peak says less: something else must have happened.
    sure = min(1.0, max(0.0, (fullness - _ROOM) / (_FULL - _ROOM)))
    if sure:
        yield Reason(
            STRONG * share * sure * told * view.sureness,
            _owns(estimate, share),
        )


_MOST_OF_IT = 0.6
_OF_TOKENS: Final = frozenset({"activations", "logits", "attention-scores"})
_TOLD: Final = 0.5
"""What the size of these says where neither batch nor length is told: 33 of 150 were of the cause, 27 of 60 else."""
_ROOM, _FULL = 0.75, 0.95
"""Of a card: what a peak below the one leaves is room enough, and one from the other on does not fit."""


def _owns(estimate: Estimate, share: float) -> Message:
    return say(
        "cause.peak-share",
        percent=round(100 * share),
        peak_bytes=estimate.process_bytes,
        phase=estimate.peak_phase,
    )
