"""Fit the classifier of statements (``oomdoc.intake.statements``) to its example sentences.

usage: python bench/train_statements.py [--check] [--unseen SENTENCES.jsonl ...] [--add LABELLED.jsonl ...]

Without options the weights are fitted again and written to ``service/oomdoc/intake/statements/weights.npz``. Needs
scipy, which comes with scikit-learn (``.[embed]``).

``--check`` prints how well each statement is found in examples left out of the fit (three folds); writes nothing.
``--unseen`` prints how well the shipped weights read labelled sentences (``{"text", "statements": [...]}`` a line).
``--add`` reads labelled sentences of public reports first. Kept of a sentence, in ``bench/data/statements.npz``, are
its features (checksums of its words and pairs of words, in no order) and what it says; its text is not.

The weights are made from the shipped examples and from the features in ``bench/data/statements.npz``. Sentences with a
``thread`` are of public reports: the figures and the calibration are theirs, all of a thread left out together.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_matrix

from oomdoc.intake.statements.concepts import features_of
from oomdoc.intake.statements.reader import WEIGHTS, Model, model, statements
from statement_examples import examples, examples_hash

ROOT = Path(__file__).parents[1]
SHIPPED = ROOT / "service" / "oomdoc" / "intake" / "statements" / WEIGHTS
REPORTS = ROOT / "bench" / "data" / "statements.npz"
NAMES = tuple(statements())
PENALTY = 3.0
POSITIVE_WEIGHT = 3.0
FOLDS = 3
FEWEST = 2
"""Sentences that must hold a feature."""
PRUNE = 0.05
"""Weights below are left out, and features whose weights are all below twice that."""
STEPS = 31
"""Steps from zero to the largest weight of a statement."""


@dataclass(frozen=True)
class Labelled:
    """The features of a sentence and what it says."""

    features: frozenset[int]
    says: frozenset[str]
    text: str = ""
    thread: int = 0
    """Checksum of the thread that it is of; 0 of a sentence that was written for this project."""


def shipped() -> list[Labelled]:
    return [Labelled(frozenset(features_of(e.text)), e.says, e.text) for e in examples()]


def kept() -> list[Labelled]:
    """The labelled sentences whose features are kept, without their texts."""
    if not REPORTS.exists():
        return []
    with np.load(REPORTS, allow_pickle=False) as found:
        starts = found["starts"]
        return [
            Labelled(
                frozenset(map(int, found["features"][starts[i] : starts[i + 1]])),
                frozenset(filter(None, str(says).split(","))),
                thread=int(thread),
            )
            for i, (says, thread) in enumerate(zip(found["says"], found["threads"], strict=True))
        ]


def keep(rows: Sequence[Labelled]) -> None:
    rows = sorted(rows, key=lambda row: sorted(row.features))
    REPORTS.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        REPORTS,
        features=np.array([f for row in rows for f in sorted(row.features)], dtype=np.uint32),
        starts=np.cumsum([0, *(len(row.features) for row in rows)]).astype(np.int32),
        says=np.array([",".join(sorted(row.says)) for row in rows]),
        threads=np.array([row.thread for row in rows], dtype=np.uint32),
    )


def matrix(rows: Sequence[Labelled], columns: dict[int, int]) -> Any:
    found = [[columns[f] for f in row.features if f in columns] for row in rows]
    starts = np.cumsum([0, *map(len, found)])
    flat = np.array([c for cs in found for c in cs], dtype=np.int32)
    return csr_matrix((np.ones(len(flat)), flat, starts), shape=(len(rows), len(columns)))


def labels(rows: Sequence[Labelled]) -> np.ndarray[Any, Any]:
    return np.array([[name in row.says for name in NAMES] for row in rows], dtype=np.float64)


def fit(rows: Sequence[Labelled]) -> Model:
    """One logistic regression per statement, fitted together; not calibrated yet."""
    counts = Counter(f for row in rows for f in row.features)
    columns = {f: i for i, f in enumerate(sorted(f for f, n in counts.items() if n >= FEWEST))}
    x, y = matrix(rows, columns).astype(np.float32), labels(rows)
    across = x.T.tocsr()
    weight = 1 + (POSITIVE_WEIGHT - 1) * y
    shape = (len(columns) + 1, len(NAMES))

    def loss(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        w = flat.reshape(shape)
        z = x @ w[:-1] + w[-1]
        value = (weight * (np.logaddexp(0, z) - y * z)).sum() + 0.5 * PENALTY * (w[:-1] ** 2).sum()
        pull = weight * (1 / (1 + np.exp(-z)) - y)
        gradient = np.vstack([across @ pull + PENALTY * w[:-1], pull.sum(0)])
        return float(value), gradient.ravel()

    start = np.zeros(shape)
    start[-1] = -4
    found = minimize(loss, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 80}).x.reshape(shape)
    return Model("", NAMES, columns, found[:-1].astype(np.float32), found[-1].astype(np.float32), (0.0, 1.0))


def left_out(own: Sequence[Labelled], rows: Sequence[Labelled]) -> np.ndarray[Any, Any]:
    """The score of every sentence of a report by a fit that has not seen its thread."""
    out = np.zeros((len(rows), len(NAMES)), dtype=np.float32)
    for fold in range(FOLDS):
        away = [i for i, row in enumerate(rows) if row.thread and row.thread % FOLDS == fold]
        known = [row for row in rows if not row.thread or row.thread % FOLDS != fold]
        out[away] = fit([*own, *known]).scores([rows[i].features for i in away])
    return out


def calibrate(scores: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> tuple[float, float]:
    """Logistic regression of "says it" on the score, over all statements together."""
    z, target = scores.ravel(), y.ravel()

    def loss(w: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        odds = w[0] + w[1] * z
        pull = 1 / (1 + np.exp(-odds)) - target
        return float((np.logaddexp(0, odds) - target * odds).sum()), np.array([pull.sum(), (pull * z).sum()])

    constant, factor = minimize(loss, np.array([0.0, 1.0]), jac=True, method="L-BFGS-B").x
    return float(constant), float(factor)


def write(fitted: Model) -> None:
    """int8 weights, one scale per statement."""
    strong = np.abs(fitted.weights).max(axis=1) >= 2 * PRUNE
    weights = np.where(np.abs(fitted.weights) >= PRUNE, fitted.weights, 0)[strong]
    scales = np.abs(weights).max(axis=0) / STEPS
    np.savez_compressed(
        SHIPPED,
        key=np.array(examples_hash()),
        names=np.array(NAMES),
        features=np.array([f for f, keep_it in zip(fitted.rows, strong, strict=True) if keep_it], dtype=np.uint32),
        weights=np.round(weights / scales).astype(np.int8),
        scales=scales.astype(np.float32),
        bias=fitted.bias,
        calibration=np.array(fitted.calibration, dtype=np.float32),
    )


def average_precision(p: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
    order = np.argsort(-p, kind="stable")
    hits = y[order].cumsum()
    return float((hits / np.arange(1, len(y) + 1))[y[order] > 0].mean())


def figures(p: np.ndarray[Any, Any], y: np.ndarray[Any, Any], *, each: bool = False) -> None:
    """Print micro and macro figures at 0.5, and what neutral sentences do."""
    says = y.any(axis=1)
    fired = p >= 0.5
    right = (fired & (y > 0)).sum(axis=0)
    precision, recall = right / np.maximum(fired.sum(axis=0), 1), right / np.maximum(y.sum(axis=0), 1)
    ap = np.array([average_precision(p[:, j], y[:, j]) if y[:, j].any() else np.nan for j in range(len(NAMES))])
    if each:
        for j in np.argsort(np.nan_to_num(ap)):
            print(f"  {NAMES[j]:32} n {int(y[:, j].sum()):4}  P {precision[j]:.2f}  R {recall[j]:.2f}  AP {ap[j]:.2f}")
    first = y[np.arange(len(y)), p.argmax(axis=1)] > 0
    found = {t: ((p >= t) & (y > 0)).any(axis=1)[says].mean() for t in (0.5, 0.3)}
    print(f"{int(says.sum())} sentences say something: the most probable one is right in {first[says].mean():.1%},")
    print(f"a right one at >= 0.5 in {found[0.5]:.1%}, at >= 0.3 in {found[0.3]:.1%}")
    print(f"micro P {right.sum() / max(fired.sum(), 1):.1%} R {right.sum() / y.sum():.1%}; ", end="")
    print(f"macro P {precision.mean():.1%} R {recall[y.any(axis=0)].mean():.1%} AP {np.nanmean(ap):.3f}")
    if not says.all():
        fire = [(p[~says].max(axis=1) >= t).mean() for t in (0.5, 0.3)]
        print(f"{int((~says).sum())} neutral: {fire[0]:.1%} fire at 0.5, {fire[1]:.1%} at 0.3")
    for low, top in ((0.3, 0.5), (0.5, 0.7), (0.7, 0.9), (0.9, 1.01)):
        if (inside := (p >= low) & (p < top)).any():
            print(f"  said {low:.1f}-{min(top, 1):.1f}: right in {y[inside].mean():.1%} of {int(inside.sum())}")


def rows_of(files: Sequence[Path]) -> list[Labelled]:
    lines = [line for f in files for line in f.read_text(encoding="utf-8").splitlines() if line.strip()]
    rows = map(json.loads, lines)
    return [
        Labelled(frozenset(features_of(r["text"])), frozenset(r["statements"]), r["text"], crc32(thread.encode()))
        for r in rows
        for thread in [r.get("thread", "")]
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="figures on examples left out; writes nothing")
    parser.add_argument("--unseen", nargs="+", type=Path, default=[], help="figures on labelled sentences")
    parser.add_argument("--add", nargs="+", type=Path, default=[], help="labelled sentences of reports to learn from")
    options = parser.parse_args()
    if options.unseen:
        rows = rows_of(options.unseen)
        figures(model().probabilities([row.features for row in rows]), labels(rows), each=options.check)
        return
    own, rows = shipped(), kept()
    if options.add:
        rows = list({row.features: row for row in (*rows, *rows_of(options.add))}.values())
        keep(rows)
    natural = [i for i, row in enumerate(rows) if row.thread]
    scores, y = left_out(own, rows)[natural], labels(rows)[natural]
    calibration = calibrate(scores, y)
    print("sentences of public reports, their threads left out of the fit:")
    figures(Model("", NAMES, {}, scores, scores[0], calibration).calibrated(scores), y, each=options.check)
    if options.check:
        return
    fitted = fit([*own, *rows])
    write(Model("", NAMES, fitted.rows, fitted.weights, fitted.bias, calibration))
    size = f"{SHIPPED.stat().st_size:,} bytes"
    print(f"{len(own)} examples and {len(rows)} kept sentences -> {SHIPPED.name}, {size}")


if __name__ == "__main__":
    main()
