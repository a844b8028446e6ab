"""Steps whose saved activations wait in host memory, layers not checkpointed, without a GPU.

usage: python bench/trace_offloaded.py JOBS.jsonl    one {"id", "job"} a line in, one row a line out

``torch.autograd.graph.save_on_cpu`` around forward and loss: every saved tensor, weights among them, is copied to the
host and comes back as a new tensor. Here what lies in host memory is remembered by its shape, so that the device's
tensors alone are counted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from oomdoc.tracing import building, running
from trace_steps import measured


def _packed(tensor: Any) -> Any:
    return tensor.shape, tensor.dtype


def _unpacked(known: Any) -> Any:
    return torch.empty(known[0], dtype=known[1])


def main() -> int:
    for line in Path(sys.argv[1]).read_text().splitlines():
        row = json.loads(line)
        job = row["job"]
        model = building.prepare(job)

        def loss(model: Any = model, job: dict[str, Any] = job) -> Any:
            with torch.autograd.graph.saved_tensors_hooks(_packed, _unpacked):
                return running.sft_loss(model, job, "cpu")

        print(json.dumps({**row, "measured": measured(model, job, loss)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
