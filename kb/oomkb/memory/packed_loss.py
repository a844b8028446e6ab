"""verl's log-probabilities and entropy on the tape, over all tokens of a packed micro-batch (0.9.1).

flash-attn's cross-entropy keeps the logits and writes their gradient over them, or beside them where the entropy wants
them too (``FSDPEngineWithLMHead.prepare_model_outputs``). ``entropy_from_logits`` keeps softmax and logits; under
checkpointing it runs again in backward; in chunks it keeps both in fp32. Followed in ``bench/trace_verl.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from oomkb.memory.job import Job
from oomkb.memory.ranks import stated_count
from oomkb.memory.tape import Tape, Tensor

if TYPE_CHECKING:
    from oomkb.memory.program import Training

_ALL: Final = "T*V"
_CHUNK: Final = 2048
_WIDE: Final = 4.0


def packed_style(job: Job) -> str:
    """``packed``, then how entropy is computed, and whether logits are divided by a temperature."""
    stated = job.extra
    words = ["packed"]
    if stated.get("temperature", 1) not in (1, 1.0):
        words.append("scaled")
    if stated.get("calculate_entropy") or stated.get("entropy_coeff"):
        chunk = stated_count(job, "entropy_from_logits_chunk_size") or _CHUNK
        tokens = (job.micro_batch or 1) * (job.seq_len or chunk)
        last = tokens % chunk or chunk  # is the first in backward; what it leaves makes room for the others
        rows = round(max(last, chunk - 0.4 * last))
        chunked = f"rows={rows}" if tokens > chunk else "rows=T"
        how = chunked if stated.get("entropy_from_logits_with_chunking") else "entropy"
        words.append("again" if stated.get("entropy_checkpointing") else how)
    return " ".join(words)


def packed_log_probs(step: Training, logits: Tensor) -> Tensor:
    """The loss's node, and what forward holds on the way."""
    tape, size, words = step.tape, logits.size, step.head.divides.split()
    kept = logits.detached()  # the output keeps its name until the loss is there
    if "scaled" in words:
        logits = step.ops.scale(logits)
    how = words[-1] if words[-1] not in ("packed", "scaled") else ""
    unit = f"{how[5:]}*V" if how.startswith("rows=") else _ALL
    wide = _WIDE if unit != _ALL or how == "rows=T" else size
    saved: list[Any] = [logits.detached()]
    if how.startswith("rows="):
        saved.append(tape.new(_ALL, wide))  # the logits in fp32, chunk after chunk
    if how:
        likely, product = tape.new(_ALL, wide), tape.new(unit, wide)
        del product
        saved += [likely] if how != "again" else []
        del likely

    def backward(t: Tape, grad: Tensor, s: Any, needs: object) -> tuple[Tensor]:
        """The loss's gradient, beside it those of the softmax, its product with the logits and the log-sum-exp."""
        if not how:
            return (s[0].view(),)
        if unit == _ALL and how != "rows=T":  # checkpointed, softmax and product are made once more
            return (t.new_several(_ALL, size, 7 if how == "again" else 5)[0],)
        own = t.new(_ALL, size)
        del s[0]  # the entropy has its own copy
        t.new_several(unit, wide, 5)
        return (own,)

    node = tape.record((logits,), saved, backward)
    step.note("loss", "saved", "logits")
    del kept
    return Tensor(None, _ALL, 0.0, node)
