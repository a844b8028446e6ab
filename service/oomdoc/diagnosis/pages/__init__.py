"""The page of each cause and topic, in English and Chinese: ``oomdoc explain logits``.

``en.toml`` and ``zh.toml`` hold a table per cause with ``title sign mechanism confirm fix cost``; topics are those of
:mod:`oomkb.topics`.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import resources
from typing import Final

from oomdoc.diagnosis.explaining import figure_of
from oomdoc.report.words import render
from oomkb.errors import InputError
from oomkb.memory.job import Job
from oomkb.records.taxonomy import CAUSES
from oomkb.topics import Topic, topics

_HEADINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {"sign": "Sign", "mechanism": "Mechanism", "confirm": "Confirm", "fix": "Fix", "cost": "Cost"},
    "zh": {"sign": "现象", "mechanism": "机理", "confirm": "确认", "fix": "解决", "cost": "代价"},
}
_WIDTH: Final = 112


def page(cause: str, language: str = "en") -> str:
    """The page of a cause (sign, mechanism, how to confirm it, how to fix it, what that costs) or of a topic.

    :raises InputError: for a cause or topic that is not known, with those spelt alike.
    """
    language = language if language in _HEADINGS else "en"
    if cause in topics():
        return _topic_page(topics()[cause], language)
    if cause not in CAUSES:
        near = get_close_matches(cause, [*CAUSES, *topics()], n=4, cutoff=0.5) or sorted(CAUSES)
        raise InputError(f"{cause!r} is no cause and no topic", where="cause", hint=f"one of {', '.join(near)}")
    parts = _pages(language)[cause]
    body = "\n".join(f"{heading}\n{_indented(parts[key])}" for key, heading in _HEADINGS[language].items())
    return f"{parts['title']}\n\n{body}"


def _topic_page(topic: Topic, language: str) -> str:
    figure = figure_of(topic, Job())
    related = [f"oomdoc explain {name}" for name in topic.causes]
    lines = [_indented(topic.answer[language]), *([_indented(render(figure, language))] if figure is not None else [])]
    lines += [f"    {source}" for source in (*topic.sources, *topic.cases, *related)]
    return "\n".join([topic.title[language], "", *lines])


def _indented(text: str) -> str:
    plain = " ".join(text.split())
    return textwrap.fill(plain, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)


@cache
def _pages(language: str) -> Mapping[str, Mapping[str, str]]:
    source = resources.files(__package__).joinpath(f"{language}.toml").read_text(encoding="utf-8")
    return tomllib.loads(source)
