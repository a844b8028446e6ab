"""How often each sign of ``intake/signs`` is seen, for which causes, and in which public threads.

    python bench/sign_support.py LABELLED.jsonl ... [--write] [--each]

Each line of a file is a labelled report: ``url`` (or ``id``), ``cause``, ``report`` and perhaps ``title``. The cases of
``cases/`` count with the thread that each was reported in. A thread counts once, however many texts tell it.

Printed per sign: threads that show it, those of its own cause, and the causes in which it is more frequent than in all
threads, as ``lift x threads``: how many times more probable the cause is where the sign is seen. ``--each`` adds the
threads of every single alternative. ``--write`` puts up to five threads of each sign, of as many repositories as there
are, into its file, with those that stand there already; nothing else of a file changes. These are figures of the
texts that the signs were chosen on.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from oomdoc.evidence import Frame, Signal, Source
from oomdoc.intake.lines import Kind, Line, kinds_of, read_lines
from oomdoc.intake.read import read_text
from oomdoc.intake.redact import mask
from oomdoc.intake.signs import read_signs, schema
from oomdoc.intake.signs.schema import Row
from oomdoc.intake.tracebacks import read_frames

_ROOT: Final = Path(__file__).resolve().parent.parent
_SIGNS: Final = Path(schema.__file__).parent
_THREAD: Final = re.compile(r"https?://github\.com/([\w.-]+/[\w.-]+)/(?:issues|pull|discussions)/(\d+)")
_MAX_THREADS: Final = 5
_LEAST: Final = 3
"""Threads of one cause below which a lift is chance."""


@dataclass(frozen=True, slots=True)
class Text:
    """A labelled text, read."""

    thread: str
    cause: str
    lines: Sequence[Line]
    kinds: Sequence[Kind]
    frames: Sequence[Frame]
    signals: Sequence[Signal]
    phase: str


def main() -> None:
    """Count, print, and write the witnesses where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="write the threads into the files of signs")
    parser.add_argument("--each", action="store_true", help="print the threads of every alternative too")
    chosen = parser.parse_args()
    rows = list(schema.shipped())
    texts = [_read(*one) for one in (*_reports(chosen.files), *_cases())]
    seen = _count(texts, rows)
    _print(texts, rows, seen)
    if chosen.each:
        _print_alternatives(texts, rows)
    if chosen.write:
        _write({r.name: sorted({*r.threads, *(t for found in seen[r.name].values() for t in found)}) for r in rows})


def _reports(files: Iterable[Path]) -> Iterator[tuple[str, str, str]]:
    """Thread, cause and text of each labelled report, each thread once."""
    known: set[str] = set()
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            report: dict[str, Any] = json.loads(line)
            thread = _thread(report.get("url") or report["id"])
            if report.get("cause") and thread not in known:
                known.add(thread)
                yield thread, report["cause"], f"{report.get('title') or ''}\n\n{report['report']}"


def _cases() -> Iterator[tuple[str, str, str]]:
    """The same of the cases."""
    for file in sorted((_ROOT / "cases").glob("*/*.yaml")):
        case = yaml.safe_load(file.read_text(encoding="utf-8"))
        references = sorted(case.get("references", ()), key=lambda r: r.get("role") != "report")
        if references:
            yield _thread(references[0]["url"]), file.parent.name, "\n\n".join(case["symptoms"])


def _thread(url: str) -> str:
    found = _THREAD.match(url)
    return f"{found[1]}#{found[2]}" if found else url


def _read(thread: str, cause: str, text: str) -> Text:
    lines = list(read_lines(Source("input", mask(text, {}).text)))
    evidence = read_text(text)
    root = evidence.root
    frames = root.frames if root is not None and root.frames else [placed.frame for placed in read_frames(lines)]
    phase = str(evidence.value("phase", "unknown"))
    return Text(thread, cause, lines, kinds_of(lines), frames, evidence.signals, phase)


Seen = dict[str, dict[str, set[str]]]
"""Sign -> cause -> threads."""


def _count(texts: Iterable[Text], table: Sequence[Row]) -> Seen:
    seen: Seen = defaultdict(lambda: defaultdict(set))
    for text in texts:
        for sign in read_signs(text.lines, text.kinds, text.frames, text.signals, text.phase, table=table):
            seen[sign.name][text.cause].add(text.thread)
    return seen


def _print(texts: Sequence[Text], rows: Sequence[Row], seen: Seen) -> None:
    all_of: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        all_of[text.cause].add(text.thread)
    total = sum(map(len, all_of.values()))
    shown = {thread for causes in seen.values() for threads in causes.values() for thread in threads}
    print(f"{len(rows)} signs, {sum(len(p) for row in rows for p in row.patterns):,} characters of patterns")
    print(f"{total} threads and causes; {len(shown) / len({t.thread for t in texts}):.0%} of the threads show a sign\n")
    for row in rows:
        counts = {cause: len(threads) for cause, threads in seen[row.name].items()}
        whole = sum(counts.values())
        lifts = [(n / whole / (len(all_of[cause]) / total), n, cause) for cause, n in counts.items() if n >= _LEAST]
        said = ", ".join(f"{cause} {lift:.1f} x {n}" for lift, n, cause in sorted(lifts, reverse=True)[:3] if lift > 1)
        print(f"{row.name:44} {whole:4} {counts.get(row.cause, 0):4}  {said}")


def _print_alternatives(texts: Sequence[Text], rows: Sequence[Row]) -> None:
    """Each alternative as a row of its own, all of them read at once."""
    alone = [
        Row("", f"{number}", frames=(pattern,)) if kind == "frames" else Row("", f"{number}", messages=(pattern,))
        for number, (_, kind, pattern) in enumerate(_alternatives(rows))
    ]
    seen = _count(texts, alone)
    print()
    for one, (name, _, pattern) in zip(alone, _alternatives(rows), strict=True):
        print(f"{name:44} {len(set().union(*seen[one.name].values())):4}  {pattern}")


def _alternatives(rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    for row in rows:
        yield from ((row.name, kind, pattern) for kind in ("frames", "messages") for pattern in getattr(row, kind))


def _write(witnesses: dict[str, list[str]]) -> None:
    for file in sorted(_SIGNS.glob("*.toml")):
        out: list[str] = []
        name = ""
        for line in file.read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                name = f"{file.stem}/{line.strip('[]')}"
            if line.startswith("threads ="):
                continue
            if not line.strip() and name:
                out += _threads(witnesses[name])
                name = ""
            out.append(line)
        file.write_text("\n".join([*out, *(_threads(witnesses[name]) if name else [])]) + "\n", encoding="utf-8")


def _threads(found: Sequence[str]) -> list[str]:
    """The line of a file: of each repository one first."""
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, str]] = []
    for thread in found:
        repository = thread.partition("#")[0]
        ranked.append((turns[repository], thread))
        turns[repository] += 1
    chosen = [thread for _, thread in sorted(ranked)][:_MAX_THREADS]
    return [f"threads = {json.dumps(chosen)}"] if chosen else []


if __name__ == "__main__":
    main()
