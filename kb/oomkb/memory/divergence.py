"""A student's divergence from its teacher, as TRL's GKD trainer computes it (``generalized_jsd_loss``, 1.16).

``divergence``: ``beta`` 0, forward KL. ``divergence-reverse``: ``beta`` 1. ``divergence-mixed``: anything between, the
mixture's log-probabilities and both divergences from it. Followed event by event in ``bench/trace_distillation.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from oomkb.memory.forms import Form
from oomkb.memory.tape import Tape, Tensor

if TYPE_CHECKING:
    from oomkb.memory.program import Training

_LOGITS: Final = "T*V"
_TWO: Final = "2*T*V"


def distilled(step: Training, logits: Tensor) -> tuple[Any, Form]:
    """The loss over the student's logits: (root of the graph, what is alive after it).

    Both logits, their quotients by the temperature and both log-softmaxes stand while the divergence is composed.
    """
    tape, ops = step.tape, step.ops
    step.note("loss", "saved", "logits")
    tape.casts.clear()
    size = logits.size
    theirs = tape.new(_LOGITS, size)
    scaled, cooled = ops.scale(ops.part(logits, _LOGITS)), tape.new(_LOGITS, size)
    likely, target = tape.new(_LOGITS, size), tape.new(_LOGITS, size)
    compose, back = _STYLES[step.head.style]
    saved = [likely.detached(), *compose(step, size)]
    node = tape.record((scaled,), saved, back)
    del saved, likely, target, cooled, scaled, theirs, logits
    return node, tape.mark()


def _forward_kl(step: Training, size: float) -> list[Tensor]:
    """Difference, the teacher's probabilities, their product."""
    new = step.tape.new
    less, chance, product = (new(_LOGITS, size) for _ in range(3))
    step.note("loss", "saved", "logits")
    del less, product
    return [chance]


def _reverse_kl(step: Training, size: float) -> list[Tensor]:
    """The same with the student's probabilities, which need a gradient: the difference is kept, too.

    Beside the product stands what the labels leave of it.
    """
    new = step.tape.new
    less, chance, product, chosen = (new(_LOGITS, size) for _ in range(4))
    step.note("loss", "saved", "logits")
    del product, chosen
    return [less, chance]


def _mixed(step: Training, size: float) -> list[Tensor]:
    """Both log-probabilities with their shares added, their stack, its log-sum-exp; then both divergences from it."""
    new = step.tape.new
    parts = [new(_LOGITS, size), new(_LOGITS, size)]
    stack = new(_TWO, size)
    step.note("loss", "saved", "logits")
    del parts
    mixture = new(_LOGITS, size)
    less, theirs, product = (new(_LOGITS, size) for _ in range(3))
    del less
    less, ours = new(_LOGITS, size), new(_LOGITS, size)
    rest = [product, *(new(_LOGITS, size) for _ in range(4))]  # the other product, both with their shares, the sum
    step.note("loss", "saved", "logits")
    del product, rest
    return [stack, mixture, theirs, less, ours]


def _softmax_backward(tape: Tape, grad: Tensor, likely: list[Tensor]) -> Tensor:
    out = tape.new(_LOGITS, grad.size)
    likely.clear()
    return out


def _forward_backward(tape: Tape, grad: Tensor, saved: Any, needs: object) -> tuple[Tensor]:
    size = saved[0].size
    spread = tape.new(_LOGITS, size)
    saved.clear()
    out = tape.new(_LOGITS, size)
    del spread
    return (out,)


def _ours_backward(tape: Tape, grad: Tensor, saved: Any) -> Tensor:
    """Of the product of the student's probabilities and their difference, which are popped; ``grad`` is let go."""
    size = saved[0].size
    straight, crossed = tape.new(_LOGITS, size), tape.new(_LOGITS, size)
    ours = saved.pop()
    saved.pop()
    grad.store = None
    through = tape.new(_LOGITS, size)
    del crossed, ours
    both = tape.new(_LOGITS, size)
    del through, straight
    return both


def _reverse_backward(tape: Tape, grad: Tensor, saved: Any, needs: object) -> tuple[Tensor]:
    whole = Tensor(None, _LOGITS, saved[0].size)
    total = _ours_backward(tape, whole, saved)
    return (_softmax_backward(tape, total, saved),)


def _mixed_backward(tape: Tape, grad: Tensor, saved: Any, needs: object) -> tuple[Tensor]:
    size = saved[0].size
    ours, theirs = tape.new(_LOGITS, size), tape.new(_LOGITS, size)
    student = _ours_backward(tape, ours, saved)
    del ours
    negative = tape.new(_LOGITS, size)
    product = tape.new(_LOGITS, size)
    del theirs
    saved.pop()
    other = tape.new(_LOGITS, size)
    del product
    both = tape.new(_LOGITS, size)
    del negative, other
    less, chance = tape.new(_TWO, size), tape.new(_TWO, size)
    spread = tape.new(_TWO, size)
    del chance, less, both
    del saved[1:]
    total = tape.new(_LOGITS, size)
    del student, spread
    return (_softmax_backward(tape, total, saved),)


_STYLES: Final[dict[str, tuple[Callable[[Training, float], list[Tensor]], Any]]] = {
    "divergence": (_forward_kl, _forward_backward),
    "divergence-mixed": (_mixed, _mixed_backward),
    "divergence-reverse": (_reverse_kl, _reverse_backward),
}
