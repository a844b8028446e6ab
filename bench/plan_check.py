"""Is a plan's promise kept? Applies the top plan of many jobs and traces the patched job.

usage: python bench/plan_check.py [COUNT]

Each job is one that its card cannot hold. The planner may use every remedy that ``oomdoc.tracing`` can play (it plays
neither 4-bit weights nor offloading nor DeepSpeed; transformers below 5.23 has no offloaded checkpoints); a fused loss
is played chunk by chunk (``plan_fused_loss.py``). Every third job runs under FSDP2. The patched job is traced exactly;
the prediction holds where the traced peak of tensor bytes lies in the plan's own 90 % interval, and the verdict is
right where traced tensors plus the predicted overhead of allocator, context and communication stay within the card.
Models keep a third of their layers. Writes ``results/plan_check.json``.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parent))

from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.planning import plan, whatif
from oomdoc.diagnosis.result import Plan
from oomdoc.tracing import stepping
from oomdoc.tracing.running import trace
from oomkb.catalog import models
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.units import GIB
from plan_fused_loss import fused_sft_loss

UNTRACEABLE: Final = frozenset(
    [
        *("qlora", "optimizer-8bit", "optimizer-paged", "galore", "zero", "fsdp", "hsdp", "more-gpus"),
        *("offload-activations", "reference-precompute", "other-gpu", "offload-optimizer", "offload-param"),
        *("all-processes", "lora-targets"),
    ]
)
PLAIN_LOSS: Final = stepping.sft_loss
WHOLE_ONLY: Final = frozenset({"fused-ce", "lora", "half-weights", "mixed-precision", "freeze"})
"""What the trace plays on one GPU only: under FSDP2 the layers are whole models in bf16 over fp32 shards."""
MODELS: Final = (
    *("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.2-1B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    *("Qwen/Qwen2.5-3B", "mistralai/Mistral-7B-v0.1", "Qwen/Qwen3-1.7B", "google/gemma-2b"),
)
CARDS: Final = ("RTX 3060 12GB", "V100-PCIE-16GB", "RTX 4090", "V100 32GB", "A100-40GB", "A100-80GB")


def shallow(config: Mapping[str, Any]) -> dict[str, Any]:
    """A third of the layers: a trace takes as long as there are layers, and one layer needs what the next one needs."""
    layers = max(4, int(config["num_hidden_layers"]) // 3)
    kinds = config.get("layer_types")
    return {"num_hidden_layers": layers, **({"layer_types": list(kinds)[:layers]} if kinds else {})}


def candidate(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(MODELS)
    entry = models.find(name)
    if entry is None:
        raise SystemExit(f"{name} is not in the catalogue")
    dtype = rng.choice(("bf16", "bf16", "fp32"))
    job: dict[str, Any] = {
        "framework": "transformers",
        "model": {**entry.config, "name": name, **shallow(entry.config)},
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


def sharded(rng: random.Random) -> dict[str, Any]:
    document = candidate(rng)
    for field in ("lora", "extra_models"):
        document.pop(field, None)
    world = rng.choice((2, 4, 8))
    return document | {
        "objective": "sft",
        "method": "full",
        "param_dtype": "fp32",
        "autocast": "none",
        "optimizer_impl": "foreach",
        "sharding": "fsdp2",
        "world": world,
        "gpus": world,
        "dp": world,
        "reshard_after_forward": True,
        "fsdp": {"param_dtype": "bf16", "reduce_dtype": "fp32"},
    }


def top_plan(document: dict[str, Any]) -> Plan | None:
    without = UNTRACEABLE
    if document["sharding"] != "none":
        without |= WHOLE_ONLY
    elif document["objective"] != "sft":
        without |= {"fused-ce"}
    found = plan(Job.from_document(document), context=Context(without=without))
    fitting = [p for p in found.plans if p.name != "closest"]
    return fitting[0] if fitting else None


def checked(one: Plan, document: dict[str, Any]) -> dict[str, Any]:
    patched = one.job.document()
    patched["model"] = {k: v for k, v in document["model"].items() if k != "name"}
    if "fsdp" in document:
        patched["fsdp"] = document["fsdp"]
    stepping.sft_loss = fused_sft_loss if patched.get("fused_ce") else PLAIN_LOSS
    with contextlib.redirect_stderr(io.StringIO()):
        traced = trace(patched)["allocated_gib"]
    # One micro-step is traced; with several, gradients wait between them, which is all that then comes on top.
    estimate = one.estimate if one.job.grad_accum == 1 else whatif(one.job, {"grad_accum": 1})[1]
    span = estimate.intervals["allocated"]
    overhead = (one.estimate.process_bytes - estimate.allocated_bytes) / GIB
    return {
        "model": document["model"]["name"],
        "gpu": document["gpu"],
        "sharding": document["sharding"],
        "objective": document["objective"],
        "method": one.job.method,
        "changes": {n: v for c in one.changes for n, v in c.fields.items()},
        "predicted_gib": round(estimate.allocated_bytes / GIB, 2),
        "traced_gib": round(traced, 2),
        "off": round(estimate.allocated_bytes / GIB / traced - 1, 4),
        "holds": span.low_bytes <= traced * GIB <= span.high_bytes,
        "fits": traced + overhead <= (one.estimate.capacity_bytes or 0) / GIB,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    off = sorted(abs(r["off"]) for r in rows)
    return {
        "plans": len(rows),
        "holds": round(sum(r["holds"] for r in rows) / len(rows), 3),
        "verdict_right": round(sum(r["fits"] for r in rows) / len(rows), 3),
        "median_error": off[len(off) // 2],
        "worst_error": off[-1],
    }


def write(rows: list[dict[str, Any]]) -> None:
    lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
    target = Path(__file__).parent / "results" / "plan_check.json"
    target.write_text(f'{{"summary": {json.dumps(summary(rows))},\n "rows": [\n{lines}\n ]}}\n', encoding="utf-8")


def main(count: int) -> int:
    rng = random.Random(7)
    rows: list[dict[str, Any]] = []
    start = time.monotonic()
    for _ in range(40 * count):
        if len(rows) >= count:
            break
        document = sharded(rng) if len(rows) % 3 == 2 else candidate(rng)
        try:
            one = top_plan(document)
        except OomdocError as error:
            print(f"refused: {error}", file=sys.stderr)
            continue
        if one is None:
            continue
        rows.append(checked(one, document))
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
        write(rows)
    if not rows:
        return 1
    found = summary(rows)
    print(f"{found} ({time.monotonic() - start:.0f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 36))
