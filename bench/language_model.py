"""The reader with a language model, measured on replies that were recorded: no endpoint, no model, no network.

    python bench/language_model.py export REPORTS.jsonl ... --out DIR    # a prompt a file, <key>.txt; no labels
    python bench/language_model.py import DIR_OR_JSONL --model NAME      # keep replies (<key>.json, or JSONL)
    python bench/language_model.py replay REPORTS.jsonl ...              # diagnoses with the replies, a JSON line each
    python bench/language_model.py score REPORTS.jsonl ... [--misses]    # with, without, and the model alone
    python bench/language_model.py fit [--collect REPORTS.jsonl ...] [--write]   # weights; weights.tsv held fixed
    python bench/language_model.py converse CONVERSATIONS.jsonl [--out DIR] [--misses] [--answers]   # in rounds
    python bench/language_model.py tokens [REPORTS.jsonl ...]            # how long the prompts are

A reply is kept by its prompt's key (``bench/data/language_model_replies.jsonl``) with the model's name and the day; the
texts and the prompts are not kept. A line of reports holds ``report`` (or ``text``) and, for ``score`` and ``fit``,
``cause``, ``also`` and ``facts``; they are compared as ``score_reports.py`` of the evaluation data does.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from oomdoc.diagnosis.engine import diagnose, view_of
from oomdoc.diagnosis.features import features_of
from oomdoc.evidence import Evidence, Source
from oomdoc.intake import read
from oomdoc.intake.read import prepared
from oomdoc.language_model.client import Style
from oomdoc.language_model.failing import Unavailable
from oomdoc.language_model.reader import Question, questions_of, taken
from oomdoc.language_model.reader.claims import fact_keys
from oomdoc.language_model.replies import json_object
from oomkb.records.taxonomy import CAUSES

ROOT = Path(__file__).parent.parent
REPLIES = ROOT / "bench" / "data" / "language_model_replies.jsonl"
ROWS = ROOT / "bench" / "data" / "language_model_rows.jsonl.gz"
TABLE = ROOT / "service" / "oomdoc" / "diagnosis" / "language_model_weights.tsv"
NUMBERS = ("size", "fraction", "billions")


# Reports and replies ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """A report, its evidence and its questions."""

    row: Mapping[str, Any]
    evidence: Evidence
    passage: Any
    questions: tuple[Question, ...]


def rows_of(files: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The lines of the files."""
    for name in files:
        with Path(name).open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())


def asked(row: Mapping[str, Any], style: Style, context_tokens: int) -> Asked:
    """What a model is asked of a report."""
    sources = [Source("input", row.get("report") or row["text"])]
    evidence = read(sources)
    passage, questions = questions_of(prepared(sources), evidence, style=style, context_tokens=context_tokens)
    return Asked(row, evidence, passage, questions)


def load_replies() -> dict[str, dict[str, Any]]:
    """Key -> record."""
    if not REPLIES.is_file():
        return {}
    found = (json.loads(line) for line in REPLIES.read_text(encoding="utf-8").splitlines() if line.strip())
    return {one["key"]: one for one in found}


def replies_to(one: Asked, kept: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """The recorded replies to all its questions, or ``None``."""
    records = [kept.get(question.key) for question in one.questions]
    return [r["reply"] for r in records if r is not None] if all(records) else None


# Commands ---------------------------------------------------------------------------------------------------


def export(args: argparse.Namespace) -> None:
    """Write the prompts; of a report nothing but its text is looked at."""
    args.out.mkdir(parents=True, exist_ok=True)
    written = 0
    for row in rows_of(args.files):
        text = {"report": row.get("report") or row["text"]}
        for question in asked(text, args.style, args.context).questions:
            path = args.out / f"{question.key}.txt"
            written += not path.exists()
            path.write_text(f"{question.instructions}\n\n{question.text}\n", encoding="utf-8")
    print(f"{written} new prompts in {args.out}")


def import_(args: argparse.Namespace) -> None:
    """Keep replies; one that holds no JSON object is named and left out."""
    kept, bad = load_replies(), []
    for key, said, more in _found(args.source):
        try:
            reply = said if isinstance(said, dict) else json_object(str(said))
        except Unavailable:
            bad.append(key)
            continue
        kept[key] = {
            "key": key,
            "model": more.get("model") or args.model,
            "date": more.get("date") or args.date,
            "reply": reply,
        }
    with REPLIES.open("w", encoding="utf-8") as out:
        for key in sorted(kept):
            out.write(json.dumps(kept[key], ensure_ascii=False, sort_keys=True) + "\n")
    print(f"{len(kept)} replies kept in {REPLIES.relative_to(ROOT)}; without JSON: {len(bad)} {' '.join(bad[:5])}")


def _found(source: Path) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    if source.is_dir():
        for path in sorted(p for p in source.iterdir() if p.suffix in (".json", ".reply")):
            yield path.stem, path.read_text(encoding="utf-8"), {}
        return
    for row in rows_of([str(source)]):
        yield row.get("key") or row["hash"], row["reply"], row


def replay(args: argparse.Namespace) -> None:
    """Print the diagnosis of every report that has replies."""
    from oomdoc.report.report import Report

    kept = load_replies()
    for row in rows_of(args.files):
        one = asked(row, args.style, args.context)
        replies = replies_to(one, kept)
        if replies is not None:
            evidence = taken(one.evidence, one.passage, replies)
            report = Report(diagnose(evidence, plans=args.plans, questions=False), evidence.language)
            print(json.dumps(report.document(identifier=row.get("id")), ensure_ascii=False))


@dataclass
class Tally:
    """Counts of one way of answering."""

    reports: int = 0
    first: int = 0
    three: int = 0
    label: int = 0
    unknown: int = 0
    """Reports whose cause nobody can know from the text."""
    unknown_named: int = 0
    """Those of them for which a cause was named all the same: with at least half a chance, or by the model at all."""
    stated: int = 0
    claimed: int = 0
    right: int = 0
    bins: dict[int, list[float]] = field(default_factory=lambda: defaultdict(lambda: [0.0, 0.0, 0.0]))
    per: dict[str, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0, 0]))

    def causes(self, named: Sequence[str], row: Mapping[str, Any], probability: float | None = None) -> bool:
        """Count the causes of one report; whether the first is accepted."""
        if row["cause"] == "unknown":
            self.unknown += 1
            named_one = bool(named) and named[0] != "unknown" and (probability is None or probability >= 0.5)
            self.unknown_named += named_one
            return not named_one
        accepted = {row["cause"], *(row.get("also") or ())}
        right = bool(named) and named[0] in accepted
        self.reports += 1
        self.first += right
        self.three += bool(accepted & set(named[:3]))
        self.label += list(named[:1]) == [row["cause"]]
        if probability is not None:
            one = self.bins[min(9, int(10 * probability))]
            one[0] += 1
            one[1] += right
            one[2] += probability
        return right

    def facts(self, said: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
        """Count the facts of one report; what was wrong or missed."""
        wrong = []
        for key, true in (row.get("facts") or {}).items():
            if key not in fact_keys() or key == "offload":
                continue
            self.stated += 1
            self.per[key][0] += 1
            if key not in said:
                wrong.append(f"{key}: {true!r} missed")
                continue
            same = _same(key, said[key], true)
            self.claimed += 1
            self.right += same
            self.per[key][1] += 1
            self.per[key][2] += same
            if not same:
                wrong.append(f"{key}: {true!r} read as {said[key]!r}")
        return wrong

    def line(self, name: str) -> str:
        """One line of figures."""
        n = max(self.reports, 1)
        error = sum(abs(b[1] - b[2]) for b in self.bins.values()) / n
        calibration = f"calibration {error:.3f}  " if self.bins else ""
        return (
            f"{name:12s} {self.reports:4d} reports  first {self.first / n:.1%}  three {self.three / n:.1%}  "
            f"label {self.label / n:.1%}  {calibration}facts precision {self.right / max(self.claimed, 1):.1%}  "
            f"recall {self.right / max(self.stated, 1):.1%}"
            + (f"  unknown ones left open {self.unknown - self.unknown_named}/{self.unknown}" if self.unknown else "")
        )


def _plain(value: Any) -> str:
    return re.sub(r"[^a-z0-9.]+", "", str(value).lower())


def _same(key: str, said: Any, true: Any) -> bool:
    """As ``score_reports.py`` compares."""
    kind = fact_keys()[key].kind
    try:
        if kind in NUMBERS:
            return abs(float(said) - float(true)) <= max(0.02, 0.02 * abs(float(true)))
        if kind == "whole":
            return int(float(said)) == int(float(true))
    except (TypeError, ValueError):
        return False
    if kind == "flag":
        return str(said).lower() == str(bool(true)).lower()
    a, b = _plain(said), _plain(true)
    return bool(a) and bool(b) and (a in b or b in a)


def score(args: argparse.Namespace) -> None:
    """Print the figures."""
    kept = load_replies()
    tallies = {name: Tally() for name in ("without", "with", "model alone")}
    withheld: Counter[str] = Counter()
    models: Counter[str] = Counter()
    missing = 0
    for row in rows_of(args.files):
        one = asked(row, args.style, args.context)
        replies = replies_to(one, kept)
        if replies is None:
            missing += 1
            continue
        models.update(f"{kept[q.key]['model']} {kept[q.key]['date']}" for q in one.questions)
        joined: dict[str, Any] = {}
        for reply in replies:
            joined |= reply
        evidence = taken(one.evidence, one.passage, replies)
        if evidence.language_model is not None:
            withheld.update(f"{w.claim}:{w.reason}" for w in evidence.language_model.withheld)
        _count(tallies["without"], one.evidence, row)
        right, wrong, named = _count(tallies["with"], evidence, row)
        alone = [str(c.get("cause")) for c in _list(joined, "causes")]
        tallies["model alone"].causes(alone, row)
        tallies["model alone"].facts({str(f.get("key")): f.get("value") for f in _list(joined, "facts")}, row)
        if args.misses and (not right or wrong):
            why = "" if right else f" | {row.get('cause_why', '')[:160]}"
            shown = f"{row['cause']} {row.get('also')} <- {named} (model {alone})" if not right else "cause right"
            print(f"  {row.get('id')} {one.questions[0].key}: {shown} | {'; '.join(wrong)}{why}")
    print(f"replies: {dict(models)}; reports without a reply: {missing}")
    for name, tally in tallies.items():
        print(tally.line(name))
    read = ", ".join(f"{k} {c[2]}/{c[1]}/{c[0]}" for k, c in sorted(tallies["with"].per.items()))
    print(f"facts with the model, right/claimed/stated: {read}")
    print(f"withheld by the checks: {dict(sorted(withheld.items()))}")


def _count(tally: Tally, evidence: Evidence, row: Mapping[str, Any]) -> tuple[bool, list[str], list[str]]:
    causes = diagnose(evidence, plans=False, questions=False).causes
    named = [c.cause for c in causes]
    right = tally.causes(named, row, causes[0].probability if causes else None)
    said = {name: fact.value for name, fact in evidence.facts.items() if fact.stated}
    return right, tally.facts(said, row), named[:3]


def _list(reply: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = reply.get(name)
    return [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []


# The fit ----------------------------------------------------------------------------------------------------


def collect(files: Sequence[str], style: Style, context_tokens: int) -> None:
    """Keep what the fit needs of every labelled report with replies: features, no text."""
    kept = load_replies()
    found = []
    for row in rows_of(files):
        one = asked(row, style, context_tokens)
        replies = replies_to(one, kept)
        if replies is None or row["cause"] not in CAUSES:
            continue
        view = view_of(taken(one.evidence, one.passage, replies))[0]
        found.append(
            {
                "url": row.get("url") or row.get("id") or one.questions[0].key,
                "cause": row["cause"],
                "also": [a for a in row.get("also") or [] if a in CAUSES],
                "features": {f.name: round(float(f.value), 3) for f in features_of(view)},
            }
        )
    with gzip.open(ROWS, "wt", encoding="utf-8") as out:
        for line in found:
            out.write(json.dumps(line, sort_keys=True) + "\n")
    print(f"{len(found)} reports kept in {ROWS.relative_to(ROOT)}")


def fit(args: argparse.Namespace) -> None:
    """Keep the features of labelled reports with replies, where given; fit on the kept ones (``reading_fit.py``)."""
    import reading_fit

    if args.collect:
        collect(args.collect, args.style, args.context)
    with gzip.open(ROWS, "rt", encoding="utf-8") as lines:
        table = reading_fit.fitted([json.loads(line) for line in lines])
    print(table, end="")
    if args.write:
        TABLE.write_text(table, encoding="utf-8")


def converse(args: argparse.Namespace) -> None:
    """Hold the conversations with the kept replies; write the prompts of those that are missing."""
    from recorded_turns import Recorded, run, write_prompts

    rows, kept = list(rows_of(args.files)), load_replies()
    plain, talk = run(rows), run(rows, lambda: Recorded(kept), answers=args.answers)
    if args.out:
        write_prompts(talk, args.out)
    print(f"replies: {sorted(talk.models)}")
    for name, one in (("without", plain), ("with", talk)):
        print(one.line(name))
        if args.misses:
            print("".join(f"  {line}\n" for line in (*one.wrong, *(f"untraced {u}" for u in one.untraced))), end="")


def tokens(args: argparse.Namespace) -> None:
    """Print the length of the instructions and, of reports, of whole prompts, as the shipped tokenizer counts."""
    from tokenizers import Tokenizer

    from oomdoc.assistant.briefing import functions
    from oomdoc.assistant.briefing import instructions as instructions_to_converse
    from oomdoc.language_model.reader.asking import PARTS, REPLY_TOKENS, instructions
    from oomkb.retrieval.model_files import find_model

    tokenizer = Tokenizer.from_file(str(find_model().folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    for style, parts in PARTS.items():
        told = instructions_to_converse("en") + json.dumps([f.document() for f in functions(style, changes=True)])
        print(f"{style:6s} conversation instructions and functions {len(tokenizer.encode(told).ids)} tokens")
        for part in parts:
            print(f"{style:6s} {part:11s} instructions {len(tokenizer.encode(instructions(part, '0' * 8)).ids)} tokens")
        sizes = sorted(
            len(tokenizer.encode(question.instructions + question.text).ids)
            for row in rows_of(args.files)
            for question in asked({"report": row.get("report") or row["text"]}, style, args.context).questions
        )
        if sizes:
            print(
                f"{style:6s} prompts: median {sizes[len(sizes) // 2]}, longest {sizes[-1]}; reply up to {REPLY_TOKENS}"
            )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, run in (
        ("export", export),
        ("replay", replay),
        ("score", score),
        ("tokens", tokens),
        ("converse", converse),
    ):
        one = commands.add_parser(name)
        one.set_defaults(run=run)
        one.add_argument("files", nargs="*" if name == "tokens" else "+")
        if name in ("export", "converse"):
            one.add_argument("--out", type=Path, required=name == "export")
        one.add_argument("--answers", action="store_true")
        one.add_argument("--misses", action="store_true")
        one.add_argument("--plans", action="store_true")
        _common(one)
    taken_in = commands.add_parser("import")
    taken_in.set_defaults(run=import_)
    taken_in.add_argument("source", type=Path)
    taken_in.add_argument("--model", default="unknown")
    taken_in.add_argument("--date", default=date.today().isoformat())
    fitted = commands.add_parser("fit")
    fitted.set_defaults(run=fit)
    fitted.add_argument("--collect", nargs="*", metavar="REPORTS.jsonl")
    fitted.add_argument("--write", action="store_true")
    _common(fitted)
    args = parser.parse_args()
    args.run(args)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--style", choices=("full", "small"), default="full")
    parser.add_argument("--context", type=int, default=8192)


if __name__ == "__main__":
    main()
