"""Steps that train one block at a time, with BAdam's own optimizer, without a GPU.

usage: python bench/trace_blocks.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``badam.BlockOptimizer`` 1.4 around torch's AdamW, the first layer active (the one to which gradients come last), inputs
made to need gradients as LLaMA-Factory does under checkpointing. ``method: lisa``: LMFlow's callback
(``pipeline/utils/lisa_trainer.py``) lets two layers train beside embedding, last norm and head, under torch's AdamW;
what is counted is the first interval: states of layers that were active before stay there.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch

from oomdoc.tracing import building, running
from trace_steps import measured

_ACTIVE = 2


def _optimizer(model: Any, params: Any, job: dict[str, Any]) -> Any:
    from badam import BlockOptimizer

    base = torch.optim.AdamW([{"params": list(params), "weight_decay": 0.0}], lr=1e-5, foreach=True)
    named = list(model.named_parameters())
    return BlockOptimizer(
        base_optimizer=base, named_parameters_list=named, start_block=0, switch_mode="fixed", switch_block_every=100
    )


def _lisa(model: Any) -> None:
    layers = model.model.layers
    layers.requires_grad_(False)
    for layer in (layers[len(layers) // 3], layers[-_ACTIVE]):
        layer.requires_grad_(True)


def main() -> int:
    plain = running.make_optimizer
    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        job = row["job"]
        model = building.prepare(job)
        if job["method"] == "lisa":
            _lisa(model)
            running.make_optimizer = plain
        else:
            model.enable_input_require_grads()
            running.make_optimizer = partial(_optimizer, model)
        found = measured(model, job, partial(running.sft_loss, model, job, "cpu"))
        print(json.dumps({**row, "measured": found}), flush=True)
    running.make_optimizer = plain
    return 0


if __name__ == "__main__":
    sys.exit(main())
