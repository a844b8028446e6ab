"""Measure real steps on a real GPU: allocated, reserved and process peaks per phase, with random weights.

usage: python bench/measure_gpu.py JOB.json [--steps 3]           prints one JSON row
       python bench/measure_gpu.py --batch JOBS.jsonl             each row in a process of its own

The step is the one that ``bench/trace.py`` traces; here it runs, so that kernels, allocator and driver have their say.
``process`` is what NVML reports for this process, less nothing: the context is part of it. Keep results under
``bench/measured/`` with the versions they carry.
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import subprocess
import sys
import tempfile
import trace as tracing
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

GIB = 1 << 30
LIBRARIES = ("torch", "transformers", "peft")


def process_bytes() -> int:
    """Device memory in use, as the driver sees it (nothing else may run on the card)."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def loss_of(model: Any, job: dict[str, Any]) -> Any:
    """The loss of one micro-batch of random tokens."""
    vocab = model.config.get_text_config().vocab_size
    ids = torch.randint(0, vocab, (job["micro_batch"], job["seq_len"]), device="cuda")
    kind = job.get("autocast") or "none"
    with nullcontext() if kind == "none" else torch.autocast("cuda", dtype=tracing.DTYPES[kind]):
        return model(input_ids=ids, labels=ids.clone(), use_cache=False).loss


def step(model: Any, job: dict[str, Any], optimizer: Any) -> dict[str, dict[str, float]]:
    """One optimizer step; the peaks of each phase."""
    row: dict[str, dict[str, float]] = {}

    def note(phase: str) -> None:
        torch.cuda.synchronize()
        row[phase] = {
            "allocated_gib": torch.cuda.max_memory_allocated() / GIB,
            "reserved_gib": torch.cuda.max_memory_reserved() / GIB,
            "process_gib": process_bytes() / GIB,
        }
        torch.cuda.reset_peak_memory_stats()

    torch.cuda.reset_peak_memory_stats()
    loss = loss_of(model, job)
    note("forward")
    loss.backward()
    note("backward")
    optimizer.step()
    note("optimizer-step")
    optimizer.zero_grad(set_to_none=True)
    return row


def measure(job: dict[str, Any], steps: int) -> dict[str, Any]:
    """The measured part of a row."""
    torch.cuda.init()
    context = process_bytes()
    model = tracing.prepare(job)
    model.to_empty(device="cuda")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0.0, 0.01)
    optimizer = tracing.make_optimizer([p for p in model.parameters() if p.requires_grad], job)
    phases: dict[str, dict[str, float]] = {}
    for _ in range(steps):
        gc.collect()
        phases = step(model, job, optimizer)
    meters = ("allocated_gib", "reserved_gib", "process_gib")
    peaks = {meter: round(max(phase[meter] for phase in phases.values()), 4) for meter in meters}
    return {
        **peaks,
        "phases": {name: {k: round(v, 4) for k, v in phase.items()} for name, phase in phases.items()},
        "context_gib": round(context / GIB, 4),
        "gpu": torch.cuda.get_device_name(),
        "driver_total_gib": round(torch.cuda.mem_get_info()[1] / GIB, 4),
        "versions": {name: importlib.metadata.version(name) for name in LIBRARIES},
    }


def apart(row: dict[str, Any], steps: int) -> str:
    """One row in a process of its own: what one run leaves behind must not colour the next."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(row, file)
        file.flush()
        command = [sys.executable, __file__, file.name, "--steps", str(steps)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return json.dumps({"id": row.get("id"), "error": done.stderr.strip().splitlines()[-1:]})
    return done.stdout.strip()


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--batch", action="store_true")
    parser.add_argument("--steps", type=int, default=3)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("bench/measure_gpu.py needs a CUDA device; bench/trace.py needs none", file=sys.stderr)
        return 2
    text = Path(options.file).read_text()
    if options.batch:
        for line in filter(None, text.splitlines()):
            print(apart(json.loads(line), options.steps), flush=True)
        return 0
    row = json.loads(text)
    job = row.get("job", row)
    print(json.dumps({"id": row.get("id"), "job": job, "measured": measure(job, options.steps)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
