"""Conversations with a language model whose replies were recorded; part of ``bench/language_model.py converse``.

A turn is several calls, each of which sees what oomdoc's functions answered to the one before. So prompts are had in
rounds: every conversation runs until a reply is missing, whose prompt is written; with that reply imported it runs on.
A reply is kept by what the person said and what the model asked for until then, not by the figures that it was shown,
nor by which of its sentences were withheld: where figures have changed since, its sentences with the old ones are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oomdoc.assistant.briefing import AGAIN
from oomdoc.assistant.tool_loop import Turned, converse
from oomdoc.chat.session import DERIVED, Session
from oomdoc.language_model import Budget, Reply, Tool, ToolCall, Unavailable
from oomkb.memory.job import Job

VERSION = "1"
FORM = (
    'Reply with one JSON object: {"content": "what you say, empty while you call functions", "tool_calls": '
    '[{"name": "a function", "arguments": {}}]}; without calls where you answer.'
)
_ONCE_MORE = AGAIN.partition(" ")[0]
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
_FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?\s?(?:[KMGT]i?B|%|tokens?|GB|G\b)")
_EMPTY: tuple[Any, ...] = (None, "none", "", [], {}, False)


@dataclass
class Recorded:
    """Stands where a :class:`~oomdoc.language_model.LanguageModel` does and replies from what was kept."""

    kept: Mapping[str, Mapping[str, Any]]
    style: str = "full"
    missing: tuple[str, str] | None = None
    """Key and prompt of the first reply that is not there."""
    used: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """All that the model was shown in this turn: instructions, what was said, answers of functions."""
    said: list[str] = field(default_factory=list)
    """What it said itself."""

    def stream(
        self, messages: Sequence[Mapping[str, Any]], *, tools: Sequence[Tool] = (), budget: Budget | None = None
    ) -> Iterator[str | Reply]:
        """A kept reply.

        :raises Unavailable: where there is none; :attr:`missing` says which.
        """
        del budget
        self.shown = [str(message.get("content") or "") for message in messages]
        record = self.record_of(key_of(messages), messages, tools)
        if record is None:
            raise Unavailable("unreachable")
        self.used.append(f"{record['model']} {record['date']}")
        said = record["reply"]
        text, calls = str(said.get("content") or ""), said.get("tool_calls") or []
        self.said.append(text)
        if text:
            yield text
        asked = tuple(
            ToolCall(f"call-{n}", str(call.get("name")), json.dumps(call.get("arguments") or {}))
            for n, call in enumerate(calls if isinstance(calls, list) else [])
            if isinstance(call, Mapping)
        )
        yield Reply(text, asked)

    def record_of(
        self, key: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]
    ) -> Mapping[str, Any] | None:
        """The kept reply to what was asked, or ``None``; :attr:`missing` then says what."""
        found = self.kept.get(key)
        if found is None:
            self.missing = self.missing or (key, prompt_of(messages, tools))
        return found


def key_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Of what the person said and the functions that the model asked for, in order."""
    parts = [VERSION]
    for message in messages:
        if message["role"] == "user":
            content = str(message["content"])
            said = content.partition("\n\n")[2] if content.startswith("Current job") else content
            parts.append(_ONCE_MORE if said.startswith(_ONCE_MORE) else said)
        for call in message.get("tool_calls") or ():
            parts.append(f"{call['function']['name']} {call['function']['arguments']}")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()[:16]


def prompt_of(messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]) -> str:
    """The prompt as one text, for whoever answers as the model."""
    out = []
    for message in messages:
        calls = [call["function"] for call in message.get("tool_calls") or ()]
        asked = "".join(f"\n[calls {call['name']}({call['arguments']})]" for call in calls)
        out.append(f"### {message['role']}\n{message.get('content') or ''}{asked}")
    functions = [f"- {t.name}: {t.description}\n  {json.dumps(dict(t.parameters), ensure_ascii=False)}" for t in tools]
    named = "### functions that you may call\n" + "\n".join(functions) if functions else "### no more functions: answer"
    return "\n\n".join([*out, named, FORM])


@dataclass
class Talk:
    """Figures of one set of conversations."""

    turns: int = 0
    right: int = 0
    """The fields are as expected, and the answer mentions what it must and nothing that it must not."""
    fields_right: int = 0
    asked: int = 0
    """Turns that a model was asked about."""
    sentences_withheld: int = 0
    figures: int = 0
    """Numbers with a unit that the model said and the answer kept."""
    untraced: list[str] = field(default_factory=list)
    """Those of them that stand nowhere in what the model was shown, rounded at most: sums and ratios, or inventions."""
    wrong: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    """Key -> prompt of the replies that are missing."""
    models: set[str] = field(default_factory=set)

    def line(self, name: str) -> str:
        """One line of figures."""
        turns = max(self.turns, 1)
        return (
            f"{name:12s} {self.turns:4d} turns  right {self.right / turns:.1%}  "
            f"fields right {self.fields_right / turns:.1%}  a model asked in {self.asked}  "
            f"sentences withheld {self.sentences_withheld}  figures {self.figures}, untraced {len(self.untraced)}  "
            f"conversations that wait for a reply {len(self.waiting)}"
        )


def run(
    rows: Sequence[Mapping[str, Any]], model_of: Callable[[], Recorded | None] = lambda: None, answers: bool = False
) -> Talk:
    """Hold every conversation.

    A conversation whose reply is missing counts up to that turn.

    :param model_of: what answers a turn: kept replies; by default no model.
    :param answers: whether to print what is said.
    """
    talk = Talk()
    for row in rows:
        session = Session().then(Job.from_document(row["job"]), {}) if row.get("job") else Session()
        for number, turn in enumerate(row["turns"], 1):
            model = model_of()
            turned = _last(converse(session, turn["say"], model))  # type: ignore[arg-type]
            if model is not None and model.missing is not None:
                talk.waiting[model.missing[0]] = model.missing[1]
                break
            talk.turns += 1
            talk.asked += bool(model is not None and model.used)
            talk.models |= set(model.used if model is not None else ())
            talk.sentences_withheld += len(turned.reply.withheld)
            if answers:
                lost = "".join(f"\n[withheld, {why}: {sentence.strip()}]" for sentence, why in turned.reply.withheld)
                print(f"--- {row['id']} {number}: {turn['say']}\n{turned.reply.answer}{lost}", flush=True)
            if model is not None:
                _trace(talk, f"{row['id']} turn {number}", turned.reply.answer, model)
            expect = turn.get("expect") or {}
            fields = _as_expected(session.job, turned.session.job, turned.reply.changed, expect)
            missing = [p for p in expect.get("must_mention", ()) if not re.search(p, turned.reply.answer)]
            forbidden = [p for p in expect.get("must_not", ()) if re.search(p, turned.reply.answer)]
            talk.fields_right += fields
            if fields and not missing and not forbidden:
                talk.right += 1
            else:
                talk.wrong.append(
                    f"{row['id']} turn {number}: {turn['say'][:70]!r} wanted {expect.get('changed', expect)} "
                    f"changed {dict(turned.reply.changed)} missing {missing} forbidden {forbidden}"
                )
            session = turned.session
    return talk


def _trace(talk: Talk, where: str, answer: str, model: Recorded) -> None:
    """Count the figures of the model's own words that the answer kept, and those that nothing shown to it holds.

    Simpler than what the answer was checked by (``oomdoc.assistant.provenance``), so that the two do not err alike.
    """
    shown = [float(n.replace(",", "")) for n in _NUMBER.findall(" ".join(model.shown))]
    kept = set(_FIGURE.findall(answer))
    for figure in sorted({figure for text in model.said for figure in _FIGURE.findall(text)} & kept):
        number = _NUMBER.match(figure)
        if number is None:
            continue
        value, decimals = float(number[0].replace(",", "")), len(number[0].partition(".")[2])
        talk.figures += 1
        scales = (1.0, 100.0) if "%" in figure else (1.0,)
        if not any(abs(value - scale * one) <= 0.5 * 10.0**-decimals + 1e-9 for one in shown for scale in scales):
            talk.untraced.append(f"{where}: {figure}")


def _last(parts: Iterator[str | Turned]) -> Turned:
    last = None
    for part in parts:
        last = part
    if not isinstance(last, Turned):
        raise TypeError("a turn ends with the whole of it")
    return last


def _as_expected(before: Job, after: Job, changed: Mapping[str, Any], expect: Mapping[str, Any]) -> bool:
    """Whether the expected fields hold their values, as ``score_chats.py`` compares them, or nothing changed."""
    wanted = expect.get("changed", expect) if not expect.get("unchanged") else None
    moved = {name for name in changed if name not in DERIVED}
    if not wanted:
        return not moved or before == after
    fields, stated = _flat(wanted), _flat(after.document())
    return all(_same(name, stated.get(name), value) for name, value in fields.items())


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in fields.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def _same(name: str, a: Any, b: Any) -> bool:
    if a in _EMPTY and b in _EMPTY:
        return True
    if isinstance(a, list | tuple) or isinstance(b, list | tuple):
        return {json.dumps(one, sort_keys=True) for one in a or ()} == {
            json.dumps(one, sort_keys=True) for one in b or ()
        }
    if isinstance(a, bool) or isinstance(b, bool):
        return bool(a) == bool(b)
    try:
        return float(a) == float(b)
    except (TypeError, ValueError):
        pass
    x, y = ("".join(c for c in str(v).lower() if c.isalnum() or c == ".") for v in (a, b))
    return x == y or (name in ("gpu", "model", "framework") and (x in y or y in x))


def write_prompts(talk: Talk, out: Path) -> None:
    """A file for each reply that is missing."""
    out.mkdir(parents=True, exist_ok=True)
    for key, prompt in talk.waiting.items():
        (out / f"{key}.txt").write_text(prompt + "\n", encoding="utf-8")
