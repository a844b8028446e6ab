"""Public estimators beside oomdoc on the same exactly traced training steps.

``python bench/peers.py`` makes an environment with the estimators named in :data:`TOOLS`, gives each the jobs of
``tests/kb/memory/data/traces.jsonl`` that run on one GPU, and writes ``bench/results/peers.json``, from which the
documentation's page is made. Compared is the peak of allocated tensors in GiB; what a tool adds for the CUDA context or
as a margin is taken off, the exact number of parameters is given to all, and a tool that refuses a job is not charged
for it. The traces were used to check oomdoc's formulas, so its own figures here are training figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any, Final

import oomdoc

ROOT: Final = Path(__file__).parent.parent
TOOLS: Final = {
    "fitcheck": "fitcheck-llm==0.3.1",
    "canifinetune": "canifinetune==0.4.1",
    "gpu-estimator": "gpu-estimator==0.2.0",
    "deepspeed": "deepspeed==0.19.8",
    "accelerate": "accelerate==1.15.0",
}
"""Name in the table -> the package that is installed."""


def jobs(path: Path) -> list[dict[str, Any]]:
    """The traced jobs on one GPU, each with what its trace found."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if row["job"].get("sharding") == "none" and row["job"].get("world") == 1]


def priced_by_peers(rows: list[dict[str, Any]], python: Path | None) -> list[dict[str, Any]]:
    """``{id, tool, allocated_gib | refused}`` of every tool and job."""
    with tempfile.TemporaryDirectory() as folder:
        if python is None:
            venv.create(folder, with_pip=True)
            python = Path(folder) / "bin" / "python"
            pip = [str(python), "-m", "pip", "install", "-q"]
            subprocess.run([*pip, "torch", "setuptools", "wheel"], check=True)
            subprocess.run([*pip, "--no-build-isolation", *TOOLS.values()], check=True)
        adapters = Path(__file__).parent / "peers_adapters.py"
        text = "\n".join(json.dumps(row) for row in rows)
        done = subprocess.run([python, adapters], input=text, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def own_prices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same from oomdoc."""
    found = []
    for row in rows:
        document = oomdoc.estimate(row["job"]).document()
        found.append({"id": row["id"], "tool": "oomdoc", "allocated_gib": document["peak_gib"]["allocated"]})
    return found


def table(rows: list[dict[str, Any]], prices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per tool: how many it priced, and its errors over those in per cent."""
    measured = {row["id"]: row["measured"]["allocated_gib"] for row in rows}
    out = []
    for tool in ("oomdoc", *TOOLS):
        own = [price for price in prices if price["tool"] == tool]
        errors = [
            100 * (price["allocated_gib"] / measured[price["id"]] - 1) for price in own if "allocated_gib" in price
        ]
        refusals = sorted({price["refused"] for price in own if "refused" in price})
        out.append(
            {
                "tool": tool,
                "package": TOOLS.get(tool, f"oomdoc {oomdoc.__version__}"),
                "priced": len(errors),
                "of": len(own),
                "mean_error_percent": round(statistics.mean(map(abs, errors)), 2) if errors else None,
                "median_error_percent": round(statistics.median(map(abs, errors)), 2) if errors else None,
                "worst_error_percent": round(max(errors, key=abs), 1) if errors else None,
                "too_low_by_10_percent": sum(error < -10 for error in errors),
                "refusals": refusals[:5],
            }
        )
    return out


def main() -> None:
    """Price, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="an environment that has the tools already")
    parser.add_argument("--traces", type=Path, default=ROOT / "tests/kb/memory/data/traces.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/peers.json")
    arguments = parser.parse_args()
    rows = jobs(arguments.traces)
    result = table(rows, own_prices(rows) + priced_by_peers(rows, arguments.python))
    for row in result:
        print(json.dumps(row), file=sys.stdout)
    arguments.output.write_text(json.dumps({"jobs": len(rows), "tools": result}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
