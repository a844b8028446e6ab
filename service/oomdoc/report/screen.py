"""The first screen: what ran out and where, why, what to do, how sure. Every form of the answer has this order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oomdoc.diagnosis.result import action_key
from oomdoc.evidence import shortened_to
from oomdoc.report.estimates import change_sentence, likely, other_sentence, plan_sentence
from oomdoc.report.words import has, word, word_or
from oomkb.dataclass import dataclass

_QUOTE: Final = 72
_SAME: Final = 40
_MAX_CHANGES: Final = 4
_MAX_REASONS: Final = 2
_OTHERS: Final = 2
_APART: Final = frozenset(
    [
        *("inactive-setting", "other-process", "leak", "fragmentation", "version-regression", "long-sample"),
        *("weights-load", "checkpoint-save", "eval"),
    ]
)
"""Causes that figures of a regular step say nothing about."""
_SUMS: Final = frozenset({"model-states", "weights-load", "optimizer-init"})
"""Causes of many tensors: which one of them was refused says little, their sum decides."""
_FITS: Final = 0.9
"""Probability from which a plan is said to fit."""
_HOPELESS: Final = 0.25
"""Probability below which a plan is not what to do."""
_KEEPS_CONTEXT: Final = "keep-context"
"""The plan of a server that stands beside a shorter context: a person chooses what to give up."""
_SAME_NUMBERS: Final = "same-numbers"
_OTHER_HARDWARE: Final = "more-hardware"
_NAMEABLE: Final = 0.04
_DECIDED: Final = 0.9
"""Probability from which nothing is asked beside what is to be done: no answer would change it."""
_UNSURE: Final = 0.35
"""Probability below which no cause is advised on."""


@dataclass(frozen=True, slots=True)
class Screen:
    """Lines of the first screen by part; a part that has nothing to say is empty."""

    headline: str
    answer: tuple[str, ...] = ()
    """For a question or another failure: the sentences of the answer; beside one, what is asked beside it."""
    why: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()
    do: tuple[str, ...] = ()
    sure: str = ""
    grid: tuple[str, ...] = ()
    ask: str = ""
    read: tuple[str, ...] = ()
    """A topic that a question about a run touches as well."""
    further: tuple[str, ...] = ()
    """The further questions of the text with their answers."""
    more: str = ""
    """Where to read on, in place of ``--full``."""


def first_screen(document: dict[str, Any], language: str) -> Screen:
    """The screen of a diagnosis' document; the answers to further questions take the place of the grid."""
    screen, further = _screen(document, language), document.get("further") or []
    if not further:
        return screen
    asked = tuple(word("screen.further", language, **one) for one in further)
    return replace(screen, further=asked, grid=(), read=())


def _screen(document: dict[str, Any], language: str) -> Screen:
    verdict = document["verdict"]
    outlook = document.get("outlook") if verdict == "no-failure" else None
    figures = bool(document.get("estimate") or document.get("grid"))
    answered = outlook is not None and (figures or outlook["answer"] != "unknown")
    if document.get("explained") and not document["topics"]:
        return Screen(word("screen.keys", language), tuple(document["sentences"]))
    if document.get("explained"):
        topic = document["topics"][0]
        return Screen(topic["title"], tuple(document["sentences"]), more=word("topic.more", language, id=topic["id"]))
    headline = "" if answered else _sentence(_headline(document, language))
    ask, grid = _ask(document, language), tuple(grid_lines(document.get("grid"), language))
    if verdict in ("no-failure", "not-oom") or not document["causes"]:
        return Screen(
            headline=headline,
            answer=tuple(document.get("sentences") or [document["summary"]]),
            grid=grid,
            ask=ask,
            read=tuple(word("topic.titled", language, title=t["title"], text=t["answer"]) for t in _beside(document)),
        )
    first, answers = document["causes"][0], tuple(document.get("answers") or ())
    if first["probability"] < _UNSURE:
        unsure, wanted = word("screen.unsure", language), [word("screen.unsure-do", language)]
        if document["verdict"] == "device-oom":
            wanted.append(word("screen.unsure-meanwhile", language))
        sure = _sure(document, language)
        return Screen(headline=headline, answer=answers, why=(unsure,), do=tuple(wanted), sure=sure, grid=grid, ask=ask)
    steps = any(plan["changes"] for plan in document["plans"])
    decided = first["probability"] >= _DECIDED and steps and not _asks_file(document)
    why, quotes = _placed(_why(document, first, language), _quotes(first))
    return Screen(
        headline=headline,
        answer=answers,
        why=why,
        quotes=quotes,
        do=tuple(_do(document, first, language)),
        sure=_sure(document, language),
        grid=grid,
        ask="" if decided else ask,
    )


def _beside(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document.get("topics", []) if document["verdict"] == "no-failure" else []


def cause_title(cause: str, language: str) -> str:
    """A cause in words."""
    return word_or(f"cause.{cause}.title", cause, language)


def _headline(document: dict[str, Any], language: str) -> str:
    verdict, outlook = _verdict(document), document.get("outlook")
    if verdict == "no-failure" and outlook:
        return word(f"outlook.{outlook['answer']}", language, probability=likely(outlook["probability"]))
    if document["reported"] == "described" and verdict in ("device-oom", "host-oom"):
        return word(f"screen.described-{verdict}", language)
    text = word(f"verdict.{verdict}", language) + other_sentence(document, language)
    failure = document.get("failure") or {}
    if verdict not in ("device-oom", "host-oom") or not failure:
        return text
    if failure.get("phase") not in (None, "unknown"):
        text = word("screen.in-phase", language, what=text, phase=word(f"phase.{failure['phase']}", language))
    sizes = _sizes(failure, language)
    return word("screen.sized", language, what=text, sizes=sizes) if sizes else text


def _verdict(document: dict[str, Any]) -> str:
    """What ran out: the memory of a cause that is sure, where the words of the failure alone say another."""
    verdict, first = str(document["verdict"]), next(iter(document["causes"]), None)
    if verdict != "device-oom" or first is None or first["probability"] < _SURE_OF_MEMORY:
        return verdict
    return {"host-ram": "host-oom", "shared-memory": "shared-memory"}.get(first["cause"], verdict)


_SURE_OF_MEMORY: Final = 0.75


def _sizes(failure: dict[str, Any], language: str) -> str:
    parts = []
    for name in ("requested", "free", "allocated", "capacity"):
        size = failure.get(f"{name}_gib")
        if size is not None and size > 0:
            parts.append(word(f"screen.{name}", language, gib=_gib(size)))
    return word("screen.comma", language).join(parts)


def _gib(size: float) -> str:
    return f"{size:.2f} GiB" if size >= 0.1 else f"{size * 1024:.1f} MiB"


def _why(document: dict[str, Any], first: dict[str, Any], language: str) -> list[str]:
    lines = [cause_title(first["cause"], language), *(first["why"][:1] if first.get("proven") else [])]
    cache = (document.get("failure") or {}).get("cache")
    if cache is not None:
        needed, left = (_gib(cache[name]) for name in ("needed_gib", "available_gib"))
        lines.append(word("screen.cache", language, length=f"{cache['length']:,}", needed=needed, left=left))
    tensors = ((document.get("failure") or {}).get("tensors")) or []
    tensor = next((t for t in tensors if t["match"] >= 0.6 and t["cause"] in (None, first["cause"])), None)
    if tensor is not None and cache is None and len(lines) == 1 and first["cause"] not in _SUMS:
        shape = " × ".join(f"{n:,}" for n in tensor["shape"])
        lines.append(
            word(
                "report.tensor-line",
                language,
                name=tensor["name"],
                shape=shape,
                dtype=tensor["dtype"],
                gib=f"{tensor['gib']:.2f}",
            )
        )
    implied = [
        c["why"]
        for c in document.get("conflicts") or []
        if c.get("observed") and (c["fact"] or first["cause"] not in _APART)
    ]
    implied += [i["why"] for i in (document.get("inferred") or {}).values() if first["cause"] not in _APART]
    likeness = word("feature.words", language)  # no reason beside another one
    reasons = [why for why in first["why"] if why != likeness] or (first["why"] if not implied else [])
    lines += reasons[:1] if len(lines) == 1 else []
    lines += implied[:1] or reasons[1 : 1 + _MAX_REASONS - len(lines)]
    return lines


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _quotes(first: dict[str, Any]) -> list[tuple[str, str]]:
    """The one decisive line: its place and its text."""
    for place in first.get("evidence") or []:
        text = " ".join(str(place["text"]).split())
        if text:
            return [(f"{place['source']}:{place['line']}", text)]
    return []


def _placed(why: list[str], quotes: list[tuple[str, str]]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Reasons and quotes; a line that a reason quotes already gives its place there."""
    shown = []
    for place, text in quotes:
        same = next((i for i, line in enumerate(why) if text[:_SAME] in " ".join(line.split())), None)
        if same is None:
            shown.append(f"{place}  {shortened_to(text, _QUOTE)}")
        else:
            why[same] = f"{why[same]} ({place})"
    return tuple(why), tuple(shown)


def _do(document: dict[str, Any], first: dict[str, Any], language: str) -> list[str]:
    plan = next((p for p in document["plans"] if p["changes"]), None)
    if plan is None:
        if document.get("nothing_fits"):
            return [document["nothing_fits"]]
        key = action_key(first["cause"], document["job"].get("objective"), document["job"].get("grad_ckpt"))
        return [word(key, language)] if has(key) else []
    hopeless = plan["peak_gib"] is not None and (plan.get("fits_probability") or 0) < _HOPELESS
    if hopeless and document.get("nothing_fits"):
        return [document["nothing_fits"]]
    lines = _steps(plan, language)
    priced = next((p for p in document["plans"] if (p.get("fits_probability") or 0) >= _FITS and p["changes"]), None)
    if plan["peak_gib"] is None and priced is not None and first["cause"] not in _APART:
        lines += [word("screen.or", language), *_steps(priced, language)]
    others = [p for p in document["plans"] if p is not plan]
    other = next((p for p in others if p["name"] == _KEEPS_CONTEXT), None)
    if other is None and plan["safety"] != _SAME_NUMBERS:
        other = next((p for p in others if p["safety"] == _SAME_NUMBERS and p["name"] != _OTHER_HARDWARE), None)
    if other is not None and plan["peak_gib"] is not None and (other.get("fits_probability") or 0) >= _FITS:
        lines += [word("screen.or-else", language), *_steps(other, language)]
    return lines


def _steps(plan: dict[str, Any], language: str) -> list[str]:
    if plan["peak_gib"] is None:
        return [change_sentence(change, language) for change in plan["changes"][:_MAX_CHANGES]]
    # What is priced is all of it: a change that is not shown would be missing from what the person does.
    return [*(change_sentence(change, language) for change in plan["changes"]), plan_sentence(plan, language)]


def _sure(document: dict[str, Any], language: str) -> str:
    first, *others = document["causes"]
    unsure = first["probability"] < _UNSURE  # then the first one is named among them
    named = [o for o in ([first, *others] if unsure else others) if o["probability"] >= _NAMEABLE][:_OTHERS]
    if unsure and named:
        return word("screen.unsure-among", language, others=_named(named, language))
    also = _named(named, language)
    key = "screen.sure-others" if also else "screen.sure"
    return word(key, language, percent=f"{first['probability']:.0%}", others=also)


def _named(causes: list[dict[str, Any]], language: str) -> str:
    return word("screen.comma", language).join(
        f"{cause_title(c['cause'], language)} {c['probability']:.0%}" for c in causes
    )


def _asks_file(document: dict[str, Any]) -> bool:
    """Whether a file is asked for that the input names: what it sets is part of the run."""
    return bool(document.get("questions")) and document["questions"][0]["fact"].endswith((".json", ".yaml", ".yml"))


def _ask(document: dict[str, Any], language: str) -> str:
    questions = document.get("questions") or []
    if not questions:
        return ""
    fact = questions[0]["fact"]
    if _asks_file(document):
        return word("screen.ask-file", language, file=fact, why=questions[0]["why"])
    package = fact.removeprefix("versions.")
    known = word_or(f"question.{fact}.name", fact, language)
    name = word("screen.version-of", language, package=package) if package != fact else known
    return word("screen.ask", language, fact=name, why=questions[0]["why"])


def grid_lines(grid: dict[str, Any] | None, language: str) -> list[str]:
    """A small table as text."""
    if not grid:
        return []
    heads = ["", *grid["columns"]]
    rows = [heads]
    for name, needs, fits in zip(grid["rows"], grid["needed_gib"], grid["fits"], strict=True):
        cells = [_cell(need, fit) for need, fit in zip(needs, fits, strict=True)]
        rows.append([word_or(f"grid.row-{name}", name, language), *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    legend = word("grid.legend", language) if any(fit is False for row in grid["fits"] for fit in row) else ""
    return [word(f"grid.{grid['name']}", language) + legend, *text]


def _cell(need: float | None, fits: bool | None) -> str:
    if need is None:
        return "–"
    shown = f"{need:,.1f}" if need < 100 else f"{need:,.0f}"
    return f"{shown} ×" if fits is False else shown if fits is None else f"{shown}  "
