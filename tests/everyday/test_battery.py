"""Questions, failures and texts without a failure, written from the frameworks' documentation and logs before any run.

Each line of ``inputs/battery.jsonl`` holds the text, what a right answer must have, and why. ``known`` names what is
still wrong: such a line fails the test as soon as it is right, so that the mark goes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import oomdoc

_ROWS = [json.loads(line) for line in (Path(__file__).parent / "inputs/battery.jsonl").read_text().splitlines()]
_PYTHON = re.compile(r"(?:→|:|=) (?:None|True|False)\b|mappingproxy|\{setting\}")
_ENGLISH = re.compile(r"(?:\b[a-z][a-z'-]*\b[ ,]+){3,}[a-z]+")
_QUOTED = re.compile(r"“[^”]*”|input:\d+.*")


@pytest.mark.parametrize("row", _ROWS, ids=[row["id"] for row in _ROWS])
def test_everyday(row: dict[str, Any], request: pytest.FixtureRequest) -> None:
    if "known" in row:
        request.applymarker(pytest.mark.xfail(reason=row["known"], strict=True))
    report = oomdoc.diagnose(row["text"])
    document, text, must = report.document(), report.text(), row["must"]
    wrong = [*_answered(document, must), *_advised(document, text, must), *_readable(text, row["lang"])]
    wrong += [f"not said: {p}" for p in must.get("says", []) if not re.search(p, text)]
    wrong += [f"not said in full: {p}" for p in must.get("says_full", []) if not re.search(p, report.text(full=True))]
    assert not wrong, row["why"]


def _answered(document: dict[str, Any], must: dict[str, Any]) -> Iterator[str]:
    top = document["causes"][0]["cause"] if document["causes"] else None
    estimate = document["estimate"] or {}
    peak = (estimate.get("peak_gib") or {}).get("process")
    outlook, other = document.get("outlook") or {}, document.get("other_failure") or {}
    if document["verdict"] not in must.get("verdict", [document["verdict"]]):
        yield f"verdict {document['verdict']}"
    if outlook.get("answer") not in must.get("answer", [outlook.get("answer")]):
        yield f"answer {outlook}"
    if "peak" in must and not must["peak"][0] <= (estimate.get("needed_gib") or peak or 0) <= must["peak"][1]:
        yield f"needs {estimate.get('needed_gib')}"
    if "max_peak_gib" in must and peak is not None and peak > must["max_peak_gib"]:
        yield f"absurd {peak}"
    if top not in must.get("cause", [top]) or top in must.get("not_cause", []):
        yield f"cause {top}"
    if (must.get("no_causes") and top is not None) or (must.get("no_memory_cause") and top not in (None, "not-oom")):
        yield f"cause {top} where none is"
    for name, value in must.get("facts", {}).items():
        if (document["facts"].get(name) or {}).get("value") != value:
            yield f"fact {name}"
    tensors = (document["failure"] or {}).get("tensors") or []
    if "tensor" in must and not any(re.search(must["tensor"], t["name"]) for t in tensors):
        yield "tensor"
    if "other" in must and not any(kind in (other.get("kind") or "") for kind in must["other"]):
        yield f"other failure {other}"


def _advised(document: dict[str, Any], text: str, must: dict[str, Any]) -> Iterator[str]:
    changes = [c for plan in document["plans"] for c in plan["changes"]]
    changes += [fix.get("change", fix) for fix in document.get("singles") or []]
    said = " ".join(f"{c.get('key')} {c.get('from')} {c.get('to')} {c.get('instruction') or ''}" for c in changes)
    first = " ".join(document["screen"]["do"])
    yield from (f"remedy {p}" for p in must.get("remedy", []) if not re.search(p, f"{said} {text}"))
    yield from (f"first remedy {p}" for p in must.get("first_remedies", []) if not re.search(p, first))
    yield from (f"forbidden remedy {p}" for p in must.get("no_remedy", []) if re.search(p, said))
    shares = [c for c in changes if "utilization" in str(c.get("key")) and c.get("to") is not None]
    if must.get("utilization") == "up" and any(float(c["to"]) <= float(c.get("from") or 0.5) for c in shares):
        yield "a lower share of the card"
    raised = any("accum" in str(c.get("key")) and (c.get("to") or 0) > (c.get("from") or 1) for c in changes)
    if must.get("accum_raised") and not raised:
        yield "accumulation not raised"


def _readable(text: str, language: str) -> Iterator[str]:
    lines = text.strip().splitlines()
    if len(lines) > 20 or max(map(len, lines)) > 100:
        yield f"{len(lines)} lines"
    if _PYTHON.search(text):
        yield "a value of Python's"
    if language == "zh" and (found := _ENGLISH.search(_QUOTED.sub("", text))):
        yield f"English: {found[0]}"
