"""A step under selective checkpointing by operation, without a GPU.

usage: python bench/trace_selective.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``create_selective_checkpoint_contexts`` of torch around every decoder layer, with torchtitan 0.3's policy
(``distributed/activation_checkpoint.py``): outputs of attention and of every second matrix product are kept.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

from oomdoc.tracing import building, running
from trace_steps import measured

_ATEN: Any = torch.ops.aten
_PRODUCTS = (_ATEN.mm.default, _ATEN.addmm.default, _ATEN.linear.default)
_KEPT = (_ATEN._scaled_dot_product_flash_attention_for_cpu.default, _ATEN.max.default)


def contexts() -> Any:
    """Fresh counts for one checkpoint."""
    counts: Counter[bool] = Counter()

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        if op in _PRODUCTS:
            counts[context.is_recompute] += 1
            if counts[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.MUST_SAVE if op in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def main() -> int:
    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        job = row["job"]
        model = building.prepare({**job, "grad_ckpt": False})
        options = {"use_reentrant": False, "context_fn": contexts}
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
        if job.get("lora"):
            model.enable_input_require_grads()
        found = measured(model, job, partial(running.sft_loss, model, job, "cpu"))
        print(json.dumps({**row, "measured": found}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
