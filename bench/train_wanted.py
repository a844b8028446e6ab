"""Fit the reader of what a question asks for (``oomdoc.intake.wanted_words``).

usage: python bench/train_wanted.py [--write] [--hold-out NAME[,NAME]]

Trained on the questions, figures and turns of ``bench/data/quantities/*.txt``, whose headers say what each writer
wanted. ``--hold-out`` fits without some writers' files and prints how many of their texts are read rightly, beside the
rules of ``wanted.tsv`` alone and both together, as the service puts them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

import train_quantities as marked
from oomdoc.intake import wanted, wanted_words
from oomdoc.intake.linear import Softmax

LABELS = {
    "fit": "fit",
    "memory": "amount",
    "longest": "length",
    "batch": "batch",
    "cards": "cards",
    "users": "requests",
    "model": "model",
    "layers": "layers",
    "cache": "cache",
    "host": "host",
}
"""What the headers call a quantity, and its name in the service; of other wants no quantity is asked for."""
KINDS = ("question", "figures", "turn")
SUMS = frozenset({"fit", "amount", "share", "reserved"})
"""Answers that give the memory that a run needs: one is as right as another."""


class Row(NamedTuple):
    """One text."""

    features: set[int]
    role: str
    text: str


def rows_of(path: Path) -> Iterator[Row]:
    """The texts of a file that ask for something."""
    for text in marked.read_marked(path):
        if len(text.header) > 3 and text.header[2] in KINDS:
            want = text.header[3].rpartition(":")[2].strip()
            yield Row(wanted_words.features_of(text.text), LABELS.get(want, "fit"), text.text)


def fitted(rows: Sequence[Row]) -> Softmax:
    """The model of these texts."""
    return marked.softmax_of(rows, tuple(sorted(set(LABELS.values()))), key())


def key() -> str:
    """The hash of the texts, and of the weights of the reader whose roles are features."""
    return sha256(marked.key().encode() + b"wanted").hexdigest()[:16]


def is_right(said: str, role: str) -> bool:
    """Whether an answer gives what was wanted."""
    return said == role or (said in SUMS and role in SUMS)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--hold-out", default="")
    given = parser.parse_args()
    held = set(filter(None, given.hold_out.split(",")))
    rows = {path.stem: list(rows_of(path)) for path in sorted(marked.DATA.glob("*.txt"))}
    found = fitted([row for name, some in rows.items() if name not in held for row in some])
    left_out = [row for name in held for row in rows[name]]
    if left_out:
        words = [found.best(row.features) for row in left_out]
        rules = [wanted.by_rules(row.text) for row in left_out]
        both = [wanted.agreed(rule, row.text, *said) for rule, row, said in zip(rules, left_out, words, strict=True)]
        for title, said in (("words", [one for one, _ in words]), ("rules", rules), ("both", both)):
            share = np.mean([is_right(one, row.role) for one, row in zip(said, left_out, strict=True)])
            print(f"{title}: {share:.1%} of {len(left_out)} texts of writers left out")
    if given.write:
        marked.write_to(Path(wanted_words.__file__).with_name(wanted_words.WEIGHTS), found)


if __name__ == "__main__":
    main()
