"""A turn with a language model: it chooses among oomdoc's functions and words what they found; oomdoc computes, checks.

The model has the functions of :mod:`oomdoc.tools`, bound to the conversation's job and to what was pasted, and one that
changes that job, whose arguments pass the same schema. A description or a log is read before it is asked. Its sentences
are given as they come, each only where all in it comes from somewhere (:mod:`oomdoc.assistant.provenance`); it may word
once more what was withheld. In place of what remains withheld, or where it fails, the computed answer stands.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Final

from oomdoc.assistant.briefing import AGAIN, CHANGE, brief, changes_of, functions, instructions, shown_text
from oomdoc.assistant.naming import check_measured, check_named, open_choices, plain_document, with_valid
from oomdoc.assistant.provenance import Sources, is_about_memory, sentences
from oomdoc.assistant.standing import change_lines, figures_left
from oomdoc.chat import parts, questions
from oomdoc.chat.conversation import respond
from oomdoc.chat.describing import is_pasted
from oomdoc.chat.explicit import only_settings
from oomdoc.chat.grammar import LONGEST_TURN, understand
from oomdoc.chat.history import context_of
from oomdoc.chat.prices import price_of
from oomdoc.chat.session import Reply, Session, difference
from oomdoc.chat.speech import language_of
from oomdoc.diagnosis.explaining import asked_topics, beside
from oomdoc.evidence import problem_of
from oomdoc.language_model import Budget, LanguageModel, ToolCall, Unavailable
from oomdoc.language_model.replies import Reply as Said
from oomdoc.report.words import render
from oomdoc.tools import compact, tool_named
from oomdoc.tools.functions import job_of
from oomkb.dataclass import dataclass
from oomkb.errors import InputError, JobError, OomdocError

_LOG: Final = logging.getLogger("oomdoc.chat")
MAX_CALLS: Final = 6
"""Functions called for one turn."""
_MAX_ROUNDS: Final = 6
_TOKENS: Final = 120_000
"""Of the prompts and replies of one turn together."""
_RESULT_CHARS: Final = {"full": 6_000, "small": 2_200}
_UNTOUCHED: Final = frozenset({"undo", "accept-plan", "talk"})
_SHORT_TURN: Final = 12
_ANSWERED: Final = 3
"""Sentences of the model's that are an answer, where what it had to leave out is no size and no verdict."""
_FOUND: Final = ("verdict", "causes", "failure", "other_failure", "plans", "matches", "inferred")
_BEFORE: Final = ("peak_gib", "needed_gib", "fits", "peak_phase", "terms_gib", "serving")
"""What is told of the job before a change."""
_ASKS: Final = re.compile(r"[?？呢吗]")
_NOTHING_MISSING: Final = re.compile(r"(?i)\W*ok(?:ay)?\W*")


@dataclass(frozen=True, slots=True)
class Turned:
    """A turn that is over: the session afterwards and the whole reply."""

    session: Session
    reply: Reply


def converse(
    session: Session, text: str, model: LanguageModel | None, budget: Budget | None = None
) -> Iterator[str | Turned]:
    """Answer one turn: the answer's text in pieces as they are ready, and last the whole.

    Without a model, and for plain settings and a word of undoing or small talk, the answer is computed as a whole and
    no call is made. Never raises on what a person or a model may say.
    """
    if model is None or _is_plain(session, text):
        after, reply = respond(session, text)
        yield reply.answer
        yield Turned(after if model is None else after.remembering(text, reply.answer), reply)
        return
    yield from _Turn(session, text, model, budget or Budget(tokens=_TOKENS)).run()


def _is_plain(session: Session, text: str) -> bool:
    """Whether the grammar alone is sure of a turn: settings as keys with values, "undo", "thanks"."""
    if len(text) > LONGEST_TURN or is_pasted(text):
        return False
    context = context_of(session)
    turn = understand(text, session.job, context)
    if turn.kind in _UNTOUCHED and len(text.strip()) <= _SHORT_TURN:
        return True
    return bool(session.steps) and turn.kind == "change" and only_settings(text, context) and not _ASKS.search(text)


@dataclass
class _Turn:
    """One turn in the making."""

    before: Session
    text: str
    model: LanguageModel
    budget: Budget
    read: tuple[Session, Reply] | None = field(init=False)
    """What a description or a log comes to without the model."""
    session: Session = field(init=False)
    sources: Sources = field(default_factory=Sources)
    called: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    """Pieces of the answer that were given."""
    spoken: int = 0
    """How many of them are the model's."""
    last: str = ""
    """The model's sentence that was given last."""
    withheld: list[tuple[str, str]] = field(default_factory=list)
    """Its sentences that were not given, and why."""
    open: list[tuple[str, str]] = field(default_factory=list)
    """Those of them that it has not worded anew."""
    held: list[str] = field(default_factory=list)
    """What it said after the first of them: given once that was worded anew, in its place."""

    def __post_init__(self) -> None:
        describes = not self.before.steps or is_pasted(self.text)
        self.read = respond(self.before, self.text) if describes else None
        unread = replace(self.before, language=language_of(self.before, self.text), refused=())
        self.session = self.read[0] if self.read else unread
        self.start = self.shown = self.session.job

    def run(self) -> Iterator[str | Turned]:
        """The pieces, and the whole."""
        try:
            yield from self._rounds()
        except Unavailable as error:
            _log("stopped", error.reason)
        yield from self._released()
        moved = self.session.job != self.start
        if not self.spoken and not moved:
            turned = Turned(*(self.read or respond(self.before, self.text)))
            lost = "".join(self.said)
            yield turned.reply.answer if not lost else f"\n{turned.reply.answer}"
            session = turned.session.remembering(self.text, turned.reply.answer)
            yield Turned(session, self._noted(turned.reply))
            return
        short = bool(self.open) and self.spoken < _ANSWERED
        if not self.spoken or short or any(is_about_memory(*one) for one in self.open):
            yield from self._give("\n".join(("", *self._computed(self.session.language))))
        elif moved and not self.read and "extrapolate" not in self.called:  # what was measured comes before
            answer, job = "".join(self.said), self.session.job
            yield from self._give("\n".join(("", *figures_left(self.before.job, job, answer, self.session.language))))
        answer = "".join(self.said).strip()
        session = self.session.remembering(self.text, answer)
        priced, _ = price_of(session.job, session.language)
        reply = Reply(
            answer,
            difference(self.before.job, session.job),
            session.job,
            priced.estimate.process_bytes if priced else None,
            self.read[1].questions if self.read else (),
            self.read[1].diagnosis if self.read else None,
        )
        yield Turned(session, self._noted(reply))

    def _noted(self, reply: Reply) -> Reply:
        return replace(reply, tools=tuple(self.called), withheld=tuple(self.withheld))

    def _computed(self, language: str) -> list[str]:
        """How the job stands, computed; of what was read this turn, the whole answer."""
        if self.read and self.session.job == self.start:
            return self.read[1].answer.split("\n")
        return list(parts.standing(self.session.job, language).said)[: None if self.model.style == "full" else 2]

    def _give(self, piece: str) -> Iterator[str]:
        if piece.strip():
            self.said.append(piece)
            yield piece

    def _say(self, sentence: str) -> Iterator[str]:
        """A sentence of the model's that passed."""
        joint = " " if self.said and not self.said[-1][-1:].isspace() and sentence[:1].isalnum() else ""
        yield from self._give(joint + sentence)

    def _released(self) -> Iterator[str]:
        """What was held back."""
        held, self.held = self.held, []
        if held and self.said and self.withheld[0][0].endswith("\n") and not self.said[-1].endswith("\n"):
            held[0] = f"\n{held[0]}"
        for sentence in held:
            yield from self._say(sentence)

    def _rounds(self) -> Iterator[str]:
        messages = self._messages()
        tools = functions(self.model.style, changes=not self._keeps)
        mended = False
        for turn in range(_MAX_ROUNDS):
            last = turn == _MAX_ROUNDS - 1 or len(self.called) >= MAX_CALLS
            said = Said()
            pending, before, spoken = "", len(self.withheld), self.spoken
            for part in self.model.stream(messages, tools=() if last else tools, budget=self.budget):
                if isinstance(part, Said):
                    said = part
                    continue
                whole, pending = sentences(pending + part, whole=False)
                yield from self._checked(whole, mended)
            yield from self._checked(sentences(pending, whole=True)[0], mended)
            messages.append(said.message())
            if said.calls and not last:
                yield from self._released()
                for call in said.calls:
                    result = self._called(call)
                    yield from self._changed_line(call)
                    messages.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result})
                continue
            new = self.withheld[before:]
            if mended and self.spoken > spoken and not new:
                self.open = []
            if mended or not new:
                return
            mended = True
            shown = "\n".join(f"- {sentence.strip()[:300]} ({why})" for sentence, why in new)
            messages.append({"role": "user", "content": AGAIN.format(withheld=shown)})

    def _checked(self, found: list[str], mended: bool) -> Iterator[str]:
        """Those sentences that pass; after one that does not they wait.

        :param mended: whether these stand for what was withheld.
        """
        for sentence in found:
            waits = bool(self.open) and not mended
            if not sentence.strip():
                if waits:
                    self.held.append(sentence)
                elif self.said:
                    yield from ([sentence] if sentence else [])
                continue
            if self.withheld and (sentence in self.said + self.held or _NOTHING_MISSING.fullmatch(sentence)):
                continue
            problem = self.sources.problem(sentence, self.last)
            if problem:
                self.withheld.append((sentence, problem))
                self.open.append((sentence, problem))
                _log("withheld", problem)
                continue
            self.spoken += 1
            self.last = sentence
            if waits:
                self.held.append(sentence)
            else:
                yield from self._say(sentence)

    def _messages(self) -> list[dict[str, Any]]:
        computed = self._computed(language := self.session.language)
        self.sources.add_said(self.text)
        state: dict[str, Any] = {"job": self.session.job.document(), "computed": computed, "estimate": self._estimate()}
        state |= {
            "changes": changes_of(self.session),
            "asks": parts.asks(self.session.job, language),
            "reading": self._reading(),
        }
        self.sources.add_document(state)
        messages: list[dict[str, Any]] = [{"role": "system", "content": instructions(language, self.model.style)}]
        for earlier, answer in self.session.dialogue:
            self.sources.add_said(earlier)
            self.sources.add_text(answer)
            messages += [{"role": "user", "content": earlier}, {"role": "assistant", "content": answer}]
        shown = json.dumps({n: v for n, v in state.items() if v}, ensure_ascii=False)
        messages.append(
            {"role": "user", "content": f"Current job (data): {shown}\n\n{shown_text(self.text, self.model.style)}"}
        )
        return messages

    def _estimate(self) -> dict[str, Any]:
        """The figures of the job as it stands; for a small model the verdict alone."""
        priced, _ = price_of(self.session.job, self.session.language)
        if priced is None:
            return {}
        job, chosen = open_choices(self.session.job)
        found = tool_named("estimate").call({"job": job, "lang": self.session.language})
        if self.model.style == "small":
            return {name: found[name] for name in ("needed_gib", "fits", "spare_gib")}
        shown = brief(found)
        return shown | {"assumed": shown.get("assumed", {}) | chosen}

    def _reading(self) -> dict[str, Any]:
        """What oomdoc makes of the turn without the model."""
        if self.read is None:
            turn = understand(self.text, self.session.job, context_of(self.before))
            refused = {"refused": render(problem_of(turn.refused), self.session.language)} if turn.refused else {}
            known = {"about": about} if turn.kind != "change" and (about := self._topics()) else {}
            return {"kind": turn.kind, "fields": dict(turn.changes), **refused, **known}
        if self.read[1].diagnosis is None:
            return {"kind": "description"}
        short = compact.diagnosis(self.read[1].diagnosis, "short")
        short["causes"] = [{n: v for n, v in cause.items() if n != "evidence"} for cause in short["causes"]]
        short["plans"] = [{n: v for n, v in one.items() if n != "patch"} for one in short["plans"]]
        if short["verdict"] == "no-failure":
            del short["matches"]
        return {"kind": "description", **{n: short[n] for n in _FOUND if short.get(n)}}

    def _topics(self) -> str:
        """What oomdoc knows of the concept that the turn asks about."""
        found = beside(asked_topics(self.text, self.session.job)) if self.model.style == "full" else ()
        return " ".join(topic.topic.answer[self.session.language] for topic in found)

    @cached_property
    def _keeps(self) -> bool:
        """Whether the person wants nothing changed."""
        return questions.says(self.text, "keeps")

    def _called(self, call: ToolCall) -> str:
        """What a function says, for the model: its answer or what is wrong, as JSON."""
        if len(self.called) >= MAX_CALLS:
            return json.dumps({"error": f"no more than {MAX_CALLS} calls a turn: answer now"})
        self.called.append(call.name[:40])
        try:
            found, about = self._result(call)
        except OomdocError as error:
            return json.dumps({"error": str(error)[:500]}, ensure_ascii=False)
        self.sources.add_document(found)
        self.sources.add_job(about)
        return json.dumps(found, ensure_ascii=False)[: _RESULT_CHARS[self.model.style]]

    def _result(self, call: ToolCall) -> tuple[dict[str, Any], Any]:
        """A function's answer, and the job fields that it was asked about."""
        given = call.values()
        if call.name == CHANGE:
            return self._change(given)
        tool = tool_named(call.name)
        given |= {"lang": self.session.language} if "lang" in tool.input_schema["properties"] else {}
        given.pop("detail", None)
        check_measured(given.get("points"), self.sources)
        about = [given.get(name) for name in ("job", "jobs", "base", "fields")]
        if call.name in ("estimate", "plan"):
            given["job"], _ = open_choices(job_of(given.get("job") or {}, self.session.job))
        elif call.name == "compare":
            given["base"], _ = open_choices(job_of(given.get("base") or {}, self.session.job))
        elif call.name == "diagnose":
            given["text"] = self._pasted()  # what the person said, not what the model makes of it
            given["job"] = plain_document(self.session.job)
        elif call.name == "fix":
            given["text"] = self.session.material
        found = brief(tool.call(given))
        if call.name == "plan":
            found.pop("job", None)  # it is the one that was given
            if "largest" in found:  # the sentences name what just fits
                found["largest_with_margin"] = found.pop("largest")
        return found, about

    def _pasted(self) -> str:
        """What was pasted, and what is said now."""
        material = self.session.material
        return self.text if self.read or not material else f"{material}\n\n{self.text}"

    def _change(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
        """The job changed; numbers must have been said or proposed.

        :raises JobError: for an unknown field, an impossible value or job, or a number out of nowhere.
        """
        if self._keeps:
            raise InputError("the person wants nothing changed", where=CHANGE, hint="use estimate or compare")
        fields, undo = given.get("fields") or {}, given.get("undo") or 0
        if not isinstance(fields, Mapping) or not isinstance(undo, int) or not (fields or undo > 0):
            raise InputError("no fields", where=f"{CHANGE}.fields", hint='for example {"micro_batch": 1}')
        present = self.session.job
        steps = self.session.steps
        base = steps[max(0, len(steps) - 1 - undo)].job if steps and undo > 0 else present
        cleared = {name: None for name, value in fields.items() if value is None}
        job, refused = with_valid({n: v for n, v in fields.items() if v is not None}, base.with_fields(cleared))
        for name, value in difference(base, job).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                check_named(name, float(value), self.text, self.before, self.sources)
        changed = difference(present, job) | ({"env": dict(job.env)} if job.env != present.env else {})
        priced, problem = price_of(job, self.session.language, strict=True)
        if priced is None and "model" in changed:
            raise JobError(problem, where="model")
        before = self._estimate()
        if changed:
            self.session = self.session.then(job, changed)
        found: dict[str, Any] = {"changed": changed, **({"refused": refused} if refused else {})}
        if before:
            assumed = {n: v for n, v in before.get("assumed", {}).items() if n in changed}
            found["before"] = {n: before[n] for n in _BEFORE if n in before} | ({"assumed": assumed} if assumed else {})
        if priced and priced.estimate.fits is False:
            found["computed"] = parts.planned(priced, self.session.language)
        return found | (self._estimate() if priced else {}), dict(fields)

    def _changed_line(self, call: ToolCall) -> Iterator[str]:
        """What a change of the job did, in computed words, before anything the model says of it."""
        if call.name != CHANGE or self.session.job == self.shown or self.read:
            return
        piece = f"{change_lines(self.shown, self.session.job, self.session.language)[0]}\n"
        self.shown = self.session.job
        yield from self._give(piece if not self.said else f"\n{piece}")


def _log(event: str, reason: str) -> None:
    _LOG.info(json.dumps({"event": f"language-model-{event}", "reason": reason[:120]}))
