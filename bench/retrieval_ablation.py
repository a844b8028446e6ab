"""What each view adds: the right cause among the first results, by parts of the search.

Questions: every short symptom of every case, searched without its own case (leave one out), by language; and, where
they are given, files of labelled questions and reports (`--questions`, `--reports`; lines with `text` or `report`,
`cause`, `also`). Usage: python bench/retrieval_ablation.py [--questions F] [--reports F] [--write]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oomkb.records.loader import load_cases
from oomkb.retrieval.index import Index, open_index
from oomkb.retrieval.search import Weights, fused, spread
from oomkb.retrieval.views import Views, look, standardised

RESULTS = Path(__file__).parent / "results" / "retrieval_ablation.json"
SHORT_CHARS = 300
_NONE = ("cause", "dense", "lexical", "facts", "signature", "diagnosed", "repeat")
NOTHING: dict[str, float] = dict.fromkeys(_NONE, 0.0)
MODES = {
    "dense alone": Weights(**{**NOTHING, "dense": 1.0}),
    "lexical alone": Weights(**{**NOTHING, "lexical": 1.0}),
    "dense + lexical": Weights(**{**NOTHING, "dense": 1.0, "lexical": 1.0}),
    "hybrid without talk about causes": Weights(cause_vectors=0.0, cause_words=0.0),
    "hybrid without facts and signatures": Weights(facts=0.0, signature=0.0),
    "hybrid without spreading": Weights(repeat=0.0),
    "hybrid": Weights(),
}


@dataclass(frozen=True)
class Question:
    """One text with the causes that count as right, seen through every view."""

    group: str
    right: frozenset[str]
    views: Views
    hidden: np.ndarray[Any, Any]
    """The cases that may not be found: the question's own."""


def questions(index: Index, arguments: argparse.Namespace) -> Iterator[Question]:
    pages = [{reference.url for reference in case.references} for case in index.cases]
    nothing = np.zeros(len(index.cases), dtype=bool)
    for number, case in enumerate(index.cases):
        for symptom in case.symptoms:
            if len(symptom) <= SHORT_CHARS:
                hidden = nothing.copy()
                hidden[number] = True
                group = "own symptoms, " + ("English" if symptom.isascii() else "Chinese")
                yield Question(
                    group, frozenset({case.cause, *case.also}), without(look(index, symptom), hidden), hidden
                )
    for path, key in ((arguments.questions, "text"), (arguments.reports, "report")):
        for line in path.read_text(encoding="utf-8").splitlines() if path else ():
            row = json.loads(line)
            hidden = np.asarray([row.get("url", "-") in urls for urls in pages])
            right = frozenset({row["cause"], *row.get("also", ())})
            yield Question(path.stem, right, without(look(index, row[key]), hidden), hidden)


def without(views: Views, hidden: np.ndarray[Any, Any]) -> Views:
    """The same views with the votes of the hidden cases taken back."""
    from dataclasses import replace

    from oomkb.retrieval.views import best_mean

    count = len(views.sounds.vectors)
    votes = standardised(best_mean(np.where(hidden, 0.0, views.bm25), views.owners, count, 2))
    return replace(views, sounds=replace(views.sounds, cases=votes))


def score(index: Index, asked: list[Question], weights: Weights) -> dict[str, float]:
    ranks = []
    for question in asked:
        total = np.where(question.hidden, -1e9, fused(question.views, weights))
        causes = [index.cases[number].cause for number, _ in spread(total, index.cases, 5, weights.repeat)]
        ranks.append(next((rank for rank, cause in enumerate(causes) if cause in question.right), 9))
    return {f"first {n}": round(float(np.mean([rank < n for rank in ranks])), 3) for n in (1, 3, 5)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--reports", type=Path)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    arguments = parser.parse_args()
    index = open_index(load_cases())
    groups: dict[str, list[Question]] = {}
    for question in questions(index, arguments):
        groups.setdefault(question.group, []).append(question)
    results: dict[str, Any] = {"cases": len(index.cases)}
    for group, asked in sorted(groups.items()):
        print(f"{group}: {len(asked)}")
        results[group] = {"questions": len(asked)}
        for name, weights in MODES.items():
            results[group][name] = found = score(index, asked, weights)
            print(f"  {name:36}", "  ".join(f"{key} {value:.1%}" for key, value in found.items()))
    if arguments.write:
        RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
