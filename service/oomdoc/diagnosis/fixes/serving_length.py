"""The longest request a server accepts: one request of this length must fit into the KV cache."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


_TOKENS: Final = "serving.max_num_batched_tokens"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("serving.max_model_len")
    if now is None or not context.has("serving.max_model_len"):
        return
    lengths = [131072, 65536, 49152, 32768, 24576, 16384, 12288, 8192, 4096, 2048]
    held = _held(job, context)
    if held is not None and 256 <= held < now:
        lengths = sorted({held, *lengths}, reverse=True)  # longer ones for what makes room besides
    said = context.facts.get("engine_max_model_len")
    notes = (say("fixes.serving-length.engine", length=f"{int(said):,}"),) if said else ()
    whole = not context.has("chunked") and _TOKENS not in job.assumed
    slots = job.get("serving.max_num_seqs") or 1 if line_of(context.framework, "slots") else 1
    # What the cache holds as it is comes first: it is the one where no other change can be priced.
    for length in sorted((n for n in lengths if n < now), key=lambda n: n != held):
        effort = 0.1 + 0.3 * math.log2(now / length)
        values = {"count": slots, "each": f"{length // slots:,}", "length": f"{length:,}"}
        shared = (say("fixes.serving-length.slots", **values),) if slots > 1 else ()
        fields = {"serving.max_model_len": length}
        if whole and (job.get(_TOKENS) or 0) > length:
            fields[_TOKENS] = length
        if (job.prompt_len or 0) >= length:  # the prompt's own limit goes down with it, the answer keeps its room
            fields["prompt_len"] = length - min(length // 2, max(1, now - (job.prompt_len or 0)))
        yield Variant(fields=fields, effort=effort, notes=(*notes, *shared))


def _held(job: Job, context: Context) -> int | None:
    """The longest request that the cache holds, in steps of 256: as the engine says, else as computed."""
    said = context.facts.get("engine_max_model_len")
    if said:
        return int(said * 0.98) // 256 * 256
    from oomkb.memory.serving import largest_max_model_len
    from oomkb.memory.setting import resolve_setting

    if context.shape is None or context.device is None:
        return None
    found = largest_max_model_len(job, resolve_setting(job, context.shape), context.shape, context.device)
    return None if found is None else int(found * 0.95) // 256 * 256


REMEDY = Remedy(
    name="serving-length",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("kv", "activations"),
)
