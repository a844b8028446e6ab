"""Topics: the schema, both languages, sources, and figures that can be computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from oomkb.errors import RecordError
from oomkb.topics import load_topics, topics
from oomkb.topics.lint import opened, problems

GOOD = """
[my-topic]
title.en = "T"
title.zh = "题"
questions.en = ["a?", "b?", "c?", "d?"]
questions.zh = ["甲？", "乙？", "丙？", "丁？"]
answer.en = "One. Two."
answer.zh = "一。二。"
sources = ["https://example.org/a"]
"""


def load(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    return [topic.id for topic in load_topics(tmp_path)]


def test_the_shipped_topics_have_no_problem() -> None:
    assert list(problems(topics().values())) == []
    assert len(topics()) >= 40


def test_a_topic_is_read(tmp_path: Path) -> None:
    assert load(tmp_path, GOOD) == ["my-topic"]


@pytest.mark.parametrize(
    ("old", "new", "where"),
    [
        ('title.zh = "题"', "", "my-topic.title"),
        ('answer.zh = "一。二。"', 'answer.zh = ""', "my-topic.answer"),
        (', "d?"]', "]", "my-topic.questions.en"),
        ("https://example.org/a", "somebody said so", "my-topic.sources"),
        ('["https://example.org/a"]', "[]", "my-topic.sources"),
        ("sources", 'causes = ["bad-luck"]\nsources', "my-topic.causes"),
        ("sources", 'settings = ["fooo"]\nsources', "my-topic.settings"),
        ("sources", "remark = 1\nsources", "my-topic"),
        ("sources", 'shown.job = {micro_batch = "x"}\nshown.sides = [{}]\nsources', "my-topic.shown"),
        ("[my-topic]", "[logits]", "logits"),
    ],
)
def test_what_breaks_the_schema_is_named(tmp_path: Path, old: str, new: str, where: str) -> None:
    assert old in GOOD
    with pytest.raises(RecordError, match=f"a.toml: {where}"):
        load(tmp_path, GOOD.replace(old, new))


def test_a_source_that_was_opened_is_one_of_a_topic() -> None:
    named = {source for topic in topics().values() for source in topic.sources}
    assert set(opened()) <= named
