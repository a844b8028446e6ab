"""Exact peaks of tensor bytes of a real training step, without a GPU and without weights (``oomdoc.tracing``).

usage: python bench/trace.py JOB.json            one job document (or {"id", "job"}), prints one JSON row
       python bench/trace.py --batch JOBS.jsonl  one {"id", "job"} a line in, one row a line out

Needs the extra ``trace``. ``oomdoc trace JOB`` shows one such trace beside the estimate.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path

import optimizers  # noqa: F401
from oomdoc.tracing.building import DTYPES, prepare
from oomdoc.tracing.running import make_optimizer, trace
from oomkb.units import GIB

__all__ = ["DTYPES", "make_optimizer", "prepare", "trace"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--batch", action="store_true")
    parser.add_argument(
        "--events", action="store_true", help="also print every allocation and release of the second step"
    )
    options = parser.parse_args()
    text = Path(options.file).read_text()
    rows = [json.loads(line) for line in text.splitlines() if line.strip()] if options.batch else [json.loads(text)]
    for row in rows:
        job = row.get("job", row)
        try:
            measured = trace(job, events=options.events)
        except Exception as error:  # a family that cannot be traced is reported and skipped
            if not options.batch:
                raise
            print(json.dumps({"id": row.get("id"), "error": f"{type(error).__name__}: {error}"[:300]}), flush=True)
            continue
        for name, size, live in measured.pop("events", None) or ():
            print(f"{live / GIB:9.4f} {size / 2**20:+10.2f} MiB {name}", file=sys.stderr)
        print(json.dumps({"id": row.get("id"), "job": job, "measured": measured}), flush=True)
        gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
