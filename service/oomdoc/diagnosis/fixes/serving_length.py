"""The longest request a server accepts: one request of this length must fit into the KV cache."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    now = job.get("serving.max_model_len")
    if now is None or not context.has("serving.max_model_len"):
        return
    for rank, length in enumerate((131072, 65536, 32768, 16384, 8192, 4096, 2048)):
        if length < now:
            yield Variant(fields={"serving.max_model_len": length}, effort=0.4 + 0.4 * rank)


REMEDY = Remedy(
    name="serving-length",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("kv", "activations"),
)
