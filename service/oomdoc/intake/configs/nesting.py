"""Configuration inside YAML: argument lists, environment blocks and commands of compose files, Kubernetes and CI."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oomdoc.intake.configs.entry import Entry, Fragment
from oomdoc.intake.configs.forms.flags import entries_of_words, parse_shell
from oomdoc.intake.configs.forms.words import Word
from oomdoc.intake.configs.forms.yaml import Block

__all__ = ["dockerfile", "embedded"]

_COMMAND_KEYS: Final = frozenset({"command", "args", "entrypoint", "run", "script", "cmd", "setup"})
_ENV_PATH: Final = re.compile(r"\.(?:environment|envs?)\.")
_FROM: Final = re.compile(r"^[ \t]*FROM[ \t]+(\S{1,200})", re.M | re.I)
_EXEC: Final = re.compile(r"^[ \t]*(?:CMD|ENTRYPOINT)[ \t]+(\[[^\]]{0,8000}\])", re.M | re.I)
_SHELLS: Final = frozenset({"sh", "bash", "zsh", "ash", "dash"})
_WHOLE_COMMAND: Final = re.compile(r"\S\s{1,200}--[A-Za-z]")
_ENV_KEYS: Final = frozenset({"environment", "env", "envs"})


def embedded(text: str, entries: list[Entry], blocks: list[Block]) -> list[Fragment]:
    """The commands and environment variables written inside a YAML document."""
    out: list[Fragment] = []
    env: list[Entry] = []
    image = next((str(e.value) for e in entries if e.key.rsplit(".", 1)[-1] == "image" and e.value), "")
    for entry in entries:
        last = entry.key.rsplit(".", 1)[-1]
        if last in _COMMAND_KEYS and isinstance(entry.value, list):
            out += _argument_list(text, entry, image)
        elif last in _COMMAND_KEYS and isinstance(entry.value, str) and " " in entry.value:
            out += _command_text(text, *entry.value_span, image)
        elif last in _ENV_KEYS and entry.items:
            env += [e for e in map(_env_item, entry.items) if e is not None]
        elif entry.value is not None and last.isupper() and _ENV_PATH.search(f".{entry.key}"):
            env.append(_env(last, entry, entry.key_span))
    env += _name_value(entries)
    for block in blocks:
        if block.key.rsplit(".", 1)[-1].rstrip("[]") in _COMMAND_KEYS:
            out += _command_text(text, block.start, block.end, image)
    if env:
        start = min(e.key_span[0] for e in env)
        stop = max(e.value_span[1] for e in env)
        out.append(Fragment(form="env", start=start, end=stop, entries=(), env=tuple(env), programs=(image,)))
    return [f for f in out if f.entries or f.env]


def dockerfile(text: str, start: int, end: int) -> list[Fragment]:
    """The arguments of ``CMD [...]`` and ``ENTRYPOINT [...]``."""
    image = _FROM.search(text, start, end)
    out: list[Fragment] = []
    for match in _EXEC.finditer(text, start, end):
        found, env, programs = entries_of_words(text, _flow_words(text, match.start(1), match.end(1)))
        out.append(
            Fragment(
                form="yaml",
                start=match.start(),
                end=match.end(),
                entries=tuple(found),
                programs=(image[1] if image else "", *programs),
                env=tuple(env),
            )
        )
    return [f for f in out if f.entries]


def _argument_list(text: str, entry: Entry, image: str) -> list[Fragment]:
    words: list[Word] = []
    if entry.items:
        for item in entry.items:
            low, high = item.value_span
            inner = (low + 1, high - 1) if item.quote else (low, high)
            words.append(Word(text[slice(*inner)], *inner, value_span=inner, quote=""))
    else:
        words = _flow_words(text, *entry.value_span)
    lines = [w for w in words if _WHOLE_COMMAND.search(w.text)]
    if lines:  # ["sh", "-c", "vllm serve ... --max-model-len 4096"]
        return [f for w in lines for f in _command_text(text, *w.value_span, image)]
    if words and words[0].text.rsplit("/", 1)[-1] in _SHELLS:
        return []  # the line it runs stands elsewhere
    found, env, programs = entries_of_words(text, words)
    whole = Fragment(
        form="yaml",
        start=entry.key_span[0],
        end=entry.value_span[1],
        entries=tuple(found),
        programs=(image, *programs),
        env=tuple(env),
    )
    return [whole]


def _flow_words(text: str, low: int, high: int) -> list[Word]:
    """The strings of a ``["--a", "b"]``."""
    words: list[Word] = []
    at = low + 1
    while at < high - 1:
        char = text[at]
        if char in "\"'":
            close = text.find(char, at + 1, high)
            if close < 0:
                break
            words.append(Word(text[at + 1 : close], at + 1, close, value_span=(at + 1, close)))
            at = close + 1
        elif char in ", \t\r\n[]":
            at += 1
        else:
            stop = at
            while stop < high - 1 and text[stop] not in ",]\n":
                stop += 1
            raw = text[at:stop].rstrip()
            words.append(Word(raw, at, at + len(raw), value_span=(at, at + len(raw))))
            at = stop
    return words


def _command_text(text: str, low: int, high: int, image: str) -> list[Fragment]:
    if text[low : low + 1] in "\"'" and text[high - 1 : high] == text[low]:
        low, high = low + 1, high - 1
    out = parse_shell(text, low, high).fragments
    return [
        Fragment(form="shell", start=f.start, end=f.end, entries=f.entries, programs=(*f.programs, image), env=f.env)
        for f in out
    ]


def _env_item(item: Entry) -> Entry | None:
    name, sign, value = str(item.value).partition("=")
    if not sign or not name.replace("_", "").isalnum():
        return None
    low, high = item.value_span
    low += 1 if item.quote else 0
    high -= 1 if item.quote else 0
    at = low + len(name) + 1
    return Entry(key=name, value=value, key_span=(low, low + len(name)), value_span=(at, high), style="env")


def _env(name: str, entry: Entry, key_span: tuple[int, int]) -> Entry:
    low, high = entry.value_span
    if entry.quote:
        low, high = low + 1, high - 1
    return Entry(
        key=name, value=str(entry.value), key_span=key_span, value_span=(low, high), style="env", quote=entry.quote
    )


def _name_value(entries: Iterable[Entry]) -> list[Entry]:
    """Kubernetes' ``- name: X`` / ``value: Y``."""
    out: list[Entry] = []
    name: Entry | None = None
    for entry in entries:
        if entry.key.endswith("env[].name"):
            name = entry
        elif entry.key.endswith("env[].value") and name is not None:
            out.append(_env(str(name.value), entry, name.value_span))
            name = None
    return out
