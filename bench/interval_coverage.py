"""How often the 90 % intervals hold figures of sources that they were not calibrated on, group by group.

    python bench/interval_coverage.py FILE.jsonl [...] [--partial RUNS.jsonl] [--kinds]

Each line holds {"id", "job", "measured", "source"}, as in `bench/measured/`. A figure's score is log(measured /
estimated) in widths; of a run in `bench/measured/first_look.jsonl` the estimate is the one of the commit before the run
was learned from, and the run belongs to ``not met`` unless its framework had been met by then. `--partial` adds runs of
`bench/partial_runs.py` to the groups that have few sources (changing lengths, not met), where they fit the
card they ran on at all. Every source is left out in turn: the quantiles of its group are taken over the others, a
source counting as the root of its figures and the tails cut by 1 - 2.5 / sources (6 in those two groups, whose sources
are unlike each other). Printed are, for each group, how
often the resulting intervals hold what was left out, their mean width as a share of the estimate, and the quantiles
over everything, which `oomkb.memory.intervals.GROUPS` states.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oomkb.frameworks import otherwise
from oomkb.memory import model as memory
from oomkb.memory.estimate import METERS
from oomkb.memory.intervals import GROUPS, MET, group_of, is_complete, shortest, width_of
from oomkb.memory.job import Job
from oomkb.memory.setting import resolve_setting
from oomkb.pricing import price
from oomkb.units import GIB

LEVEL = 0.9
FIRST_LOOK = Path(__file__).parent / "measured" / "first_look.jsonl"
LATER = {  # frameworks of which figures were met only with a set, or with one after it
    "unseen.jsonl": ("transformers", "peft", "trl", "axolotl", "prime-rl", "automodel", "megatron", "deepspeed"),
    "unseen2.jsonl": ("axolotl", "prime-rl", "automodel", "megatron", "deepspeed"),
    "unseen3.jsonl": ("prime-rl", "automodel"),
    "unseen4.jsonl": (),
    "unseen6.jsonl": (),
    "unseen8.jsonl": (),
    "unseen9.jsonl": (),
    "unseen10.jsonl": (),
    "unseen11.jsonl": (),
    "unseen12.jsonl": (),
    "unseen13.jsonl": (),
}
FEW = frozenset({"changing lengths", "not met"})
"""Groups that runs of which less is known are added to."""


@dataclass(frozen=True)
class Figure:
    """One published figure against the estimate."""

    name: str
    source: str
    group: str
    kind: str
    score: float
    """log(measured / estimated) in units of the width that is given to such a job."""
    width: float
    inside: bool
    """Whether the interval that is shipped holds it."""


def figures(files: Iterable[Path], partial: Path | None = None) -> list[Figure]:
    """All meters of all rows."""
    first = {row["id"]: row for row in map(json.loads, FIRST_LOOK.read_text(encoding="utf-8").splitlines())}
    found = []
    for file in files:
        words = tuple(word for word in MET if word not in LATER.get(file.name, ()))
        for line in file.read_text(encoding="utf-8").splitlines():
            found += _figures(json.loads(line), first if file.name in LATER else {}, words)
    for line in partial.read_text(encoding="utf-8").splitlines() if partial else ():
        row = json.loads(line)
        found += [f for f in _figures(row, {}, MET, partial=True) if f.group in FEW]
    return found


def _figures(
    row: dict[str, Any], first: dict[str, Any], words: Sequence[str], *, partial: bool = False
) -> Iterable[Figure]:
    priced = price(Job.from_document(row["job"]))
    s, estimate = resolve_setting(priced.job, priced.shape), priced.estimate
    if partial and (estimate.allocated_bytes > (estimate.capacity_bytes or math.inf) or not is_complete(s)):
        return
    other = otherwise(Job.from_document(row["job"]), priced.job)
    beside = memory.estimate(other, priced.shape, priced.device) if other is not None else estimate
    width = width_of(s, known=priced.shape.known)
    base = "quantized" if s.quant != "none" else "adapters" if s.adapters else "full"
    met = priced.job.runs_on(*words)
    for meter in METERS:
        value = row["measured"].get(f"{meter}_gib")
        if value is None:
            continue
        now = getattr(estimate, f"{meter}_bytes") / GIB
        group, span = group_of(meter, s, met=met), estimate.intervals[meter]
        # What batches of changing lengths leave behind was another rule at first sight.
        said = now if group == "changing lengths" else first.get(row["id"], {}).get(f"{meter}_gib", now)
        yield Figure(
            row["id"],
            _source(row),
            group,
            f"{meter}: {base}{', sharded' if s.shards > 1 else ''}{', compiled' if s.compile else ''}",
            _score(value / said, shortest(s, meter, estimate.phases), getattr(beside, f"{meter}_bytes") / GIB / now)
            / width,
            width,
            span.low_bytes <= value * GIB <= span.high_bytes,
        )


def _score(ratio: float, least: float, otherwise: float) -> float:
    """log(measured / estimated), 0 where batches as short as what is stated allows explain that it is less; of a run
    that may be otherwise the distance to the nearer of both.
    """
    if least * math.exp(GROUPS["exact"][0]) <= ratio < 1 and least < 1:
        return 0.0
    low, high = sorted((1.0, otherwise))
    return math.log(ratio / min(max(ratio, low), high))


def _source(row: dict[str, Any]) -> str:
    """The repository or site."""
    text = str(row.get("source") or row["measured"].get("source"))
    text = text.removeprefix("https://").removeprefix("github.com/")
    return "/".join(text.split(":")[0].split("/")[:2])


def quantiles(found: Sequence[Figure]) -> tuple[float, float]:
    """The two ends of the interval: weighted quantiles, the tails cut for the number of figures and of sources."""
    counts = Counter(f.source for f in found)
    weighed = sorted((f.score, counts[f.source] ** -0.5) for f in found)
    total = sum(w for _, w in weighed)
    unlike = 6.0 if found[0].group in FEW else 2.5
    tail = (1 - LEVEL) / 2 * (1 - 1 / len(weighed)) * max(0.0, 1 - unlike / len(counts))

    def reach(items: Iterable[tuple[float, float]]) -> float:
        run = 0.0
        for score, weight in items:
            run += weight
            if run >= tail * total:
                return score
        raise AssertionError

    return reach(weighed), reach(reversed(weighed))


def left_out(found: Sequence[Figure]) -> list[tuple[Figure, bool, float]]:
    """Every figure, whether an interval made without its source holds it, and the interval's width."""
    out = []
    for source in sorted({f.source for f in found}):
        for group in sorted({f.group for f in found}):
            held = [f for f in found if f.source == source and f.group == group]
            others = [f for f in found if f.source != source and f.group == group]
            few = len(others) < 10 or len({f.source for f in others}) < 2
            low, high = quantiles([f for f in found if f.source != source] if few else others)
            out += [(f, low <= f.score <= high, math.exp(high * f.width) - math.exp(low * f.width)) for f in held]
    return out


def _table(held: Sequence[tuple[Figure, bool, float]], key: Callable[[Figure], str]) -> None:
    groups: dict[str, list[tuple[bool, float]]] = defaultdict(list)
    for figure, inside, width in held:
        groups[key(figure)].append((inside, width))
    for name, values in sorted(groups.items()):
        inside = [i for i, _ in values]
        share, width = statistics.mean(inside), statistics.mean(w for _, w in values)
        print(f"    {name:44} {sum(inside):4}/{len(inside):<4} {share:6.1%}   mean width {width:5.2f}")


def main() -> None:
    """Print coverage, widths and quantiles."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--partial", type=Path, help="runs of bench/partial_runs.py")
    parser.add_argument("--kinds", action="store_true", help="errors by kind of run")
    given = parser.parse_args()
    found = figures(given.files, given.partial)
    held = left_out(found)
    print("intervals made without the source of the figure, at first sight where that was written down:")
    _table(held, lambda f: f.group)
    _table(held, lambda f: f.source)
    whole = [inside for _, inside, _ in held]
    print(f"  in all {sum(whole)}/{len(whole)} = {statistics.mean(whole):.1%}")
    print(f"intervals as shipped hold {sum(f.inside for f in found)}/{len(found)} as priced today")
    for group in sorted({f.group for f in found}):
        own = [f for f in found if f.group == group]
        low, high = quantiles(own)
        sources = len({f.source for f in own})
        print(f"  {group:18} {len(own):3} of {sources} sources ({low:+.3f}, {high:+.3f}), shipped {GROUPS[group]}")
    if given.kinds:
        groups: dict[str, list[float]] = defaultdict(list)
        for f in found:
            groups[f.kind].append(f.score)
        for name, scores in sorted(groups.items()):
            print(
                f"  {name:52} {len(scores):3} figures, mean {statistics.mean(scores):+.3f}, root mean square "
                f"{math.sqrt(statistics.mean(s * s for s in scores)):.3f}"
            )


if __name__ == "__main__":
    main()
