"""verl: entropy worked out piece by piece, and micro-batches bounded by tokens instead of samples.

``entropy_from_logits`` makes a softmax of all tokens times all words beside the logits; the chunked form takes 2,048
rows at a time (verl 0.4, ``verl/utils/torch_functional.py``). With dynamic batches a micro-batch holds a number of
tokens, so that eight long answers are no longer one micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_LEAST: Final = 2048


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    entropy, batch = (line(context.framework, name) for name in ("entropy-chunks", "dynamic-batch"))
    if entropy is None or batch is None or context.phase in ("engine-init", "generate", "load"):
        return
    longest = max(_LEAST, (job.prompt_len or 0) + (job.completion_len or 0), job.seq_len or 0)
    if "logits" in context.causes[:2]:
        yield Variant(instruction=say("fixes.entropy-chunks.how", line=entropy), effort=0.3)
    if job.micro_tokens is None and (job.micro_batch or 1) > 1:
        text = batch.replace("{tokens}", str(longest))
        yield Variant(instruction=say("fixes.entropy-chunks.dynamic", line=text), effort=0.5)


REMEDY = Remedy(
    name="entropy-chunks",
    safety="same-numbers",
    kinds=frozenset({"training", "rl"}),
    variants=_variants,
    causes=frozenset({"logits", "activations", "long-sample"}),
    advice=True,
)
