"""Meet the longest batch first: a run that survives its worst batch at step one survives the rest.

Also the cure for runs that die in the middle on one over-long sample: filter it, or cut it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.frameworks import line as line_of
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_SORT: Final = "dataset = dataset.sort('length', reverse=True)"


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "long-sample" not in context.causes[:2]:
        return
    cut = line_of(context.framework, "cut") or ("dataset = dataset.filter(lambda row: row['length'] <= {length})")
    stated = job.seq_len if "seq_len" not in job.assumed else None
    line = cut.replace("{length}", str(stated // 2) if stated else "N")
    yield Variant(instruction=say("fixes.worst-batch-first.cut", line=line, form=cut), effort=0.6)
    yield Variant(instruction=say("fixes.worst-batch-first.how", line=_SORT), effort=0.8)


REMEDY = Remedy(
    name="worst-batch-first",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"long-sample"}),
    advice=True,
)
