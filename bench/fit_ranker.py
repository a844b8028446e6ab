"""Fit the ranker's table of weights from labelled reports and the cases' symptoms.

usage: python bench/fit_ranker.py --collect REPORTS.jsonl [...]   # read the reports, keep their features
       python bench/fit_ranker.py [--ablate] [--write]            # fit from the kept features, by groups of threads

``--collect`` reads labelled reports (``url``, ``report``, ``cause``, ``also`` a line) and the cases' symptoms. It keeps
in ``bench/data/ranker_features.jsonl.gz`` each one's link, label and features, and in ``cause_words.npz`` the checksums
of its words in no order: no text. What is kept of files that are not given stays. A case that cites a report's
thread is hidden while that report is read, and each case while its own symptom is.

Without options: cross-validation in groups by repository (all reports of a repository and all cases that cite it are
left out together), the figure first / among three / label itself first, and the calibration error.
``--ablate`` repeats it without each group of features; ``--write`` fits on everything and writes ``weights.tsv``.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

import cause_words
from oomdoc.diagnosis.ranker import SHARED
from oomdoc.intake.statements.causes import scaled
from oomkb.records.taxonomy import CAUSES

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "bench" / "data" / "ranker_features.jsonl.gz"
PRIORS = ROOT / "bench" / "data" / "ranker_priors.tsv"
SHORT = ROOT / "bench" / "data" / "short_texts.jsonl"
"""Short descriptions of failures, written for this project."""
TABLE = ROOT / "service" / "oomdoc" / "diagnosis" / "weights.tsv"
FOLDS = 8
_OWN_WORDS = "words:"
SHARE_OF_ALSO = 0.3
"""Of a text for the further causes that are accepted, where its words are weighed. The ranker, which says what comes
first, learns the label alone: left out by repository, the label is first in 61.9 % of reports and not 60.8, and an
accepted cause in 81.5 and not 81.2."""
SOURCE_WEIGHTS = {"cases": 0.6, "short_texts": 0.6}
"""What a case's symptom or a short text counts beside a report: it was written by who knew the answer."""
MIN_SUPPORT = 4
"""Texts that must show a feature; a rarer one gets no weight but what its prior gives it."""
LEAST_WEIGHT = 0.08
OWN_CAUSE = {"sign": 1.0, "request-is": 1.0, "share": 2.0}
"""Prior weight of a sign for the cause in whose file it stands, of a request that is a cause's tensor, and of a cause's
own share of the predicted peak, for that cause."""
L2 = 25.0
"""Penalty on the squared distance to the prior weight."""


@dataclass(frozen=True)
class Row:
    """One labelled text."""

    url: str
    source: str
    cause: str
    also: tuple[str, ...]
    features: dict[str, float]
    words: np.ndarray | tuple[int, ...] = ()
    """Checksums of its words and concepts."""

    @property
    def group(self) -> str:
        """The repository of its thread."""
        parts = self.url.split("/")
        return "/".join(parts[3:5]).lower() if "github.com" in self.url else self.url

    @property
    def fold(self) -> int:
        """Which fold it is left out in: by its repository."""
        return int(hashlib.sha1(self.group.encode()).hexdigest(), 16) % FOLDS


def collect(files: Sequence[str]) -> None:
    """Read reports and cases, keep their features."""
    from oomdoc.diagnosis.engine import view_of
    from oomdoc.diagnosis.features import features_of
    from oomdoc.intake import read_text
    from oomdoc.intake.digest import query_of
    from oomdoc.intake.statements.causes import words_of
    from oomkb.records.loader import load_cases

    cases = load_cases()
    by_url: dict[str, set[str]] = {}
    for case in cases:
        for url in {case.url, *(str(r) for r in getattr(case, "references", ()) or ())}:
            by_url.setdefault(url.rstrip("/"), set()).add(case.id)

    held: list[set[int]] = []

    def features(text: str, hidden: set[str]) -> dict[str, float]:
        evidence = read_text(text)
        held.append(words_of(query_of(evidence.prose, evidence.digest)))
        view = view_of(evidence, hidden=hidden)[0]
        return {f.name: round(float(f.value), 3) for f in features_of(view) if not f.name.startswith(_OWN_WORDS)}

    rows: list[dict[str, Any]] = []
    for name in (*files, str(SHORT)):
        for line in Path(name).read_text(encoding="utf-8").splitlines():
            if line.strip():
                report = json.loads(line)
                url = report.get("url") or (_link(report["id"]) if "id" in report else f"short:{len(rows)}")
                rows.append(
                    {
                        "url": url,
                        "source": Path(name).stem,
                        "cause": report["cause"],
                        "also": report.get("also") or [],
                        "confirmed": report.get("confirmed", ""),
                        "features": features(
                            report.get("report") or report["text"], by_url.get(url.rstrip("/"), set())
                        ),
                    }
                )
    for case in cases:
        for text in case.symptoms:
            rows.append(
                {
                    "url": case.url,
                    "source": "cases",
                    "cause": case.cause,
                    "also": list(case.also),
                    "confirmed": "",
                    "features": features(text, {case.id, *by_url.get(case.url.rstrip("/"), set())}),
                }
            )
    read_again = {row["source"] for row in rows}
    others = [(row, words) for row, words in _stored() if row["source"] not in read_again]
    rows, held = [row for row, _ in others] + rows, [set(map(int, words)) for _, words in others] + held
    KEPT.parent.mkdir(exist_ok=True)
    with gzip.open(KEPT, "wt", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, sort_keys=True) + "\n")
    cause_words.keep(held)
    print(f"{len(rows)} texts kept in {KEPT.relative_to(ROOT)}")


@cache
def expected() -> list[tuple[str, str, float]]:
    """The prior's means that are written down: (feature, cause, log-odds)."""
    lines = (line for line in PRIORS.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return [(name, cause, float(value)) for name, cause, value in (line.split("\t") for line in lines)]


def _link(identifier: str) -> str:
    return f"https://github.com/{identifier.replace('#', '/issues/')}" if "#" in identifier else identifier


def _stored() -> list[tuple[dict[str, Any], np.ndarray]]:
    """What is kept of each text, and the checksums of its words."""
    if not KEPT.exists():
        return []
    with gzip.open(KEPT, "rt", encoding="utf-8") as lines:
        return list(zip([json.loads(line) for line in lines], cause_words.kept(), strict=True))


def load() -> list[Row]:
    """The kept rows of known causes."""
    return [
        Row(r["url"], r["source"], r["cause"], tuple(a for a in r["also"] if a in CAUSES), r["features"], words)
        for r, words in _stored()
        if r["cause"] in CAUSES
    ]


def with_words(rows: Sequence[Row]) -> list[Row]:
    """The rows with what their words say of each cause, by a fit that has not seen their repository."""
    scores = np.zeros((len(rows), len(CAUSES)))
    for fold in range(FOLDS):
        test = [i for i, row in enumerate(rows) if row.fold == fold]
        known = [row for row in rows if row.fold != fold]
        fitted = cause_words.fit([row.words for row in known], *targets(known))
        for i in test:
            scores[i] = fitted.evidence(rows[i].words) if len(rows[i].words) else 0.0
    said = scaled(scores).round(3)
    return [
        replace(
            row,
            features={**row.features, **{f"{_OWN_WORDS}{c}": float(v) for c, v in zip(CAUSES, values, strict=True)}},
        )
        for row, values in zip(rows, said, strict=True)
    ]


def targets(rows: Sequence[Row], share_of_also: float = SHARE_OF_ALSO) -> tuple[np.ndarray, np.ndarray]:
    """(shares of the causes [N, C], weight of each text [N])."""
    causes = list(CAUSES)
    y = np.zeros((len(rows), len(causes)))
    for i, row in enumerate(rows):
        share = share_of_also if row.also else 0.0
        y[i, causes.index(row.cause)] += 1 - share
        for other in row.also:
            y[i, causes.index(other)] += share / len(row.also)
    return y, np.array([SOURCE_WEIGHTS.get(row.source, 1.0) for row in rows])


class Model:
    """Multinomial logistic regression whose weights are drawn to a prior and to zero."""

    def __init__(self, rows: Sequence[Row], *, without: str = "") -> None:
        self.causes = list(CAUSES)
        support = Counter(n for row in rows for n in row.features if n.partition(":")[0] not in SHARED)
        known = {n for n, k in support.items() if k >= MIN_SUPPORT} | {name for name, *_ in expected()}
        self.names = sorted(n for n in known if not (without and n.startswith(without)))
        self.kinds = [kind for kind in SHARED if f"{kind}:" != without]
        self.index = {name: i for i, name in enumerate(self.names)}
        self._fit(rows)

    def matrix(self, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
        """(features [N, F], features with shared weights [K, N, C])."""
        x = np.zeros((len(rows), len(self.names)))
        z = np.zeros((len(self.kinds), len(rows), len(self.causes)))
        for i, row in enumerate(rows):
            for name, value in row.features.items():
                kind, _, cause = name.partition(":")
                if name in self.index:
                    x[i, self.index[name]] = value
                elif kind in self.kinds and cause in self.causes:
                    z[self.kinds.index(kind), i, self.causes.index(cause)] = value
        return x, z

    def _prior_weights(self) -> np.ndarray:
        prior = np.zeros((len(self.names), len(self.causes)))
        for name, i in self.index.items():
            kind, _, rest = name.partition(":")
            owner = rest.partition("/")[0] if kind in OWN_CAUSE else ""
            if owner in self.causes:
                prior[i, self.causes.index(owner)] = OWN_CAUSE[kind]
        for name, cause, value in expected():
            if name in self.index:
                prior[self.index[name], self.causes.index(cause)] = value
        return prior

    def _fit(self, rows: Sequence[Row]) -> None:
        x, z = self.matrix(rows)
        y, weight = targets(rows, share_of_also=0.0)
        prior = self._prior_weights()
        counts, kinds = prior.shape, len(self.kinds)
        ends = np.cumsum([prior.size, counts[1]])

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            w, b, v = np.split(flat, ends)
            off = w.reshape(counts) - prior
            s = x @ w.reshape(counts) + b + np.tensordot(v, z, 1)
            s -= s.max(1, keepdims=True)
            log_p = s - np.log(np.exp(s).sum(1, keepdims=True))
            g = (np.exp(log_p) - y) * weight[:, None]
            value = -(weight[:, None] * y * log_p).sum()
            value += 0.5 * L2 * (off**2).sum() + 0.025 * (b**2).sum() + 0.25 * ((v - 1.0) ** 2).sum()
            pull = (x.T @ g + L2 * off, g.sum(0) + 0.05 * b, (g[None] * z).sum((1, 2)) + 0.5 * (v - 1.0))
            return float(value), np.concatenate([part.ravel() for part in pull])

        start = np.concatenate([prior.ravel(), np.zeros(counts[1]), np.ones(kinds)])
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 200}).x
        w, b, v = np.split(found, ends)
        self.w, self.b, self.v = w.reshape(counts), b - b.mean(), np.maximum(v, 0.0)

    def scores(self, rows: Sequence[Row]) -> np.ndarray:
        """Log-odds [N, C]."""
        x, z = self.matrix(rows)
        return np.asarray(x @ self.w + self.b + np.tensordot(self.v, z, 1))


def softmax(s: np.ndarray) -> np.ndarray:
    e = np.exp(s - s.max(1, keepdims=True))
    return np.asarray(e / e.sum(1, keepdims=True))


def held_out_scores(rows: Sequence[Row], *, without: str = "") -> np.ndarray:
    """Scores of every row by a model that has not seen its repository."""
    out = np.zeros((len(rows), len(CAUSES)))
    for fold in range(FOLDS):
        test = [i for i, row in enumerate(rows) if row.fold == fold]
        model = Model([row for row in rows if row.fold != fold], without=without)
        if test:
            out[test] = model.scores([rows[i] for i in test])
    return out


def chances(s: np.ndarray, temperature: float, doubt: float) -> np.ndarray:
    """Probabilities as the ranker computes them."""
    return np.asarray((1 - doubt) * softmax(s / temperature) + doubt / s.shape[1])


def figures(rows: Sequence[Row], p: np.ndarray) -> dict[str, float]:
    """First, among three, label itself first, calibration error (tenths) of the first."""
    names = list(CAUSES)
    first = three = strict = 0
    bins: dict[int, list[float]] = {}
    for row, chance in zip(rows, p, strict=True):
        order = [names[i] for i in np.argsort(-chance)]
        accepted = {row.cause, *row.also}
        right = order[0] in accepted
        first += right
        three += bool(accepted & set(order[:3]))
        strict += order[0] == row.cause
        one = bins.setdefault(min(9, int(10 * chance.max())), [0.0, 0.0, 0.0])
        one[0] += 1
        one[1] += right
        one[2] += float(chance.max())
    n = max(len(rows), 1)
    error = sum(abs(right - sure) for _, right, sure in bins.values()) / n
    return {"n": len(rows), "first": first / n, "three": three / n, "strict": strict / n, "calibration": error}


def calibrate(rows: Sequence[Row], s: np.ndarray) -> tuple[float, float]:
    """Temperature and doubt whose probability of the first cause is nearest to being right (Brier score, held out)."""
    names = list(CAUSES)
    own = [i for i, row in enumerate(rows) if row.source not in SOURCE_WEIGHTS]
    right = np.array([names[int(s[i].argmax())] in {rows[i].cause, *rows[i].also} for i in own], dtype=float)
    tried = ((t, d) for t in np.arange(0.3, 1.5, 0.05) for d in (0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1))
    best = min(tried, key=lambda td: float(((chances(s[own], *td).max(1) - right) ** 2).mean()))
    return round(float(best[0]), 2), float(best[1])


def show(label: str, rows: Sequence[Row], p: np.ndarray) -> None:
    """One line of figures for each source, reports first."""
    for source in sorted({row.source for row in rows}, key=lambda s: (s in SOURCE_WEIGHTS, s)):
        mine = [i for i, row in enumerate(rows) if row.source == source]
        f = figures([rows[i] for i in mine], p[mine])
        print(
            f"{label:24s} {source:14s} {f['n']:5.0f} texts  first {f['first']:.1%}  three {f['three']:.1%}  "
            f"strict {f['strict']:.1%}  calibration {f['calibration']:.3f}"
        )


def lines_of(model: Model, rows: Sequence[Row], temperature: float, doubt: float) -> Iterator[str]:
    """The table's text."""
    counts = Counter(row.source for row in rows)
    yield "# Fitted by bench/fit_ranker.py --write; figures on these texts are training figures."
    yield f"# {date.today().isoformat()}: " + ", ".join(f"{n} of {s}" for s, n in sorted(counts.items()))
    yield f"temperature\t*\t{temperature}"
    yield f"doubt\t*\t{doubt}"
    yield from (f"{kind}:*\t*\t{v:.2f}" for kind, v in zip(model.kinds, model.v, strict=True))
    for j, cause in enumerate(model.causes):
        yield f"prior\t{cause}\t{model.b[j]:.2f}"
    for name, i in model.index.items():
        for j, cause in enumerate(model.causes):
            if abs(model.w[i, j]) >= LEAST_WEIGHT:
                yield f"{name}\t{cause}\t{model.w[i, j]:.2f}"


def main() -> None:
    """Collect, or fit and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--collect", nargs="*", metavar="REPORTS.jsonl")
    parser.add_argument("--ablate", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--misses", action="store_true")
    args = parser.parse_args()
    if args.collect is not None:
        collect(args.collect)
        return
    rows = with_words(load())
    s = held_out_scores(rows)
    temperature, doubt = calibrate(rows, s)
    print(f"temperature {temperature}, doubt {doubt}; every figure on repositories left out of the fit")
    show("all features", rows, chances(s, temperature, doubt))
    if args.misses:
        names = list(CAUSES)
        for row, chance in zip(rows, chances(s, temperature, doubt), strict=True):
            order = [names[i] for i in np.argsort(-chance)]
            if row.source not in SOURCE_WEIGHTS and order[0] not in {row.cause, *row.also}:
                print(f"  {row.url}: {row.cause} {list(row.also)} <- {order[:3]} {chance.max():.2f}")
    if args.ablate:
        for group in sorted({name.partition(":")[0] + ":" for row in rows for name in row.features if ":" in name}):
            show(f"without {group}", rows, chances(held_out_scores(rows, without=group), temperature, doubt))
    if args.write:
        model = Model(rows)
        TABLE.write_text("\n".join(lines_of(model, rows, temperature, doubt)) + "\n", encoding="utf-8")
        cause_words.write(cause_words.fit([row.words for row in rows], *targets(rows)))
        print(f"{TABLE.relative_to(ROOT)}: {len(model.names)} features")


if __name__ == "__main__":
    main()
