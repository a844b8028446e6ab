"""The lines worth searching by: what failed, where, with what, and in whose words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from oomdoc.evidence import Failure
from oomdoc.intake.lines import Kind, Line
from oomdoc.intake.patterns import patterns
from oomdoc.intake.polarity import with_question_marks

_MAX_DIGEST_BYTES: Final = 4000
_RE: Final = patterns(__file__)
_NOISY: Final = ("![", "http", "pid", "If reserved", " total capac")
"""What the expression of noise needs one of."""
_TELLING: Final = (
    "framework",
    "objective",
    "method",
    "model",
    "gpu",
    "zero_stage",
    "fsdp",
    "offload",
    "attention",
    "phase",
)


def prose_of(lines: Sequence[Line], kinds: Sequence[Kind]) -> str:
    """What the person wrote in their own words, at most 20,000 characters.

    A sentence that begins with the name of a program ("vllm dies while ...") looks like a command; it counts.
    """
    return with_question_marks("\n".join(line.raw.strip() for line in prose_lines(lines, kinds)))[:20000]


def prose_lines(lines: Sequence[Line], kinds: Sequence[Kind]) -> list[Line]:
    """The lines in the person's own words, those that begin like a command among them."""
    return [
        line for line, kind in zip(lines, kinds, strict=True) if kind == "prose" or _describes_a_failure(line, kind)
    ]


def _describes_a_failure(line: Line, kind: Kind) -> bool:
    text = line.text[:600]
    if kind != "command" or line.logged or text.lstrip().startswith(("#", "$", ">")):
        return False
    return _RE["describes_failure"].search(text) is not None or (
        _RE["option"].search(text) is None and _RE["words"].search(text) is not None
    )


_MAX_RAISED: Final = 2


def errors_of(lines: Sequence[Line], kinds: Sequence[Kind], root: Failure | None) -> list[str]:
    """Where no message of a known failure was read: the last exceptions as they were printed."""
    if root is not None and not root.signal.name.startswith("said-"):
        return []
    raised = [
        line.text for line, kind in zip(lines, kinds, strict=True) if kind == "log" and _RE["raised"].match(line.text)
    ]
    return [_clean(text)[:300] for text in dict.fromkeys(raised[-_MAX_RAISED:])]


def language_of(prose: str, text: str) -> Literal["en", "zh"]:
    """The language that the person writes: log lines and code beside it say nothing; of a bare log, English."""
    lines = (prose or text[:20000]).splitlines()[:_LANGUAGE_LINES]
    if prose and lines and (_is_chinese(lines[0]) or (_is_chinese(lines[-1]) and not _is_english(lines[0]))):
        return "zh"  # people write before and behind what they paste, and messages are English
    chinese = english = 0
    for line in lines:
        han = len(_RE["han"].findall(line))
        if han >= _HAN_OF_SENTENCE:
            chinese += han
        elif _is_english(line):
            english += len(_RE["latin"].findall(line))
    if chinese:
        return "zh" if chinese > _HAN_PER_WORD * english else "en"
    whole = "\n".join(lines)
    han, latin = len(_RE["han"].findall(whole)), len(_RE["latin"].findall(whole))
    return "zh" if han >= 2 and han > 0.35 * latin else "en"


def _is_english(line: str) -> bool:
    """Whether words that join a sentence make it an English one."""
    return len(_RE["function_words"].findall(line)) >= _FUNCTION_WORDS


def _is_chinese(line: str) -> bool:
    """Whether a line is a Chinese sentence, whatever names it holds."""
    han = len(_RE["han"].findall(line))
    return han >= _HAN_OF_SENTENCE and han > len(_RE["latin"].findall(line))


_LANGUAGE_LINES: Final = 400
_HAN_PER_WORD: Final = 0.6
"""Han characters to an English word from which the Chinese sentences are the person's."""
_HAN_OF_SENTENCE: Final = 4
"""Han characters of a line from which it is a Chinese sentence."""
_FUNCTION_WORDS: Final = 2
"""Words that join a sentence from which a line without Han characters is an English one."""


_QUERY: Final = 6_000


def query_of(prose: str, digest: str) -> str:
    """What is searched by: the person's words first, then the failing lines, each line once, in lower case."""
    lines = dict.fromkeys(line.rstrip() for part in (prose, digest) for line in part.splitlines())
    return "\n".join(lines).lower()[:_QUERY]


def digest_of(
    prose: str, root: Failure | None, facts: Mapping[str, Any], framework: str | None, warnings: Iterable[str] = ()
) -> str:
    """At most 4 KB: the failing line without paths and addresses, its frames, what it ran with, the prose."""
    parts: list[str] = []
    if root is not None:
        parts.append(_clean(root.signal.span.text))
        inner = [f"{f.function} {f.code}".strip() for f in root.frames[-6:] if f.function or f.code]
        parts += [_clean(text)[:160] for text in inner]
    words = [framework or ""] + [_word(name, facts[name]) for name in _TELLING if name in facts]
    parts.append(" ".join(word for word in words if word))
    size = sum(len(part) for part in parts)
    parts.append(_clean(prose)[: max(0, _MAX_DIGEST_BYTES - size - 100)])
    parts += list(warnings)
    out = "\n".join(part for part in parts if part.strip())
    return out.encode()[:_MAX_DIGEST_BYTES].decode(errors="ignore")


def _word(name: str, value: Any) -> str:
    if name == "zero_stage":
        return f"ZeRO-{value}"
    if isinstance(value, bool):
        return name if value else ""
    if isinstance(value, list | tuple):
        return f"{name} {' '.join(map(str, value))}"
    return "" if value == "unknown" else str(value)


def _clean(text: str) -> str:
    """Without links, paths (their last part stays), hexadecimal addresses and advice that every message ends in."""
    if any(mark in text for mark in _NOISY):
        text = _RE["noise"].sub(" ", text)
    if "/" in text or "\\" in text:
        text = _RE["path"].sub(lambda found: _RE["slash"].split(found[0])[-1], text)
    return _RE["blanks"].sub(" ", _RE["hex"].sub(" ", text)).strip()
