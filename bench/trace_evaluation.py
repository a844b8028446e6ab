"""An evaluation whose logits are kept for ``compute_metrics``, without a GPU: peaks over all its batches.

usage: python bench/trace_evaluation.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

Batches go through the real model, and what it returns into the container of transformers' own evaluation loop
(``trainer_pt_utils.EvalLoopContainer``), up to the batch after which it would move to the host
(``eval_accumulation_steps``) or to the last one (``eval_samples``). ``preprocess_logits_for_metrics``: an argmax.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter, scalars
from oomkb.units import GIB
from trace_steps import traced


def _batches(job: dict[str, Any]) -> int:
    found = -(-job["eval_samples"] // job["eval_micro_batch"])
    return min(found, job.get("eval_accumulation_steps") or found)


def trace(job: dict[str, Any]) -> dict[str, Any]:
    """Peak of the evaluation, in GiB."""
    from transformers.trainer_pt_utils import EvalLoopContainer

    model = building.prepare(job).eval()
    with FakeTensorMode(allow_non_fake_inputs=True), scalars(), torch.no_grad():
        building.materialise(model, "cpu")
        with Meter() as meter:
            for tensor in (*model.parameters(), *model.buffers()):
                meter.add(tensor)
            static = meter.live
            kept: Any = EvalLoopContainer()
            ids = running.token_ids(job["eval_micro_batch"], job["seq_len"], "cpu")
            for _ in range(_batches(job)):
                with running.autocast(job):
                    outputs = model(input_ids=ids, labels=ids.clone(), use_cache=False)
                logits = outputs.logits.detach()
                del outputs
                if job.get("preprocess_logits_for_metrics"):
                    logits = logits.argmax(-1)
                kept.add(logits)
                del logits
    return {"static_gib": round(static / GIB, 4), "peak_eval": round(meter.peak / GIB, 4)}


if __name__ == "__main__":
    sys.exit(traced(trace))
