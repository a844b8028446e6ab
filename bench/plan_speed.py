"""How long the planner takes: ``python bench/plan_speed.py [COUNT]`` prints quantiles over random jobs, warm.

Targets: a typical search within 150 ms, the worst within 1 s, on one core.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from oomdoc.diagnosis.planning.planner import plan
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from plan_jobs import jobs


def main(count: int) -> None:
    plan(Job.from_document(jobs(1)[0]))
    times: list[tuple[float, dict[str, object]]] = []
    refused = found = fits = nothing = 0
    for document in jobs(count):
        start = time.process_time()
        try:
            planning = plan(Job.from_document(document))
        except OomdocError as error:
            refused += 1
            print(f"refused: {error}", file=sys.stderr)
            continue
        times.append((1e3 * (time.process_time() - start), document))
        found += bool(planning.plans) and planning.nothing_fits is None
        nothing += planning.nothing_fits is not None
        fits += not planning.plans and planning.nothing_fits is None
    searched = sorted(t for t, _ in times)
    print(
        f"{len(searched)} jobs: {fits} fit as they are, {found} have a plan, {nothing} fit in no way, {refused} refused"
    )
    print(
        f"ms: median {statistics.median(searched):.0f}, 90 % {searched[int(0.9 * len(searched))]:.0f}, "
        f"99 % {searched[int(0.99 * len(searched))]:.0f}, worst {searched[-1]:.0f}"
    )
    print("slowest:", max(times, key=lambda t: t[0])[1])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
