"""From features to probabilities: one sparse multinomial logistic model, whose weights are a table to read.

``weights.tsv`` holds a row per (feature, cause) with the log-odds that the feature adds for the cause at value 1;
weights are relative, and an absent one is 0. The row ``prior`` is what is added without any feature. ``like:*``,
``reads-like:*`` and ``words:*`` are shared by all causes: what likeness 1 adds for the cause that the feature names.
``doubt`` is the share of probability that no evidence takes away. ``bench/fit_ranker.py`` fits the
table, with temperature and doubt from repositories left out; its header says what it was fitted on.

``language_model_weights.tsv`` holds what a language model's reading adds, in the same form, fitted on top with the
other table held fixed (``bench/language_model.py fit``): without a reading nothing of it counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import resources
from typing import Final, NamedTuple

from oomdoc.diagnosis.result import CauseFinding, Contribution, Feature
from oomdoc.evidence import Message
from oomkb.records.taxonomy import CAUSES

_PRIOR: Final = "prior"
_OF_MODEL: Final = "model-"
"""How the names of features of a language model's reading begin."""
SHARED: Final = ("like", "reads-like", "words")
"""Kinds of features whose weight is one for all causes, given to the cause they name."""
_TEMPERATURE: Final = "temperature"
_DOUBT: Final = "doubt"
_MAX_REASONS: Final = 5
_LEAST_REASON: Final = 0.2
"""Log-odds below which a contribution is not worth a line."""
LITTLE_SUPPORT: Final = 0.6
"""Log-odds for a cause by what was read or computed, below which its wording alone names it."""
_MAX_BY_WORDING: Final = 0.77
"""How often such a first cause is right where 80 % and more is said: of 560 texts of repositories that the fit had not
seen (``bench/words_alone.py``)."""
_LEAST_PROBABILITY: Final = 0.005
_FEWEST_SHOWN: Final = 3


class Table(NamedTuple):
    """The fitted model."""

    prior: Mapping[str, float]
    weights: Mapping[str, Mapping[str, float]]
    """Feature name -> cause -> log-odds at value 1."""
    shared: Mapping[str, float]
    """Kind of feature -> log-odds at value 1 for the cause that the feature names."""
    temperature: float
    doubt: float


@lru_cache(maxsize=1)
def load_table() -> Table:
    """The shipped table.

    :raises ValueError: for a row that is not ``feature<TAB>cause<TAB>number`` or names an unknown cause.
    """
    return parse_table(_shipped("weights.tsv"))


@lru_cache(maxsize=1)
def _with_model() -> Table:
    """The shipped table with what a language model's reading adds."""
    plain, added = load_table(), parse_table(_shipped("language_model_weights.tsv"))
    return plain._replace(weights={**plain.weights, **added.weights}, shared={**plain.shared, **added.shared})


def _shipped(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def parse_table(text: str) -> Table:
    """Read the table's text.

    :raises ValueError: for a row that is not ``feature<TAB>cause<TAB>number`` or names an unknown cause.
    """
    prior: dict[str, float] = dict.fromkeys(CAUSES, 0.0)
    weights: dict[str, dict[str, float]] = {}
    single = {_TEMPERATURE: 1.0, _DOUBT: 0.0}
    shared: dict[str, float] = dict.fromkeys(SHARED, 0.0)
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, cause, value = line.split("\t")
        if name in single:
            single[name] = float(value)
        elif cause == "*" and name.endswith(":*"):
            shared[name[:-2]] = float(value)
        elif cause not in prior:
            raise ValueError(f"weights.tsv:{number}: {cause!r} is not a cause")
        elif name == _PRIOR:
            prior[cause] = float(value)
        else:
            weights.setdefault(name, {})[cause] = float(value)
    return Table(prior, weights, shared, single[_TEMPERATURE], single[_DOUBT])


def _weights_of(feature: Feature, table: Table) -> Mapping[str, float]:
    kind, _, cause = feature.name.partition(":")
    if kind in table.shared:
        return {cause: table.shared[kind]} if cause in table.prior else {}
    return table.weights.get(feature.name, {})


def _is_likeness(feature: Feature) -> bool:
    return feature.name.partition(":")[0] in SHARED


def scores(features: Sequence[Feature], table: Table) -> dict[str, float]:
    """Log-odds of each cause up to a constant."""
    total = dict(table.prior)
    for feature in features:
        for cause, weight in _weights_of(feature, table).items():
            total[cause] += weight * feature.value
    return total


def probabilities(scored: Mapping[str, float], table: Table) -> dict[str, float]:
    """Softmax of the scores at the table's temperature, less the doubt that all causes share."""
    top = max(scored.values())
    raised = {cause: math.exp((score - top) / table.temperature) for cause, score in scored.items()}
    total = sum(raised.values())
    return {cause: (1 - table.doubt) * value / total + table.doubt / len(raised) for cause, value in raised.items()}


_Weighed = tuple[Feature, Mapping[str, float], float]
"""A feature with what it weighs for each cause that it speaks of, and for the average cause."""


def weighed(features: Sequence[Feature], table: Table) -> list[_Weighed]:
    """The features with their weights."""
    pairs = [(feature, _weights_of(feature, table)) for feature in features]
    return [(feature, weights, sum(weights.values()) / len(table.prior)) for feature, weights in pairs]


def contributions(cause: str, features: Sequence[_Weighed]) -> tuple[Contribution, ...]:
    """What each feature says of a cause against the average cause, strongest first."""
    found = []
    for feature, weights, mean in features:
        log_odds = (weights.get(cause, 0.0) - mean) * feature.value
        if abs(log_odds) >= 0.05:
            found.append(Contribution(feature, round(log_odds, 2)))
    return tuple(sorted(found, key=lambda one: -abs(one.log_odds)))


def rank(features: Sequence[Feature], table: Table | None = None) -> tuple[CauseFinding, ...]:
    """The causes, most probable first, each with what spoke for and against it."""
    if table is None:
        table = _with_model() if any(f.name.startswith(_OF_MODEL) for f in features) else load_table()
    chances = probabilities(scores(features, table), table)
    found: list[CauseFinding] = []
    by_weight = weighed(features, table)
    for cause in sorted(chances, key=lambda c: -chances[c]):
        if chances[cause] < _LEAST_PROBABILITY and len(found) >= _FEWEST_SHOWN:
            break
        spoke = contributions(cause, by_weight)
        for_it = [one for one in spoke if one.log_odds >= _LEAST_REASON and _is_reason(one.feature.message)]
        for_it.sort(key=lambda one: _is_likeness(one.feature))  # what was read or computed is shown before likeness
        spans = tuple(dict.fromkeys(s for one in spoke if one.log_odds > 0 for s in one.feature.spans if s.source))
        why = tuple(one.feature.message for one in for_it[:_MAX_REASONS] if one.feature.message is not None)
        found.append(CauseFinding(cause, chances[cause], why, spans[:4], spoke))
    for_first = ((one.feature.name, one.log_odds) for one in found[0].contributions)
    supported = sum(log_odds for name, log_odds in for_first if log_odds > 0 and is_observed(name))
    return tuple(found) if supported >= LITTLE_SUPPORT else at_most(_MAX_BY_WORDING, found)


def is_observed(name: str) -> bool:
    """Whether a feature is of the failure: not of likeness to others, nor of what a run is that works."""
    kind, _, rest = name.partition(":")
    of_the_run = kind in _OF_THE_RUN or name in _SAYS_NOTHING or rest.startswith("said-")
    return not (kind in SHARED or of_the_run or rest.endswith(("/model-name", "/unknown")))


_OF_THE_RUN: Final = frozenset(
    [
        *("model", "models", "card", "run", "objective", "ranks", "method", "memory", "length", "sharding", "offload"),
        *("outcome", "rollout", "interval", "at"),
    ]
)
"""Kinds of features that a run has whether it fails or not, and that it failed."""
_SAYS_NOTHING: Final = frozenset({"weights:quantized", "predicted:not", "request:unstated"})


def _is_reason(message: Message | None) -> bool:
    """Whether a person would take it for one: how large a model or a card is explains nothing by itself."""
    return message is not None and message.key not in ("feature.model", "feature.card")


def at_most(probability: float, causes: Sequence[CauseFinding]) -> tuple[CauseFinding, ...]:
    """The causes with no more than that for the first one; the others share what it gives up.

    That no memory ran out is not bounded: the verdict weighs it against what was printed.
    """
    first, *others = causes
    if first.probability <= probability or first.cause == "not-oom":
        return tuple(causes)
    share = (1 - probability) / max(1 - first.probability, 1e-9)
    return (
        replace(first, probability=probability),
        *(replace(c, probability=min(c.probability * share, probability)) for c in others),
    )
