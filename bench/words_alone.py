"""How often a first cause is right by how much of it was read or computed, and not only worded.

usage: python bench/words_alone.py

From the kept features of ``fit_ranker.py``, each text by a model that has not seen its repository: the log-odds that
features of the failure (no likeness, wording or kind of run) add for the first cause, its probability, and how often it
is right. The ranker's bound on wording alone (``_MAX_BY_WORDING``) is the first line.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import fit_ranker
from oomdoc.diagnosis.ranker import LITTLE_SUPPORT, is_observed
from oomkb.records.taxonomy import CAUSES

EDGES = (0.0, 0.6, 1.0, 1.5, 2.5, np.inf)
"""Of the support, in log-odds."""
SURE = (0.0, 0.6, 0.8, 0.9, 1.01)
"""Of the first cause's probability."""


def main() -> None:
    """Print a line for each bin, the bins of little support and high probability together first."""
    rows = fit_ranker.with_words(fit_ranker.load())
    scores, support = np.zeros((len(rows), len(CAUSES))), np.zeros(len(rows))
    for fold in range(fit_ranker.FOLDS):
        left_out = [i for i, row in enumerate(rows) if row.fold == fold]
        model = fit_ranker.Model([row for row in rows if row.fold != fold])
        x, z = model.matrix([rows[i] for i in left_out])
        scores[left_out] = x @ model.w + model.b + np.tensordot(model.v, z, 1)
        observed = np.array([is_observed(name) for name in model.names])
        against_mean = model.w - model.w.mean(1, keepdims=True)
        for k, i in enumerate(left_out):
            added = x[k] * against_mean[:, int(scores[i].argmax())]
            support[i] = added[(added > 0) & observed].sum()
    chances = fit_ranker.chances(scores, *fit_ranker.calibrate(rows, scores))
    names, first, sure = list(CAUSES), chances.argmax(1), chances.max(1)
    right = np.array([names[c] in {row.cause, *row.also} for c, row in zip(first, rows, strict=True)])
    worded = (support < LITTLE_SUPPORT) & (sure >= SURE[2])
    often = f"right {right[worded].mean():.1%} of {worded.sum()}"
    print(f"support below {LITTLE_SUPPORT}, said {SURE[2]:.0%} or more: {often}")
    own = np.array([row.source not in fit_ranker.SOURCE_WEIGHTS for row in rows])
    for name, source in (("reports", own), ("cases and short texts", ~own)):
        for low, high in pairwise(EDGES):
            for least, most in pairwise(SURE):
                here = source & (low <= support) & (support < high) & (least <= sure) & (sure < most)
                if here.any():
                    said = f"said {sure[here].mean():.1%}, right {right[here].mean():.1%} of {here.sum()}"
                    print(f"{name}, support {low}-{high}: {said}")


if __name__ == "__main__":
    main()
