"""Cases in a format for programs or for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from oomdoc.report.case_page import case_page
from oomkb.errors import RecordError
from oomkb.records.case import Case
from oomkb.records.export import case_document, osv

FORMATS: Final = ("json", "osv", "markdown")


def export_case(case: Case, format_: str = "markdown", language: str = "en") -> str:
    """One case in one of :data:`FORMATS`.

    :raises RecordError: for another format, or OSV of a case without affected ranges.
    """
    if format_ == "markdown":
        return case_page(case, language)
    if format_ == "json":
        return _json(case_document(case))
    if format_ == "osv":
        advisory = osv(case)
        if advisory is None:
            raise RecordError("names no affected range", where=case.id, hint="export it as json or markdown")
        return _json(advisory)
    raise RecordError(f"{format_!r} is no format", where="format", hint=f"one of {', '.join(FORMATS)}")


def export_all(format_: str = "json", language: str = "en", cases: Iterable[Case] | None = None) -> str:
    """All cases: a JSON list, a JSON list of OSV advisories (those with ranges), or one Markdown text.

    :raises RecordError: for another format.
    """
    if cases is None:
        from oomkb.records.loader import load_cases

        cases = load_cases()
    if format_ == "markdown":
        return "\n".join(case_page(case, language) for case in cases)
    if format_ == "json":
        return _json([case_document(case) for case in cases])
    if format_ == "osv":
        return _json([advisory for case in cases if (advisory := osv(case)) is not None])
    raise RecordError(f"{format_!r} is no format", where="format", hint=f"one of {', '.join(FORMATS)}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)
