"""Is a plan's promise kept? Applies the top plan of many jobs and traces the patched job.

usage: python bench/plan_check.py [COUNT]

Each job is one that its card cannot hold. The planner may use every remedy that ``bench/trace.py`` can play (it plays
neither 4-bit weights nor fused losses nor offloading nor DeepSpeed; transformers below 5.23 has no offloaded
checkpoints). The patched job is traced exactly; the prediction holds where the traced peak of tensor bytes lies in the
plan's own 90 % interval, and the verdict is right where traced tensors plus the predicted overhead of allocator,
context and communication stay within the card.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from trace import trace

from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.planning import plan
from oomdoc.diagnosis.result import Plan
from oomkb.catalog import models
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.units import GIB

UNTRACEABLE: Final = frozenset(
    [
        *("fused-ce", "qlora", "optimizer-8bit", "optimizer-paged", "galore", "zero", "fsdp", "hsdp", "more-gpus"),
        *("offload-activations", "reference-precompute", "other-gpu", "offload-optimizer", "offload-param"),
        *("all-processes", "lora-targets"),
    ]
)
MODELS: Final = (
    *("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.2-1B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    *("Qwen/Qwen2.5-3B", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen3-1.7B", "google/gemma-2b"),
)
CARDS: Final = ("RTX 3060 12GB", "V100-PCIE-16GB", "RTX 4090", "V100 32GB", "A100-40GB", "A100-80GB")


def candidate(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(MODELS)
    entry = models.find(name)
    if entry is None:
        raise SystemExit(f"{name} is not in the catalogue")
    dtype = rng.choice(("bf16", "bf16", "fp32"))
    job: dict[str, Any] = {
        "framework": "transformers",
        "model": {**entry.config, "name": name},
        "objective": rng.choice(("sft", "sft", "sft", "dpo")),
        "method": rng.choice(("full", "lora")),
        "param_dtype": dtype,
        "autocast": "bf16" if dtype == "fp32" else rng.choice(("none", "bf16")),
        "optimizer": "adamw",
        "optimizer_impl": rng.choice(("foreach", "fused")),
        "micro_batch": rng.choice((2, 4, 8, 16)),
        "grad_accum": rng.choice((1, 4)),
        "seq_len": rng.choice((512, 1024, 2048, 4096)),
        "grad_ckpt": rng.choice((True, False)),
        "attention": rng.choice(("eager", "sdpa", "sdpa")),
        "sharding": "none",
        "world": 1,
        "gpus": 1,
        "gpu": rng.choice(CARDS),
        "versions": {"transformers": "5.18.0", "torch": "2.13.0", "peft": "0.21.2"},
    }
    if job["method"] == "lora":
        job["lora"] = {"r": rng.choice((8, 32)), "targets": "all-linear", "dropout": 0.0, "dtype": "fp32"}
    if job["objective"] == "dpo" and job["method"] == "full":
        job["extra_models"] = [{"role": "reference"}]
    return job


def top_plan(document: dict[str, Any]) -> Plan | None:
    found = plan(Job.from_document(document), context=Context(without=UNTRACEABLE))
    fitting = [p for p in found.plans if p.name != "closest"]
    return fitting[0] if fitting else None


def checked(one: Plan, document: dict[str, Any]) -> dict[str, Any]:
    patched = one.job.document()
    patched["model"] = {k: v for k, v in document["model"].items() if k != "name"}
    with contextlib.redirect_stderr(io.StringIO()):
        traced = trace(patched)["allocated_gib"]
    estimate = one.estimate
    span = estimate.intervals["allocated"]
    overhead = (estimate.process_bytes - estimate.allocated_bytes) / GIB
    return {
        "model": document["model"]["name"],
        "gpu": document["gpu"],
        "changes": {n: v for c in one.changes for n, v in c.fields.items()},
        "predicted_gib": round(estimate.allocated_bytes / GIB, 2),
        "traced_gib": round(traced, 2),
        "off": round(estimate.allocated_bytes / GIB / traced - 1, 4),
        "holds": span.low_bytes <= traced * GIB <= span.high_bytes,
        "fits": traced + overhead <= (estimate.capacity_bytes or 0) / GIB,
    }


def main(count: int) -> int:
    rng = random.Random(7)
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    for _ in range(40 * count):
        if len(rows) >= count:
            break
        document = candidate(rng)
        try:
            one = top_plan(document)
        except OomdocError as error:
            print(f"refused: {error}", file=sys.stderr)
            continue
        if one is None:
            continue
        rows.append(checked(one, document))
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    if not rows:
        return 1
    holds, fits = (sum(r[k] for r in rows) for k in ("holds", "fits"))
    off = sorted(abs(r["off"]) for r in rows)
    print(
        f"{len(rows)} plans: prediction holds {holds / len(rows):.1%}, verdict right {fits / len(rows):.1%}, "
        f"median error {off[len(off) // 2]:.2%}, worst {off[-1]:.2%} ({time.monotonic() - start:.0f} s)"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 36))
