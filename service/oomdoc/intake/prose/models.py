"""Models and their sizes in prose, logs and paths."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from oomdoc.evidence import Fact
from oomdoc.intake.lines import Line
from oomdoc.intake.prose.model_names import ANY_NAME, MODEL_NAME, billions, looks_like_model, of_experts
from oomdoc.intake.prose.stance import worked
from oomdoc.intake.sieve import Expression, Sieve, Vocabulary

__all__ = ["read_models"]

_SIZE_NOUN: Final = Expression(
    r"(?<![\w.\-])(\d{1,4}(?:\.\d{1,2})?) ?[bB](?![A-Za-z0-9/])(?: {0,2}(?:of )?(?:size"
    r"|params?|parameters?|models?|参数|模型|的模型|的)|(?= (?:gpt|llama|opt"
    r"|dense)))"
    r"|(?<![\w.\-])(\d{2,6}) ?M(?:illion)?[- ](?:total )?(?:params?|parameters?|transformer|model|gpt|dense)\b"
    r"|~?(\d{1,4}(?:\.\d{1,2})?) ?[bB](?:illion)?[- ]param|(?<![\d.])(\d{1,4}(?:\.\d)?) ?亿(?:的?参数|模型|规模)",
    re.IGNORECASE | re.ASCII,
)
_LOOSE: Final = re.compile(r"(?<![\w.\-/])(\d{1,3}(?:\.\d{1,2})?)[bB](?![A-Za-z0-9/]| {0,2}\(\d)", re.ASCII)
"""A size that stands alone; bytes of a compiler's table are followed by their share."""


_FOLDER: Final = re.compile(
    r"(?:examples?|scripts?|configs?|recipes|research_projects|src|tests?|docker|projects?|tools)/", re.IGNORECASE
)
_SIEVE: Final = Sieve(((expression,), expression) for expression in (MODEL_NAME, ANY_NAME, _SIZE_NOUN))


def read_models(lines: list[Line], words: Vocabulary, *, prose: bool) -> Iterator[Fact]:
    """Facts ``model`` and ``params_b``; what stands inside paths and logs is only a hint."""
    base = 0.8 if prose else 0.55
    tried = {id(line): expressions for line, expressions in _SIEVE.over(lines, words)}
    for line in lines:
        text, here = line.text, tried.get(id(line), ())
        for found in MODEL_NAME.finditer(text) if MODEL_NAME in here else ():
            yield from _named(line, found, base)
        if prose and ANY_NAME in here:
            yield from _unknown(line)
        for found in _SIZE_NOUN.finditer(text) if _SIZE_NOUN in here else ():
            value = (
                float(found[2]) / 1000 if found[2] else float(found[1] or found[3] or 0) or float(found[4] or 0) / 10
            )
            sure = base - 0.1 + (0.15 if "param" in found[0] or "参" in found[0] else 0.0)
            sure = max(0.5, sure - (0.2 if worked(text, found.start(), found.end()) else 0.0))
            yield Fact("params_b", value, line.span(found.start() + 1), "prose", sure)
        if prose:
            for found in _LOOSE.finditer(text):
                sure = 0.5 if worked(text, found.start(), found.end()) else 0.58
                yield Fact("params_b", float(found[1]), line.span(found.start() + 1), "prose", sure)


def _named(line: Line, found: re.Match[str], base: float) -> Iterator[Fact]:
    text = line.text
    name = (found["name"] + (found["more"] or "")).strip(" .:-_,")
    before = text[max(0, found.start() - 8) : found.start()]
    if not looks_like_model(found["name"]) or _in_link(text, found.start()):
        return
    if _FOLDER.match(found["name"]):
        base = 0.45  # of a repository, not of the hub
    sure = base
    weights = found["name"].lower().endswith(".gguf")  # a file that holds the model, and is named after it
    if not weights and (
        before.endswith(("/", "\\", "_", "-", "@", "#"))
        or re.search(r"\.(?:py|sh|json|ya?ml)\b", text[found.end() : found.end() + 12])
    ):
        sure = 0.45
    if worked(text, found.start(), found.end()):
        sure = max(min(sure, 0.5), sure - 0.2)
    size = billions(name)
    if "/" in found["name"]:
        sure += 0.02  # a name on the hub
    if size is None and not of_experts(name):
        sure = max(min(sure, 0.5), sure - 0.1)  # a family alone: anything more specific wins
    yield Fact("model", name, line.span(found.start() + 1), "prose", sure)
    if size is not None:
        yield Fact("params_b", size, line.span(found.start() + 1), "prose", sure - 0.05)


def _unknown(line: Line) -> Iterator[Fact]:
    """Names of no known family that state a size."""
    for found in ANY_NAME.finditer(line.text):
        size = billions(found["name"])
        if size is None or MODEL_NAME.search(found["name"]) or _in_link(line.text, found.start()):
            continue
        sure = 0.5 if worked(line.text, found.start(), found.end()) else 0.64
        yield Fact("model", found["name"], line.span(found.start() + 1), "prose", sure)
        yield Fact("params_b", size, line.span(found.start() + 1), "prose", sure)


def _in_link(text: str, at: int) -> bool:
    """Whether the place is inside a URL."""
    start = max(text.rfind(" ", 0, at), text.rfind("(", 0, at), text.rfind("<", 0, at)) + 1
    return "://" in text[start : at + 8]
