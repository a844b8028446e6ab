"""Markdown read into blocks, written in a dialect, and split without breaking anything."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomdoc.bots.blocks import Dialect, blocks, escaped, pieces
from oomdoc.bots.message import packed, utf8

PLAIN = Dialect(lambda text: text)
ENTITIES = Dialect(lambda text: text.replace("&", "&amp;").replace("<", "&lt;"))
CUT = "(cut)"


def test_blocks_of_a_report() -> None:
    markdown = (
        "## Why\n\n**logits** 80% \\<b\\>\n\n- `train.log:3` [a \\[b\\]](https://x.org/1)\n\n"
        "| | GiB |\n|---|---:|\n| **loss** | 1.00 |\n| 加载 | 22.50 |\n\n```diff\n-a: 1\n+a: 2\n```\n"
    )
    found = blocks(markdown)
    assert [b.kind for b in found] == ["heading", "text", "item", "table", "code"]
    assert found[1].plain == "logits 80% <b>"
    assert [s.look for s in found[2].spans] == ["code", "plain", "link"]
    assert found[2].spans[2].text == "a [b]"
    assert found[3].code.splitlines() == ["      GiB", "loss  1.00", "加载  22.50"]
    assert (found[4].language, found[4].code) == ("diff", "-a: 1\n+a: 2")


@given(st.text(max_size=300))
def test_escaped_text_comes_back_as_it_was(text: str) -> None:
    flat = " ".join(text.split())
    plain = [b.plain for b in blocks(escaped(flat))]
    if flat and not flat.startswith("- "):
        assert "".join(plain) == flat


@settings(max_examples=60)
@given(
    st.lists(st.text(st.characters(codec="utf-8"), max_size=400), max_size=8),
    st.text(st.characters(codec="utf-8"), max_size=900),
    st.integers(80, 400),
)
def test_every_part_is_whole_and_within_the_limit(texts: list[str], code: str, limit: int) -> None:
    markdown = "\n\n".join(map(escaped, texts)) + f"\n\n``````text\n{code}\n``````\n"
    messages = packed(pieces(markdown, ENTITIES), limit, utf8, 1000, CUT)
    for message in messages:
        assert utf8(message) <= limit
        assert message.count("```") % 2 == 0
        assert not re.search(r"&(?:a|am|amp|l|lt)?$", message)
        message.encode("utf-8")
    joined = "".join("".join(m.split()) for m in messages)
    for text in texts:
        wanted = "".join(ENTITIES.escape(text).split())
        if wanted and "```" not in text and not re.match(r"#{1,6}\s|-\s|\|", text.strip()) and "\n" not in text:
            assert all(part in joined for part in re.findall(r"\w{1,20}", text) if utf8(part) < 40)


def test_code_is_split_between_lines_and_fenced_again() -> None:
    code = "\n".join(f"+line {n}" for n in range(100))
    messages = packed(pieces(f"```diff\n{code}\n```", PLAIN), 200, len, 100, CUT)
    assert len(messages) > 3
    inside = [re.fullmatch(r"```diff\n(.*)\n```", m, re.DOTALL) for m in messages]
    assert all(inside)
    assert "\n".join(m[1] for m in inside if m) == code


def test_a_fence_inside_code_does_not_end_it() -> None:
    [message] = packed(pieces("````\na\n```\n<!channel>\n````", PLAIN), 500, len, 3, CUT)
    assert message.count("```") == 2


def test_what_does_not_fit_at_all_is_said() -> None:
    messages = packed(pieces("\n\n".join("word " * 30 for _ in range(20)), PLAIN), 200, len, 3, CUT)
    assert len(messages) == 3
    assert messages[-1].endswith(CUT)
    assert all(len(m) <= 200 for m in messages)


@pytest.mark.parametrize(
    "text", ["[a](javascript:alert)", "[a](http://x)", "**", "`", "[", "\\", "![x](https://y.z/a)"]
)
def test_odd_markdown_is_text(text: str) -> None:
    assert all(s.look != "link" or s.url.startswith("https://") for b in blocks(text) for s in b.spans)
