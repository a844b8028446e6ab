"""Every field of a JSON answer is named in docs/answers.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from oomdoc.cli.main import app

PAGE = Path(__file__).parents[2] / "docs" / "answers.md"
FAILED = "examples/dpo-v100/train.log"
JOB = ["--set", "model=Qwen/Qwen2.5-7B", "--set", "method=lora", "--set", "gpu=RTX 4090", "--set", "seq_len=8192"]
SERVED = ["--set", "model=Qwen/Qwen2.5-7B", "--set", "gpu=RTX 4090", "--set", "objective=inference"]
BY_NAME = {"terms", "facts", "inferred", "assumed", "job", "fields", "phases", "host_phases", "largest"}
"""Mappings from names of the job, the memory model or the input."""


def fields(document: Any) -> Iterator[str]:
    if isinstance(document, list):
        for item in document:
            yield from fields(item)
    elif isinstance(document, dict):
        for name, value in document.items():
            yield name
            parts = list(value.values()) if name in BY_NAME and isinstance(value, dict) else value
            if name not in ("job", "fields", "value", "from", "to"):
                yield from fields(parts)


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", FAILED, "--config", "examples/dpo-v100/train.yaml"],
        ["diagnose", "Will Qwen3-8B QLoRA fit on one RTX 4090?"],
        ["estimate", *JOB],
        ["estimate", *SERVED],
        ["plan", *JOB],
        ["check", "examples/dpo-v100/train.yaml", "--gpu", "V100-16GB"],
        ["search", "OOM when saving", "--top", "1"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_fields_are_documented(words: list[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    known = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`[^`]+`", PAGE.read_text("utf-8")))))
    printed = CliRunner().invoke(app, [*words, "--format", "json"]).stdout
    found = set(fields(json.loads(printed)))
    assert len(found) > 5
    assert found - known == set()
