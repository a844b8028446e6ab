"""From reasons to probabilities: prior + reasons, softmax, one temperature.

Reasons for one cause are seldom independent (a trace, a phrase and a size of the same event), so each further one
counts less than the one before it. The grades of the signs are set by hand, against what signs were worth on threads
that nobody had read; fitted, and held out by threads, are the temperature and the doubt that no sign takes away
(``bench/diagnosis_accuracy.py --fit`` prints the calibration error at other temperatures).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from oomdoc.diagnosis.result import CauseFinding, Reason
from oomdoc.diagnosis.rules import RULES
from oomdoc.diagnosis.usual import expected
from oomdoc.diagnosis.view import DECISIVE, FAIR, STRONG, WEAK, View
from oomdoc.messages import Message, say

__all__ = ["PRIORS", "TEMPERATURE", "probabilities", "rank", "scores"]

TEMPERATURE: Final = 0.55
_NEXT_RULE: Final = 0.6
_NEXT_CASE: Final = 0.5
"""What each further reason of a witness counts, relative to the one before it."""
_HEARSAY: Final = frozenset({"cause.case", "cause.retold", "cause.sounds", "cause.thread"})
_BEFORE: Final = ("cause.usual.", "cause.worded")
"""What shifts the prior, before any sign is read."""
_MOST_REASONS: Final = 5
_LOWEST: Final = 0.005
_DOUBT: Final = 0.07
"""What no evidence takes away: a report may be of something that none of the rules knows. Of reports that nobody had
read when the rules were written, one in seven of those with every sign on one cause was of another; of those that were
at hand, one in fifty."""

PRIORS: Final[Mapping[str, float]] = {
    "activations": 9,
    "attention-scores": 6,
    "checkpoint-save": 7,
    "cuda-graph": 4,
    "eval": 5,
    "extra-models": 4,
    "fragmentation": 4,
    "hardware-limit": 4,
    "host-ram": 12,
    "inactive-setting": 9,
    "kv-cache": 7,
    "leak": 7,
    "logits": 13,
    "long-sample": 6,
    "model-states": 13,
    "not-oom": 5,
    "optimizer-init": 7,
    "other-process": 5,
    "rollout-engine": 4,
    "shared-memory": 4,
    "version-regression": 12,
    "vision-tokens": 5,
    "weights-load": 9,
    "zero3-gather": 7,
}
"""How often each is the cause per 165 public threads; causes seen rarely are lifted to 4."""

# Where a cause can strike, for those that are bound to a place. A known phase outside of it speaks against.
_PLACES: Final[Mapping[str, frozenset[str]]] = {
    "activations": frozenset({"forward", "backward", "loss", "engine-init", "load", "generate", "serving"}),
    "attention-scores": frozenset({"forward", "backward", "engine-init", "generate", "eval", "serving", "loss"}),
    "checkpoint-save": frozenset({"save"}),
    "cuda-graph": frozenset({"engine-init", "generate", "serving", "forward", "backward", "rollout"}),
    "eval": frozenset({"eval", "evaluation", "forward", "loss", "generate"}),
    "kv-cache": frozenset({"engine-init", "generate", "serving", "eval", "rollout", "load"}),
    "logits": frozenset({"loss", "forward", "backward", "generate", "engine-init", "eval", "serving"}),
    "long-sample": frozenset({"forward", "backward", "loss", "generate", "serving"}),
    "model-states": frozenset(
        {
            "forward",
            "backward",
            "loss",
            "optimizer-init",
            "optimizer-step",
            "engine-init",
            "eval",
            "generate",
            "rollout",
            "weight-sync",
            "save",
        }
    ),
    "optimizer-init": frozenset({"optimizer-init", "optimizer-step", "load", "engine-init", "forward", "backward"}),
    "rollout-engine": frozenset(
        {"generate", "rollout", "weight-sync", "engine-init", "backward", "forward", "load", "loss"}
    ),
    "vision-tokens": frozenset({"forward", "backward", "engine-init", "generate", "eval", "serving", "loss"}),
    "weights-load": frozenset({"load", "engine-init", "generate"}),
    "zero3-gather": frozenset({"forward", "backward", "generate", "rollout", "optimizer-step", "weight-sync"}),
}
_TRAINING_ONLY: Final = frozenset(
    {
        "optimizer-init",
        "zero3-gather",
        "rollout-engine",
        "long-sample",
        "checkpoint-save",
        "model-states",
    }
)
_SERVING_ONLY: Final = frozenset({"kv-cache", "cuda-graph"})
_NOT_DEVICE: Final[Mapping[str, frozenset[str]]] = {
    "host": frozenset({"host-ram", "checkpoint-save", "weights-load", "leak", "shared-memory"}),
    "shared-memory": frozenset({"shared-memory", "host-ram"}),
    "other": frozenset({"not-oom", "shared-memory", "hardware-limit", "version-regression", "host-ram"}),
}
_ANYWHERE: Final = frozenset({"version-regression", "hardware-limit", "inactive-setting"})
"""Causes of whatever memory runs out."""


def rank(view: View) -> tuple[CauseFinding, ...]:
    """The causes, most probable first, each with its reasons."""
    reasons = weigh(view)
    chances = probabilities(scores(reasons))
    found: list[CauseFinding] = []
    for cause in sorted(chances, key=lambda c: -chances[c]):
        mine = sorted((r for r in reasons[cause] if r.log_odds > 0), key=lambda r: -r.log_odds)
        if chances[cause] < _LOWEST and len(found) >= 3:
            break
        spans = tuple(dict.fromkeys(s for r in mine for s in r.spans if s.source))
        found.append(CauseFinding(cause, chances[cause], tuple(r.message for r in mine[:_MOST_REASONS]), spans[:4]))
    return tuple(found)


def weigh(view: View) -> dict[str, list[Reason]]:
    """Every rule's reasons, those of the matched cases, and what place and kind of the failure rule out."""
    reasons = {}
    for rule in RULES:
        signs = list(rule.weigh(view))
        reasons[rule.CAUSE] = [*signs, *_place(view, rule.CAUSE), *_not_the_cards(view, rule.CAUSE, signs)]
    for cause, reason in (*_votes(view), *_threads(view), *_sounds(view), *_worded(view), *expected(view)):
        if cause in reasons:
            reasons[cause].append(reason)
    return reasons


def scores(reasons: Mapping[str, Sequence[Reason]]) -> dict[str, float]:
    """Log-odds per cause up to a constant: the prior, what speaks for it, and all that speaks against.

    What rules read and what known cases say are two witnesses; within each, a further reason counts less than the last.
    What is usual for the kind of job, and how such reports are worded, is added to the prior.
    """
    total = sum(PRIORS.values())
    out = {}
    for cause, mine in reasons.items():
        cases = [r for r in mine if r.message.key in _HEARSAY]
        usual = sum(r.log_odds for r in mine if r.message.key.startswith(_BEFORE))
        rules = [r for r in mine if r.message.key not in _HEARSAY and not r.message.key.startswith(_BEFORE)]
        against = sum(r.log_odds for r in mine if r.log_odds < 0 and not r.message.key.startswith(_BEFORE))
        support = _summed(rules, _NEXT_RULE) + _summed(cases, _NEXT_CASE)
        out[cause] = math.log(PRIORS[cause] / total) + usual + against + support
    return out


def _summed(reasons: Sequence[Reason], factor: float) -> float:
    support = sorted((r.log_odds for r in reasons if r.log_odds > 0), reverse=True)
    return sum(weight * factor**place for place, weight in enumerate(support))


def probabilities(scored: Mapping[str, float], temperature: float = TEMPERATURE) -> dict[str, float]:
    """Softmax of the scores at a temperature, less the doubt that is shared by all causes."""
    top = max(scored.values())
    raised = {cause: math.exp((score - top) / temperature) for cause, score in scored.items()}
    total = sum(raised.values())
    return {cause: (1 - _DOUBT) * value / total + _DOUBT / len(raised) for cause, value in raised.items()}


_ELSEWHERE: Final = frozenset({"host-ram", "shared-memory", "not-oom"})


def _not_the_cards(view: View, cause: str, signs: Sequence[Reason]) -> Iterator[Reason]:
    """Where a card refused, another memory is the cause only if something speaks of it (3 of 514 had no sign)."""
    refused = view.failure is not None and view.failure.kind == "device"
    if refused and cause in _ELSEWHERE and not any(sign.log_odds > 0 for sign in signs):
        yield Reason(-FAIR, Message("cause.out-of-place"))


def _place(view: View, cause: str) -> list[Reason]:
    against: list[Reason] = []
    quiet = Message("cause.out-of-place")
    phase, places = view.phase, _PLACES.get(cause)
    if places is not None and phase != "unknown" and phase not in places:
        against.append(Reason(-FAIR if view.phase_shown else -WEAK, quiet))
    if view.serving and cause in _TRAINING_ONLY:
        against.append(Reason(-STRONG, quiet))
    if view.training and cause in _SERVING_ONLY and view.job.rollout is None:
        against.append(Reason(-FAIR, quiet))
    failure = view.failure
    allowed = _NOT_DEVICE.get(failure.kind) if failure is not None else None
    if allowed is not None and cause not in allowed:
        against.append(Reason(-FAIR if cause in _ANYWHERE else -STRONG, quiet))
    return against


_VOTE: Final = WEAK
"""What a perfect match of a known case says."""


def _votes(view: View) -> list[tuple[str, Reason]]:
    """The cases most like it vote for their causes, each by how alike it is; one that is told word for word decides."""
    return [
        (vote.cause, Reason(DECISIVE, say("cause.retold", case=vote.case)))
        if vote.retold
        else (vote.cause, Reason(_VOTE * vote.score, say("cause.case", case=vote.case, score=round(vote.score, 2))))
        for vote in view.votes
        if vote.retold or vote.score > 0.2
    ]


_ALIKE: Final = (0.35, 0.7)
"""From which likeness on a public thread says something, and from which on it is the same one."""
_FURTHER: Final = 0.3
"""What a thread says of a cause that its label names besides."""


def _threads(view: View) -> Iterator[tuple[str, Reason]]:
    """A public thread with the same words and figures is the same failure."""
    least, same = _ALIKE
    for thread in view.threads:
        weight = DECISIVE * min(1.0, (thread.likeness - least) / (same - least))
        if weight > 0:
            told = say("cause.thread", url=thread.url, percent=round(100 * thread.likeness))
            yield thread.cause, Reason(weight, told)
            yield from ((cause, Reason(_FURTHER * weight, told)) for cause in thread.also)


_WORDING: Final = 0.5
"""What a unit of log-probability says that the wording gives a cause. On 121 threads that neither the rules nor the
wording had seen, 0.5 to 0.8 named the cause first in 4 to 5 of 100 more, and among three in 5 more."""


def _worded(view: View) -> list[tuple[str, Reason]]:
    """What reports of each cause are worded like, against one that is like all of them."""
    if not view.opinions:
        return []
    even = -math.log(len(view.opinions))
    return [(cause, Reason(_WORDING * (chance - even), say("cause.worded"))) for cause, chance in view.opinions.items()]


_SOUND: Final = 0.8
_SOUND_ALONE: Final = 1.2
"""Log-odds per standard deviation of sounding like a cause: beside a failure that was read, and where there is none.

Signs are written by hand and fit what their author had read: on 167 threads that no rule had been written from,
sounding like a cause said half as much again as on those the rules were written from."""


def _sounds(view: View) -> list[tuple[str, Reason]]:
    """Short questions hold no trace and no size: how they are worded is then the best evidence there is."""
    weight = _SOUND_ALONE if view.failure is None else _SOUND
    return [
        (cause, Reason(min(weight * z, DECISIVE), say("cause.sounds"))) for cause, z in view.sounds.items() if z >= 0.5
    ]
