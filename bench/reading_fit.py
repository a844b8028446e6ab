"""The weights of a language model's reading, on top of the ranker's table; part of ``bench/language_model.py fit``.

The ranker's own scores are an offset that is not fitted. A report of the fit may be among the ranker's own: its score
there would be too good, and the reading count for too little. So the offset of each report comes from a table that was
fitted without its repository, as in the ranker's cross-validation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import numpy as np

import fit_ranker
from oomdoc.diagnosis.features.statements import KINDS
from oomdoc.diagnosis.ranker import load_table
from oomkb.records.taxonomy import CAUSES

PRIOR = np.array([4.0, 3.0, 2.0, 1.5, 0.8])
"""Log-odds that a cause has from its place among those named (:data:`KINDS`), before anything is fitted."""
L2_SHARED, L2_OWN = 2.0, 8.0
"""Penalties (squared) on the distance of the shared weights to the prior, and of a cause's own weight to zero."""
SHARE_OF_ALSO = 0.3
_STEPS = 4000

Reports = Sequence[Mapping[str, Any]]
"""``{url, cause, also, features}`` each."""


def offsets(rows: Reports) -> np.ndarray:
    """The ranker's scores [N, C], each of a table fitted without the report's repository."""
    known, asked = fit_ranker.load(), _ranked(rows)
    out = np.zeros((len(rows), len(CAUSES)))
    for fold in range(fit_ranker.FOLDS):
        mine = [i for i, row in enumerate(asked) if row.fold == fold]
        if mine:
            model = fit_ranker.Model([row for row in known if row.fold != fold])
            out[mine] = model.scores([asked[i] for i in mine])
    return out


def _ranked(rows: Reports) -> list[fit_ranker.Row]:
    return [fit_ranker.Row(r["url"], "read", r["cause"], tuple(r["also"]), r["features"]) for r in rows]


class Fit:
    """Weights of the reading: one for each place among the causes named, and one of its own for each cause."""

    def __init__(self, rows: Reports, offset: np.ndarray) -> None:
        self.shared, self.own = PRIOR.copy(), np.zeros(len(CAUSES))
        places, first, labels = arrays(rows)
        heat = load_table().temperature
        step = 1.0 / (0.5 * len(rows) / heat**2 + L2_OWN)
        for _ in range(_STEPS):
            p = fit_ranker.softmax((offset + np.tensordot(self.shared, places, 1) + first * self.own) / heat)
            # Which of the accepted causes it was is not known: each counts by its share of the label and of p.
            likely = p * labels
            g = (p - likely / likely.sum(1, keepdims=True)) / heat
            self.shared -= step * ((g[None] * places).sum((1, 2)) + L2_SHARED * (self.shared - PRIOR))
            self.own -= step * ((g * first).sum(0) + L2_OWN * self.own)
        self.shared = np.maximum(self.shared, 0.0)

    def scores(self, rows: Reports, offset: np.ndarray) -> np.ndarray:
        """Log-odds [N, C]."""
        places, first, _ = arrays(rows)
        return np.asarray(offset + np.tensordot(self.shared, places, 1) + first * self.own)


def arrays(rows: Reports) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(places named [K, N, C], the first cause [N, C], labels [N, C])."""
    causes = list(CAUSES)
    shape = (len(rows), len(causes))
    places, first, labels = np.zeros((len(KINDS), *shape)), np.zeros(shape), np.zeros(shape)
    for i, row in enumerate(rows):
        for name in row["features"]:
            kind, _, cause = name.partition(":")
            if kind in KINDS:
                places[KINDS.index(kind), i, causes.index(cause)] = 1.0
            elif kind == "model-says":
                first[i, causes.index(cause)] = 1.0
        share = SHARE_OF_ALSO if row["also"] else 0.0
        labels[i, causes.index(row["cause"])] += 1 - share
        for other in row["also"]:
            labels[i, causes.index(other)] += share / len(row["also"])
    return places, first, labels


def fitted(rows: Reports) -> str:
    """The table's text; prints the figures on repositories left out of both fits."""
    offset, ranked = offsets(rows), _ranked(rows)
    out, prior = np.zeros_like(offset), np.zeros_like(offset)
    for fold in range(fit_ranker.FOLDS):
        test = [i for i, row in enumerate(ranked) if row.fold == fold]
        rest = [i for i, row in enumerate(ranked) if row.fold != fold]
        if test:
            held = Fit([rows[i] for i in rest], offset[rest])
            out[test] = held.scores([rows[i] for i in test], offset[test])
    places, _, _ = arrays(rows)
    prior = offset + np.tensordot(PRIOR, places, 1)
    said = (("its facts and statements", offset), ("its causes by the priors", prior), ("its causes, fitted", out))
    table = load_table()
    print("figures on repositories left out; what happened is not weighed here")
    for name, scores in said:
        chances = fit_ranker.chances(scores, table.temperature, table.doubt)
        fit_ranker.show(name, ranked, chances)
    whole = Fit(rows, offset)
    lines = [f"# Fitted by bench/language_model.py fit --write on {len(rows)} reports, {date.today().isoformat()}."]
    lines += [f"{kind}:*\t*\t{value:.2f}" for kind, value in zip(KINDS, whole.shared, strict=True)]
    own = [(cause, value) for cause, value in zip(CAUSES, whole.own, strict=True) if abs(value) >= 0.05]
    return "\n".join([*lines, *(f"model-says:{cause}\t{cause}\t{value:.2f}" for cause, value in own)]) + "\n"
