"""Meet the longest batch first: a run that survives its worst batch at step one survives the rest.

Also the cure for runs that die in the middle on one over-long sample: filter it, or cut it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from oomdoc.diagnosis.fixes._remedy import Context, Remedy, Variant
from oomdoc.messages import say
from oomkb.memory.job import Job

__all__ = ["REMEDY"]

_SORT: Final = "dataset = dataset.sort('length', reverse=True)  # one dry run of a few steps, unshuffled"
_CUT: Final = {
    "llama-factory": "cutoff_len: 2048",
    "ms-swift": "--max_length 2048 --truncation_strategy delete",
    "axolotl": "sequence_len: 2048\nexcess_length_strategy: drop",
    "trl": "max_length=2048",
    "verl": "data.max_prompt_length=1024 data.filter_overlong_prompts=True",
    "openrlhf": "--max_len 2048",
}


def _variants(job: Job, context: Context) -> Iterator[Variant]:
    if "long-sample" not in context.causes[:2]:
        return
    cut = _CUT.get(context.framework or "", "dataset = dataset.filter(lambda row: row['length'] <= 2048)")
    yield Variant(instruction=say("fixes.worst-batch-first.cut", line=cut), effort=0.6)
    yield Variant(instruction=say("fixes.worst-batch-first.how", line=_SORT), effort=0.8)


REMEDY = Remedy(
    name="worst-batch-first",
    safety="same-numbers",
    kinds=frozenset({"training"}),
    variants=_variants,
    causes=frozenset({"long-sample"}),
    advice=True,
)
