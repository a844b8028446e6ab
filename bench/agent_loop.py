"""Does what an agent proposes fit? A scripted agent works on jobs that their cards cannot hold, through MCP alone.

usage: python bench/agent_loop.py TRACES.jsonl ... [--count 40] [--no-play]

TRACES hold exact traces (``{"job", "measured": {"allocated_gib"}}``); each job is put on the largest card that holds
less than its traced tensors. The agent knows nothing but the functions' answers, over the official client: it calls
``estimate`` (it does not fit), ``plan``, ``compare`` of the plans, takes the fastest that keeps the numbers (else the
fastest) with a probability of 90 % or more, and confirms it with ``estimate``. What it proposes is judged by the exact
peak of the changed job, played tensor by tensor (``plan_play.py``), plus the predicted overhead of allocator, context
and kernels; what cannot be played (DeepSpeed's engine, further GPUs, other cards) by the memory model, counted apart.
Writes ``results/agent_loop.json``.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import anyio
from mcp import ClientSession, StdioServerParameters, stdio_client

sys.path.insert(0, str(Path(__file__).parent))

from oomkb.catalog.gpus import find
from oomkb.units import GIB

CARDS: Final = (
    *("RTX 3060 12GB", "V100-PCIE-16GB", "RTX 4090", "V100 32GB", "A100-40GB", "L40S", "A100-80GB", "H200", "T4"),
    *("RTX 2080 Ti", "GTX 1080", "RTX 3050 8GB", "GTX 1060 6GB", "RTX 3050 Laptop GPU"),
)
SURE: Final = 0.9
UNKNOWN_TO_TOOLS: Final = ("fsdp", "notes", "use_liger_kernel")
UNPLAYED: Final = frozenset({"gpus", "nodes", "world", "gpu", "tp", "pp", "nvme_offload", "env"})
WHOLE_ONLY: Final = frozenset({"method", "quant", "fused_ce", "param_dtype", "autocast", "lora"})
"""What the player plays on one GPU only (``plan_check.py``): under FSDP2 it has whole bf16 models over fp32 shards."""


class Agent:
    """Works by calls alone, and counts them."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self.calls = 0

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """A function's answer, or what is wrong with the call."""
        self.calls += 1
        result = await self._session.call_tool(name, arguments)
        if result.is_error:
            return {"error": result.content[0].text}
        return result.structured_content or {}

    async def propose(self, job: dict[str, Any]) -> dict[str, Any] | None:
        """The job fields to change; ``None`` where nothing is found that surely fits."""
        now = await self.call("estimate", job=job)
        if now.get("fits"):
            return {}
        planned = await self.call("plan", job=job)
        plans = [p for p in planned.get("plans", ()) if (p.get("fits_probability") or 0) >= SURE and p["fields"]]
        if not plans:
            return None
        compared = await self.call("compare", base=job, jobs=[p["fields"] for p in plans])
        rows = zip(plans, compared["rows"], strict=True)
        fitting = [(p, r) for p, r in rows if r["fits"] and r["fits_probability"] >= SURE]
        order = ("same-numbers", "changed-numerics", "changed-training")
        for plan, _ in sorted(fitting, key=lambda pr: (order.index(pr[0]["safety"]), -(pr[1]["relative_speed"] or 0))):
            confirmed = await self.call("estimate", job=job | plan["fields"])
            if confirmed.get("fits"):
                return dict(plan["fields"])
        return None


def jobs_of(paths: list[str], count: int) -> list[dict[str, Any]]:
    """Traced jobs with a card below each."""
    cards = sorted(((d.capacity_bytes / GIB, name) for name in CARDS if (d := find(name))), reverse=True)
    found = []
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            traced = row["measured"]["allocated_gib"]
            card = next((name for size, name in cards if size < traced), None)
            if card is not None:
                world = row["job"].get("world", 1)
                found.append({"id": row["id"], "traced_gib": traced, "job": row["job"] | {"gpu": card, "gpus": world}})
    step = max(1.0, len(found) / count)
    return [found[int(i * step)] for i in range(min(count, len(found)))]


def judged(job: dict[str, Any], fields: dict[str, Any], *, play: bool) -> dict[str, Any]:
    """Whether the changed job fits, by the exact peak where it can be played, else by the memory model."""
    from oomdoc.tools.functions import job_of
    from oomkb.pricing import price_planned

    changed = job_of(fields, job_of(shown(job)))
    estimate = price_planned(changed).estimate
    capacity = (estimate.capacity_bytes or 0.0) / GIB
    needed = (estimate.needed_bytes or estimate.process_bytes) / GIB
    sizes = {"needed_gib": round(needed, 2), "capacity_gib": round(capacity, 2)}
    modelled = {"judge": "model", **sizes, "fits": needed <= capacity}
    engine = changed.sharding not in (None, "none", "fsdp2") or {"optimizer", "param"} & set(changed.offload or ())
    unplayed = UNPLAYED | (WHOLE_ONLY if changed.sharding == "fsdp2" else frozenset())
    if not play or engine or unplayed & set(fields):
        return modelled
    from plan_play import play as played_peak

    document = changed.document() | {k: v for k, v in job.items() if k == "fsdp"}
    document |= {"model": {k: v for k, v in job["model"].items() if k != "name"}, "grad_accum": 1}
    if document.get("lora"):
        document["lora"] = {"dtype": "fp32", "dropout": 0.0, **document["lora"]}
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            played = played_peak(document)
    except Exception as error:  # a step that cannot be played is judged by the model, and said to be
        return modelled | {"unplayed": f"{type(error).__name__}: {error}"[:160]}
    # What is not tensors, as predicted: the allocator's cache, the context, kernels.
    overhead = max(0.0, needed - estimate.allocated_bytes / GIB)
    return {
        "judge": "trace",
        "played_gib": round(played, 2),
        "predicted_gib": round(estimate.allocated_bytes / GIB, 2),
        "capacity_gib": round(capacity, 2),
        "fits": played + overhead <= capacity,
    }


def shown(job: dict[str, Any]) -> dict[str, Any]:
    """The job as an agent would state it."""
    return {k: v for k, v in job.items() if k not in UNKNOWN_TO_TOOLS}


async def proposals(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the agent proposes for each."""
    parameters = StdioServerParameters(command=sys.executable, args=["-m", "oomdoc", "mcp"], env=dict(os.environ))
    rows = []
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        for row in jobs:
            agent, started = Agent(session), time.monotonic()
            fields = await agent.propose(shown(row["job"]))
            seconds = round(time.monotonic() - started, 2)
            rows.append({**row, "fields": fields, "calls": agent.calls, "seconds": seconds})
    return rows


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    made = [r for r in rows if r["fields"]]
    by = {judge: [r for r in made if r["judge"] == judge] for judge in ("trace", "model")}
    return {
        "jobs": len(rows),
        "proposed": len(made),
        "fit": sum(r["fits"] for r in made),
        "share_that_fits": round(sum(r["fits"] for r in made) / len(rows), 3) if rows else None,
        **{f"{judge}_judged": len(found) for judge, found in by.items()},
        **{f"{judge}_fit": sum(r["fits"] for r in found) for judge, found in by.items()},
        "median_calls": sorted(r["calls"] for r in rows)[len(rows) // 2] if rows else None,
        "median_seconds": sorted(r["seconds"] for r in rows)[len(rows) // 2] if rows else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--no-play", action="store_true", help="judge by the memory model alone")
    given = parser.parse_args()
    rows = []
    for row in anyio.run(proposals, jobs_of(given.traces, given.count)):
        verdict = judged(row["job"], row["fields"], play=not given.no_play) if row["fields"] else {"fits": False}
        job = row["job"]
        told = {n: job.get(n) for n in ("objective", "method", "micro_batch", "seq_len", "gpu", "sharding")}
        kept = {n: row[n] for n in ("id", "traced_gib", "fields", "calls", "seconds")}
        rows.append({**kept, "job": told, **verdict})
        print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    found = summary(rows)
    print(json.dumps(found))
    lines = ",\n".join("  " + json.dumps(r, ensure_ascii=False) for r in rows)
    target = Path(__file__).parent / "results" / "agent_loop.json"
    target.write_text(f'{{"summary": {json.dumps(found)},\n "rows": [\n{lines}\n ]}}\n', encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
