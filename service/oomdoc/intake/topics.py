"""Which topics of the knowledge base a question is about, each with a calibrated probability.

A question is compared with the example questions and the texts of every topic: by words and concepts (those of
:mod:`oomdoc.intake.statements.features`, the same in both languages) and by sentence vectors, of Chinese by those of
its English gloss. ``topics.toml`` weighs the likenesses, for each language apart, against "no topic at all";
``bench/topic_recognition.py`` fits it on examples left out, and keeps the vectors of the examples in ``topics.npz``.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from oomdoc.evidence import Evidence
from oomdoc.intake.statements.causes import words_of
from oomkb.errors import OomdocError
from oomkb.retrieval.views import embedded, plain_words
from oomkb.toml_files import read_toml
from oomkb.topics import Topic, topics

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "LIKENESSES",
    "NEAR",
    "SHOWN",
    "SHOWN_TOO",
    "Recogniser",
    "parts_of",
    "question_in",
    "topics_in",
    "topics_of",
]

SHOWN: Final = 0.5
"""Probability from which a topic is shown."""
SHOWN_TOO: Final = 0.25
"""Probability from which a second one is shown beside it."""
NEAR: Final = 0.12
"""Probability from which a topic that is not shown is named as near."""
LIKENESSES: Final = ("best-words", "three-words", "text-words", "best-vector", "three-vectors")
_WEIGHTS: Final = Path(__file__).with_name("topics.toml")
_VECTORS: Final = Path(__file__).with_name("topics.npz")
_CHARS: Final = 240
"""Characters that the model reads of a question."""
_ASKS: Final = ("?", "？")
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
        places: list[list[int]] = [[] for _ in self.ids]
        for at, (name, _) in enumerate(examples):
            places[number[name]].append(at)
        most = max((len(own) for own in places), default=0)
        # (topics, places of their examples); behind the last one of a topic stands the place after all of them.
        rows = [own + [len(examples)] * (most + 3 - len(own)) for own in places]
        self._places = np.array(rows, dtype=np.intp).reshape(len(rows), most + 3)
        about: dict[str, set[int]] = defaultdict(set)
        words = [words_of(text) for _, text in (*examples, *texts)]
        for (name, _), held in zip((*examples, *texts), words, strict=True):
            about[name] |= held
        self._examples = _Words(words[: len(examples)])
        self._about = _Words([about[name] for name in self.ids])
        self._vectors = _vectors_of([text for _, text in examples])

    def likenesses(self, question: str) -> np.ndarray[Any, Any]:
        """float32 (topics, likenesses), in the order of :data:`LIKENESSES`.

        :raises OomdocError: where the embedding model cannot be opened.
        """
        import numpy as np

        words = words_of(question)
        by_words = self._examples.cosines(words)
        by_vector = self._vectors @ embedded(plain_words(question)[:_CHARS])
        columns = []
        for values in (by_words, by_vector):
            of_topics = np.append(values, np.float32(-np.inf))[self._places]
            best = np.ascontiguousarray(np.sort(of_topics, axis=1)[:, :-4:-1])
            best[np.isneginf(best)] = 0.0
            columns.append((best[:, 0], best.mean(axis=1)))
        return np.stack([*columns[0], self._about.cosines(words), *columns[1]], axis=1)

    def probabilities(self, question: str) -> dict[str, float]:
        """Topic -> probability that it is what the question is about, highest first; the rest is that of none."""
        import numpy as np

        weights, none = _weights()["zh" if _is_chinese(question) else "en"]
        scores = self.likenesses(question) @ weights - none
        odds = np.exp(np.minimum(scores, 50.0))
        shares = odds / (1.0 + odds.sum())
        return {self.ids[n]: float(shares[n]) for n in np.argsort(-shares)}


class _Words:
    """Sets of features, each weighed by how rare it is among them."""

    def __init__(self, texts: Sequence[set[int]]) -> None:
        counts = Counter(feature for text in texts for feature in text)
        self._rarity = {feature: math.log(1 + len(texts) / n) for feature, n in counts.items()}
        self._new = math.log(1 + len(texts))
        self._held: dict[int, list[int]] = defaultdict(list)
        for n, text in enumerate(texts):
            for feature in text:
                self._held[feature].append(n)
        self._lengths = [self._length(text) for text in texts]

    def _length(self, text: Iterable[int]) -> float:
        return math.sqrt(sum(self._rarity.get(feature, self._new) ** 2 for feature in text)) or 1.0

    def cosines(self, question: set[int]) -> np.ndarray[Any, Any]:
        """float32 (texts,)."""
        import numpy as np

        out = np.zeros(len(self._lengths), dtype=np.float32)
        for feature in question:
            if feature in self._held:
                out[self._held[feature]] += self._rarity[feature] ** 2
        return np.asarray(out / np.array(self._lengths, dtype=np.float32) / self._length(question))


def _encoded(texts: Sequence[str]) -> np.ndarray[Any, Any]:
    from oomkb.retrieval.embed import encoder

    return encoder().encode_quickly([plain_words(text)[:_CHARS] for text in texts])


def mark_of(text: str) -> int:
    """By which the vector of an example is kept."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def _vectors_of(texts: Sequence[str]) -> np.ndarray[Any, Any]:
    """The kept vectors; what is not kept is embedded now."""
    import numpy as np

    kept = _kept_vectors()
    missing = [text for text in texts if mark_of(text) not in kept]
    made = dict(zip(missing, _encoded(missing), strict=True)) if missing else {}
    rows = [made[text] if text in made else kept[mark_of(text)] for text in texts]
    return np.stack(rows) if rows else np.zeros((0, 1), dtype=np.float32)


@cache
def _kept_vectors() -> Mapping[int, np.ndarray[Any, Any]]:
    """Mark of an example -> its vector; none of another encoder's."""
    import numpy as np

    from oomkb.retrieval.embed import encoder

    if not _VECTORS.exists():
        return {}
    with np.load(_VECTORS, allow_pickle=False) as found:
        if str(found["encoder"]) != encoder().key:
            return {}
        vectors = found["vectors"].astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return dict(zip(found["marks"].tolist(), vectors, strict=True))


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


def _is_chinese(text: str) -> bool:
    return any("一" <= character <= "鿿" for character in text)


def question_in(prose: str) -> str:
    """What a text asks: a short one as it is, of a longer one its sentences that end in a question mark."""
    plain = " ".join(prose.split())
    if len(plain) <= _CHARS:
        return plain
    lines = prose[:4000].replace(". ", ".\n").translate(_ENDS).splitlines()
    asked = [line.strip() for line in lines if line.strip().endswith(_ASKS)]
    return " ".join(asked)[-_CHARS:] or plain[:_CHARS]


@lru_cache(maxsize=64)
def topics_in(prose: str) -> Mapping[str, float]:
    """The topics of a text that are not ruled out, most probable first; none where there is no embedding model."""
    question = question_in(prose)
    if not question:
        return {}
    try:
        found = _shipped().probabilities(question)
    except OomdocError:
        return {}
    return {name: share for name, share in found.items() if share >= NEAR}


def topics_of(evidence: Evidence) -> Mapping[str, float]:
    """The topics that the person's words are about, most probable first."""
    return topics_in(evidence.prose)
