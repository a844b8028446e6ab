"""What a well-formed case must also satisfy: one function per rule; each gives (field, message, hint) per finding."""

from __future__ import annotations

import ast
import datetime
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from oomkb.errors import JobError, RecordError
from oomkb.memory.job import Job
from oomkb.memory.mode import normalise
from oomkb.records.case import Case, Witness
from oomkb.records.files import has_chinese, shared_run, tokens
from oomkb.records.taxonomy import CAUSES, FRAMEWORKS, PHASES
from oomkb.records.versions import version_of

TOLERANCE: Final = 0.02
"""Relative difference between the stated and the computed value that rounding may leave."""
_MAX_CHARS: Final = 300
_LARGEST_POWER: Final = 100
_BINARY: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}
Finding = tuple[str, str, str]
_BOUNDS: Final = frozenset({"merged-code", "maintainer-said", "reporter-tried", "reproduced"})
"""Witnesses of a version's bound: what is merged, what the project says, what was tried from release to release."""
_SLUG: Final = re.compile(r"[a-z0-9]{1,40}(?:-[a-z0-9]{1,40}){0,15}")
_FORGE: Final = re.compile(
    r"https://(?:github\.com|gitee\.com)/[\w.-]{1,60}/[\w.-]{1,100}/(issues|pull|pulls|discussions)(/.{0,200})?"
)
_URL: Final = re.compile(r"https://[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,5}(?:/[^\s<>\"]{0,500})?")


def check_sum(text: str) -> str:
    """What is wrong with ``expression = value``; empty where it holds within :data:`TOLERANCE`."""
    left, equals, right = text.partition("=")
    if not equals or "=" in right:
        return "is not of the form `expression = value`"
    try:
        computed, stated = value_of(left), value_of(right)
    except RecordError as error:
        return error.message
    if not math.isclose(computed, stated, rel_tol=TOLERANCE):
        return f"gives {computed:.6g}, not {stated:.6g}"
    return ""


def value_of(expression: str) -> float:
    """A number, or numbers joined by ``+ - * / // **`` and brackets; no names and no calls.

    :raises RecordError: for anything else, and for what has no finite value.
    """
    if len(expression) > _MAX_CHARS:
        raise RecordError(f"is longer than {_MAX_CHARS} characters")
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise RecordError(f"{expression.strip()!r} is no arithmetic") from error
    except (OverflowError, ZeroDivisionError) as error:
        raise RecordError(f"{expression.strip()!r} has no finite value") from error
    if not math.isfinite(value):
        raise RecordError(f"{expression.strip()!r} has no finite value")
    return value


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and (abs(right) > _LARGEST_POWER or left < 0):
            raise ValueError("a power that large")
        return _BINARY[type(node.op)](left, right)
    raise ValueError("not a number or an operation on numbers")


def place(case: Case) -> Iterator[Finding]:
    """Folder and file name."""
    if case.cause not in CAUSES:
        yield "", f"{case.cause!r} is no cause", f"move it to one of {', '.join(CAUSES)}"
    if not _SLUG.fullmatch(case.slug):
        yield "", f"{case.slug!r} is no slug", "small letters, digits and single hyphens"


def finished(case: Case) -> Iterator[Finding]:
    """Nothing of a template is left."""
    for field, text in (*_texts(case), *((f"symptoms[{i}]", s) for i, s in enumerate(case.symptoms))):
        if "FILL IN" in text:
            yield field, "still says FILL IN", "fill it in"


def _texts(case: Case) -> Iterator[tuple[str, str]]:
    for field, words in _bilingual(case):
        for language, text in words.items():
            yield f"{field}.{language}", text


def _bilingual(case: Case) -> list[tuple[str, Mapping[str, str]]]:
    texts: list[tuple[str, Mapping[str, str]]] = [("title", case.title), ("summary", case.summary), ("why", case.why)]
    texts += [(f"fixes[{i}].text", f.text) for i, f in enumerate(case.fixes)]
    return texts + [(f"signatures[{i}].means", s.means) for i, s in enumerate(case.signatures)]


def vocabulary(case: Case) -> Iterator[Finding]:
    """Words that come from a list."""
    for i, cause in enumerate(case.also):
        if cause not in CAUSES:
            yield f"also[{i}]", f"{cause!r} is no cause", f"one of {', '.join(CAUSES)}"
        elif cause == case.cause or cause in case.also[:i]:
            yield f"also[{i}]", f"{cause!r} is already named", "remove it"
    for i, name in enumerate(case.frameworks):
        if name not in FRAMEWORKS:
            yield (
                f"frameworks[{i}]",
                f"{name!r} is not known",
                "spell it as in oomkb/records/taxonomy.toml, or add it there",
            )
    if case.phase not in PHASES:
        yield "phase", f"{case.phase!r} is not known", f"one of {', '.join(PHASES)}"
    for field in ("method", "objective"):
        word = getattr(case, field)
        try:
            if word is not None and normalise(field, word) != word:
                yield field, f"{word!r} is a spelling of {normalise(field, word)!r}", "write that"
        except JobError as error:
            yield field, error.message, error.hint


def languages(case: Case) -> Iterator[Finding]:
    """English in ``en``, Chinese in ``zh``."""
    for field, words in _bilingual(case):
        if not has_chinese(words["zh"]):
            yield f"{field}.zh", "holds no Chinese", "translate it"
        if has_chinese(words["en"]):
            yield f"{field}.en", "holds Chinese", "translate it"


def dates(case: Case) -> Iterator[Finding]:
    """A report's date lies in the past."""
    if not "2018" <= case.date[:10] <= datetime.date.today().isoformat():
        yield "date", f"{case.date} cannot be", "the day of the report, as 2025-01-31"


def links(case: Case) -> Iterator[Finding]:
    """Links that can lead somewhere: https, a real host, a thread with its number."""
    seen: set[str] = set()
    for i, reference in enumerate(case.references):
        field, url = f"references[{i}].url", reference.url
        thread = _FORGE.fullmatch(url)
        if not _URL.fullmatch(url):
            yield field, f"{url!r} is no https link", "https://host/path"
        elif "example." in url or "FILL IN" in url:
            yield field, "is a placeholder", "link the page"
        elif thread and not re.fullmatch(r"/[1-9]\d{0,7}(?:#.{1,80})?", thread[2] or ""):
            yield field, "names no thread", "end it with the thread's number"
        if url in seen:
            yield field, "is given twice", "remove one"
        seen.add(url)


def leaks(case: Case) -> Iterator[Finding]:
    """A symptom holds neither the title nor the answer."""
    answers: list[tuple[str, str]] = [("title", t) for t in case.title.values()]
    answers += [("summary", t) for t in case.summary.values()] + [("why", t) for t in case.why.values()]
    answers += [(f"fixes[{n}].text", t) for n, fix in enumerate(case.fixes) for t in fix.text.values()]
    for i, symptom in enumerate(case.symptoms):
        words = " ".join(tokens(symptom))
        for name, answer in answers:
            whole = " ".join(tokens(answer))
            named = name == "title" and len(whole.split()) > 2 and whole in words
            run = whole if named else shared_run(symptom, answer)
            if run:
                yield f"symptoms[{i}]", f"repeats {name}: {run!r}", "write what somebody sees before knowing the answer"
                break


def signatures(case: Case) -> Iterator[Finding]:
    """A signature says what prints it, and occurs in a symptom."""
    everything = _squeezed("\n".join(case.symptoms))
    for i, signature in enumerate(case.signatures):
        if not re.search(r"\S, \S.{0,60}\d", signature.source):
            yield f"signatures[{i}].source", "does not say what prints the line", "file, program and version"
        if _squeezed(signature.text) not in everything:
            yield f"signatures[{i}].text", "is in none of the symptoms", "add the symptom that shows it"


def _squeezed(text: str) -> str:
    return " ".join(text.split()).lower()


def jobs(case: Case) -> Iterator[Finding]:
    """Job documents that a job can be read from, and outcomes that agree with each other."""
    for field, document in (("before", case.before), ("after", case.after)):
        if document is None:
            continue
        try:
            extra = Job.from_document(document).extra
        except JobError as error:
            yield f"{field}.{error.where}", error.message, error.hint
        else:
            for key in extra:
                yield f"{field}.{key}", "is no field of a job", "see the job document's table"
    for i, fix in enumerate(case.fixes):
        try:
            Job().with_fields(fix.changes)
        except JobError as error:
            yield f"fixes[{i}].changes.{error.where}", error.message, error.hint
    if case.after is not None and case.before is None:
        yield "before", "is missing although there is an after", "say what failed"
    if case.before is not None and case.after is not None and dict(case.before) == dict(case.after):
        yield "after", "is the same as before", "say what was changed"


def witnesses(case: Case) -> Iterator[Finding]:
    """Every claim has a witness whose page is a reference and whose sum holds."""
    pages = {reference.url for reference in case.references}
    for field, claim in _claims(case):
        for i, witness in enumerate(claim):
            place = f"{field}.witness[{i}]"
            if witness.ref and witness.ref not in pages:
                yield f"{place}.ref", "is none of the references", "add the page to references"
            problem = check_sum(witness.sum) if witness.sum else ""
            if problem:
                yield f"{place}.sum", problem, "compute it again; `expression = value` in Python's arithmetic"
            if witness.release and version_of(witness.release) is None:
                yield f"{place}.release", f"{witness.release!r} is no version", "the first release that has it"
    observed = (case.outcome_before.peak_gib, case.outcome_after.peak_gib, case.outcome_before.fits)
    if not case.outcome_witness and any(v is not None for v in (*observed, case.outcome_after.fits)):
        yield "outcome.witness", "is missing", "say who measured or observed it"
    for i, fix in enumerate(case.fixes):
        if fix.saves_gib is not None and {w.by for w in fix.witness} == {"inference"}:
            yield f"fixes[{i}].saves_gib", "is witnessed by nobody", "name who measured it, or leave it out"


def trials(case: Case) -> Iterator[Finding]:
    """A fix changes what its witnesses tried or said: each number it sets stands in its text."""
    for i, fix in enumerate(case.fixes):
        said = _numbers_of(fix.text["en"])
        for name, value in _leaves(fix.changes):
            if not isinstance(value, bool) and isinstance(value, int | float) and float(value) not in said:
                hint = "say the number that was tried or named, or leave the field out"
                yield f"fixes[{i}].changes.{name}", f"{value:g} is not in the fix's text", hint


def borne_out(case: Case) -> Iterator[Finding]:
    """More than our reasoning speaks for a case, and what is said to have been seen was seen by somebody."""
    claims = dict(_claims(case))
    if all(w.by == "inference" or w.result == "in-vain" for claim in claims.values() for w in claim):
        yield "", "rests on inference alone", "name a witness or a sum, or delete the case: fewer and true beats many"
    if case.outcome_after.fits and not {w.by for w in case.outcome_witness} & {"reporter-tried", "reproduced"}:
        yield "outcome.after.fits", "was tried by nobody", "name who ran it, or leave it out"
    tried = {w.ref for fix in case.fixes for w in fix.witness if w.result in ("worked", "partly")}
    if any(w.result == "worked" and w.ref not in tried for w in case.cause_witness):
        yield "cause.witness", "is a trial of no fix", "add the fix that was tried, or say who says so"


def elsewhere(case: Case) -> Iterator[Finding]:
    """What is known from the page of another failure only is our inference for this one, and says so."""
    reports = {reference.url for reference in case.references if reference.role == "report"}
    homes = {_repository(url) for url in reports}
    fixes = {r.url for r in case.references if r.role == "fix" and _repository(r.url) in homes}
    for field, claim in (("cause", case.cause_witness), ("why", case.why_witness)):
        ours = any(w.by in ("inference", "arithmetic", "reproduced") for w in claim)
        if reports and claim and not ours and not any(w.ref in reports | fixes for w in claim):
            yield f"{field}.witness", "is another failure's page only", "add {by: inference}, or link the fix as `fix`"


def _repository(url: str) -> str:
    """Host, owner and name of a page of a repository."""
    return "/".join(url.split("/")[2:5]).lower()


def _leaves(changes: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in changes.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{within}{key}.")
        else:
            yield f"{within}{key}", value


def _numbers_of(text: str) -> set[float]:
    """The numbers of a text, products such as ``960*28*28`` and ``512 x 512`` computed."""
    found = re.findall(r"\d[\d,.]{0,20}(?:e\d{1,2})?(?: ?[*x×] ?\d[\d,.]{0,20}){0,3}", text)
    parts = ([p.replace(",", "").rstrip(".") for p in re.split(r"[*x×]", each)] for each in found)
    return {math.prod(float(p) for p in each) for each in parts if all(_is_number(p) for p in each)}


def _is_number(text: str) -> bool:
    return re.fullmatch(r" ?\d{1,15}(\.\d{1,9})?(e\d{1,2})? ?", text) is not None


def _claims(case: Case) -> Iterator[tuple[str, tuple[Witness, ...]]]:
    yield from (("cause", case.cause_witness), ("why", case.why_witness), ("outcome", case.outcome_witness))
    yield from ((f"fixes[{i}]", fix.witness) for i, fix in enumerate(case.fixes))
    yield from ((f"affected[{i}]", item.witness) for i, item in enumerate(case.affected))


def ranges(case: Case) -> Iterator[Finding]:
    """Versions that can be read, in order."""
    for i, affected in enumerate(case.affected):
        if not re.fullmatch(r"[a-z0-9](?:[a-z0-9.-]{0,60}[a-z0-9])?", affected.package):
            yield (
                f"affected[{i}].package",
                f"{affected.package!r} is no package name",
                "as PyPI writes it, in small letters",
            )
        if not affected.ranges and not affected.seen:
            yield f"affected[{i}]", "names no version", "ranges, or seen: the version of a reporter"
        if affected.ranges and not {w.by for w in affected.witness} & _BOUNDS:
            yield f"affected[{i}].ranges", "is witnessed by nobody", "a release note, a commit or a bisect; else `seen`"
        for version in affected.seen:
            if not re.fullmatch(r"(?=.{0,39}\d)[\w.+-]{1,40}", version):
                yield f"affected[{i}].seen", f"{version!r} is no version", "as the project writes it: 0.16.8, b5558"
        for j, item in enumerate(affected.ranges):
            field = f"affected[{i}].ranges[{j}]"
            if item.introduced != "0" and item.introduced == item.last_affected:
                yield field, "is one version", "a version that was only seen goes into seen"
            named = [v for v in (item.introduced, item.fixed, item.last_affected) if v is not None]
            for version in (v for v in named if version_of(v) is None):
                yield field, f"{version!r} is no version", "as PEP 440 writes it: 0.16.8, 4.50.0.dev0"
            first, end = version_of(item.introduced), version_of(item.fixed or item.last_affected or "")
            if first is not None and end is not None and first > end:
                yield field, f"ends ({end}) before it begins ({item.introduced})", "swap them"
    known = any(w.by in ("merged-code", "maintainer-said") for w in (*case.cause_witness, *case.why_witness))
    if case.cause == "version-regression" and not case.affected and not known:
        yield "affected", "is missing", "name the versions, or the change or maintainer that says it is a regression"


def events(document: Mapping[str, Any]) -> Iterator[Finding]:
    """OSV ranges as written: each event one key, beginning with ``introduced``, closed at most once."""
    for i, affected in enumerate(document.get("affected") or []):
        for j, item in enumerate(affected.get("ranges") or []):
            field, opened = f"affected[{i}].ranges[{j}]", False
            for k, event in enumerate(item["events"]):
                keys = [key for key in ("introduced", "fixed", "last_affected") if event.get(key) is not None]
                if len(keys) != 1:
                    yield (
                        f"{field}.events[{k}]",
                        "holds not exactly one of introduced, fixed, last_affected",
                        "split it",
                    )
                elif (keys[0] == "introduced") == opened:
                    yield f"{field}.events[{k}]", f"{keys[0]} out of order", "introduced, then fixed or last_affected"
                opened = keys[:1] == ["introduced"]


RULES: Final[tuple[Callable[[Case], Iterator[Finding]], ...]] = (
    borne_out,
    dates,
    elsewhere,
    finished,
    jobs,
    languages,
    leaks,
    links,
    place,
    ranges,
    signatures,
    trials,
    vocabulary,
    witnesses,
)
"""Rules about one case, by name."""
