"""Setting an environment variable in a script, a compose file or Python."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from oomdoc.intake.configs.analysis import Doc
from oomdoc.intake.configs.entry import Entry
from oomdoc.intake.configs.writers.lines import indent_of, line_end, line_start, newline_at, splice, with_line
from oomdoc.intake.configs.writers.spelling import in_shell
from oomkb.kept import lazy

_ENVIRONMENT: Final = lazy(r"^([ \t]*)(environment|env):[ \t]*\r?$", re.M)
_SERVICE: Final = lazy(r"^([ \t]*)(image|command|args):", re.M)
_IMPORT: Final = lazy(
    r"^[ \t]*(?:import|from)[ \t]+(?:torch|transformers|trl|unsloth|vllm|peft|accelerate|deepspeed)\b", re.M
)


def set_variable(text: str, docs: Sequence[Doc], name: str, value: Any, filename: str) -> str | None:
    """The text with the variable set, or (``None``) without it; ``None`` where there is no place for it."""
    found = [e for d in docs for e in d.env if e.key == name]
    if found:
        return _drop(text, found[-1]) if value is None else _replace(text, found[-1], str(value))
    if value is None:
        return text
    spelled = str(value)
    if filename.rsplit("/", 1)[-1].endswith(".env"):
        lead = "" if not text or text.endswith("\n") else newline_at(text, 0)
        return f"{text}{lead}{name}={spelled}{newline_at(text, 0)}"
    forms = {d.form for d in docs}
    if "python" in forms:
        return _python(text, name, spelled)
    if "shell" in forms and "yaml" not in forms:
        return _shell(text, docs, name, spelled)
    if "yaml" in forms:
        return _compose(text, name, spelled)
    return None


def _replace(text: str, entry: Entry, value: str) -> str:
    start, end = entry.value_span
    return splice(text, start, end, value if entry.quote else in_shell(value))


def _drop(text: str, entry: Entry) -> str:
    start, stop = line_start(text, entry.key_span[0]), line_end(text, entry.value_span[1])
    body = text[start:stop].strip().removeprefix("export ").removeprefix("- ").strip("\"'")
    if body.startswith(entry.key) and text[entry.value_span[1] : stop].strip(" \t\r\n\"'\\)") == "":
        return splice(text, start, stop, "")
    low, high = entry.key_span[0], entry.value_span[1] + (1 if entry.quote else 0)
    while high < len(text) and text[high] in " \t":
        high += 1
    return splice(text, low, high, "")


def _shell(text: str, docs: Sequence[Doc], name: str, value: str) -> str | None:
    shell = [d for d in docs if d.form == "shell"]
    exported = [
        e for d in shell for e in d.env if text[line_start(text, e.key_span[0]) : e.key_span[0]].strip() == "export"
    ]
    spelled = f"export {name}={in_shell(value)}"
    if exported:
        key, end = exported[-1].key_span[0], exported[-1].value_span[1]
        return with_line(text, end, indent_of(text, key) + spelled, key)
    starts = [d.start for d in shell if d.table is not None or d.entries] or [d.start for d in shell]
    if not starts:
        return None
    at = line_start(text, min(starts))
    prefixed = [e for d in shell for e in d.env]
    if prefixed and line_start(text, prefixed[0].key_span[0]) <= at:
        at = line_start(text, prefixed[0].key_span[0])
    return splice(text, at, at, f"{indent_of(text, at)}{spelled}{newline_at(text, at)}")


def _python(text: str, name: str, value: str) -> str:
    match = _IMPORT.search(text)
    at = line_start(text, match.start()) if match else 0
    newline = newline_at(text, 0)
    known = re.search(r"^[ \t]*import os\b", text[:at], re.M)
    return splice(text, at, at, ("" if known else f"import os{newline}") + f'os.environ["{name}"] = "{value}"{newline}')


def _compose(text: str, name: str, value: str) -> str | None:
    block = _ENVIRONMENT.search(text)
    if block is not None:
        at = line_end(text, block.start())
        line = text[at : line_end(text, at)]
        match = re.match(r"([ \t]*)(- )?(name:)?", line)
        indent = match[1] if match else block[1] + "  "
        newline = newline_at(text, block.start())
        if match and match[3]:
            new = f"{indent}- name: {name}{newline}{indent}  value: {value}{newline}"
        elif match and match[2]:
            new = f"{indent}- {name}={value}{newline}"
        else:
            new = f"{indent}{name}: {value}{newline}"
        return splice(text, at, at, new)
    service = _SERVICE.search(text)
    if service is None or "services:" not in text:
        return None
    at, newline = line_start(text, service.start()), newline_at(text, service.start())
    at = line_end(text, service.start()) if service[2] == "image" else at
    return splice(text, at, at, f"{service[1]}environment:{newline}{service[1]}  - {name}={value}{newline}")
