"""Questions that are not about one term of the memory, and small talk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from oomdoc.chat import parts
from oomdoc.chat.answers import explained, invented, largest
from oomdoc.chat.parts import joined
from oomdoc.chat.session import Reply, Session, Step, difference
from oomdoc.report.words import word
from oomkb.errors import OomdocError
from oomkb.memory.job import Job
from oomkb.pricing import Priced, price_planned

__all__ = ["TOPICS", "pleasantry"]

Answer = Callable[[Session, Priced | None, str, str], Reply]

_TRAINING: Final = frozenset(
    {
        "objective", "method", "lora.r", "lora.alpha", "seq_len", "max_pixels", "images", "video_frames", "generations",
        "completion_len", "prompt_len", "serving.max_model_len", "model", "params_b", "packing", "extra_models",
    }
)  # fmt: skip
_NUMERICS: Final = frozenset({"quant", "param_dtype", "autocast", "serving.kv_dtype"})
_OPTIMIZER_BITS: Final = ("8bit", "4bit")


def quality(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """What the changes so far do to the numbers or to what is learned."""
    language = session.language
    made = difference(session.steps[0].job, session.job)
    last = session.proposed or next((s.changed for s in reversed(session.steps[1:]) if s.changed), made)
    by_kind: dict[str, dict[str, Any]] = {}
    for name, value in last.items():
        if name not in ("world", "params_b"):
            by_kind.setdefault(_safety(name, value), {})[name] = value
    said = [
        word(f"chat.quality-{kind}", language, changes=parts.shown_changes(by_kind[kind], language))
        for kind in ("training", "numerics", "batch", "same")
        if kind in by_kind
    ]
    return _reply(session, priced, said or [word("chat.quality-none", language)])


def _safety(name: str, value: Any) -> str:
    if name in _NUMERICS or (name == "optimizer" and str(value).endswith(_OPTIMIZER_BITS)):
        return "numerics"
    if name in _TRAINING or name == "optimizer":
        return "training"
    return "batch" if name in ("micro_batch", "grad_accum", "gpus", "nodes") else "same"


def summary(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """What differs from the first description, and where that leads."""
    language = session.language
    made = difference(session.steps[0].job, session.job)
    key = "chat.summary" if made else "chat.summary-none"
    said = [word(key, language, changes=parts.shown_changes(made, language))]
    return _reply(session, priced, said + parts.state(priced, problem, session.job, language))


def saved(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """Each change by what it did to the peak, the largest saving first."""
    language = session.language
    rows: list[tuple[float, Step, Priced, Priced]] = []
    for old, new in zip(session.steps, session.steps[1:], strict=False):
        try:
            before, after = price_planned(old.job), price_planned(new.job)
        except OomdocError:
            continue
        rows.append((after.estimate.process_bytes - before.estimate.process_bytes, new, before, after))
    if not rows:
        return explained(priced, problem, session.job, text, language)
    said = [word("chat.saved-head", language)]
    for _, step, before, after in sorted(rows, key=lambda r: r[0])[:6]:
        effect = parts.versus(before.estimate, after.estimate, language)
        said.append(f"- {parts.shown_changes(step.changed, language)}: {effect}")
    return _reply(session, priced, said)


def pick(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """What oomdoc would do."""
    language = session.language
    if priced is None:
        return explained(priced, problem, session.job, text, language)
    plans = parts.planned(priced, language, most=3)
    if not plans:
        key = "chat.pick-fits" if priced.estimate.fits else "chat.pick-none"
        plans = [word(key, language), *largest(priced, language)]
    elif len(plans) > 1:
        plans = [word("chat.pick-head", language), *(f"- {p}" for p in plans)]
    state = parts.state(priced, problem, session.job, language)
    return _reply(session, priced, [*plans, *state[:2], *parts.asks(session.job, language)])


def serving(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """How many requests an engine's cache holds."""
    if priced is None or priced.estimate.served is None:
        return explained(priced, problem, session.job, text, session.language)
    said = parts.served(priced.estimate, session.language)
    return _reply(session, priced, said + parts.state(priced, problem, session.job, session.language))


def host(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """Memory of the machine."""
    language = session.language
    if priced is None:
        return explained(priced, problem, session.job, text, language)
    estimate = priced.estimate
    said = [word("chat.host-need", language, host_bytes=estimate.host_bytes)]
    if priced.job.host_gib:
        short = estimate.host_bytes / 2**30 - priced.job.host_gib
        key = "chat.host-short" if short > 0 else "chat.host-enough"
        said.append(word(key, language, have_bytes=priced.job.host_gib * 2**30, short_bytes=abs(short) * 2**30))
    return _reply(session, priced, said + parts.state(priced, problem, session.job, language)[:2])


def fits(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """Whether it fits, the verdict first."""
    language = session.language
    if priced is None or priced.estimate.capacity_bytes is None:
        return explained(priced, problem, session.job, text, language)
    state = parts.state(priced, problem, session.job, language)
    said = [state[1], state[0], *state[2:]]
    if priced.estimate.fits is False:
        said += parts.planned(priced, language)
    return _reply(session, priced, said)


def sure(session: Session, priced: Priced | None, problem: str, text: str) -> Reply:
    """The interval around the estimate."""
    return invented(priced, session.job, session.language)


def pleasantry(session: Session, priced: Priced | None, topic: str) -> Reply:
    """Small talk, and what is none of oomdoc's business."""
    language = session.language
    said = [word(f"chat.{topic}" if topic else "chat.off-topic", language)]
    if topic == "greeting" and not session.steps:
        said.append(word("chat.begin", language))
    if topic == "thanks" and priced is not None:
        said += parts.state(priced, "", session.job, language)[:2]
    peak = priced.estimate.process_bytes if priced is not None else None
    return Reply(joined(said), {}, session.job, peak)


def _reply(session: Session, priced: Priced | None, said: list[str]) -> Reply:
    job: Job = session.job
    return Reply(joined(said), {}, job, priced.estimate.process_bytes if priced else None)


TOPICS: Final[Mapping[str, Answer]] = MappingProxyType(
    {
        "quality": quality,
        "summary": summary,
        "saved": saved,
        "pick": pick,
        "serving": serving,
        "host": host,
        "fits": fits,
        "sure": sure,
    }
)
"""By what a question is about."""
