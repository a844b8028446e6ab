"""How long a diagnosis of a 20 KB log takes in a process that is warm, and where the time goes.

usage: python bench/diagnosis_speed.py [LOG] [--bytes 20000] [--repeat 15]

The log is padded in front with training lines to the wanted size. Printed, as the best of the repetitions, once by the
clock and once by the processor time of all threads (which a busy machine does not change as much): reading, embedding
(no text twice: each repetition has words of its own), the view with retrieval, ranking with questions, and plans.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oomdoc.diagnosis.engine import diagnose, retrieval_query, view_of
from oomdoc.intake import read_text
from oomkb.retrieval.embed import encoder

EXAMPLE = Path(__file__).parents[1] / "examples" / "dpo-v100" / "train.log"


def padded(text: str, size: int) -> str:
    """Training lines before ``text``, ``size`` bytes in all."""
    lines = (f"INFO step {i} loss=1.{i:04d} lr=1e-05 grad_norm=0.{i % 97}" for i in range(size // 20))
    return "\n".join(lines)[: max(0, size - len(text))] + "\n" + text


def best(work: Callable[[int], Any], repeat: int) -> str:
    """Clock and processor milliseconds of the fastest repetition."""
    clock, processor = [], []
    for number in range(repeat):
        started, used = time.perf_counter(), time.process_time()
        work(number)
        processor.append(time.process_time() - used)
        clock.append(time.perf_counter() - started)
    return f"{1000 * min(clock):7.1f} ms by the clock {1000 * min(processor):7.1f} ms of processor"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", type=Path, default=EXAMPLE)
    parser.add_argument("--bytes", type=int, default=20_000)
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    text = padded(options.log.read_text(encoding="utf-8"), options.bytes)
    other = [f"It happened on try {n}.\n{text}" for n in range(options.repeat)]
    read = [read_text(t) for t in other]
    diagnose(read_text(text))
    head = retrieval_query(read_text(text))[:240]
    print(f"{len(text):,} bytes")
    steps: dict[str, Callable[[int], Any]] = {
        "reading": lambda n: read_text(other[n]),
        "embedding alone": lambda n: encoder().encode_quickly([f"{n} {head}"]),
        "view, embedding included": lambda n: view_of(read[n]),
        "diagnosis without plans": lambda n: diagnose(read_text(f"Again {n}.\n{other[n]}"), plans=False),
        "diagnosis with plans": lambda n: diagnose(read_text(f"Once more {n}.\n{other[n]}")),
    }
    for name, work in steps.items():
        print(f"{name:26s} {best(work, options.repeat)}")


if __name__ == "__main__":
    main()
