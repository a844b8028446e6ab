"""The further files that a configuration or a script names: a DeepSpeed or accelerate file, what it sources, includes.

They are read where they were handed in too, or lie beside the named file: in its folder or below, never elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from oomdoc.evidence import Source
from oomdoc.intake.configs.analysis import Doc, analyse
from oomdoc.intake.configs.segments import form_of
from oomdoc.intake.configs.table import norm, words
from oomkb.kept import compiled

LINKS: Final = words(
    "deepspeed deepspeed_config deepspeed_config_file ds_config config_file fsdp_config accelerate_config"
)
"""Keys whose value may be the path of a launcher's or an engine's file."""
_CONFIGS: Final = LINKS | words("config config_path yaml_file")
_FILE: Final = compiled(r"[\w./${}@~+ -]{1,200}\.(?:ya?ml|json|toml)\Z")
_SOURCED: Final = compiled(
    r"^[ \t]{0,20}(?:source|\.)[ \t]{1,8}[\"']?([^\s\"';&|]{1,200}\.(?:sh|env|bash))[\"']?", re.M
)
_INCLUDED: Final = compiled(r"!include[ \t]{1,4}[\"']?([\w./-]{1,160}\.ya?ml)")
_VARIABLE: Final = compiled(r"\A(?:\$\{[^{}]{0,80}\}|\$\w{1,80}|~|\$\([^()]{0,120}\))/")
_MAX_COMPANIONS: Final = 24
_DEPTH: Final = 3
_MAX_BYTES: Final = 1 << 20
"""Bytes of a companion."""


def sourced(text: str) -> Iterator[str]:
    """The files that a script takes its variables from, as written."""
    yield from (found[1] for found in _SOURCED.finditer(text, 0, 200_000))


def named_files(docs: Sequence[Doc], text: str) -> list[tuple[str, int]]:
    """The files that are named, as written, each with the offset where it is."""
    out = [(found[1], found.start(1)) for found in (*_SOURCED.finditer(text), *_INCLUDED.finditer(text))]
    for doc in docs:
        if doc.form == "ini":
            continue
        for entry in doc.entries:
            last = norm(entry.key).rsplit(".", 1)[-1]
            word = last in _CONFIGS or (entry.key.startswith("@") and doc.form == "shell")
            if word and not entry.off and isinstance(entry.value, str) and _FILE.match(entry.value):
                out.append((entry.value, entry.value_span[0]))
    return list(dict.fromkeys(out))[:_MAX_COMPANIONS]


def of_name(written: str, sources: Sequence[Source]) -> Source | None:
    """The source that a written path means: the one whose name ends with the longest part of it."""
    parts = [p for p in _VARIABLE.sub("", written.strip("\"' ")).split("/") if p not in ("", ".", "..")]
    for start in range(len(parts)):
        tail = "/".join(parts[start:])
        ends = [s for s in sources if s.name == tail or s.name.replace("\\", "/").endswith("/" + tail)]
        if ends:
            return ends[0]
    return None


def companion_files(path: Path, text: str) -> list[Source]:
    """The companions of a file that lie in its folder or below, and theirs."""
    root = path.resolve().parent
    found: dict[Path, Source] = {}
    pending = [(path.resolve(), text, 0)]
    while pending and len(found) < _MAX_COMPANIONS:
        current, content, depth = pending.pop(0)
        if depth >= _DEPTH or form_of(current.name) is None:
            continue
        names = [name for name, _ in named_files(analyse(current.name, content), content)]
        for candidate in (p for name in names for p in _places(name, current.parent, root)):
            resolved = candidate.resolve()
            if resolved == path.resolve() or resolved in found or not resolved.is_relative_to(root):
                continue
            inner = _content(resolved)
            if inner is not None:
                found[resolved] = Source(str(path.parent / resolved.relative_to(root)), inner)
                pending.append((resolved, inner, depth + 1))
    return list(found.values())


def _places(written: str, folder: Path, root: Path) -> Iterator[Path]:
    """Where a written path may lie: from the file that names it, from the folder of the first one, by name alone."""
    plain = _VARIABLE.sub("", written.strip("\"' "))
    for base in dict.fromkeys((folder, root)):
        yield base / plain
    parts = [p for p in plain.split("/") if p not in ("", ".", "..")]
    for start in range(1, len(parts)):
        yield root.joinpath(*parts[start:])


def _content(path: Path) -> str | None:
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
