"""How a job stands and what a change of it did, in computed sentences, beside what a language model says."""

from __future__ import annotations

from oomdoc.chat import parts
from oomdoc.chat.prices import price_of
from oomdoc.chat.session import difference
from oomkb.frameworks.circumstances import own_context
from oomkb.memory.job import Job
from oomkb.memory.setting import resolve_setting
from oomkb.pricing import Priced


def sizes_of(priced: Priced) -> dict[str, float]:
    """What the terms are products of: parameters, layers, vocabulary, tokens of a step on each GPU."""
    shape, setting = priced.shape, resolve_setting(priced.job, priced.shape)
    found: dict[str, float] = {
        "parameters_millions": round(priced.estimate.params / 1e6),
        "trainable_millions": round(priced.estimate.trainable / 1e6, 1),
        "layers": shape.layer_count,
        "hidden": shape.dims.hidden,
        "vocabulary": shape.dims.vocab,
        "own_context": own_context(priced.job) or 0,
    }
    if setting.training:
        found |= {"sequences_per_step": int(setting.batch), "tokens_per_step": int(setting.batch * setting.seq)}
    return {name: size for name, size in found.items() if size}


def change_lines(before: Job, after: Job, language: str) -> list[str]:
    """What a change of the job did, computed."""
    old, _ = price_of(before, language)
    new, _ = price_of(after, language)
    said = [parts.changed_line(difference(before, after), language)]
    if old and new:
        said.append(parts.versus(old.estimate, new.estimate, language))
        said += parts.was_assumed(old, difference(before, after), language)
    return [*said, *parts.standing(after, language, plans=False).said[:2]]
