"""Reserved memory as replayed and as estimated, beside published figures of ``max_memory_reserved``.

    python bench/replay_published.py FILE.jsonl [...]

Each line holds {"id", "job", "measured"}, as in `bench/measured/`; rows without a reserved figure are left out. The
estimate's coefficients (`oomkb.memory.overhead.FRAGMENTATION`) were fitted to some of these figures; the replay has no
coefficient. It runs within the card, less context and communication, as the job states the allocator's settings.
"""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path

from oomkb.errors import JobError
from oomkb.memory.allocator.run import replayed_job
from oomkb.memory.job import Job
from oomkb.pricing import extra_model_shapes, price
from oomkb.units import GIB


def main() -> None:
    """Print both errors for each row, and their means."""
    for name in sys.argv[1:]:
        errors: list[tuple[float, float, float, bool]] = []
        for line in Path(name).read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            figure = row["measured"].get("reserved_gib")
            if figure is None:
                continue
            priced = price(Job.from_document(row["job"]))
            try:
                run = replayed_job(priced.job, priced.shape, priced.device, shapes=extra_model_shapes(priced.job))
            except JobError as refused:
                print(f"  {row['id']}: {refused}")
                continue
            said = [size / GIB / figure - 1 for size in (priced.estimate.reserved_bytes, run.shown.reserved)]
            tensors = priced.estimate.allocated_bytes / GIB / figure - 1
            errors.append((said[0], said[1], tensors, run.changing))
            print(f"  {row['id']:60} {figure:7.2f} GiB  estimated {said[0]:+.1%}  replayed {said[1]:+.1%}", flush=True)
        for changing, kind in ((False, "same lengths"), (True, "changing lengths")):
            own = [e for e in errors if e[3] is changing]
            if own:
                means = [100 * statistics.mean(abs(e[i]) for e in own) for i in range(3)]
                both = f"estimated {means[0]:.1f} %, replayed {means[1]:.1f} %, tensors alone {means[2]:.1f} %"
                print(f"{name}, {kind}, {len(own)} figures: mean error {both}")


if __name__ == "__main__":
    main()
