"""Less at a time: fewer samples, shorter samples, shorter answers.

Everything that grows with the tokens in flight (activations, logits, attention scores) shrinks in proportion; weights,
gradients and optimizer states do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Safety, Variant, is_rl, remedy
from oomdoc.evidence import say
from oomkb.memory.job import Job

PER_TOKEN: Final = ("logits", "activations", "attention", "recomputed")
_MIN_LENGTH: Final = 256
_MIN_ANSWER: Final = 128
_EFFORTS: Final = (0.5, 1.5, 4.0, 8.0)
"""What is left of a quarter or an eighth of each sample is seldom what the data are for: what is milder comes first."""


@remedy("same-numbers", "training", reduces=PER_TOKEN)
def micro_batch(job: Job, context: Context) -> Iterator[Variant]:
    """More accumulation steps: the planner raises ``grad_accum`` so that the global batch stays what it was.

    A contrastive loss takes its negatives from the micro-batch, so that accumulation does not give them back
    (Gao et al. 2021, arXiv 2101.06983).
    """
    size = job.micro_batch or 1
    contrastive = job.objective == "embedding"
    safety: Safety = "changed-training" if contrastive else "same-numbers"
    notes = (say("fixes.micro-batch.contrastive"),) if contrastive else ()
    if not job.micro_tokens and context.has("micro_batch"):
        # Only divisors keep the global batch exactly.
        for smaller in (n for n in range(size - 1, 0, -1) if size % n == 0):
            yield Variant(fields={"micro_batch": smaller}, effort=0.3, safety=safety, notes=notes)


@remedy("same-numbers", "training", reduces=PER_TOKEN)
def micro_tokens(job: Job, context: Context) -> Iterator[Variant]:
    """More micro-batches that are filled by tokens (verl's ``ppo_max_token_len_per_gpu``, slime's
    ``max-tokens-per-gpu``), with fewer each. The longest sample has to fit whole.
    """
    now = job.micro_tokens or 0
    longest = max(job.seq_len or 0, (job.prompt_len or 0) + (job.completion_len or 0))
    for rank, fewer in enumerate((now // 2, now // 4, longest) if longest else ()):
        if longest <= fewer < now:
            yield Variant(fields={"micro_tokens": fewer}, effort=0.3 + 0.1 * rank)


@remedy("same-numbers", "training", reduces=PER_TOKEN)
def eval_micro_batch(job: Job, context: Context) -> Iterator[Variant]:
    """Fewer samples in evaluation: the same figures, a smaller peak where evaluation is the fullest phase."""
    size = 1 if "eval_micro_batch" in job.assumed else job.eval_micro_batch or 1
    while size > 1 and context.has("eval"):
        size //= 2
        yield Variant(fields={"eval_micro_batch": size}, effort=0.2)


@remedy("same-numbers", "training", reduces=PER_TOKEN)
def log_prob_batch(job: Job, context: Context) -> Iterator[Variant]:
    """Fewer sequences in a pass for log-probabilities: the same figures, a smaller peak where it is the fullest."""
    size = job.log_prob_batch or 1
    while size > 1 and is_rl(job):
        size //= 2
        yield Variant(fields={"log_prob_batch": size}, effort=0.2)


@remedy("changed-training", "training", reduces=PER_TOKEN)
def seq_len(job: Job, context: Context) -> Iterator[Variant]:
    """Shorter samples: attention scores shrink with the square.

    What is cut off is not learned from; packing what is left keeps the throughput. With rollouts the length is prompt
    plus completion: see :func:`completion_len`.
    """
    length = job.seq_len
    if length is None or not context.has("seq_len") or (is_rl(job) and job.completion_len):
        return
    note = say("fixes.seq-len.note", seq_len=length)
    three_quarters = length * 3 // 4 // 128 * 128
    for shorter, effort in zip((three_quarters, length // 2, length // 4, length // 8), _EFFORTS, strict=True):
        if _MIN_LENGTH <= shorter < length:
            yield Variant(fields={"seq_len": shorter}, effort=effort, notes=(note,))


@remedy("changed-training", "rl", reduces=PER_TOKEN)
def completion_len(job: Job, context: Context) -> Iterator[Variant]:
    """Shorter completions: rollouts and everything computed on them shrink; long answers are cut off."""
    now = job.completion_len
    if now is None or not context.has("completion_len"):
        return
    for effort, shorter in ((1.0, now // 2), (2.0, now // 4)):
        if shorter >= _MIN_ANSWER:
            fields: dict[str, object] = {"completion_len": shorter}
            if job.seq_len and job.prompt_len and job.seq_len == job.prompt_len + now:
                fields["seq_len"] = job.prompt_len + shorter
            yield Variant(fields=fields, effort=effort)
