"""What the records of the knowledge base hold, one line a figure: ``python bench/case_figures.py``.

Witnesses, pages compared with their records, signatures, version ranges, measured effects, coverage by cause, and
what of the catalogues is unverified. A second column names the bar where there is one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from lint_catalog import lint_catalog, unverified
from oomkb.records.case import Case, Witness
from oomkb.records.lint import lint
from oomkb.records.loader import load_cases
from oomkb.retrieval.documents import matched

ROOT = Path(__file__).resolve().parents[1]
_HOSTS = ("github.com", "gitee.com", "gitcode.com")


def witnesses(case: Case) -> Iterator[tuple[Witness, ...]]:
    """The witnesses of each claim of a case."""
    yield case.cause_witness
    yield case.why_witness
    yield from (fix.witness for fix in case.fixes)
    yield from (bound.witness for bound in case.affected)


def repositories(case: Case) -> set[str]:
    """Where a case was reported: ``owner/name``, or the host of another page."""
    own = [ref for ref in case.references if ref.role != "fix"] or case.references
    parts = [urlsplit(ref.url) for ref in own]
    return {"/".join(p.path.split("/")[1:3]).lower() if p.netloc in _HOSTS else p.netloc for p in parts}


def _inferred(of: Sequence[Witness]) -> bool:
    return all(witness.by == "inference" for witness in of)


def _least(cases: Sequence[Case]) -> tuple[int, int, int]:
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[case.cause].append(case)
    return (
        min(map(len, groups.values())),
        min(len(set().union(*map(repositories, group))) for group in groups.values()),
        min(len({case.date[:4] for case in group}) for group in groups.values()),
    )


def _foreign_hits(cases: Sequence[Case]) -> int:
    """Symptoms of one case in which the signature of another is found."""
    return sum(
        cases[number].id != case.id
        for case in cases
        if case.signatures
        for signature in case.signatures
        for number in matched(signature.text, cases)
    )


def figures() -> Iterator[tuple[str, object, str]]:
    """Name, figure, bar."""
    cases = load_cases()
    refs = [ref for case in cases for ref in case.references]
    ranges = [r for case in cases for bound in case.affected for r in bound.ranges]
    kinds = Counter(witness.by for case in cases for claim in witnesses(case) for witness in claim)
    yield "records", len(cases), ""
    yield "faults the lint finds", len(lint([ROOT / "cases"])), "0"
    yield "claims without a witness", sum(not claim for case in cases for claim in witnesses(case)), "0"
    yield "witnesses by kind", ", ".join(f"{kind} {count}" for kind, count in kinds.most_common()), ""
    yield "mechanisms that are inference alone", sum(_inferred(case.why_witness) for case in cases), ""
    yield "causes that are inference alone", sum(_inferred(case.cause_witness) for case in cases), ""
    yield "records with a page compared", sum(any(r.checked for r in case.references) for case in cases), ""
    yield (
        "pages compared: whole, part, not shown",
        tuple(sum(bool(ref.checked) and ref.visible == how for ref in refs) for how in ("whole", "part", "none")),
        "",
    )
    yield "signatures", sum(len(case.signatures) for case in cases), ""
    yield "signatures found in the signature of another record", _foreign_hits(cases), "0"
    yield (
        "version ranges, and versions only seen",
        (len(ranges), sum(len(b.seen) for c in cases for b in c.affected)),
        "",
    )
    yield (
        "records with a measured effect",
        sum(bool((case.before and case.after) or any(fix.saves_gib for fix in case.fixes)) for case in cases),
        "150",
    )
    yield "least cases, repositories and years of a cause", _least(cases), "15, 8, 3"
    yield "records in Chinese", sum("zh" in case.languages for case in cases), "60"
    yield "records of 2025 and 2026", sum(case.date[:4] in ("2025", "2026") for case in cases), "200"
    yield "faults of the catalogues", len(lint_catalog()), "0"
    yield "catalogues", str(unverified()), ""


if __name__ == "__main__":
    for name, figure, bar in figures():
        print(f"{name:54} {figure!s:60} {bar}")
