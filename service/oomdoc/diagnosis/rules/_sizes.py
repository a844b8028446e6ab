"""What several rules say in the same way: a tensor of the size asked for, and a share of the predicted peak."""

from collections.abc import Iterator

from oomdoc.diagnosis.result import Reason
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, View
from oomdoc.messages import Message, say
from oomkb.memory.estimate import Estimate

__all__ = ["peak_share", "tensor_reasons"]

_MATRIX = 0.35
"""One matrix of weights may be a weight, a gradient or a state, at load or later: it says less than it seems."""
_BELIEVED = 0.3
"""A match below this is as likely to be chance."""


def tensor_reasons(view: View, cause: str) -> Iterator[Reason]:
    """The best matched tensor of this cause, weighed by how sure the match is."""
    for tensor in view.tensors_for(cause)[:1]:
        if tensor.match >= _BELIEVED:
            spans = (view.failure.signal.span,) if view.failure is not None else ()
            yield Reason(
                DECISIVE
                * tensor.match
                * (_MATRIX if tensor.name.startswith("weight ") and cause != "zero3-gather" else 1),
                say(
                    "cause.size-matches",
                    tensor=tensor.note or tensor.name,
                    shape=" × ".join(f"{n:,}" for n in tensor.shape),
                    dtype=tensor.dtype,
                    size_bytes=tensor.size_bytes,
                ),
                spans,
            )


def peak_share(view: View, cause: str) -> Iterator[Reason]:
    """How much of the predicted peak this cause owns, where the estimate says that the job does not fit."""
    share, fullness, estimate = view.shares.get(cause, 0.0), view.fullness, view.estimate
    if estimate is None or share < 0.2:
        return
    if fullness is None:
        refused = view.failure is not None and view.failure.kind == "device"
        if refused and share >= _MOST_OF_IT:  # on whatever card: what the peak is made of is what does not fit
            yield Reason(FAIR * share * view.sureness, _owns(estimate, share))
        return
    # Below the capacity the owner of the peak says less: something else must have happened.
    sure = 1.0 if fullness >= 0.95 else 0.5 if fullness >= 0.75 else 0.0
    if sure:
        yield Reason(
            STRONG * share * sure * view.sureness,
            _owns(estimate, share),
        )


_MOST_OF_IT = 0.6


def _owns(estimate: Estimate, share: float) -> Message:
    return say(
        "cause.peak-share",
        percent=round(100 * share),
        peak_bytes=estimate.process_bytes,
        phase=estimate.peak_phase,
    )
