"""Both languages say the same things: equal keys, equal placeholders."""

from __future__ import annotations

import ast
import re
import string
from pathlib import Path

import pytest

from oomdoc.evidence import say
from oomdoc.report.words import catalogue, render, word

SAY = {"say", "word"}


def fields(template: str) -> set[str]:
    return {
        name.split(".")[0].split("[")[0] for _, name, _, _ in string.Formatter().parse(template) if name is not None
    }


def test_equal_keys() -> None:
    en, zh = catalogue("en"), catalogue("zh")
    assert sorted(set(en) - set(zh)) == []
    assert sorted(set(zh) - set(en)) == []


def test_equal_placeholders() -> None:
    en, zh = catalogue("en"), catalogue("zh")
    wrong = [key for key in en if fields(en[key]) != fields(zh.get(key, ""))]
    assert not wrong


def test_chinese_is_chinese() -> None:
    # Names, symbols and placeholders stand for themselves, and so does a sample of a log; the rest holds Chinese.
    said = {k: re.sub(r"\{[^}]*\}", "", v) for k, v in catalogue("zh").items() if not k.endswith(".placeholder")}
    wrong = [k for k, v in said.items() if len(v) > 40 and not any("一" <= c <= "鿿" for c in v)]
    assert not wrong


def messages(root: Path) -> list[tuple[str, str]]:
    found = []
    for path in sorted((root / "service").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            first = node.args[0]
            if name in SAY and isinstance(first, ast.Constant) and isinstance(first.value, str):
                found.append((first.value, f"{path.relative_to(root)}:{node.lineno}"))
    return found


def test_every_message_has_words(root: Path) -> None:
    missing = [f"{place} says {key}" for key, place in messages(root) if key not in catalogue("en")]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_sizes_are_shown_in_gib(language: str) -> None:
    assert "15.77 GiB" in word("report.capacity", language, capacity="15.77 GiB")
    assert render(say("no.such.key", size_bytes=1), language).startswith("no.such.key")
