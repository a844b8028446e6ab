"""Published peaks whose configuration is partly unknown, as job documents: what a person with such a run would state.

    python bench/partial_runs.py FILE.jsonl > runs.jsonl

Rows in the form of the collection (``model``, ``dtype`` in words, ``parallel`` ...) become ``{"id", "job", "measured",
"source"}`` as in ``bench/measured``; fields that a row leaves open stay open, so that the estimate assumes them. Rows
without a figure, with a meter nobody names, or summed over GPUs are left out. Nothing was fitted to these rows: they
say how far an estimate is off where little is known (``bench/interval_coverage.py``).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

METERS = {"max_memory_reserved": "reserved", "max_memory_allocated": "allocated", "nvidia-smi": "process"}
METHODS = ("full", "lora", "qlora", "galore", "lisa", "freeze", "oft")
GB = 1e9 / 2**30


def converted(row: dict[str, Any]) -> dict[str, Any] | None:
    """The row as a run, or ``None`` where it has no usable figure."""
    meter = METERS.get(str(row["meter"]))
    if meter is None or row["measured"] is None or row["measured_scope"] == "sum_over_gpus":
        return None
    if row["method"] not in METHODS:
        return None
    figure = float(row["measured"]) * (GB if row["unit"] == "GB" else 1.0)
    return {
        "id": row["id"],
        "job": {k: v for k, v in _job(row).items() if v is not None},
        "measured": {f"{meter}_gib": round(figure, 3), "source": row["source"]},
        "source": row["source"],
    }


def _job(row: dict[str, Any]) -> dict[str, Any]:
    words, parallel = str(row["dtype"] or ""), row["parallel"] or {}
    mixed = "mixed" in words
    wide = mixed and ("fp32" in words or row["master_weights_fp32"])
    lora = row["lora"] or None
    return {
        "model": row["model"],
        "params_b": row["params_b"],
        "objective": row["objective"],
        "method": row["method"],
        "lora": {"r": lora.get("rank") or 8, "targets": lora.get("targets") or "all-linear"} if lora else None,
        "quant": _quant(row["quant"]),
        "param_dtype": "fp32" if wide else "fp16" if words.startswith("fp16") and not mixed else "bf16",
        "autocast": ("fp16" if words.startswith("fp16") else "bf16") if mixed else "none",
        "optimizer": _optimizer(str(row["optimizer"] or "")),
        "micro_batch": row["micro_batch"],
        "grad_accum": row["grad_accum"],
        "seq_len": row["seq_len"],
        "packing": row["packing"],
        "grad_ckpt": row["grad_ckpt"],
        "attention": row["attention"] if row["attention"] in ("flash2", "flash3", "sdpa", "eager") else None,
        "fused_ce": row["liger_or_fused_ce"],
        "sharding": _sharding(parallel, str(row["framework"])),
        **{name: parallel[name] for name in ("dp", "tp", "pp", "cp", "ep", "sp") if parallel.get(name)},
        "gpus": row["gpus"],
        "nodes": row["nodes"],
        "gpu": row["gpu"],
        "capacity_gib": row["gpu_capacity_gib"],
        "compile": row["compile"] if isinstance(row["compile"], bool) else None,
        "offload": _offload(str(row["offload"] or "")),
        "framework": row["framework"],
        "versions_text": row["framework_version"],
        # PEFT's method comparison gives the cache back in every step (``method_comparison/MetaMathQA/run.py``).
        "torch_empty_cache_steps": 1 if "method_comparison" in str(row["source"]) else None,
    }


def _quant(value: str | None) -> str | None:
    found = re.match(r"nf4(-double)?|int8|gptq-int4|awq-int4", value or "")
    return found.group(0) if found else None


def _optimizer(words: str) -> str | None:
    name = words.lower()
    if "8bit" in name:
        return "paged_adamw_8bit" if "paged" in name else "adamw_8bit"
    return "paged_adamw" if "paged" in name else "adamw" if "adam" in name else None


def _sharding(parallel: dict[str, Any], framework: str) -> str:
    if parallel.get("zero_stage"):
        return f"zero{parallel['zero_stage']}"
    if parallel.get("fsdp"):
        return "fsdp2" if "fsdp2" in parallel["fsdp"] else "fsdp"
    if "egatron" in framework:
        return "distributed-optimizer"
    return "ddp" if (parallel.get("dp") or 1) > 1 else "none"


def _offload(words: str) -> list[str]:
    found = [name for name, word in (("optimizer", "ptimizer"), ("activations", "ctivation")) if word in words]
    return found or (["optimizer", "param"] if "ZeRO-3" in words else ["param"] if "FSDP" in words else [])


def main() -> None:
    """Print the runs."""
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        run = converted(json.loads(line))
        if run is not None:
            print(json.dumps(run, ensure_ascii=False))


if __name__ == "__main__":
    main()
