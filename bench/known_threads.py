"""Build the table by which a public thread is recognised, and add threads to it.

usage: python bench/known_threads.py [--add REPORTS.jsonl ...]

Each line of ``--add`` holds ``url``, ``report`` (the text), ``cause`` and ``also``. What is kept of a thread, in
``bench/data/known_threads.npz``, is its link, its labels and which words and longer figures it holds how often (not in
which order). The table, ``kb/oomkb/retrieval/data/threads.npz``, shows a thread as a match; it says nothing of causes.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oomdoc.diagnosis.engine import retrieval_query
from oomdoc.intake import read_text
from oomkb.retrieval.threads import Threads, marks
from oomkb.retrieval.views import plain_words

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "bench" / "data" / "known_threads.npz"
TABLE = ROOT / "kb" / "oomkb" / "retrieval" / "data" / "threads.npz"


def table_of(threads: Sequence[tuple[str, str, Sequence[str], Mapping[str, int]]]) -> Threads:
    """The table of threads, each its link, its cause, its other causes and how often it holds which mark."""
    holding = Counter(mark for *_, counts in threads for mark in counts)
    known = {mark: number for number, mark in enumerate(sorted(holding))}
    rarity = np.array([math.log((1 + len(threads)) / (1 + holding[mark])) for mark in known], dtype=np.float32)
    entries: list[list[tuple[int, float]]] = [[] for _ in known]
    for row, (*_, counts) in enumerate(threads):
        weighed = {known[mark]: (1 + math.log(count)) * float(rarity[known[mark]]) for mark, count in counts.items()}
        length = math.sqrt(sum(weight * weight for weight in weighed.values())) or 1.0
        for column, weight in weighed.items():
            entries[column].append((row, weight / length))
    return Threads(
        urls=[url for url, *_ in threads],
        causes=[cause for _, cause, *_ in threads],
        also=[",".join(also) for *_, also, _ in threads],
        marks=known,
        rarity=rarity,
        starts=np.cumsum([0, *(len(of_mark) for of_mark in entries)]).astype(np.int32),
        holders=np.array([row for of_mark in entries for row, _ in of_mark], dtype=np.int32),
        weights=np.array([weight for of_mark in entries for _, weight in of_mark], dtype=np.float32),
    )


class Thread(NamedTuple):
    """What is kept of a thread."""

    url: str
    cause: str
    also: tuple[str, ...]
    marks: Counter[str]


def thread_of(report: str, url: str, cause: str, also: list[str]) -> Thread:
    """Read a report as a diagnosis does."""
    query = retrieval_query(read_text(report))
    return Thread(url, cause, tuple(also), Counter(marks(query, plain_words(query))))


def load() -> list[Thread]:
    """The threads kept so far."""
    with np.load(KEPT, allow_pickle=False) as found:
        words = [str(word) for word in found["marks"]]
        starts, columns, counts = found["starts"], found["columns"], found["counts"]
        out = []
        for row, (url, cause, also) in enumerate(zip(found["urls"], found["causes"], found["also"], strict=True)):
            here = slice(starts[row], starts[row + 1])
            held = Counter({words[c]: int(n) for c, n in zip(columns[here], counts[here], strict=True)})
            out.append(Thread(str(url), str(cause), tuple(filter(None, str(also).split(","))), held))
    return out


def save(threads: list[Thread]) -> None:
    """Write the threads, sorted by link."""
    threads = sorted(threads, key=lambda thread: thread.url)
    words = sorted({word for thread in threads for word in thread.marks})
    column = {word: number for number, word in enumerate(words)}
    rows = [sorted((column[w], n) for w, n in thread.marks.items()) for thread in threads]
    np.savez_compressed(
        KEPT,
        urls=np.array([thread.url for thread in threads]),
        causes=np.array([thread.cause for thread in threads]),
        also=np.array([",".join(thread.also) for thread in threads]),
        marks=np.array(words),
        starts=np.cumsum([0, *(len(row) for row in rows)]).astype(np.int32),
        columns=np.array([c for row in rows for c, _ in row], dtype=np.int32),
        counts=np.array([min(n, 255) for row in rows for _, n in row], dtype=np.uint8),
    )


def save_table(table: Threads) -> None:
    """Write the table that the package ships."""
    np.savez_compressed(
        TABLE,
        urls=np.array(table.urls),
        causes=np.array(table.causes),
        also=np.array(table.also),
        marks=np.array(list(table.marks)),
        rarity=table.rarity.astype(np.float16),
        starts=table.starts,
        holders=table.holders.astype(np.uint16 if len(table.urls) < 65536 else np.int32),
        weights=table.weights.astype(np.float16),
    )


def main() -> None:
    """Add threads and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs="+", type=Path, default=[], help="threads to read first, JSONL")
    options = parser.parse_args()
    threads = {thread.url: thread for thread in load()}
    for file in options.add:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            threads[row["url"]] = thread_of(row["report"], row["url"], row["cause"], row.get("also") or [])
    if options.add:
        save(list(threads.values()))
    save_table(table_of([tuple(thread) for thread in threads.values()]))
    print(f"{len(threads)} threads -> {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
