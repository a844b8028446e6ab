"""Fit the reader of configuration keys by their words (``oomdoc.intake.configs.key_words``).

usage: python bench/train_config_keys.py [--write] [--left-out N] [--bound P]

Trained on every key of the frameworks' records (``oomkb/frameworks/records``) and on ``bench/data/config_keys/*.tsv``:
keys of projects with scripts of their own, each with its project, an example value and the field that it says or
``none``. ``--left-out`` prints what is right on names never seen, of frameworks and projects left out in N groups.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oomdoc.intake.configs import key_words
from oomdoc.intake.configs.key_words import NO_FIELD, features_of
from oomdoc.intake.linear import Softmax
from oomkb.frameworks.declared import records
from train_quantities import softmax_of, write_to

DATA = Path(__file__).parent / "data" / "config_keys"
MIN_SUPPORT = 2
"""Keys that a feature must be seen with."""
STEPS = 400
"""With which weights near the bound of 0.8 do not move any more."""
MIN_KEYS = 5
"""Keys of a class."""
SAME = {
    "serving.max_model_len": "seq_len",
    "serving.gpu_memory_utilization": "gpu_memory_utilization",
    "rollout.gpu_memory_utilization": "gpu_memory_utilization",
    "rollout.tensor_parallel": "tp",
}
"""Fields that the same words name: what the run is for decides which is meant."""


class Row(NamedTuple):
    """A labelled key."""

    features: frozenset[int]
    role: str
    key: str
    project: str


def labelled() -> Iterator[tuple[str, str, str]]:
    """(project, key, field or ``none``)."""
    for record in records():
        said: dict[str, str] = {}
        for row in record.keys:
            said.update((key, row.field) for key in row.keys if key not in said)
        for word in record.words:
            said.update((key, word.field) for key in word.key.split(",") if key not in said)
        for total in record.totals:
            said.setdefault(total.key, "global_batch")
        known = sorted(record.known)  # a set: in any other order the fit is another
        said.update((key, NO_FIELD) for key in known if key not in said and not key.endswith(".*"))
        yield from ((record.name, key, field) for key, field in said.items())
    for path in sorted(DATA.glob("*.tsv")):
        for line in path.read_text(encoding="utf-8").splitlines():
            project, key, _, field = line.split("\t")
            yield project, key, field


def rows() -> list[Row]:
    """All keys; a field that few keys say is none."""
    found = [(project, key, SAME.get(field, field)) for project, key, field in labelled()]
    seen = Counter(field for _, _, field in found)
    kept = {field for field, times in seen.items() if times >= MIN_KEYS}
    return [Row(features_of(key), field if field in kept else NO_FIELD, key, project) for project, key, field in found]


def fitted(found: Sequence[Row]) -> Softmax:
    """The model of these keys."""
    return softmax_of(found, tuple(sorted({row.role for row in found})), key(), MIN_SUPPORT, STEPS)


def key() -> str:
    """The hash of what the weights were fitted on."""
    return sha256(repr(sorted(labelled())).encode()).hexdigest()[:16]


def left_out(found: Sequence[Row], groups: int, bound: float) -> None:
    """How many keys never seen get their field, whole projects left out."""
    projects = sorted({row.project for row in found})
    out = []
    for n in range(groups):
        test = set(projects[n::groups])
        learnt = [row for row in found if row.project not in test]
        seen, made = {row.key for row in learnt}, fitted(learnt)
        tested = [row for row in found if row.project in test and row.key not in seen]
        out += [(row, *made.best(row.features)) for row in tested]
    for least in (0.5, 0.7, bound):
        said = [(row.role == field) for row, field, p in out if field != NO_FIELD and p >= least]
        fields = sum(row.role != NO_FIELD for row, _, _ in out)
        print(f"said with {least:.2f}: {np.mean(said):.1%} right of {len(said)}; {sum(said) / fields:.1%} of {fields}")
    for row, field, p in sorted(out, key=lambda each: -each[2]):
        if field not in (NO_FIELD, row.role) and p >= bound:
            print(f"  {p:.2f} {row.project} {row.key}: {row.role} read as {field}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--left-out", type=int, default=0)
    parser.add_argument("--bound", type=float, default=0.8)
    given = parser.parse_args()
    found = rows()
    print(f"{len(found)} keys, {sum(row.role != NO_FIELD for row in found)} of a field")
    if given.left_out:
        left_out(found, given.left_out, given.bound)
    if given.write:
        write_to(Path(key_words.__file__).with_name(key_words.WEIGHTS), fitted(found))


if __name__ == "__main__":
    main()
