"""Losses of preference training, played as the trainers write them: chosen and rejected rows, or KTO's single ones.

``factory``: LLaMA-Factory 0.9.4 (``train/dpo/trainer.py``, ``train/kto/trainer.py``): logits in fp32, their whole
log-softmax; ``factory-labels``: before, labels went along, so that the model computed its own loss too.
``trl-gather``: TRL before 0.12 does the same in the dtype of the logits. ``trl-0`` (0.12 to 0.29) and ``trl`` (1.0 to
1.14) go row by row (``selective_log_softmax``): fp32 logits are kept themselves, of 16-bit ones the log-softmax. Under
autocast accelerate gives the model's outputs in fp32. Followed event by event in ``bench/trace_preference.py``.

A student's divergence from its teacher, as TRL's GKD trainer computes it (``generalized_jsd_loss``, 1.16).
``divergence``: ``beta`` 0, forward KL. ``divergence-reverse``: ``beta`` 1. ``divergence-mixed``: anything between,
the mixture's log-probabilities and both divergences from it. Followed event by event in
``bench/trace_distillation.py``.

verl's log-probabilities and entropy, over all tokens of a packed micro-batch (0.9.1): flash-attn's cross-entropy keeps
the logits and writes their gradient over them, or beside them where the entropy wants them too
(``FSDPEngineWithLMHead.prepare_model_outputs``). ``entropy_from_logits`` keeps softmax and logits; under checkpointing
it runs again in backward; in chunks it keeps both in fp32. Followed in ``bench/trace_verl.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from oomkb.memory.blocks import Layer
from oomkb.memory.forms import Form
from oomkb.memory.ops import Ops, fresh
from oomkb.memory.tape import Tape, Tensor, parameter

if TYPE_CHECKING:
    from oomkb.memory.program import Training


LOGITS: Final = "T*V"
_HALF: Final = ".5*T*V"
_ENTROPY: Final = "384*V"
"""Log-softmax, its exponential and their product for the 128 tokens that ``entropy_from_logits`` takes at a time."""
_DIVERGENCES: Final = {"divergence": (3, 1, 1), "divergence-reverse": (4, 2, 2), "divergence-mixed": (11, 6, 5)}
"""By style, in tensors of the logits' size: at once while the divergence is composed, kept of them, at once in its
backward pass.

Forward: the difference of both log-softmaxes, the teacher's probabilities, which are kept, their product. Reverse: the
same with the student's, which need a gradient, so that the difference is kept, too; beside the product what the labels
leave of it. Mixed: the stack of both log-probabilities with their shares added, which counts twice, its log-sum-exp;
then difference, probabilities and product of both divergences from it, both with their shares, and their sum.
"""


def log_softmax(tape: Tape, logits: Tensor) -> Tensor:
    """Log-probabilities to pick from: in backward the picked gradient in zeros, then the softmax's own."""
    return tape.keeping((logits,), LOGITS, logits.size, fresh(2, LOGITS, logits.size))


def preference(step: Training, given: list[Tensor]) -> tuple[Any, Form]:
    """The loss over the hidden states in ``given``, which loses them: (root of the graph, what is alive after it)."""
    if step.head.objective == "distill":
        return _distilled(step, _upcast(step, step.logits(given.pop()), step.ops))
    play = _rows if step.head.style in ("trl", "trl-0") else _whole
    return play(step, given)


def _distilled(step: Training, logits: Tensor) -> tuple[Any, Form]:
    """The loss over the student's logits.

    Both logits, their quotients by the temperature and both log-softmaxes stand while the divergence is composed.
    """
    tape, size = step.tape, logits.size
    tape.casts.clear()
    most, kept, back = _DIVERGENCES[step.head.style]
    scaled = step.ops.scale(step.ops.part(logits, LOGITS))
    held = tape.new_several(LOGITS, size, 4 + most)  # the teacher's two, both log-softmaxes
    step.note("loss", "saved", "logits")
    del held[1 + kept :]  # the student's log-softmax and what is kept of the divergence
    node = tape.record((scaled,), held, fresh(back, LOGITS, size))
    del held, scaled, logits
    return node, tape.mark()


def _whole(step: Training, given: list[Tensor]) -> tuple[Any, Form]:
    """All log-probabilities at once; the logits stay in the trainer's hands through the reference's pass."""
    tape, head, passed = step.tape, step.head, _passed(step)
    logits = step.logits(given[0])
    if head.style == "factory-labels":
        _own_loss(step, logits)
    given.clear()
    wide = _upcast(step, logits, step.ops)
    del logits
    node = log_softmax(tape, wide).node
    step.note("loss", "saved", "logits")
    if passed == "kept":
        tape.casts.clear()
    if head.objective == "kto":  # unrelated completions are scored without gradients, then logits copied by labels
        _reference(step, trained=True)
        copied = tape.new(LOGITS, wide.size)
        step.note("loss", passed, "logits")
        wide = copied
    if head.reference:
        _reference(step)
    tape.casts.clear()
    return node, tape.mark()


def _rows(step: Training, given: list[Tensor]) -> tuple[Any, Form]:
    """Row by row; the shifted logits are a view of the model's outputs, which live as long as the trainer's frame."""
    tape, head = step.tape, step.head
    logits = _upcast(step, step.logits(given[0]), step.ops)
    given.clear()
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
        both = (Tensor(None, "B", 4.0, root), Tensor(None, "B", 4.0, likely))
        root = tape.record(both, (), lambda t, g, s, n: (t.new("B", 4.0), t.new("B", 4.0)))
    return root, after


def _averaged(step: Training, logits: Tensor) -> None:
    """The mean of the chosen logits: those that the mask leaves, copied."""
    copied = step.tape.new(_HALF, logits.size)
    step.note("loss", _passed(step), "logits")
    del copied


def _compared(step: Training, logits: Tensor) -> None:
    """The reference's logits beside the policy's, then copies of what the metrics take of the latter."""
    tape, size = step.tape, logits.size
    theirs = _reference(step, rows=True)
    copied = tape.new(LOGITS, size)  # entropy_from_logits flattens the shifted logits
    chunk = tape.new(_ENTROPY, size)
    del chunk
    # KTO: chosen and rejected rows, and what the mask leaves of one of them.
    more = tape.new(_HALF, size) if step.head.objective == "kto" else None
    step.note("loss", _passed(step), "logits")
    del more, copied, theirs


def _selected(step: Training, logits: Tensor) -> Any:
    """``selective_log_softmax`` of the shifted logits; returns its node.

    Of fp32 logits: a gradient a row, their stack, and the picked logits' scattered into zeros, before both are added.
    Of others each row's log-softmax goes as its gradient comes; then the rows are stacked.
    """
    shifted = logits if step.head.style == "trl-0" else step.ops.part(logits, LOGITS)
    if logits.size == 4.0:
        return step.tape.record((shifted,), (shifted.detached(),), fresh(3, LOGITS, 4.0))
    return step.tape.keeping((shifted,), LOGITS, logits.size, fresh(1, LOGITS, logits.size)).node


def _half_likelihood(step: Training, logits: Tensor) -> Any:
    """ORPO's likelihood of the chosen rows: a contiguous copy of their logits, and its log-softmax."""
    chosen = step.ops.copy(step.ops.part(step.ops.part(logits, _HALF), _HALF))
    return step.tape.keeping((chosen,), _HALF, logits.size, fresh(2, _HALF, logits.size)).node


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
    log = step.tape.new(LOGITS, 4.0)
    del wide, log


def _reference(step: Training, *, trained: bool = False, rows: bool = False) -> Tensor:
    """A pass without gradients on the base weights, a second model of the same kind, or (``trained``) the policy.

    :param rows: log-probabilities are taken row by row.
    :returns: the logits.
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
    ops, weight = Ops(tape, autocast=frozen.autocast), parameter("V*e", frozen.param, trained=False)
    logits = step.scaled(ops, ops.linear(x, weight, LOGITS))
    if head.style == "factory-labels":
        _own_loss(step, logits)
    del x
    wide = _upcast(step, logits, Ops(tape))
    del logits
    if rows:
        return wide
    kept = tape.new(LOGITS, wide.size)
    del kept
    if head.objective == "kto" and not trained:  # the unrelated completions once more, beside these
        again = ops.linear(Tensor(None, "T*h", mode.param), weight, LOGITS)
        second = _upcast(step, again, Ops(tape))
        del again
        last = tape.new(LOGITS, second.size)
        del second, last
    step.note("loss", _passed(step), "logits")
    return wide


def packed_log_probs(step: Training, logits: Tensor) -> Tensor:
    """The loss's node, and what forward holds on the way."""
    tape, size, words = step.tape, logits.size, step.head.divides.split()
    kept = logits.detached()  # the output keeps its name until the loss is there
    if "scaled" in words:
        logits = step.ops.scale(logits)
    how = words[-1] if words[-1] not in ("packed", "scaled") else ""
    unit = f"{how[5:]}*V" if how.startswith("rows=") else LOGITS
    wide = 4.0 if unit != LOGITS or how == "rows=T" else size
    saved: list[Any] = [logits.detached()]
    if how.startswith("rows="):
        saved.append(tape.new(LOGITS, wide))  # the logits in fp32, chunk after chunk
    if how:
        likely, product = tape.new(LOGITS, wide), tape.new(unit, wide)
        del product
        saved += [likely] if how != "again" else []
        del likely

    def backward(t: Tape, grad: Tensor, s: Any, needs: object) -> tuple[Tensor]:
        """The loss's gradient, beside it those of the softmax, its product with the logits and the log-sum-exp."""
        if not how:
            return (s[0].view(),)
        if unit == LOGITS and how != "rows=T":  # checkpointed, softmax and product are made once more
            return (t.new_several(LOGITS, size, 7 if how == "again" else 5)[0],)
        own = t.new(LOGITS, size)
        del s[0]  # the entropy has its own copy
        t.new_several(unit, wide, 5)
        return (own,)

    node = tape.record((logits,), saved, backward)
    step.note("loss", "saved", "logits")
    del kept
    return Tensor(None, LOGITS, 0.0, node)
