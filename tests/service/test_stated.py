"""Fields that go along with a change."""

from __future__ import annotations

from typing import Any

import pytest

from oomdoc.stated import following
from oomkb.memory.job import Job


@pytest.mark.parametrize(
    ("job", "changes", "expected"),
    [
        ({"prompt_len": 1024, "completion_len": 2048, "seq_len": 3072}, {"completion_len": 8192}, {"seq_len": 9216}),
        ({"prompt_len": 1024, "completion_len": 2048, "seq_len": 4096}, {"completion_len": 8192}, {}),
        ({"method": "lora"}, {"quant": "nf4"}, {"method": "qlora"}),
        ({"method": "qlora", "quant": "nf4"}, {"quant": "none"}, {"method": "lora"}),
        ({"method": "full"}, {"quant": "nf4"}, {}),
        ({"objective": "inference"}, {"gpus": 8}, {"tp": 8}),
        ({"objective": "inference", "pp": 2}, {"gpus": 8}, {}),
        ({"objective": "sft"}, {"gpus": 8}, {}),
    ],
)
def test_following(job: dict[str, Any], changes: dict[str, Any], expected: dict[str, Any]) -> None:
    assert following(changes, Job.from_document(job)) == expected
