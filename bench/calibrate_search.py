"""Fit what a score of the search means: `python bench/calibrate_search.py REPORTS.jsonl ... [--questions F] [--write]`.

Reports are lines with `report`, `title`, `cause`, `also` and `url` or an `id` of the form `owner/name#number`; both the
report and its title are asked, and the cases of the same thread are hidden. Questions have `text`, `cause`, `also`.
The cases' own short symptoms are asked with their case left out. About other things are
`bench/data/unrelated_questions.txt`, its templates filled with names of frameworks and models (a name says nothing),
and the lines of --others. Prints the calibration error with repositories left out; --write replaces
data/calibration.toml and data/related.npz. All of these are training figures.
"""

from __future__ import annotations

import argparse
import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oomkb.records.case import Case
from oomkb.records.loader import load_cases
from oomkb.retrieval.embed import encoder
from oomkb.retrieval.index import Index, open_index
from oomkb.retrieval.search import Weights, figures_of, fused, spread
from oomkb.retrieval.views import look

DATA = Path(__file__).parent.parent / "kb/oomkb/retrieval/data/calibration.toml"
UNRELATED = Path(__file__).parent / "data/unrelated_questions.txt"
FOLDS = 10
FILLED = 14
"""Questions made of one template."""
SHRINK = 2.0
"""Of the direction of the vector; the figures are all but free."""
TOP = 5
SHORT_CHARS = 200
LEAST_RELATED = 0.4
LEAST_PROBABILITY = 0.1
ELSE = ("unrelated", "filled", "other")
"""Kinds of texts about something else."""
Floats = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Asked:
    """A text with the causes that count as right; the numbers of cases that may not be found."""

    kind: str
    group: str
    text: str
    right: frozenset[str]
    hidden: frozenset[int] = field(default_factory=frozenset)


def lines(path: Path) -> Iterator[dict[str, Any]]:
    yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())


def asked(cases: tuple[Case, ...], reports: list[Path], questions: list[Path], others: list[Path]) -> Iterator[Asked]:
    for row in (row for path in reports for row in lines(path)):
        owner, _, number = str(row.get("id", "")).partition("#")
        thread = row.get("url") or f"https://github.com/{owner}/issues/{number}"
        same = frozenset(n for n, case in enumerate(cases) if thread in {r.url for r in case.references})
        right = frozenset({row["cause"], *(row.get("also") or [])})
        yield Asked("report", owner, row["report"], right, same)
        yield Asked("title", owner, row["title"], right, same)
    for row in (row for path in questions for row in lines(path)):
        yield Asked("question", row["id"], row["text"], frozenset({row["cause"], *row["also"]}))
    for n, case in enumerate(cases):
        for symptom in case.symptoms[1:]:
            if len(symptom) <= SHORT_CHARS:
                yield Asked("symptom", case.id, symptom, frozenset({case.cause, *case.also}), frozenset({n}))
    drawn = random.Random(7)
    names, *rows = UNRELATED.read_text(encoding="utf-8").splitlines()
    for line in rows:
        for _ in range(FILLED if "{}" in line else 1):
            filled = line.format(*drawn.sample(names.split(","), line.count("{}")))
            yield Asked("filled" if "{}" in line else "unrelated", line, filled, frozenset())
    for line in (line for path in others for line in path.read_text(encoding="utf-8").splitlines()):
        yield Asked("other", line, line, frozenset())


def measured(index: Index, one: Asked) -> tuple[list[float], list[tuple[float, bool]]]:
    """The figures of the text, and (value, whether the cause is right) of each case that is found."""
    views = look(index, one.text)
    total = fused(views, Weights()).copy()
    for number in one.hidden:
        total[number] = views.cosines[number] = views.bm25[number] = -99.0
    found = spread(total, index.cases, TOP, Weights().repeat)
    return [*figures_of(index, views), *views.vector.tolist()], [
        (value, index.cases[n].cause in one.right) for n, value in found
    ]


def fitted(features: Floats, right: Floats, weight: Floats) -> Floats:
    """Logistic regression by Newton's method; the first column is the constant, from the fifth on it is a vector."""
    coefficients = np.zeros(features.shape[1])
    shrink = np.where(np.arange(features.shape[1]) < 4, 0.01, SHRINK)
    for _ in range(60):
        chance = 1 / (1 + np.exp(-np.clip(features @ coefficients, -30, 30)))
        slope = features.T @ (weight * (chance - right)) + shrink * coefficients
        curve = (features * (weight * chance * (1 - chance))[:, None]).T @ features + np.diag(shrink)
        coefficients -= np.linalg.solve(curve, slope)
    return coefficients


@dataclass(frozen=True)
class Rows:
    """One row per text (``about``) and per found case."""

    kinds: Floats
    folds: Floats
    texts: Floats
    about: Floats
    values: Floats
    right: Floats

    @property
    def related(self) -> Floats:
        """(texts,) 1 where a text is about a failure of memory."""
        return np.asarray(~np.isin(self.kinds, ELSE), dtype=float)


def stages(rows: Rows, train: Floats) -> tuple[Floats, Floats]:
    """The coefficients of both curves from the texts in ``train``."""
    memory = rows.related[train]
    rare = memory.sum() / max(1.0, (1 - memory).sum())  # texts about something else count for half of all
    about = fitted(rows.about[train], memory, np.where(memory == 1, 1.0, rare))
    used = train[rows.texts] & (rows.related[rows.texts] == 1)
    weight = np.where(rows.kinds[rows.texts] == "symptom", 0.5, 1.0)
    cause = fitted(np.column_stack([np.ones(used.sum()), rows.values[used]]), rows.right[used], weight[used])
    return about, cause


def chances(rows: Rows, about: Floats, cause: Floats) -> tuple[Floats, Floats]:
    """(texts,) relatedness, (cases,) probability."""
    related = 1 / (1 + np.exp(-np.clip(rows.about @ about, -30, 30)))
    return related, related[rows.texts] / (1 + np.exp(-(cause[0] + cause[1] * rows.values)))


def error(chance: Floats, right: Floats) -> float:
    """Mean distance of chance and truth over ten bins."""
    bins = np.minimum((chance * 10).astype(int), 9)
    parts = [(bins == b) for b in range(10) if (bins == b).any()]
    return float(sum(p.sum() * abs(chance[p].mean() - right[p].mean()) for p in parts) / len(chance))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reports", nargs="+", type=Path)
    parser.add_argument("--questions", nargs="*", type=Path, default=[])
    parser.add_argument("--others", nargs="*", type=Path, default=[])
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    cases = load_cases()
    index = open_index(cases)
    texts = list(asked(cases, arguments.reports, arguments.questions, arguments.others))
    found = [measured(index, one) for one in texts]
    rows = Rows(
        kinds=np.asarray([one.kind for one in texts]),
        folds=np.asarray([zlib.crc32(one.group.encode()) % FOLDS for one in texts]),
        texts=np.asarray([n for n, (_, matches) in enumerate(found) for _ in matches]),
        about=np.asarray([[1.0, *about] for about, _ in found]),
        values=np.asarray([value for _, matches in found for value, _ in matches]),
        right=np.asarray([float(right) for _, matches in found for _, right in matches]),
    )
    related, chance = np.zeros(len(texts)), np.zeros(len(rows.values))
    for fold in range(FOLDS):
        held = rows.folds == fold
        one, other = chances(rows, *stages(rows, ~held))
        related[held], chance[held[rows.texts]] = one[held], other[held[rows.texts]]
    shown = (chance >= LEAST_PROBABILITY) & (related[rows.texts] >= LEAST_RELATED)
    for kind in dict.fromkeys(rows.kinds.tolist()):
        mine = rows.kinds[rows.texts] == kind
        some = {int(n) for n in rows.texts[mine & shown]}
        hit = {int(n) for n in rows.texts[mine & (rows.right == 1)]}
        kept = {int(n) for n in rows.texts[mine & shown & (rows.right == 1)]}
        count = int((rows.kinds == kind).sum())
        print(
            f"{kind:10} {count:5} texts: calibration error {error(chance[mine], rows.right[mine]):.3f}, "
            f"shown something {len(some) / count:.1%}, right among five {len(hit) / count:.1%}, "
            f"after the floor {len(kept) / count:.1%}"
        )
    about, cause = stages(rows, np.ones(len(texts), dtype=bool))
    names = ("related_bias", "related_cosine", "related_words", "related_known", "cause_bias", "cause_value")
    memory = rows.related
    alone = fitted(rows.about[:, :4], memory, np.where(memory == 1, 1.0, memory.sum() / (1 - memory).sum()))
    table = dict(zip(names, (*alone.round(3).tolist(), *cause.round(3).tolist()), strict=True))
    table |= {"least_related": LEAST_RELATED, "least_probability": LEAST_PROBABILITY}
    text = "# Written by bench/calibrate_search.py; oomkb/retrieval/search.py says what it means.\n"
    text += "[coefficients]\n"
    text += "".join(f"{name} = {value}\n" for name, value in table.items())
    print(text)
    if arguments.write:
        DATA.write_text(text, encoding="utf-8")
        vector = about[4:].astype(np.float16)
        np.savez(DATA.with_name("related.npz"), figures=about[:4], vector=vector, encoder=np.asarray(encoder().key))


if __name__ == "__main__":
    main()
