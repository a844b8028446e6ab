"""One file per cause; the docstring is the cause's page."""

import inspect
from functools import cache
from typing import Final

from oomdoc.diagnosis.rules import (
    activations,
    attention_scores,
    checkpoint_save,
    cuda_graph,
    evaluation,
    extra_models,
    fragmentation,
    hardware_limit,
    host_ram,
    inactive_setting,
    kv_cache,
    leak,
    logits,
    long_sample,
    model_states,
    not_oom,
    optimizer_init,
    other_process,
    rollout_engine,
    shared_memory,
    version_regression,
    vision_tokens,
    weights_load,
    zero3_gather,
)

__all__ = ["CAUSES", "RULES", "page"]

RULES: Final = (
    activations,
    attention_scores,
    checkpoint_save,
    cuda_graph,
    evaluation,
    extra_models,
    fragmentation,
    hardware_limit,
    host_ram,
    inactive_setting,
    kv_cache,
    leak,
    logits,
    long_sample,
    model_states,
    not_oom,
    optimizer_init,
    other_process,
    rollout_engine,
    shared_memory,
    version_regression,
    vision_tokens,
    weights_load,
    zero3_gather,
)
"""Every rule, sorted by file name. A new cause is one file and two lines here."""

CAUSES: Final = tuple(sorted(rule.CAUSE for rule in RULES))
"""The causes of the taxonomy."""


def page(cause: str, language: str = "en") -> str:
    """The page of a cause: sign, mechanism, how to confirm it, how to fix it, what that costs.

    :raises InputError: for a cause that is not known.
    """
    from oomkb.errors import InputError

    for rule in RULES:
        if cause == rule.CAUSE:
            text = inspect.cleandoc(rule.__doc__ or "")
            return _chinese().get(cause, text) if language == "zh" else text
    raise InputError(f"{cause!r} is not a cause", where="cause", hint=f"one of {', '.join(CAUSES)}")


_HEADINGS: Final = {"sign": "现象", "mechanism": "机理", "confirm": "确认", "fix": "解决", "cost": "代价"}


@cache
def _chinese() -> dict[str, str]:
    """The pages in Chinese, from the file beside the rules."""
    import tomllib
    from importlib import resources

    source = resources.files(__package__).joinpath("pages_zh.toml").read_text(encoding="utf-8")
    pages = {}
    for cause, parts in tomllib.loads(source).items():
        body = "\n\n".join(f"{heading}\n    {parts[key]}" for key, heading in _HEADINGS.items())
        pages[cause] = f"{parts['title']}\n\n{body}"
    return pages
