"""Fit the readers of what a turn of a conversation does and what its answer shows (``oomdoc.chat.turn_words``).

usage: python bench/train_turns.py [--write] [--test TURNS.jsonl]

Trained on ``bench/data/turns.jsonl``: later turns of conversations, labelled with what they do (``act``; of two acts,
"set+ask", the first counts) and with what the answer shows (``topic``). Without ``--write``: cross-validation.
``--test``: figures on labelled turns of one's own.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

import train_quantities as marked
from oomdoc.chat import turn_words
from oomdoc.chat.turn_words import ACT_WEIGHTS, ACTS, VIEW_WEIGHTS, VIEWS
from oomdoc.intake.linear import Softmax
from oomdoc.intake.quantities import tokens

TURNS = Path(__file__).parent / "data" / "turns.jsonl"
FOLDS = 8
BOUNDS = (0.5, 0.6, 0.7, 0.8, 0.9)


class Row(NamedTuple):
    """One turn."""

    features: set[int]
    role: str
    text: str


READERS = (("act", ACTS, ACT_WEIGHTS), ("topic", VIEWS, VIEW_WEIGHTS))
"""The label of a row, its classes, the file of the weights."""


def rows_of(path: Path, label: str) -> list[Row]:
    """The turns of a file that have a label."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [
        Row(turn_words.features_of(row["text"]), row[label].partition("+")[0], row["text"])
        for row in rows
        if label in row
    ]


def fitted(rows: Sequence[Row], names: tuple[str, ...]) -> Softmax:
    """The model of these turns."""
    return marked.softmax_of(rows, names, key(), min_support=MIN_SUPPORT)


MIN_SUPPORT = 2
"""Turns that a feature must be seen in."""


def key() -> str:
    """The hash of the turns, and of the words and meanings that are features."""
    tables = (Path(turn_words.__file__).with_name("wording.toml"), Path(tokens.__file__).with_name("tokens.tsv"))
    return sha256(b"".join(path.read_bytes() for path in (TURNS, *tables))).hexdigest()[:16]


def show(title: str, names: Sequence[str], probable: np.ndarray, rows: Sequence[Row], *, wrong: bool) -> None:
    """How many turns get their act, and how many of those that are said surely."""
    best, most = probable.argmax(axis=1), probable.max(axis=1)
    right = np.array([names[k] == row.role for k, row in zip(best, rows, strict=True)])
    sure = ", ".join(f"from {b}: {right[most >= b].mean():.1%} of {(most >= b).mean():.0%}" for b in BOUNDS)
    print(f"{title}: {right.mean():.1%} of {len(rows)}; {sure}")
    missed = Counter((row.role, names[k]) for row, k, ok in zip(rows, best, right, strict=True) if not ok)
    for (role, read), times in missed.most_common(16 if wrong else 0):
        print(f"  {times:4} {role} read as {read}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--test", type=Path)
    given = parser.parse_args()
    for label, names, weights in READERS:
        rows = rows_of(TURNS, label)
        if not given.write:
            probable = np.zeros((len(rows), len(names)), np.float32)
            for fold in range(FOLDS):
                found = fitted([row for n, row in enumerate(rows) if n % FOLDS != fold], names)
                probable[fold::FOLDS] = found.probabilities([row.features for row in rows[fold::FOLDS]])
            show(f"{label}, left-out turns", names, probable, rows, wrong=True)
        found = fitted(rows, names)
        if given.test and (tested := rows_of(given.test, label)):
            odds = found.probabilities([row.features for row in tested])
            show(f"{label}, {given.test.name}", names, odds, tested, wrong=True)
        if given.write:
            marked.write_to(Path(turn_words.__file__).with_name(weights), found)


if __name__ == "__main__":
    main()
