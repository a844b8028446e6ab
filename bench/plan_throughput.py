"""How far the throughput model's ratios are from published ones: ``python bench/plan_throughput.py``.

The planner only ever compares two settings of one job, so what counts is the ratio of their samples per second. Every
pair of rows of one model in ``plan_throughput.json`` (published figures, source inside) is predicted and compared;
absolute speeds are printed for orientation. Writes ``results/plan_throughput.json``.
"""

from __future__ import annotations

import json
import math
import statistics
from itertools import combinations
from pathlib import Path
from typing import Any

from oomdoc.diagnosis.throughput import throughput
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import price

HERE = Path(__file__).parent
KINDS = ("micro_batch", "gpus", "method", "quant", "fused_ce", "autocast")


def job_of(row: dict[str, Any]) -> dict[str, Any]:
    document: dict[str, Any] = {
        "framework": "trl",
        "model": row["model"],
        "objective": "sft",
        "method": row["method"],
        "quant": row["quant"],
        "optimizer": "adamw",
        "micro_batch": row["micro_batch"],
        "grad_accum": 1,
        "seq_len": 2048 if "santacoder" in row["model"] else 4096,
        "packing": True,
        "grad_ckpt": True,
        "attention": "flash2",
        "fused_ce": row["fused_ce"],
        "gpu": "A100-SXM4-80GB",
        "gpus": row["gpus"],
        "world": row["gpus"],
        "autocast": row["autocast"],
        "param_dtype": "fp32" if row["autocast"] != "none" and row["method"] == "full" else "bf16",
        "sharding": "none" if row["gpus"] == 1 else "fsdp",
    }
    if row["method"] != "full":
        document["lora"] = {"r": 16, "targets": ["q_proj", "k_proj", "v_proj", "o_proj"]}
    return document


def predicted(row: dict[str, Any]) -> float | None:
    try:
        priced = price(Job.from_document(job_of(row)))
    except OomdocError:
        return None
    return throughput(priced.job, priced.shape, priced.device).samples_per_s


def differing(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    kinds = [k for k in KINDS if a[k] != b[k]]
    return ["quant"] if set(kinds) <= {"quant", "method", "autocast"} and "quant" in kinds else kinds


def spread(errors: list[float]) -> dict[str, float]:
    found = sorted(abs(e) for e in errors)
    return {
        "pairs": len(found),
        "median": round(math.exp(statistics.median(found)) - 1, 3),
        "p90": round(math.exp(found[int(0.9 * (len(found) - 1))]) - 1, 3),
        "bias": round(math.exp(statistics.mean(errors)) - 1, 3),
    }


def main() -> None:
    document = json.loads((HERE / "plan_throughput.json").read_text(encoding="utf-8"))
    rows = [(row, speed) for row in document["rows"] if (speed := predicted(row)) is not None]
    by_kind: dict[str, list[float]] = {"all": []}
    right = total = 0
    for (a, speed_a), (b, speed_b) in combinations(rows, 2):
        if (a["model"], a["table"], a["kernels"]) != (b["model"], b["table"], b["kernels"]):
            continue
        # Signed so that positive means: the model makes too much of the gain of the second over the first.
        told = math.log(b["samples_per_s"] / a["samples_per_s"])
        error = math.log(speed_b / speed_a) - told
        by_kind["all"].append(error)
        kinds = differing(a, b)
        if len(kinds) == 1:
            by_kind.setdefault(kinds[0], []).append(error)
        if abs(told) > math.log(1.1):
            total += 1
            right += (speed_b > speed_a) == (told > 0)
    absolute = [math.log(speed / row["samples_per_s"]) for row, speed in rows]
    results = {
        "source": document["source"],
        "rows": len(rows),
        "ratios": {kind: spread(errors) for kind, errors in sorted(by_kind.items())},
        "faster_of_two_named": round(right / max(1, total), 3),
        "absolute": spread(absolute),
    }
    target = HERE / "results" / "plan_throughput.json"
    target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
