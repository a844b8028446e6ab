"""Learn how reports of each cause are worded, and by what to know a thread again, from public threads and the cases.

usage: python bench/train_wording.py [--add REPORTS.jsonl ...] [--check]

Without options the weights are learned again and written to ``kb/oomkb/retrieval/data/wording.npz``, and the table of
threads beside it, to ``threads.npz``.

``--add`` reads further threads first: each line holds ``url``, ``report`` (the text), ``cause`` and ``also``. What is
kept of a thread, in ``bench/data/wording_threads.npz``, is its link, its labels, which words and figures it holds how
often (not in which order), and the vector of its beginning. A thread that is there already is replaced.

``--check`` prints how often the wording alone names the right cause of a thread left out of the learning (five folds),
beside the share of the largest cause. No thread of the data that the diagnosis is measured with may be added.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix, hstack
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from oomdoc.diagnosis.view import View
from oomdoc.intake import read_text
from oomkb.memory.job import Job
from oomkb.records.loader import load_cases
from oomkb.retrieval.embed import encoder
from oomkb.retrieval.threads import Threads, marks, table_of
from oomkb.retrieval.views import plain_words
from oomkb.retrieval.wording import Wording

ROOT = Path(__file__).parent.parent
THREADS = ROOT / "bench" / "data" / "wording_threads.npz"
SHIPPED = ROOT / "kb" / "oomkb" / "retrieval" / "data"
WEIGHTS = SHIPPED / "wording.npz"
TABLE = SHIPPED / "threads.npz"
READ_CHARS = 6000
BEGINNING_CHARS = 240
RAREST = 3
MOST_WORDS = 4000
SHARE_OF_ALSO = 0.3
"""What a further cause of a thread counts beside the label."""
VECTOR_SCALE = 2.0
"""Length of the vector beside that of the words, which is one."""
INVERSE_PENALTY = 3.0


@dataclass(frozen=True)
class Text:
    """What is learned from one text."""

    url: str
    cause: str
    also: tuple[str, ...]
    marks: Counter[str]
    """Its words and its longer figures."""
    vector: np.ndarray[Any, Any]
    weight: float = 1.0

    @property
    def words(self) -> Counter[str]:
        """Without the figures: how a report is worded, whatever its sizes."""
        return Counter({mark: n for mark, n in self.marks.items() if not mark[0].isdigit()})


def text_of(report: str, url: str, cause: str, also: Sequence[str], weight: float = 1.0) -> Text:
    """Read a report as a diagnosis does."""
    view = View(evidence=read_text(report), job=Job())
    text = view.text[:READ_CHARS]
    english = plain_words(text)
    vector = encoder().encode([english[:BEGINNING_CHARS]])[0]
    return Text(url, cause, tuple(also), Counter(marks(text, english)), vector, weight)


def kept() -> list[Text]:
    """The threads read so far."""
    if not THREADS.exists():
        return []
    with np.load(THREADS, allow_pickle=False) as found:
        words = [str(word) for word in found["marks"]]
        starts, columns, counts = found["starts"], found["columns"], found["counts"]
        out = []
        for row, (url, cause, also) in enumerate(zip(found["urls"], found["causes"], found["also"], strict=True)):
            here = slice(starts[row], starts[row + 1])
            said = Counter({words[c]: int(n) for c, n in zip(columns[here], counts[here], strict=True)})
            vector = found["vectors"][row].astype(np.float32)
            out.append(Text(str(url), str(cause), tuple(filter(None, str(also).split(","))), said, vector))
    return out


def keep(texts: Sequence[Text]) -> None:
    """Write the threads, sorted by link."""
    texts = sorted(texts, key=lambda text: text.url)
    words = sorted({word for text in texts for word in text.marks})
    column = {word: number for number, word in enumerate(words)}
    rows = [sorted((column[w], n) for w, n in text.marks.items()) for text in texts]
    THREADS.parent.mkdir(exist_ok=True)
    np.savez_compressed(
        THREADS,
        urls=np.array([text.url for text in texts]),
        causes=np.array([text.cause for text in texts]),
        also=np.array([",".join(text.also) for text in texts]),
        marks=np.array(words),
        starts=np.cumsum([0, *(len(row) for row in rows)]).astype(np.int32),
        columns=np.array([c for row in rows for c, _ in row], dtype=np.uint16 if len(words) < 65536 else np.int32),
        counts=np.array([min(n, 255) for row in rows for _, n in row], dtype=np.uint8),
        vectors=np.array([text.vector for text in texts], dtype=np.float16),
    )


def of_cases() -> list[Text]:
    """The symptoms of the public case records; together they count as one text."""
    return [
        text_of(symptom, case.url or case.id, case.cause, case.also, 1 / len(case.symptoms))
        for case in load_cases()
        if not case.private
        for symptom in case.symptoms
    ]


def learn(texts: Sequence[Text]) -> Wording:
    """Multinomial logistic regression, every cause counting alike."""
    common = Counter(word for text in texts for word in text.words)
    known = sorted(word for word, n in common.most_common(MOST_WORDS) if n >= RAREST)
    words = {word: number for number, word in enumerate(known)}
    idf = np.array([1 + math.log((1 + len(texts)) / (1 + common[word])) for word in known], dtype=np.float32)
    blank = np.zeros((0, 0))
    empty = Wording(key="", causes=(), words=words, idf=idf, word_weights=blank, vector_weights=blank, bias=np.zeros(0))
    rows, labels, weights = [], [], []
    for number, text in enumerate(texts):
        for cause, weight in [(text.cause, 1.0), *((c, SHARE_OF_ALSO / len(text.also)) for c in text.also)]:
            rows.append(number)
            labels.append(cause)
            weights.append(weight * text.weight)
    features = _features(empty, texts)[rows]
    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000, class_weight="balanced")
    model.fit(features, labels, sample_weight=weights)
    return Wording(
        key=encoder().key,
        causes=tuple(model.classes_),
        words=words,
        idf=idf,
        word_weights=model.coef_[:, : len(known)].astype(np.float32),
        vector_weights=(model.coef_[:, len(known) :] * VECTOR_SCALE).astype(np.float32),
        bias=model.intercept_.astype(np.float32),
    )


def _features(wording: Wording, texts: Sequence[Text]) -> Any:
    columns, values, starts = [], [], [0]
    for text in texts:
        cols, vals = wording.weighed(text.words.elements())
        columns += cols
        values += list(vals)
        starts.append(len(columns))
    shape = (len(texts), len(wording.words))
    vectors = csr_matrix(VECTOR_SCALE * np.array([text.vector for text in texts]))
    return hstack([csr_matrix((values, columns, starts), shape=shape), vectors]).tocsr()


def write(wording: Wording) -> None:
    np.savez_compressed(
        WEIGHTS,
        key=np.array(wording.key),
        causes=np.array(wording.causes),
        words=np.array(list(wording.words)),
        idf=wording.idf.astype(np.float16),
        word_weights=wording.word_weights.astype(np.float16),
        vector_weights=wording.vector_weights.astype(np.float16),
        bias=wording.bias.astype(np.float16),
    )


def write_table(table: Threads) -> None:
    np.savez_compressed(
        TABLE,
        urls=np.array(table.urls),
        causes=np.array(table.causes),
        also=np.array(table.also),
        marks=np.array(list(table.marks)),
        rarity=table.rarity.astype(np.float16),
        starts=table.starts,
        holders=table.holders.astype(np.uint16 if len(table.urls) < 65536 else np.int32),
        weights=table.weights.astype(np.float16),
    )


def check(threads: Sequence[Text], cases: Sequence[Text]) -> None:
    first = three = 0
    for learned, left_out in KFold(5, shuffle=True, random_state=0).split(threads):
        away = {threads[i].url for i in left_out}
        wording = learn([*(threads[i] for i in learned), *(c for c in cases if c.url not in away)])
        for i in left_out:
            text = threads[i]
            opinions = wording.opinions(text.vector, text.words.elements())
            order = sorted(opinions, key=lambda cause: -opinions[cause])
            first += order[0] in (text.cause, *text.also)
            three += text.cause in order[:3]
    count = len(threads)
    largest = Counter(t.cause for t in threads).most_common(1)[0]
    print(f"{count} threads left out in turn: the wording alone names the cause first in {first / count:.1%},")
    print(f"among three in {three / count:.1%}; the largest cause, {largest[0]}, is {largest[1] / count:.1%} of them")


def rows_of(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for f in files for line in f.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs="+", type=Path, default=[], help="threads to read first, JSONL")
    parser.add_argument("--check", action="store_true", help="how well threads left out are told apart; writes nothing")
    options = parser.parse_args()
    threads = {text.url: text for text in kept()}
    for row in rows_of(options.add):
        threads[row["url"]] = text_of(row["report"], row["url"], row["cause"], row.get("also", ()))
    if options.add:
        keep(list(threads.values()))
    cases = of_cases()
    if options.check:
        check(list(threads.values()), cases)
        return
    wording = learn([*threads.values(), *cases])
    write(wording)
    write_table(table_of([(text.url, text.cause, text.also, text.marks) for text in threads.values()]))
    print(f"{len(threads)} threads, {len(cases)} symptoms, {len(wording.words)} words -> {WEIGHTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
