"""The shipped cases are sound, cover every cause and many frameworks, and the field guide shows the template."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import yaml

from oomdoc.casework.starting import TEMPLATE
from oomkb.records.lint import lint
from oomkb.records.loader import load_cases
from oomkb.records.taxonomy import CAUSES


def test_every_shipped_case_passes_the_lint(root: Path) -> None:
    problems = lint([root / "cases"])
    assert not problems, "\n".join(map(str, problems))


def test_the_safety_of_a_fix_agrees_with_what_it_changes() -> None:
    """Serving trains nothing; another attention kernel computes the same; fewer bits or another method do not."""
    odd = [
        f"{case.id} fixes[{n}] {fix.safety}"
        for case in load_cases()
        for n, fix in enumerate(case.fixes)
        if (case.objective == "inference" and fix.safety == "changed-training")
        or (set(fix.changes) == {"attention"} and fix.safety != "same-numbers")
        or ({"quant", "method"} & set(fix.changes) and fix.safety == "same-numbers")
    ]
    assert not odd, odd


def test_every_cause_has_at_least_five_cases() -> None:
    counts = Counter(case.cause for case in load_cases())
    few = {cause: counts[cause] for cause in CAUSES if counts[cause] < 5}
    assert not few, few


def test_the_cases_cover_many_frameworks() -> None:
    assert len({name for case in load_cases() for name in case.frameworks}) >= 25


def test_the_field_guide_shows_the_template_and_every_field(root: Path) -> None:
    guide = (root / "cases" / "README.md").read_text(encoding="utf-8")
    assert TEMPLATE in guide
    for field in yaml.safe_load(TEMPLATE):
        assert f"`{field}`" in guide, field
    for cause in CAUSES:
        assert f"| `{cause}` |" in guide, cause
