"""How many times its card a failed training run needs by its estimate, by what its report states.

usage: python bench/usual_need.py REPORTS.jsonl [...]

Each line of REPORTS holds ``report`` (or ``text``). Runs are grouped by which of batch, checkpointing and framework are
assumed; open fields have their defaults. ``oomdoc.diagnosis.usual_need`` takes its limit from the runs that state all.
Printed for each group: the number of runs, and quantiles of the need over the card.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from oomdoc.diagnosis.forms import needed_of
from oomdoc.intake import read_text
from oomdoc.intake.configs import to_job
from oomkb.errors import OomdocError
from oomkb.pricing import price

_GROUPED_BY = ("micro_batch", "grad_ckpt", "framework")
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def _need_of_card(text: str) -> tuple[str, float] | None:
    """What is assumed, and the need over the card; ``None`` for what did not fail, is served or cannot be priced."""
    evidence = read_text(text)
    root = evidence.root
    if root is None or root.kind != "device":
        return None
    try:
        priced = price(to_job(evidence.facts, evidence.framework, evidence.versions))
    except OomdocError:
        return None
    estimate = priced.estimate
    capacity = estimate.capacity_bytes or root.capacity_bytes
    if not capacity or priced.job.objective == "inference":
        return None
    open_ = [name for name in _GROUPED_BY if name in estimate.assumed]
    return ", ".join(open_) or "nothing", needed_of(estimate) / capacity


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    groups: dict[str, list[float]] = defaultdict(list)
    for path in parser.parse_args().reports:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if (found := _need_of_card(row.get("report") or row["text"])) is not None:
                groups[found[0]].append(found[1])
    print(f"{'assumed':<36} runs  " + "  ".join(f"{q:>6.0%}" for q in _QUANTILES))
    for name, ratios in sorted(groups.items()):
        ratios.sort()
        at = [ratios[min(len(ratios) - 1, int(q * len(ratios)))] for q in _QUANTILES]
        print(f"{name:<36} {len(ratios):>4}  " + "  ".join(f"{ratio:>6.2f}" for ratio in at))


if __name__ == "__main__":
    main()
