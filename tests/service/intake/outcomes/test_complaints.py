"""A complaint that is asked as a question is a failure; a question in which nothing failed stays one."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from oomdoc.intake import read_text

TEXTS = tomllib.loads(Path(__file__).with_name("complaints.toml").read_text("utf-8"))
MEMORY = ("said", "device", "host", "engine", "shared-memory")


@pytest.mark.parametrize("text", TEXTS["complaints"])
def test_a_complaint_is_a_failure(text: str) -> None:
    outcome = read_text(text).outcome
    assert outcome is not None
    assert outcome.kind in MEMORY


@pytest.mark.parametrize("text", TEXTS["questions"])
def test_a_question_is_none(text: str) -> None:
    outcome = read_text(text).outcome
    assert outcome is not None
    assert outcome.kind == "question"


@pytest.mark.parametrize(
    ("alone", "after"),
    [
        ("It uses 73 GB for a 7 GB model.", "How do I stop the server from that?"),
        ("一跑就占用了70G显存。", "怎么这么高，根本跑不了？"),
    ],
)
def test_use_is_a_complaint_only_where_somebody_objects(alone: str, after: str) -> None:
    first, both = read_text(f"{alone} Which settings are there?").outcome, read_text(f"{alone} {after}").outcome
    assert first is not None and both is not None  # noqa: PT018
    assert (first.kind, both.kind) == ("question", "said")
