"""Steps of ordinary training scripts: what their own loops keep alive, under fake tensors, with real models.

usage: python bench/trace_loops.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

The job's ``loop`` says which of these the script does: the loss from the logits or from a shifted copy, inside autocast
or outside, outputs whose name lives until the next step's take its place, ``use_cache``, gradients zeroed in place. Of
its ``script``, ``late_optimizer`` makes the optimizer after the first backward pass, ``losses`` keeps every step's loss
in a list, ``evaluates`` runs a batch without gradients between two steps: none of these changes the peak. Three steps;
the peaks are those of the last one.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import cross_entropy

from oomdoc.tracing import building, running
from oomdoc.tracing.meter import Meter, scalars
from oomkb.units import GIB
from trace_steps import counted, traced

_STEPS = 3


def _forward(model: Any, job: dict[str, Any], ids: Any) -> Any:
    labels = {"labels": ids} if job["loop"].get("loss", "model") == "model" else {}
    with running.autocast(job):
        return model(input_ids=ids, use_cache=bool(job["loop"].get("use_cache")), **labels)


def _evaluate(model: Any, job: dict[str, Any], ids: Any) -> None:
    model.eval()
    with torch.no_grad():
        _forward(model, job, ids)
    model.train()


def trace(job: dict[str, Any]) -> dict[str, float]:
    """Peaks of the last step by phase, in GiB."""
    loop, also, model = job["loop"], job.get("script") or {}, building.prepare(job)
    how = loop.get("loss", "model")
    row: dict[str, int] = {}
    with FakeTensorMode(allow_non_fake_inputs=True), scalars():
        building.materialise(model, "cpu")
        trained = [p for p in model.parameters() if p.requires_grad]
        with Meter() as meter:
            row |= counted(meter, (model,))
            optimizer = None if also.get("late_optimizer") else running.make_optimizer(trained, job)
            losses: list[Any] = []
            outputs = shifted = None
            for step in range(_STEPS):
                meter.reset()
                ids = torch.zeros((job["micro_batch"], job["seq_len"]), dtype=torch.long)
                outputs = _forward(model, job, ids)
                with running.autocast(job) if loop.get("loss_autocast", True) else nullcontext():
                    if how == "model":
                        loss = outputs.loss
                    elif how == "script":
                        loss = cross_entropy(outputs.logits.flatten(0, 1), ids.flatten())
                    else:
                        shifted = outputs.logits[..., :-1, :].contiguous()
                        loss = cross_entropy(shifted.view(-1, shifted.shape[-1]), ids[..., 1:].reshape(-1))
                if not loop.get("outputs_kept"):
                    outputs = shifted = None
                row["peak_forward"] = meter.peak
                meter.reset()
                loss.backward()
                row["peak_backward"] = meter.peak
                meter.reset()
                if also.get("losses"):
                    losses.append(loss.detach() if also["losses"] == "detached" else loss)
                optimizer = optimizer or running.make_optimizer(trained, job)
                optimizer.step()
                row["peak_step"] = meter.peak
                optimizer.zero_grad(set_to_none=not loop.get("zero_grad_in_place"))
                if also.get("evaluates") and step == 0:
                    _evaluate(model, job, ids)
            del outputs, shifted
    row["allocated_gib"] = max(row["peak_forward"], row["peak_backward"], row["peak_step"])
    return {name: round(size / GIB, 4) for name, size in row.items()}


if __name__ == "__main__":
    sys.exit(traced(trace))
