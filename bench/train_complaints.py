"""Fit the classifier of complaints and questions (``oomdoc.intake.statements.complaints``).

usage: python bench/train_complaints.py [--write] [--test TEXTS.jsonl] [--collect POSTS.jsonl ...]

Trained on ``bench/data/asks.jsonl`` (texts written for this project: ``text``, ``class``, and ``hard`` where the text
was written to be near another class) and on the kept words of the labelled reports in which no program printed its
failure (``fit_ranker.py --collect``), each of which is a complaint. The example questions of topics
(``kb/oomkb/topics``) are questions. ``--collect`` reads first posts of public threads (``url``, ``class``, ``text``)
and keeps of each its link, its class and the checksums of its words in ``bench/data/posts.jsonl``: no text.
Without ``--write``: cross-validation, of the reports by repository. ``--test``: figures on labelled texts of one's own.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cause_words
import fit_ranker
from oomdoc.intake.statements.causes import words_of
from oomdoc.intake.statements.complaints import CLASSES, WEIGHTS
from oomkb.topics import topics

ASKS = Path(__file__).parent / "data" / "asks.jsonl"
POSTS = Path(__file__).parent / "data" / "posts.jsonl"
"""First posts of threads in which people ask, complain, or write of something else."""
FOLDS = 8
PENALTY = 0.05
REPORT_WEIGHT = {"cases": 0.1, "short_texts": 0.2}
"""What a case's symptom or a short text counts beside a text of ``asks.jsonl``; other reports count 0.25."""
TOPIC_WEIGHT = 0.08
"""What an example question of a topic counts beside a text of ``asks.jsonl``."""
HARD_WEIGHT = 0.5
"""What a text that was written to be near another class counts: people write fewer of them."""


def _topics() -> list[set[int]]:
    return [words_of(text) for topic in topics().values() for texts in topic.questions.values() for text in texts]


def _asks(path: Path) -> tuple[list[set[int]], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(words, class, weight) of each text."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    weight = np.array([HARD_WEIGHT if row.get("hard") else 1.0 for row in rows])
    return [words_of(row["text"]) for row in rows], np.array([CLASSES.index(row["class"]) for row in rows]), weight


def collect(files: Sequence[Path]) -> None:
    """Keep the words of further posts, as checksums in no order."""
    kept = {row["url"]: row for row in _posts()}
    for path in files:
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            kept[row["url"]] = {"url": row["url"], "class": row["class"], "words": sorted(words_of(row["text"]))}
    lines = [json.dumps(kept[url], separators=(",", ":")) for url in sorted(kept)]
    POSTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _posts() -> list[dict[str, Any]]:
    return [json.loads(line) for line in POSTS.read_text("utf-8").splitlines()] if POSTS.exists() else []


def _with_posts(texts: Any) -> Any:
    """The texts of ``asks.jsonl`` with the posts, each of which counts as one of them."""
    asks, label, weight = texts
    posts = _posts()
    labels = np.array([CLASSES.index(post["class"]) for post in posts], dtype=label.dtype)
    words = [set(post["words"]) for post in posts]
    return [*asks, *words], np.concatenate([label, labels]), np.concatenate([weight, np.full(len(posts), POST_WEIGHT)])


POST_WEIGHT = 1.0
"""What a post of a thread counts beside a text of ``asks.jsonl``."""


def _reports() -> tuple[list[np.ndarray[Any, Any]], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(words, weight, fold) of the reports without a printed failure whose cause is a lack of memory."""
    rows = [
        row
        for row in fit_ranker.load()
        if row.cause != "not-oom" and ("outcome:said" in row.features or "outcome:question" in row.features)
    ]
    weight = np.array([REPORT_WEIGHT.get(row.source, 0.25) for row in rows])
    return [np.asarray(row.words) for row in rows], weight, np.array([row.fold for row in rows])


def _fit(texts: Any, labelled: Any, known: Any) -> Any:
    """Every class counts alike.

    :param texts: (words, class, weight) of the texts of ``asks.jsonl``.
    :param labelled: (words, weight) of reports.
    :param known: questions of topics.
    """
    (asks, label, counts), (reports, weight) = texts, labelled
    parts = [label, np.full(len(reports), CLASSES.index("complaint")), np.full(len(known), CLASSES.index("question"))]
    classes = np.concatenate(parts)
    w = np.concatenate([counts, weight, np.full(len(known), TOPIC_WEIGHT)])
    for k in range(len(CLASSES)):
        w[classes == k] *= len(asks) / len(CLASSES) / w[classes == k].sum()
    return cause_words.fit(
        [*asks, *reports, *known], np.eye(len(CLASSES))[classes], w, classes=CLASSES, penalty=PENALTY
    )


def _probable(fitted: Any, texts: Sequence[Any]) -> np.ndarray[Any, Any]:
    """(texts, classes)."""
    odds = np.array([fitted.scores(words) if len(words) else np.zeros(len(CLASSES)) for words in texts])
    return fit_ranker.softmax(odds)


def _show(name: str, p: np.ndarray[Any, Any], label: np.ndarray[Any, Any]) -> None:
    for kind, bounds in _SHOWN.items():
        probability = p[:, CLASSES.index(kind)]
        for least in bounds:
            shares = [
                f"{(probability[label == k] >= least).mean():.1%} of {(label == k).sum()} {one}"
                for k, one in enumerate(CLASSES)
                if (label == k).any()
            ]
            print(f"{name}, {kind} from {least}: {', '.join(shares)}")


_SHOWN = {"complaint": (0.3, 0.4, 0.5, 0.6, 0.7, 0.8), "question": (0.9,), "other": (0.5, 0.6, 0.7)}
"""Bounds on the probability of a class for which figures are printed."""


def _cross_validate(texts: Any, labelled: Any, known: Sequence[Any]) -> None:
    """Print the figures of texts, reports and questions of topics that a fit has not seen."""
    (asks, label, counts), (reports, weight, report_fold) = texts, labelled
    fold, known_fold = np.arange(len(asks)) % FOLDS, np.arange(len(known)) % FOLDS
    mine, theirs = np.zeros((len(asks), len(CLASSES))), np.zeros((len(reports), len(CLASSES)))
    of_topics = np.zeros((len(known), len(CLASSES)))
    for k in range(FOLDS):
        inside, kept = np.flatnonzero(fold != k), np.flatnonzero(report_fold != k)
        others = [known[i] for i in np.flatnonzero(known_fold != k)]
        some = ([asks[i] for i in inside], label[inside], counts[inside])
        fitted = _fit(some, ([reports[i] for i in kept], weight[kept]), others)
        of_topics[known_fold == k] = _probable(fitted, [known[i] for i in np.flatnonzero(known_fold == k)])
        mine[fold == k] = _probable(fitted, [asks[i] for i in np.flatnonzero(fold == k)])
        theirs[report_fold == k] = _probable(fitted, [reports[i] for i in np.flatnonzero(report_fold == k)])
    _show("left-out texts", mine, label)
    _show("reports of left-out repositories", theirs, np.full(len(reports), CLASSES.index("complaint")))
    _show("left-out questions of topics", of_topics, np.full(len(known), CLASSES.index("question")))


def main() -> None:
    """Cross-validate, write, test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--test", type=Path)
    parser.add_argument("--collect", type=Path, nargs="+")
    args = parser.parse_args()
    if args.collect:
        collect(args.collect)
        return
    texts, (reports, weight, report_fold), known = _with_posts(_asks(ASKS)), _reports(), _topics()
    if not args.write:
        _cross_validate(texts, (reports, weight, report_fold), known)
    fitted = _fit(texts, (reports, weight), known)
    if args.test:
        tested, labels, _ = _asks(args.test)
        _show(args.test.name, _probable(fitted, tested), labels)
    if args.write:
        cause_words.write(fitted, cause_words.SHIPPED.with_name(WEIGHTS))
        print(f"{WEIGHTS}: {len(fitted.features)} features")


if __name__ == "__main__":
    main()
