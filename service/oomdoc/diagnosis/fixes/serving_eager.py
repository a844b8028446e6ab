"""No CUDA graphs: frees what they hold; what else helps is first, since small batches are much slower without."""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomkb.memory.job import Job

__all__ = ["REMEDY"]


_GRAPHS_BYTES = 1 << 30


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    # Graphs hold a gigabyte or so: no answer where the engine says that its cache lacks more.
    missing = context.facts.get("engine_cache_missing_bytes") or 0
    if job.get("serving.cuda_graphs") is not False and context.has("serving.eager") and missing < _GRAPHS_BYTES:
        yield Variant(fields={"serving.cuda_graphs": False}, effort=1.5)


REMEDY = Remedy(
    name="serving-eager",
    safety="same-numbers",
    kinds=frozenset({"serving"}),
    variants=_variants,
    reduces=("graph", "cuda"),
)
