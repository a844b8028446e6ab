"""Which topics of the knowledge base a question is about, each with a calibrated probability.

A question is compared with the example questions and the texts of every topic: by words and concepts (those of
:mod:`oomdoc.intake.statements.concepts`, the same in both languages) and by sentence vectors, of Chinese by those of
its English gloss. ``topics.toml`` weighs the likenesses, for each language apart, against "no topic at all";
``bench/topic_recognition.py`` fits it on examples left out, and keeps the vectors of the examples in ``topics.npz``.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate, chain, pairwise, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomdoc.evidence import Evidence
from oomdoc.intake.several import questions_in
from oomdoc.intake.statements.causes import words_of
from oomkb.catalog import models
from oomkb.errors import OomdocError
from oomkb.tables import read_toml
from oomkb.topics import Topic, topics

if TYPE_CHECKING:
    import numpy as np

SHOWN: Final = 0.45
"""Probability from which a topic is shown."""
_BEYOND_OTHERS: Final = 0.97
"""Probability from which a topic stands, however near a text about no topic is."""
NEAR: Final = 0.06
"""Probability from which a topic that is not shown is named as near."""
LIKENESSES: Final = (
    "text-words",
    "held",
    "held-rare",
    "best-vector",
    "mean-vector",
)
"""Of a topic to the question: its whole text by words; the share of the question's words (once more by the rare ones)
that it holds; and by sentence vectors its nearest example, and the mean of its examples.
"""
_NEAREST: Final = "best-vector"
_WEIGHTS: Final = Path(__file__).with_name("topics.toml")
_VECTORS: Final = Path(__file__).with_name("topics.npz")
_CHARS: Final = 240
"""Characters that the model reads of a question."""
_READ: Final = 1500
"""Characters of a text that are read."""
_WHOLE: Final = 400
_SHORT: Final = 8
"""Characters of the shortest clause that may ask something; of an English sentence three times as many."""
_MIN_WORDS_OF_CLAIM: Final = 5
_MAX_PARTS: Final = 12
_QUESTION_MARKS: Final = frozenset("?？")
_PAUSES: Final = str.maketrans(dict.fromkeys("，；：（）,;", "\n"))
_ENDS: Final = str.maketrans({"?": "?\n", "？": "？\n", "。": "。\n", "!": "!\n", "！": "！\n"})


class Recogniser:
    """The examples of topics, ready to be compared with.

    :param examples: (id of the topic, question).
    :param texts: (id of the topic, further text about it).
    """

    def __init__(self, examples: Sequence[tuple[str, str]], texts: Sequence[tuple[str, str]]) -> None:
        import numpy as np

        self.ids = tuple(dict.fromkeys(name for name, _ in examples))
        number = {name: n for n, name in enumerate(self.ids)}
        self._owners = np.array([number[name] for name, _ in examples])
        places: list[list[int]] = [[] for _ in self.ids]
        for at, owner in enumerate(self._owners.tolist()):
            places[owner].append(at)
        most = max((len(own) for own in places), default=0)
        # (topics, places of their examples); behind the last one of a topic stands the place after all of them.
        rows = [own + [len(examples)] * (most + 1 - len(own)) for own in places]
        self._places = np.array(rows, dtype=np.intp).reshape(len(rows), most + 1)
        counts: list[Counter[int]] = [Counter() for _ in self.ids]
        further: list[set[int]] = [set() for _ in self.ids]
        for name, text in examples:
            counts[number[name]].update(_words_of(text))
        for name, text in texts:
            further[number[name]] |= _words_of(text)
        self._texts = _Words([set(held) | more for held, more in zip(counts, further, strict=True)])
        self._held = _Held(counts, further)
        self._vectors = _vectors_of([text for _, text in examples])
        means = np.stack([self._vectors[self._owners == n].mean(axis=0) for n in range(len(self.ids))])
        self._means = means / np.linalg.norm(means, axis=1, keepdims=True)

    def likenesses(self, question: str) -> np.ndarray[Any, Any]:
        """(topics, likenesses), in the order of :data:`LIKENESSES`.

        :raises OomdocError: where the embedding model cannot be opened.
        """
        import numpy as np

        words, vector = words_of(question), _vector_of(question)
        best = np.append(self._vectors @ vector, np.float32(-np.inf))[self._places].max(axis=1)
        held = self._held.shares(words)
        return np.stack([self._texts.cosines(words), *held, best, self._means @ vector], axis=1)

    def ranked(self, question: str) -> list[tuple[str, float, float]]:
        """(topic, probability that the question is about it, likeness of its nearest example by sentence vectors).

        Most probable first; what is left to 1 is the probability that it is about none.
        """
        import numpy as np

        weights, none = _weights()["zh" if is_chinese(question) else "en"]
        likenesses = self.likenesses(question)
        odds = np.exp(np.minimum(likenesses @ weights - none, 50.0))
        shares = odds / (1.0 + odds.sum())
        nearest = likenesses[:, LIKENESSES.index(_NEAREST)]
        return [(self.ids[n], float(shares[n]), float(nearest[n])) for n in np.argsort(-shares)]


class _Words:
    """Sets of features, each weighed by how rare it is among them."""

    def __init__(self, texts: Sequence[set[int]]) -> None:
        import numpy as np

        held: dict[int, list[int]] = defaultdict(list)
        for n, text in enumerate(texts):
            for feature in text:
                held[feature].append(n)
        self._rarity = {feature: math.log(1 + len(texts) / len(places)) for feature, places in held.items()}
        # The places of all features behind one another, and where those of each begin and end.
        self._ranges = dict(zip(held, pairwise(accumulate(map(len, held.values()), initial=0)), strict=True))
        self._places = np.fromiter(chain.from_iterable(held.values()), dtype=np.intp)
        self._new = math.log(1 + len(texts))
        self._lengths = np.array([self._length(text) for text in texts], dtype=np.float32)

    def _length(self, text: Iterable[int]) -> float:
        return math.sqrt(sum(self._rarity.get(feature, self._new) ** 2 for feature in text)) or 1.0

    def cosines(self, question: set[int]) -> np.ndarray[Any, Any]:
        """float32 (texts,)."""
        import numpy as np

        out = np.zeros(len(self._lengths), dtype=np.float32)
        for feature in question:
            if feature in self._ranges:
                out[self._places[slice(*self._ranges[feature])]] += self._rarity[feature] ** 2
        return np.asarray(out / self._lengths / self._length(question))


class _Held:
    """How firmly each topic holds a feature, 0..1: by how many of its examples have it, and whether its text has it."""

    def __init__(self, counts: Sequence[Mapping[int, int]], further: Sequence[set[int]]) -> None:
        import numpy as np

        self._size = len(counts)
        held: dict[int, list[tuple[int, float]]] = defaultdict(list)
        for n, (asked, text) in enumerate(zip(counts, further, strict=True)):
            for feature in asked.keys() | text:
                weight = asked.get(feature, 0) + (0.5 if feature in text else 0.0)
                held[feature].append((n, weight / (weight + 1)))
        # Topics and shares of all features behind one another, and where those of each begin and end.
        self._ranges = dict(zip(held, pairwise(accumulate(map(len, held.values()), initial=0)), strict=True))
        rows = np.array([row for rows in held.values() for row in rows]).reshape(-1, 2)
        self._topics, self._shares = rows[:, 0].astype(np.intp), rows[:, 1].copy()

    def shares(self, question: set[int]) -> np.ndarray[Any, Any]:
        """(2, topics): of the question's features weighed by rarity, and by its square."""
        import numpy as np

        out, whole = np.zeros((2, self._size), dtype=np.float32), np.full(2, 1e-6)
        for feature in question:
            start, end = self._ranges.get(feature, (0, 0))
            rarity = math.log(1 + self._size / max(end - start, 1))
            for n, weight in enumerate((rarity, rarity**2)):
                whole[n] += weight
                out[n, self._topics[start:end]] += weight * self._shares[start:end]
        return np.asarray(out / whole[:, None])


def _words_of(text: str) -> set[int]:
    """The features of a text of a topic; of a Chinese one those of its English gloss as well."""
    from oomkb.retrieval.views import plain_words

    return words_of(text) | (words_of(plain_words(text)) if is_chinese(text) else set())


def _encoded(texts: Sequence[str]) -> np.ndarray[Any, Any]:
    from oomkb.retrieval.embed import encoder
    from oomkb.retrieval.views import plain_words

    return encoder().encode_quickly([plain_words(text)[:_CHARS] for text in texts])


def _vector_of(question: str) -> np.ndarray[Any, Any]:
    from oomkb.retrieval.views import embedded, plain_words

    return embedded(plain_words(question)[:_CHARS])


def mark_of(text: str) -> int:
    """By which the vector of an example is kept."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _vectors_of(texts: Sequence[str]) -> np.ndarray[Any, Any]:
    """The kept vectors; what is not kept is embedded now."""
    import numpy as np

    kept, _ = _kept_vectors()
    missing = [text for text in texts if mark_of(text) not in kept]
    made = dict(zip(missing, _encoded(missing), strict=True)) if missing else {}
    rows = [made[text] if text in made else kept[mark_of(text)] for text in texts]
    return np.stack(rows) if rows else np.zeros((0, 1), dtype=np.float32)


@cache
def _kept_vectors() -> tuple[Mapping[int, np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Mark of an example -> its vector; float32 (texts, width) of texts about no topic. None of another encoder's."""
    import numpy as np

    from oomkb.retrieval.embed import encoder

    with np.load(_VECTORS, allow_pickle=False) as file:
        found = dict(file)
    if str(found["encoder"]) != encoder().key:
        return {}, np.zeros((0, 1), dtype=np.float32)
    vectors, others = (found[name].astype(np.float32) for name in ("vectors", "others"))
    vectors, others = (one / np.maximum(np.linalg.norm(one, axis=1, keepdims=True), 1e-6) for one in (vectors, others))
    return dict(zip(found["marks"].tolist(), vectors, strict=True)), others


@cache
def _weights() -> Mapping[str, tuple[np.ndarray[Any, Any], float]]:
    """Language -> weight of each likeness, and the score that "no topic" has."""
    import numpy as np

    table = read_toml(_WEIGHTS)
    return {
        language: (np.array([row[name] for name in LIKENESSES], dtype=np.float32), float(row["none"]))
        for language, row in table.items()
    }


def parts_of(topic: Topic) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The examples and the further texts of a topic, each with its id; titles are examples too."""
    asked = [*topic.title.values(), *(text for texts in topic.questions.values() for text in texts)]
    return [(topic.id, text) for text in asked], [(topic.id, text) for text in topic.answer.values()]


@cache
def _shipped() -> Recogniser:
    parts = [parts_of(topic) for topic in topics().values()]
    return Recogniser([e for examples, _ in parts for e in examples], [t for _, texts in parts for t in texts])


def is_chinese(text: str) -> bool:
    """Whether it holds Chinese."""
    return any("一" <= character <= "鿿" for character in text)


def _unnamed(text: str) -> str:
    """The text with models' names as a plain word: which model a run has says nothing of what is asked."""
    for found in sorted(models.find_all(text), key=lambda m: -m.start):
        if found.named:
            text = f"{text[: found.start]}{'模型' if is_chinese(text) else 'the model'}{text[found.end :]}"
    return text


def parts_in(prose: str) -> list[str]:
    """What of a text may be a question about a concept: all of it where it is short, its sentences, Chinese clauses."""
    plain = _unnamed(" ".join(prose[:_READ].split()))
    sentences = [line.strip() for line in plain.replace(". ", ".\n").translate(_ENDS).splitlines()]
    clauses = [
        clause.strip() for line in sentences if is_chinese(line) for clause in line.translate(_PAUSES).split("\n")
    ]
    parts = [plain] if len(plain) <= _WHOLE else []
    parts += [line for line in sentences if _may_ask(line)]
    parts += [clause for clause in clauses if len(clause) >= _SHORT]
    return list(dict.fromkeys(parts))[-_MAX_PARTS:] or [plain] * bool(plain)


def _may_ask(sentence: str) -> bool:
    """Whether a sentence is long enough to be a question, or a claim to be checked."""
    if is_chinese(sentence):
        return len(sentence) >= _SHORT
    return len(sentence) >= 3 * _SHORT and ("?" in sentence or sentence.count(" ") >= _MIN_WORDS_OF_CLAIM)


@lru_cache(maxsize=512)
def _near(part: str) -> tuple[tuple[str, float], ...]:
    """The topics of a part that are not ruled out: of a text, of its words and of its questions alone it is one.

    One that is not sure is ruled out where a text about no topic is nearer than all its examples.
    """
    found = list(takewhile(lambda one: one[1] >= NEAR, _shipped().ranked(part)))
    least = -1.0
    if found and found[0][1] < _BEYOND_OTHERS and len(others := _kept_vectors()[1]):
        least = float((others @ _vector_of(part)).max())
    return tuple((name, share) for name, share, nearest in found if share >= _BEYOND_OTHERS or nearest >= least)


def topics_in(prose: str) -> Mapping[str, float]:
    """The topics of a text that are not ruled out, most probable first, each by the part of the text that asks it best.

    None where there is no embedding model.
    """
    best: dict[str, float] = {}
    try:
        for part in parts_in(prose):
            for name, share in _near(part):
                best[name] = max(share, best.get(name, 0.0))
    except OomdocError:
        return {}
    return dict(sorted(best.items(), key=lambda pair: -pair[1]))


def topics_of(evidence: Evidence) -> Mapping[str, float]:
    """The topics that the person's words are about, most probable first.

    Who tells of a failure and puts no question asks about none, nor does the name of a command above its output.
    """
    if " " not in evidence.prose.strip() and any(evidence.find("nvidia-smi-memory")) and evidence.prose.isascii():
        return {}
    failed = evidence.outcome is not None and evidence.outcome.fails
    return {} if failed and _QUESTION_MARKS.isdisjoint(evidence.prose) else topics_in(evidence.prose)


def topics_told(evidence: Evidence) -> Mapping[str, float]:
    """The topics of a failure that is only told of, or quoted without a size: of a long text those of its questions.

    None of a failure that a program printed.
    """
    outcome, root = evidence.outcome, evidence.root
    told = outcome is not None and (
        outcome.kind == "said"
        or outcome.name == "trouble"
        or (outcome.span.text.strip() in evidence.prose and (root is None or root.requested_bytes is None))
    )
    if not told:
        return {}
    return topics_in(evidence.prose) if len(evidence.prose) <= _MAX_CHARACTERS_TOLD else topics_asked(evidence)


_MAX_CHARACTERS_TOLD: Final = 240


def topics_asked(evidence: Evidence) -> Mapping[str, float]:
    """The topics that the questions alone are about, without what is said around them."""
    return topics_in("\n".join(questions_in(evidence.prose)))
