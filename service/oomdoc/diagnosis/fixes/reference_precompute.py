"""Reference log-probabilities computed once, before training: no reference model beside the trained one.

The same numbers come out (the reference never changes), for one extra pass over the data.
"""

from __future__ import annotations

from collections.abc import Iterator

from oomdoc.diagnosis.fixes._extra import find, without
from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY", "precompute_line"]


def precompute_line(framework: str | None) -> str:
    """The setting that computes the log-probabilities first, in the framework's own key (TRL's where it has none)."""
    return line_of(framework, "reference-precompute") or "precompute_ref_log_probs=True"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if job.objective in ("dpo", "kto") and find(job, "reference") and context.has("precompute_ref"):
        yield Variant(
            fields={"extra_models": without(job, "reference")},
            effort=0.8,
            notes=(say("fixes.reference-precompute.how", line=precompute_line(context.framework)),),
        )


REMEDY = Remedy(
    name="reference-precompute",
    safety="same-numbers",
    kinds=frozenset({"preference"}),
    variants=_variants,
    reduces=("reference", "extra"),
)
