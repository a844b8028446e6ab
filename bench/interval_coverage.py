"""How often the 90 % intervals hold figures of sources that they were not calibrated on.

    python bench/interval_coverage.py FILE.jsonl [...] [--kinds]

Each line holds {"id", "job", "measured", "source"}, as in `bench/measured/`. Every source is left out in turn: the
quantiles of log(measured / estimated) are taken over the figures of all others, and counted is how often the resulting
interval holds those of the source left out. A source of many figures counts as the root of their number, so that no
single table decides. Printed are the coverage by meter, by source and in all, and the quantiles over everything, which
`oomkb.memory.overhead.QUANTILES` states; `--kinds` prints errors by kind of run besides.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from oomkb.memory.estimate import METERS
from oomkb.memory.job import Job
from oomkb.memory.overhead import QUANTILES, kind_of, width_of
from oomkb.memory.setting import settle
from oomkb.pricing import price
from oomkb.units import GIB

LEVEL = 0.9


@dataclass(frozen=True)
class Figure:
    """One published figure against the estimate."""

    name: str
    source: str
    kind: str
    meter: str
    run: str
    score: float
    """log(measured / estimated) in units of the width that is given to such a job."""
    inside: bool


def figures(files: Iterable[Path]) -> list[Figure]:
    """All meters of all rows."""
    found = []
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            priced = price(Job.from_document(row["job"]))
            s, estimate = settle(priced.job, priced.shape), priced.estimate
            for meter in METERS:
                value = row["measured"].get(f"{meter}_gib")
                if value is None:
                    continue
                said, span = getattr(estimate, f"{meter}_bytes"), estimate.intervals[meter]
                width = width_of(s, known=priced.shape.known, warnings=estimate.warnings)
                base = "quantized" if s.quant != "none" else "adapters" if s.adapters else "full"
                found.append(
                    Figure(
                        row["id"],
                        _source(row),
                        kind_of(meter, s),
                        f"{meter}{', quantized' if s.quant != 'none' else ''}",
                        f"{base}{', sharded' if s.shards > 1 else ''}{', compiled' if s.compile else ''}",
                        math.log(value * GIB / said) / width,
                        span.low_bytes <= value * GIB <= span.high_bytes,
                    )
                )
    return found


def _source(row: dict) -> str:
    """The repository or site."""
    text = str(row.get("source") or row["measured"].get("source"))
    text = text.removeprefix("https://").removeprefix("github.com/")
    return "/".join(text.split(":")[0].split("/")[:2])


def quantiles(found: Sequence[Figure]) -> tuple[float, float]:
    """The two ends of the interval: weighted quantiles with the finite-sample correction of split conformal."""
    counts: dict[str, int] = defaultdict(int)
    for f in found:
        counts[f.source] += 1
    weighed = sorted((f.score, counts[f.source] ** -0.5) for f in found)
    total = sum(w for _, w in weighed)
    tail = (1 - LEVEL) / 2 * (1 - 1 / len(weighed))

    def reach(items: Iterable[tuple[float, float]]) -> float:
        run = 0.0
        for score, weight in items:
            run += weight
            if run >= tail * total:
                return score
        raise AssertionError

    return reach(weighed), reach(reversed(weighed))


def left_out(found: Sequence[Figure]) -> list[tuple[Figure, bool]]:
    """Every figure, and whether an interval made without its source holds it."""
    out = []
    for source in sorted({f.source for f in found}):
        for kind in sorted({f.kind for f in found}):
            held = [f for f in found if f.source == source and f.kind == kind]
            others = [f for f in found if f.source != source and f.kind == kind]
            others = others if len(others) >= 10 else [f for f in found if f.source != source]
            low, high = quantiles(others)
            out += [(f, low <= f.score <= high) for f in held]
    return out


def _table(held: Sequence[tuple[Figure, bool]], key: Callable[[Figure], str]) -> None:
    groups: dict[str, list[bool]] = defaultdict(list)
    for figure, inside in held:
        groups[key(figure)].append(inside)
    for name, values in sorted(groups.items()):
        print(f"    {name:44} {sum(values):4}/{len(values):<4} {statistics.mean(values):6.1%}")


def main() -> None:
    """Print coverage and quantiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--kinds", action="store_true", help="errors by kind of run")
    given = parser.parse_args()
    found = figures(given.files)
    held = left_out(found)
    print("intervals made without the source of the figure:")
    _table(held, lambda f: f.meter)
    _table(held, lambda f: f.source)
    print(f"  in all {sum(i for _, i in held)}/{len(held)} = {statistics.mean(i for _, i in held):.1%}")
    print(f"intervals as shipped hold {sum(f.inside for f in found)}/{len(found)}")
    for kind in sorted({f.kind for f in found}):
        low, high = quantiles([f for f in found if f.kind == kind])
        print(f"  {kind:28} ({low:+.3f}, {high:+.3f}), shipped {QUANTILES[kind]}")
    if given.kinds:
        groups: dict[str, list[float]] = defaultdict(list)
        for f in found:
            groups[f"{f.meter}: {f.run}"].append(f.score)
        for name, scores in sorted(groups.items()):
            print(
                f"  {name:52} {len(scores):3} figures, mean {statistics.mean(scores):+.3f}, root mean square "
                f"{math.sqrt(statistics.mean(s * s for s in scores)):.3f}"
            )


if __name__ == "__main__":
    main()
