"""Real reports, where the labelled data lie beside the checkout: the bar of facts and phases."""

from __future__ import annotations

import importlib.util
import json

import pytest

from oomdoc.intake import read_text


@pytest.mark.shared
def test_facts_of_labelled_reports(shared_data):
    path = shared_data.parent / "tools" / "score_reports.py"
    source = path.read_text(encoding="utf-8").split("def main()")[0]
    tool = importlib.util.module_from_spec(importlib.util.spec_from_loader("score", loader=None))
    exec(compile(source, str(path), "exec"), tool.__dict__)  # the scorer's own comparison, without running it
    same = tool.same
    told = claimed = right = found = phases = phases_right = 0
    for line in (shared_data / "reports_dev.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        facts = read_text(row["report"]).facts
        for name, true in row["facts"].items():
            if same(name, true, true) is None:
                continue
            fact = facts.get(name)
            stated = fact is not None and fact.stated
            good = bool(stated and same(name, fact.value, true))
            # Of a phase that nobody can tell, not to state one is the answer.
            abstained = name == "phase" and true == "unknown" and not stated
            told, claimed, right = told + 1, claimed + stated, right + good
            found += good or abstained
            if name == "phase":
                phases, phases_right = phases + 1, phases_right + (fact is not None and fact.value == true)
    assert right / claimed >= 0.97
    assert found / told >= 0.92
    assert phases_right / phases >= 0.8
