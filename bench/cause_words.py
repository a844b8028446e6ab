"""Fit the scores of causes by the words of a report (``oomdoc.intake.statements.causes``).

Used by ``bench/fit_ranker.py``. Kept of a text, in ``bench/data/cause_words.npz``, are the checksums of its words and
concepts in no order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from oomdoc.intake.statements.causes import WEIGHTS, CauseWords, words_of
from oomkb.records.taxonomy import CAUSES

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "bench" / "data" / "cause_words.npz"
SHIPPED = ROOT / "service" / "oomdoc" / "intake" / "statements" / WEIGHTS
FEWEST = 3
"""Texts that must hold a feature."""
PRINTED = ROOT / "bench" / "data" / "printed_messages.txt"
"""Messages that a program prints whatever the cause: what they consist of is no feature."""
PENALTY = 0.1
STEPS = 63
"""Steps from zero to the largest weight of a cause."""


def keep(texts: Sequence[Iterable[int]]) -> None:
    """Write the features that at least :data:`FEWEST` texts hold."""
    counts = Counter(f for text in texts for f in set(text))
    features = np.array(sorted(f for f, n in counts.items() if n >= FEWEST), dtype=np.uint32)
    number = {int(f): i for i, f in enumerate(features)}
    rows = [sorted(number[f] for f in set(text) if f in number) for text in texts]
    np.savez_compressed(
        KEPT,
        features=features,
        columns=np.array([c for row in rows for c in row], dtype=np.uint16),
        lengths=np.array([len(row) for row in rows], dtype=np.uint32),
    )


def kept() -> list[np.ndarray[Any, Any]]:
    """The features of every kept text."""
    with np.load(KEPT, allow_pickle=False) as found:
        held = found["features"][found["columns"]]
        return np.split(held, np.cumsum(found["lengths"])[:-1])


@cache
def printed() -> frozenset[int]:
    """The features of the messages that say nothing of the cause."""
    lines = (line for line in PRINTED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return frozenset().union(*(words_of(line.lower()) for line in lines))


def fit(
    texts: Sequence[Any],
    y: np.ndarray,
    weight: np.ndarray,
    *,
    classes: Sequence[str] = tuple(CAUSES),
    penalty: float = PENALTY,
) -> CauseWords:
    """Multinomial logistic regression over the rarity of what a text holds, its length one.

    :param y: shares of the classes (texts, classes).
    """
    counts = Counter(int(f) for text in texts for f in text)
    ignored = printed()
    features = np.array(sorted(f for f, n in counts.items() if n >= FEWEST and f not in ignored), dtype=np.uint32)
    rarity = np.log(len(texts) / np.array([counts[int(f)] for f in features], dtype=np.float64))
    number = {int(f): i for i, f in enumerate(features)}
    columns = [[number[int(f)] for f in text if int(f) in number] for text in texts]
    values = [rarity[row] / (np.sqrt((rarity[row] ** 2).sum()) or 1.0) for row in columns]
    starts = np.cumsum([0, *map(len, columns)])
    x = csr_matrix(
        (np.concatenate(values), np.concatenate([np.array(c, dtype=np.int64) for c in columns]), starts),
        shape=(len(texts), len(features)),
    )
    across, shape = x.T.tocsr(), (len(features) + 1, y.shape[1])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        w = flat.reshape(shape)
        z = x @ w[:-1] + w[-1]
        z -= z.max(1, keepdims=True)
        log_p = z - np.log(np.exp(z).sum(1, keepdims=True))
        pull = (np.exp(log_p) - y) * weight[:, None]
        value = -(weight[:, None] * y * log_p).sum() + 0.5 * penalty * (w[:-1] ** 2).sum()
        return float(value), np.vstack([across @ pull + penalty * w[:-1], pull.sum(0)]).ravel()

    w = minimize(loss, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 80}).x.reshape(shape)
    return CauseWords(tuple(classes), features, rarity, w[:-1], w[-1])


def write(fitted: CauseWords, path: Path = SHIPPED) -> None:
    """int8 weights, one scale per class."""
    scales = np.abs(fitted.weights).max(axis=0) / STEPS
    np.savez_compressed(
        path,
        causes=np.array(fitted.causes),
        features=fitted.features,
        rarity=fitted.rarity.astype(np.float16),
        weights=np.round(fitted.weights / scales).astype(np.int8),
        scales=scales.astype(np.float32),
        bias=fitted.bias.astype(np.float32),
    )
