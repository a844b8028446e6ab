"""Is a plan's promise kept? Applies the top plan of many jobs and plays the patched job, tensor by tensor.

usage: python bench/plan_check.py [COUNT]

Each job is one that its card cannot hold: supervised, DPO, GRPO and QLoRA runs on one GPU, and every fourth under FSDP2
on 2 to 8. All layers of the model are played (``plan_play.py``: real transformers models and PEFT adapters under
FakeTensorMode, with what bitsandbytes, Liger, GaLore and activation offloading allocate). Not played, and so kept from
the planner: DeepSpeed's engine (ZeRO and its offloads: its flat buffers are made by its own C++ and hooks), FSDP1 and
HSDP, Megatron's kernels (selective recomputation), servers, and other hardware. The prediction holds where the played
peak of tensor bytes lies in the plan's own 90 % interval, and the verdict is right where played tensors plus the
predicted overhead of allocator, context, communication and CUDA's kernels stay within the card. Writes
``results/plan_check.json``.
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

from oomdoc.diagnosis.fixes import Context
from oomdoc.diagnosis.planning.planner import plan, whatif
from oomdoc.diagnosis.result import Plan
from oomkb.catalog import models
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.units import GIB
from plan_play import play

UNPLAYED: Final = frozenset(
    [
        *("zero", "fsdp", "hsdp", "more-gpus", "other-gpu", "offload-optimizer", "offload-param", "all-processes"),
        *("freeze", "rollout-separate", "rollout-offload"),
    ]
)
WHOLE_ONLY: Final = frozenset({"fused-ce", "lora", "qlora", "half-weights", "mixed-precision"})
"""What is played on one GPU only: under FSDP2 the layers are whole models in bf16 over fp32 shards."""
SMALL: Final = (
    *("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.2-1B", "TinyLlama/TinyLlama-1.1B-Chat-v1.0"),
    *("Qwen/Qwen2.5-3B", "Qwen/Qwen3-1.7B", "google/gemma-2b", "HuggingFaceTB/SmolLM2-1.7B", "microsoft/phi-2"),
)
LARGE: Final = ("Qwen/Qwen2.5-7B", "mistralai/Mistral-7B-v0.1", "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-14B")
CARDS: Final = ("RTX 3060 12GB", "V100-PCIE-16GB", "RTX 4090", "V100 32GB", "A100-40GB", "A100-80GB")
KINDS: Final = ("sft", "dpo", "sft", "fsdp2", "grpo", "sft", "qlora", "fsdp2")


def candidate(rng: random.Random, kind: str) -> dict[str, Any]:
    name = rng.choice(SMALL if rng.random() < 0.7 else LARGE)
    entry = models.find(name)
    if entry is None:
        raise SystemExit(f"{name} is not in the catalogue")
    dtype = rng.choice(("bf16", "bf16", "fp32"))
    job: dict[str, Any] = {
        "framework": "transformers" if kind != "grpo" and rng.random() < 0.5 else "trl",
        "model": {**entry.config, "name": name},
        "objective": kind if kind in ("dpo", "grpo") else "sft",
        "method": "qlora" if kind == "qlora" else rng.choice(("full", "lora")),
        "param_dtype": dtype,
        "autocast": "bf16" if dtype == "fp32" else rng.choice(("none", "bf16")),
        "optimizer": "adamw",
        "optimizer_impl": rng.choice(("foreach", "fused")),
        "micro_batch": rng.choice((2, 4, 8, 16)),
        "grad_accum": rng.choice((1, 4)),
        "seq_len": rng.choice((512, 1024, 2048, 4096)),
        "grad_ckpt": rng.choice((True, False)),
        "attention": rng.choice(("eager", "sdpa", "sdpa")),
        "fused_ce": False,
        "use_liger_kernel": False,  # with a plan's fused loss the loss is played, not Liger's norms and gates beside it
        "sharding": "none",
        "world": 1,
        "gpus": 1,
        "gpu": rng.choice(CARDS),
        "versions": {"transformers": "5.23.0", "torch": "2.13.0", "peft": "0.21.2", "trl": "1.9.0"},
    }
    if kind == "qlora":
        job |= {"quant": rng.choice(("nf4", "nf4-double")), "param_dtype": "bf16"}
    if job["method"] != "full":
        job["lora"] = {"r": rng.choice((8, 32)), "targets": "all-linear", "dropout": 0.0, "dtype": "fp32"}
    if kind == "dpo":  # whose loss is the one that is played
        job["framework"] = "llama-factory"
    if kind == "dpo" and job["method"] == "full":
        job["extra_models"] = [{"role": "reference"}]
    if kind == "grpo":
        job |= {"prompt_len": rng.choice((256, 512)), "completion_len": rng.choice((512, 1024, 2048))}
        del job["seq_len"]
    return sharded(job, rng) if kind == "fsdp2" else job


def sharded(job: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    world = rng.choice((2, 4, 8))
    plain = {k: v for k, v in job.items() if k not in ("lora", "extra_models")}
    return plain | {
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
    without = UNPLAYED
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
    if patched.get("lora"):
        patched["lora"] = {"dtype": "fp32", "dropout": 0.0, **patched["lora"]}
    with contextlib.redirect_stderr(io.StringIO()):
        played = play(patched)
    # One micro-step is played (with several, gradients wait between them, which is all that then comes on top), by the
    # reference kernels: with a GPU named, the model counts what CUDA's kernels allocate instead.
    estimate = whatif(one.job, {"grad_accum": 1, "gpu": None, "capacity_gib": None})[1]
    span = estimate.intervals["allocated"]
    whole = whatif(one.job, {"optimizer": "sgd"})[1] if str(one.job.optimizer).startswith("paged") else one.estimate
    # Paged states move to the host under pressure: they are no overhead.
    overhead = (
        whole.process_bytes - whole.allocated_bytes + max(0.0, one.estimate.allocated_bytes - estimate.allocated_bytes)
    )
    return {
        "model": document["model"]["name"],
        "gpu": document["gpu"],
        "framework": document["framework"],
        "sharding": document["sharding"],
        "objective": document["objective"],
        "method": one.job.method,
        "was": {n: document.get(n) for n in ("method", "micro_batch", "seq_len", "grad_ckpt", "attention")},
        "changes": {n: v for c in one.changes for n, v in c.fields.items()},
        "predicted_gib": round(estimate.allocated_bytes / GIB, 2),
        "played_gib": round(played, 2),
        "off": round(estimate.allocated_bytes / GIB / played - 1, 4),
        "holds": span.low_bytes <= played * GIB <= span.high_bytes,
        "fits": played * GIB + overhead <= (one.estimate.capacity_bytes or 0),
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
        document = candidate(rng, KINDS[len(rows) % len(KINDS)])
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
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 80))
