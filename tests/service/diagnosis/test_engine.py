"""The whole diagnosis, on what people paste and on what they should not."""

from __future__ import annotations

import pytest

from oomdoc.diagnosis.engine import diagnose, view_of
from oomdoc.diagnosis.result import Diagnosis
from oomdoc.evidence import Evidence
from oomdoc.intake import read_text
from oomdoc.report.words import render
from oomkb.records.taxonomy import CAUSES


def of(text: str, *, plans: bool = False) -> Diagnosis:
    return diagnose(read_text(text), plans=plans)


def first(text: str) -> str:
    return of(text).causes[0].cause


@pytest.mark.parametrize(
    ("text", "verdict", "cause"),
    [
        (
            "training dies, no CUDA error, [launch.py:325:sigkill_handler] exits with return code = -9",
            "host-oom",
            "host-ram",
        ),
        ("RuntimeError: DataLoader worker (pid 31) is killed by signal: Bus error.", "shared-memory", "shared-memory"),
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 81920, Hardware limit: 65536.",
            "not-oom",
            "not-oom",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
            "device-oom",
            "kv-cache",
        ),
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 12.00 MiB (GPU 0; 23.65 GiB total capacity; "
            "13.07 GiB already allocated; 7.31 MiB free; 13.13 GiB reserved in total by PyTorch)",
            "device-oom",
            "other-process",
        ),
        (
            "CUDA out of memory. Tried to allocate 35.60 GiB. GPU 0 has a total capacity of 79.33 GiB of which 26.16 GiB is free. "
            "Process 76883 has 53.16 GiB memory in use. Of the allocated memory 11.97 GiB is allocated by PyTorch, and 40.69 GiB "
            "is reserved by PyTorch but unallocated.",
            "device-oom",
            "fragmentation",
        ),
    ],
)
def test_verdict_and_cause(text: str, verdict: str, cause: str) -> None:
    found = of(text)
    assert (found.verdict, found.causes[0].cause) == (verdict, cause)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n\n",
        "hello there",
        "0123456789" * 3000,
        "🦙" * 500,
        "{" * 2000,
        "a: [1, 2\n  b: }",
        "%s {0} {quote}",
    ],
)
def test_odd_input_gets_an_answer(text: str) -> None:
    found = of(text, plans=True)
    for message in (*found.summary, *found.warnings):
        for language in ("en", "zh"):
            assert render(message, language)


def test_nothing_there_is_no_failure() -> None:
    found = of("the weather is nice in Bremen")
    assert found.verdict == "no-failure"
    assert found.causes == ()


def test_impossible_settings_are_told_not_raised() -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB\nmodel_name_or_path: nobody/knows-this-one\ncutoff_len: 0"
    found = of(text, plans=True)
    assert found.causes
    assert found.estimate is None
    assert any(w.key == "diagnosis.no-price" for w in found.warnings)


def test_probabilities_are_ordered_and_of_the_taxonomy() -> None:
    found = of("CUDA out of memory while saving the checkpoint, training itself is fine")
    chances = [c.probability for c in found.causes]
    assert chances == sorted(chances, reverse=True)
    assert {c.cause for c in found.causes} <= set(CAUSES)
    assert 0 < sum(chances) <= 1.0001


def test_evidence_has_places() -> None:
    found = of("step 1 ok\nValueError: No available memory for the cache blocks.")
    assert found.causes[0].evidence
    assert all(span.source and span.line > 0 for span in found.causes[0].evidence)


def test_stages_can_be_asked_alone() -> None:
    _, job, _, warnings = view_of(Evidence(prose="CUDA out of memory"))
    assert job.model is None
    assert any(w.key == "diagnosis.no-price" for w in warnings)


def test_chinese() -> None:
    assert first("用 zero3 训练，一到 save_steps 保存模型的时候就爆显存，训练本身没问题") == "checkpoint-save"


def test_questions_are_few_and_told() -> None:
    found = of("CUDA out of memory. Tried to allocate 2.00 GiB")
    assert 1 <= len(found.questions) <= 3
    assert found.questions[0].fact == "model"
    for question in found.questions:
        assert render(question.why, "en")
        assert question.how is not None
