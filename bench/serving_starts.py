"""How far the memory model is from what inference engines logged when they started.

    python bench/serving_starts.py [tests/kb/memory/data/serving_starts.jsonl] [--all]

Each line holds {"id", "job", "logged": {...}, "source"}; figures per GPU: weights, activation peak and memory outside
of torch of the profiling run, the cache's pool, its tokens, requests of full length at once. Prints the mean and the
worst error of each figure; ``--all`` prints every row.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

from oomkb.frameworks import complete
from oomkb.memory.engines import engine_of, outside_bytes
from oomkb.memory.job import Job
from oomkb.memory.serving import serving_bytes
from oomkb.memory.setting import resolve_setting
from oomkb.pricing import device_of, shape_of
from oomkb.units import GIB

DATA = Path(__file__).parent.parent / "tests" / "kb" / "memory" / "data" / "serving_starts.jsonl"


def said(document: dict) -> dict[str, float]:
    """The model's figures under the names of the logged ones."""
    job = complete(Job.from_document(document))
    shape, device = shape_of(job), device_of(job)
    s = resolve_setting(job, shape)
    found = serving_bytes(s, shape, device)
    engine = engine_of(job, s, device)
    assert engine is not None
    return {
        "weights_gib": found.weights / GIB,
        "activation_gib": found.activations / GIB,
        "non_torch_gib": outside_bytes(engine, s, device)[0] / GIB,
        "kv_gib": found.cache_bytes / GIB,
        "kv_tokens": found.tokens,
        "kv_needed_gib": found.needed_bytes * s.pp / GIB,
        "max_concurrency": found.cache_bytes / found.needed_bytes,
        "starts": found.needed_bytes <= found.budget,
    }


def main() -> None:
    """Print the errors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=DATA)
    parser.add_argument("--all", action="store_true")
    given = parser.parse_args()
    errors: dict[str, list[tuple[float, str]]] = {}
    for line in given.file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        figures = said(row["job"])
        shown = []
        for name, real in row["logged"].items():
            if name == "starts":
                shown.append(f"starts {figures[name]} ({real})")
                continue
            errors.setdefault(name, []).append((figures[name] / real - 1, row["id"]))
            shown.append(f"{name} {figures[name]:.2f} ({real}, {figures[name] / real - 1:+.1%})")
        if given.all:
            print(f"{row['id']:42}", "; ".join(shown))
    for name, found in errors.items():
        sizes = [abs(e) for e, _ in found]
        worst = max(found, key=lambda item: abs(item[0]))
        print(
            f"{name:16} {len(found):3} figures: mean {statistics.mean(sizes):6.1%}, median "
            f"{statistics.median(sizes):6.1%}, worst {worst[0]:+.1%} ({worst[1]})"
        )


if __name__ == "__main__":
    main()
