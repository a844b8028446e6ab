"""Comparing a question with all cases at once says what comparing it with each says."""

import pytest

from oomkb.records.loader import load_cases
from oomkb.retrieval.facets import Columns, agreements, case_facets, query_facets

_QUESTIONS = (
    ("", {}),
    ("DPO with LoRA on 8 x A100 runs out of memory in the backward pass", {"phase": "backward"}),
    ("vllm serving on a 4090", {"framework": "vllm", "objective": "inference", "phase": "engine-init"}),
    ("trl or llamafactory, full fine-tuning", {"versions": {"trl": "0.9.6", "transformers": "4.45.0"}}),
    ("torch 2.4", {"versions": {"torch": "2.4.0", "vllm": "0.5.4"}, "gpu": "V100"}),
)


@pytest.mark.parametrize(("text", "context"), _QUESTIONS)
def test_weights_are_the_sums_of_the_agreements(text: str, context: dict[str, object]) -> None:
    cases = load_cases()
    known = [case_facets(case) for case in cases]
    asked = query_facets(text, context)
    each = [sum(a.weight for a in agreements(asked, f, c)) for f, c in zip(known, cases, strict=True)]
    assert Columns.of(known, cases).weights(asked).tolist() == pytest.approx(each, abs=1e-6)


def test_the_questions_tell_cases_apart() -> None:
    cases = load_cases()
    columns = Columns.of([case_facets(case) for case in cases], cases)
    spreads = [float(columns.weights(query_facets(text, context)).std()) for text, context in _QUESTIONS[1:]]
    assert min(spreads) > 0.1
