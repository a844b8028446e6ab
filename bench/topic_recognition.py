"""How well questions are recognised as topics (``oomdoc.intake.topics``), and the fit of its weights.

usage: python bench/topic_recognition.py [--write] [QUESTIONS.jsonl]

Without a file: precision and recall on the topics' own example questions, each left out in turn by folds, and on texts
that are about no topic (``bench/data/unrelated_questions.txt``, ``asks.jsonl`` of the class "other"). ``--write`` fits
``topics.toml`` on these and embeds the examples into ``topics.npz``: those are training figures of five weights.
A file holds ``{"question": ..., "topics": [ids; empty for none]}`` a line; ``kind`` and ``lang`` group the figures.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from oomdoc.intake import topics as reading
from oomdoc.intake.topics import LIKENESSES, SHOWN, Recogniser
from oomkb.retrieval.embed import encoder
from oomkb.topics import topics

DATA = Path(__file__).parent / "data"
FOLDS = 5
PENALTY = 0.01
Row = tuple[str, np.ndarray, int]
"""(question, likenesses (topics, likenesses), number of its topic or -1)"""


def left_out() -> tuple[list[Row], tuple[str, ...]]:
    """Every example, compared with a recogniser that has not seen it nor its fold, and every text about no topic."""
    parts = [reading.parts_of(topic) for topic in topics().values()]
    titles = {title for topic in topics().values() for title in topic.title.values()}
    examples = [pair for asked, _ in parts for pair in asked]
    texts = [pair for _, further in parts for pair in further]
    order = [pair for pair in examples if pair[1] not in titles]
    random.Random(7).shuffle(order)
    rows: list[Row] = []
    ids = tuple(topics())
    for fold in range(FOLDS):
        held = set(order[fold::FOLDS])
        one = Recogniser([pair for pair in examples if pair not in held], texts)
        assert one.ids == ids
        rows += [(text, one.likenesses(text), ids.index(name)) for name, text in held]
    whole = Recogniser(examples, texts)
    rows += [(text, whole.likenesses(text), -1) for line in about_nothing() for text in reading.parts_in(line)[:2]]
    return rows, ids


def about_nothing() -> list[str]:
    """Texts that are about no topic."""
    lines = (DATA / "unrelated_questions.txt").read_text(encoding="utf-8").splitlines()[1:]
    asks = [json.loads(line) for line in (DATA / "asks.jsonl").read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line.strip()] + [a["text"] for a in asks if a["class"] == "other"]


def fit(rows: list[Row]) -> np.ndarray:
    """The weights and the score of none, by maximum likelihood; texts about nothing count a third of all."""
    nothing = sum(label < 0 for _, _, label in rows)
    weight = np.array([1.0 if label >= 0 else (len(rows) - nothing) / 2 / max(nothing, 1) for _, _, label in rows])
    stacked = np.stack([found for _, found, _ in rows])
    labels = np.array([label for _, _, label in rows])

    def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
        scores = np.concatenate([stacked @ w[:-1] - w[-1], np.zeros((len(rows), 1))], axis=1)
        scores -= scores.max(axis=1, keepdims=True)
        p = np.exp(scores)
        p /= p.sum(axis=1, keepdims=True)
        at = np.where(labels < 0, p.shape[1] - 1, labels)
        pull = p.copy()
        pull[np.arange(len(rows)), at] -= 1
        pull = pull[:, :-1] * weight[:, None]
        slope = np.append(np.einsum("rt,rtf->f", pull, stacked), -pull.sum()) + 2 * PENALTY * w
        value = -(weight * np.log(p[np.arange(len(rows)), at] + 1e-12)).sum() + PENALTY * (w**2).sum()
        return float(value), slope

    bounds = [(0.0, None)] * len(LIKENESSES) + [(None, None)]
    return minimize(loss, np.ones(len(LIKENESSES) + 1), jac=True, bounds=bounds).x


def shown(p: dict[str, float]) -> list[str]:
    """The topics that an answer shows."""
    return [name for name, share in list(p.items())[:2] if share >= SHOWN]


def report(name: str, found: list[tuple[dict[str, float], list[str]]]) -> None:
    """Precision (of shown first topics), recall (of questions that have one), and how often one is shown for none."""
    some = [(p, want) for p, want in found if want]
    none = [p for p, want in found if not want]
    first = [(next(iter(p)) in want, p) for p, want in some if p]
    said = [(next(iter(p)) in want) for p, want in some if shown(p)]
    any_right = [bool(set(shown(p)) & set(want)) for p, want in some]
    false = sum(bool(shown(p)) for p in none)
    print(
        f"{name}: {len(some)} with a topic: first {sum(a for a, _ in first)}, shown right {sum(any_right)},"
        f" shown wrong {len(said) - sum(said)}; {len(none)} without: shown {false}"
    )


def main() -> None:
    """Fit, or judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("questions", nargs="?", type=Path)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--misses", action="store_true", help="print what is not shown right")
    args = parser.parse_args()
    if args.questions:
        judge(args.questions, misses=args.misses)
        return
    rows, ids = left_out()
    table = []
    for language, own in (("en", False), ("zh", True)):
        mine = [row for row in rows if reading.is_chinese(row[0]) is own]
        w = fit(mine)
        table.append(
            f"[{language}]\n" + "\n".join(f"{n} = {v:.4g}" for n, v in zip((*LIKENESSES, "none"), w, strict=True))
        )
        found = []
        for text, likenesses, label in mine:
            odds = np.exp(likenesses @ w[:-1] - w[-1])
            p = odds / (1 + odds.sum())
            ranked = {ids[n]: float(p[n]) for n in np.argsort(-p)}
            found.append((ranked, [ids[label]] if label >= 0 else []))
            if args.misses and (shown(ranked) != found[-1][1]):
                print("  ", text, "|", *found[-1][1], "|", [(n, round(v, 2)) for n, v in list(ranked.items())[:3]])
        report(f"{language}, left out", found)
    if args.write:
        head = "# Fitted by bench/topic_recognition.py: the weight of each likeness, and the score of no topic.\n\n"
        reading._WEIGHTS.write_text(head + "\n\n".join(table) + "\n", encoding="utf-8")
        write_vectors()


def write_vectors() -> None:
    """The vectors of all examples, and of the texts that are about no topic, in eight bits."""
    texts = list(dict.fromkeys(text for t in topics().values() for _, text in reading.parts_of(t)[0]))
    texts.sort(key=reading.mark_of)
    others = list(dict.fromkeys(part for line in about_nothing() for part in reading.parts_in(line)[:2]))
    marks = np.array([reading.mark_of(text) for text in texts], dtype=np.uint64)
    vectors = {"vectors": in_eight_bits(texts), "others": in_eight_bits(others)}
    np.savez_compressed(reading._VECTORS, marks=marks, encoder=np.array(encoder().key), **vectors)
    print(f"{reading._VECTORS.name}: {len(texts)} vectors, {reading._VECTORS.stat().st_size:,} bytes")


def in_eight_bits(texts: list[str]) -> np.ndarray:
    """int8 (texts, width)."""
    vectors = reading._encoded(texts)
    return np.round(127 * vectors / np.abs(vectors).max(axis=1, keepdims=True)).astype(np.int8)


def judge(path: Path, *, misses: bool) -> None:
    """Figures on labelled questions of one's own, by kind and language."""
    groups: dict[str, list[Any]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found = dict(reading.topics_in(row["question"]))
        group = (
            f"{row.get('kind', 'all')}, {row.get('lang') or ('zh' if reading.is_chinese(row['question']) else 'en')}"
        )
        groups.setdefault(group, []).append((found, row.get("topics", [])))
        if misses and set(shown(found)) != set(row.get("topics", [])):
            print(
                "  ",
                row["question"],
                "|",
                *row.get("topics", []),
                "|",
                [(n, round(v, 2)) for n, v in found.items()][:3],
            )
    for name, found in sorted(groups.items()):
        report(name, found)


if __name__ == "__main__":
    main()
