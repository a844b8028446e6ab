"""The throughput model on runs it was not fitted to: ``python bench/plan_throughput_held_out.py``.

The constants of ``oomdoc.diagnosis.throughput`` were chosen on the same published runs that ``plan_throughput.py``
compares them with. Here they are chosen anew (coordinate descent over the ratios of all pairs) with one source left
out, a table or a model at a time, and judged on what was left out. Adds ``held_out`` to
``results/plan_throughput.json``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from itertools import combinations
from typing import Any, Final

from oomdoc.diagnosis import throughput as model
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import Priced, price
from plan_throughput import HERE, job_of, spread

GRID: Final[dict[str, tuple[float, ...]]] = {
    "_HALF_FED_TOKENS": (100, 200, 400, 700, 1000, 1500, 2500),
    "_HIDDEN_SHARE": (0.0, 0.2, 0.4, 0.6, 0.8, 0.95),
    "_ADAPTERS": (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 1.0),
    "_UNPACKED_BYTES": (0.5, 1.5, 3.0, 4.5, 6.0, 9.0, 12.0),
    "_PEAK_SHARE": (0.35, 0.45, 0.55, 0.65, 0.75),
}
START: Final = {name: values[len(values) // 2] for name, values in GRID.items()}
ROUNDS: Final = 3
Row = tuple[dict[str, Any], Priced]


def readable(rows: Iterable[dict[str, Any]]) -> list[Row]:
    """The rows that can be priced, each priced once: memory does not depend on the constants."""
    found = []
    for row in rows:
        try:
            found.append((row, price(Job.from_document(job_of(row)))))
        except OomdocError:
            continue
    return found


def pairs_of(rows: list[Row]) -> list[tuple[int, int]]:
    """Two settings of one model on one stack."""
    stack = [tuple(row[k] for k in ("model", "table", "kernels")) for row, _ in rows]
    return [(i, j) for i, j in combinations(range(len(rows)), 2) if stack[i] == stack[j]]


def errors(rows: list[Row], pairs: list[tuple[int, int]], constants: dict[str, float]) -> list[float]:
    """log(predicted ratio / measured ratio) of every pair under these constants."""
    for name, value in constants.items():
        setattr(model, name, value)
    told = [math.log(row["samples_per_s"]) for row, _ in rows]
    said = [math.log(model.throughput(p.job, p.shape, p.device).samples_per_s) for _, p in rows]
    return [(said[j] - said[i]) - (told[j] - told[i]) for i, j in pairs]


def fitted(rows: list[Row]) -> dict[str, float]:
    """The constants of least mean absolute error, from the middle of the grid."""
    pairs, best = pairs_of(rows), dict(START)

    def cost(constants: dict[str, float]) -> float:
        found = errors(rows, pairs, constants)
        return sum(map(abs, found)) / len(found)

    for _ in range(ROUNDS):
        for name, values in GRID.items():
            best[name] = min((cost({**best, name: value}), value) for value in values)[1]
    return best


def main() -> None:
    document = json.loads((HERE / "plan_throughput.json").read_text(encoding="utf-8"))
    rows = readable(document["rows"])
    shipped = {name: getattr(model, name) for name in GRID}
    result: dict[str, Any] = {}
    for kind in ("table", "model"):
        everything: list[float] = []
        for left_out in sorted({row[kind] for row, _ in rows}):
            test = [r for r in rows if r[0][kind] == left_out]
            constants = fitted([r for r in rows if r[0][kind] != left_out])
            found = errors(test, pairs_of(test), constants)
            everything += found
            result[f"{kind} {left_out}"] = {**spread(found), "constants": constants}
            print(kind, left_out, result[f"{kind} {left_out}"], flush=True)
        result[f"by {kind}"] = spread(everything)
        print(f"by {kind}", result[f"by {kind}"])
    result["fitted to all"] = {**spread(errors(rows, pairs_of(rows), fitted(rows)))}
    result["as shipped"] = {**spread(errors(rows, pairs_of(rows), shipped)), "constants": shipped}
    print("as shipped", result["as shipped"], "fitted to all", result["fitted to all"])
    target = HERE / "results" / "plan_throughput.json"
    whole = json.loads(target.read_text(encoding="utf-8"))
    target.write_text(json.dumps({**whole, "held_out": result}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
