"""Losses of preference training, played as the trainers write them: chosen and rejected rows, or KTO's single ones.

``factory``: LLaMA-Factory 0.9.4 (``train/dpo/trainer.py``, ``train/kto/trainer.py``): logits in fp32, their whole
log-softmax; ``factory-labels``: before, labels went along, so that the model computed its own loss too.
``trl-gather``: TRL before 0.12 does the same in the dtype of the logits. ``trl-0`` (0.12 to 0.29) and ``trl`` (1.0 to
1.14) go row by row (``selective_log_softmax``): fp32 logits are kept themselves, of 16-bit ones the log-softmax. Under
autocast accelerate gives the model's outputs in fp32. Followed event by event in
``bench/trace_preference.py``. A student's divergence from its teacher is in :mod:`oomkb.memory.packed_loss`.

A student's divergence from its teacher, as TRL's GKD trainer computes it (``generalized_jsd_loss``, 1.16).
``divergence``: ``beta`` 0, forward KL. ``divergence-reverse``: ``beta`` 1. ``divergence-mixed``: anything between,
the mixture's log-probabilities and both divergences from it. Followed event by event in
``bench/trace_distillation.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomkb.memory.blocks import Layer
from oomkb.memory.forms import Form
from oomkb.memory.ops import Ops
from oomkb.memory.tape import Tape, Tensor

if TYPE_CHECKING:
    from oomkb.memory.program import Training


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


_LOGITS: Final = "T*V"
_HALF: Final = ".5*T*V"
_ENTROPY: Final = "384*V"
"""Log-softmax, its exponential and their product for the 128 tokens that ``entropy_from_logits`` takes at a time."""


def log_softmax_backward(tape: Tape, *, extra: bool = False, size: float = 4.0) -> tuple[Tensor]:
    """Of a picked log-softmax: the picked gradient spread over zeros, then the softmax's own."""
    zeros = tape.new(_LOGITS, size) if extra else None  # gather_backward scatters out of place
    spread = tape.new(_LOGITS, size)  # nll_loss_backward
    del zeros
    out = tape.new(_LOGITS, size)
    del spread
    return (out,)


def preference(step: Training, given: list[Tensor]) -> tuple[Any, Form]:
    """The loss over the hidden states in ``given``, which loses them: (root of the graph, what is alive after it)."""
    if step.head.objective == "distill":
        return distilled(step, _upcast(step, step.logits(given.pop()), step.ops))
    play = _rows if step.head.style in ("trl", "trl-0") else _whole
    return play(step, given)


def _whole(step: Training, given: list[Tensor]) -> tuple[Any, Form]:
    """All log-probabilities at once; the logits stay in the trainer's hands through the reference's pass."""
    tape, head = step.tape, step.head
    logits = step.logits(given[0])
    if head.style == "factory-labels":
        _own_loss(step, logits)
    step.note("loss", "saved", "logits")
    given.clear()
    wide = _upcast(step, logits, step.ops)
    del logits
    size = wide.size
    node = tape.record((wide,), (None,), lambda t, g, s, n: log_softmax_backward(t, extra=True, size=size))
    out = tape.new(_LOGITS, size, node)
    if node is not None:
        node.saved[0] = out.detached()
    del out
    step.note("loss", "saved", "logits")
    if _passed(step) == "kept":
        tape.casts.clear()
    if head.objective == "kto":
        wide = _with_unrelated(step, wide)
    if head.reference:
        _reference(step)
    tape.casts.clear()
    after = tape.mark()
    del wide
    return node, after


def _with_unrelated(step: Training, wide: Tensor) -> Tensor:
    """KTO's unrelated completions, scored without gradients; then the logits are copied by their labels."""
    _reference(step, trained=True)
    copied = step.tape.new(_LOGITS, wide.size)
    step.note("loss", _passed(step), "logits")
    return copied


def _rows(step: Training, given: list[Tensor]) -> tuple[Any, Form]:
    """Row by row; the shifted logits are a view of the model's outputs, which live as long as the trainer's frame."""
    tape, head = step.tape, step.head
    logits = _upcast(step, step.logits(given[0]), step.ops)
    given.clear()
    step.note("loss", "saved", "logits")
    likely = _half_likelihood(step, logits) if head.objective == "orpo" else None
    root = _selected(step, logits)
    step.note("loss", "saved", "logits")
    tape.casts.clear()
    if head.style == "trl-0":
        _averaged(step, logits)
        del logits
        if head.reference:
            _averaged(step, _reference(step, rows=True))
    else:
        if head.reference:
            _compared(step, logits)
        del logits
    after = tape.mark()
    if likely is not None:
        root = tape.record((Tensor(None, "B", 4.0, root), Tensor(None, "B", 4.0, likely)), (), _both)
    return root, after


def _both(tape: Tape, grad: Tensor, saved: object, needs: object) -> Sequence[Tensor | None]:
    return (tape.new("B", 4.0), tape.new("B", 4.0))


def _averaged(step: Training, logits: Tensor | None) -> None:
    """The mean of the chosen logits: those that the mask leaves, copied."""
    if logits is not None:
        copied = step.tape.new(_HALF, logits.size)
        step.note("loss", _passed(step), "logits")
        del copied


def _compared(step: Training, logits: Tensor) -> None:
    """The reference's logits beside the policy's, then copies of what the metrics take of the latter."""
    tape, size = step.tape, logits.size
    theirs = _reference(step, rows=True)
    copied = tape.new(_LOGITS, size)  # entropy_from_logits flattens the shifted logits
    chunk = tape.new(_ENTROPY, size)
    step.note("loss", _passed(step), "logits")
    del chunk
    if step.head.objective == "kto":  # chosen and rejected rows, and what the mask leaves of one of them
        more = tape.new(_HALF, size)
        step.note("loss", _passed(step), "logits")
        del more
    del copied, theirs


def _selected(step: Training, logits: Tensor) -> Any:
    """``selective_log_softmax`` of the shifted logits; returns its node."""
    tape, wide = step.tape, logits.size == 4.0
    shifted = logits if step.head.style == "trl-0" else step.ops.part(logits, _LOGITS)
    if wide:
        return tape.record((shifted,), (shifted.detached(),), _rows_of_logsumexp)
    node = tape.record((shifted,), (None,), _rows_of_log_softmax)
    out = tape.new(_LOGITS, logits.size)
    if node is not None:
        node.saved[0] = out
    return node


def _rows_of_logsumexp(tape: Tape, grad: Tensor, saved: Any, needs: object) -> tuple[Tensor]:
    """A gradient a row, their stack, and the picked logits' scattered into zeros, before both are added."""
    rows = tape.new(_LOGITS, 4.0)
    stack = tape.new(_LOGITS, 4.0)
    del rows
    zeros = tape.new(_LOGITS, 4.0)
    picked = tape.new(_LOGITS, 4.0)
    del zeros
    saved.clear()
    total = tape.new(_LOGITS, 4.0)
    del stack, picked
    return (total,)


def _rows_of_log_softmax(tape: Tape, grad: Tensor, saved: Any, needs: object) -> tuple[Tensor]:
    """Each row's log-softmax goes as its gradient comes; then the rows are stacked."""
    size = saved[0].size
    saved.clear()
    rows = tape.new(_LOGITS, size)
    stack = tape.new(_LOGITS, size)
    del rows
    return (stack,)


def _half_likelihood(step: Training, logits: Tensor) -> Any:
    """ORPO's likelihood of the chosen rows: a contiguous copy of their logits, and its log-softmax."""
    tape, size = step.tape, logits.size
    chosen = step.ops.part(step.ops.part(logits, _HALF), _HALF)
    copied = step.ops.copy(chosen)
    node = tape.record((copied,), (None,), _half_backward)
    out = tape.new(_HALF, size)
    if node is not None:
        node.saved[0] = out
    step.note("loss", "saved", "logits")
    return node


def _half_backward(tape: Tape, grad: Tensor, saved: Any, needs: object) -> tuple[Tensor]:
    size = saved[0].size
    spread = tape.new(_HALF, size)
    out = tape.new(_HALF, size)
    del spread
    return (out,)


def _upcast(step: Training, logits: Tensor, ops: Ops) -> Tensor:
    """To fp32 in LLaMA-Factory's trainers, and by accelerate where autocast is on."""
    if step.head.style.startswith("factory") or step.mode.autocast:
        return ops.cast(logits, 4.0)
    return logits


def _passed(step: Training) -> str:
    """The share of other layers once the policy's pass is over: its casts go with its autocast.

    Where labels are handed on, one autocast spans both passes, as in the traces that this style was read off.
    """
    return "saved" if step.head.style == "factory-labels" else "kept"


def _own_loss(step: Training, logits: Tensor) -> None:
    """The model's own loss, computed because labels were passed, and thrown away."""
    wide = step.ops.cast(logits, 4.0)
    log = step.tape.new(_LOGITS, 4.0)
    del wide, log


def _reference(step: Training, *, trained: bool = False, rows: bool = False) -> Tensor | None:
    """A pass without gradients on the base weights, a second model of the same kind, or (``trained``) the policy.

    :param rows: log-probabilities are taken row by row; the logits are handed back.
    """
    tape, mode, head = step.tape, step.mode, step.head
    frozen = replace(mode, trained=False, adapters=frozenset(), merged_experts=False)
    if not mode.adapters and not trained:  # a model of its own is in evaluation mode
        frozen = replace(frozen, dropout=False, attention_dropout=False, math=mode.math and not mode.attention_dropout)
    x = tape.new("T*h", mode.param)
    mask = tape.new("B*S*S", 1.0) if mode.mask and mode.attention == "sdpa" else None
    x = Layer(tape, frozen, step.positions[-1])(x)
    x = Layer(tape, frozen).norm(x, "final")
    del mask
    step.note("loss", _passed(step), "layer")
    ops = Ops(tape, autocast=frozen.autocast)
    logits = step.scaled(ops, ops.linear(x, Tensor(None, "g:V*e", frozen.param), _LOGITS))
    if head.style == "factory-labels":
        _own_loss(step, logits)
    del x
    wide = _upcast(step, logits, Ops(tape))
    del logits
    step.note("loss", _passed(step), "logits")
    if rows:
        return wide
    kept = tape.new(_LOGITS, wide.size)
    del kept
    if head.objective == "kto" and not trained:  # the unrelated completions once more, beside these
        again = ops.linear(Tensor(None, "T*h", mode.param), Tensor(None, "g:V*e", frozen.param), _LOGITS)
        second = _upcast(step, again, Ops(tape))
        del again
        last = tape.new(_LOGITS, second.size)
        del second, last
    del wide
    step.note("loss", _passed(step), "logits")
    return None
