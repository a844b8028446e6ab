"""Findings before a launch as text, SARIF 2.1.0 (code scanning) or JUnit XML (CI servers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from xml.sax.saxutils import escape, quoteattr

from oomdoc import __version__
from oomdoc.checking.check import Checked
from oomdoc.report.words import render, word

_SIGNS: Final = {"error": "✗", "warning": "!", "note": "·"}
_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def check_text(checked: Sequence[Checked], language: str) -> str:
    """One line a finding, then a summary."""
    lines = []
    for one in checked:
        for finding in one.findings:
            lines.append(f"{_SIGNS[finding.level]} {one.file}:{finding.line}: {render(finding.message, language)}")
    found = [f for one in checked for f in one.findings]
    errors = sum(f.level == "error" for f in found)
    warnings = sum(f.level == "warning" for f in found)
    lines.append(word("check.summary", language, files=len(checked), errors=errors, warnings=warnings))
    return "\n".join(lines)


def check_document(checked: Sequence[Checked], language: str) -> dict[str, Any]:
    """As JSON."""
    return {
        "schema": "oomdoc.check/1",
        "files": [
            {
                "file": one.file,
                "fits": one.fits,
                "framework": dict(one.framework) if one.framework is not None else None,
                "findings": [
                    {"rule": f.rule, "level": f.level, "line": f.line, "message": render(f.message, language)}
                    for f in one.findings
                ],
            }
            for one in checked
        ],
    }


def check_sarif(checked: Sequence[Checked], language: str) -> dict[str, Any]:
    """For code scanning."""
    found = [(one.file, f) for one in checked for f in one.findings]
    rules = sorted({f.rule for _, f in found})
    results = [
        {
            "ruleId": f.rule,
            "ruleIndex": rules.index(f.rule),
            "level": f.level,
            "message": {"text": render(f.message, language)},
            "locations": [
                {"physicalLocation": {"artifactLocation": {"uri": file}, "region": {"startLine": max(1, f.line)}}}
            ],
        }
        for file, f in found
    ]
    driver = {"name": "oomdoc", "version": __version__, "rules": [{"id": rule} for rule in rules]}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}


def check_junit(checked: Sequence[Checked], language: str) -> str:
    """For CI servers: a test case per file, failed by its errors."""
    cases, failures = [], 0
    for one in checked:
        errors = [f for f in one.findings if f.level == "error"]
        rest = "\n".join(render(f.message, language) for f in one.findings if f.level != "error")
        body = "".join(
            f"<failure type={quoteattr(f.rule)} message={quoteattr(render(f.message, language))}/>" for f in errors
        )
        failures += bool(errors)
        output = f"<system-out>{escape(rest)}</system-out>" if rest else ""
        cases.append(f'<testcase classname="oomdoc.check" name={quoteattr(one.file)}>{body}{output}</testcase>')
    head = f'<testsuite name="oomdoc" tests="{len(checked)}" failures="{failures}" errors="0">'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{"".join(cases)}</testsuite>\n'
