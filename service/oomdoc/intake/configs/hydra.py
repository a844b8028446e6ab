"""Hydra's ``defaults:`` lists: the other files of which a configuration is put together, and where their keys go.

Followed within the files that were given. A file's own keys win over those it takes in, which is how Hydra puts
them together unless ``_self_`` says otherwise. Read from the documentation of Hydra 1.3 ("The Defaults List").
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from oomdoc.evidence import Source
from oomdoc.intake.configs.entry import Entry, FormError
from oomdoc.intake.configs.forms.yaml import parse_yaml
from oomkb.dataclass import dataclass
from oomkb.lazy import compiled

_ITEM: Final = compiled(
    r"[ \t]{0,20}-[ \t]{1,8}(?:(?:optional|override)[ \t]{1,4}){0,2}[\"']?"
    r"(?P<name>[\w./\-]{1,120})?(?:@(?P<package>[\w.:\-]{0,120}))?[\"']?"
    r"(?:[ \t]{0,4}:[ \t]{1,8}[\"']?(?P<option>[\w./\-]{1,120})[\"']?)?[ \t]{0,8}(?:#.{0,400})?$"
)
_LIST: Final = compiled(r"^defaults:[ \t]{0,8}(?:#[^\n]{0,400})?\r?$", re.M)
_PACKAGE: Final = compiled(r"^#[ \t]{0,4}@package[ \t]{1,4}([\w.]{1,120})", re.M)
_DEPTH: Final = 5
_MAX_FILES: Final = 40
_SUFFIXES: Final = ("", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Included:
    """A file that is taken in, and the key under which its keys stand (empty: at the top)."""

    source: Source
    package: str


@dataclass(frozen=True, slots=True)
class _Default:
    file: str
    group: str
    package: str | None


def _defaults(text: str) -> Iterator[_Default]:
    """The entries of a text's defaults list; ``_self_`` and those that are empty left out."""
    start = _LIST.search(text)
    for line in text[start.end() :].splitlines()[1:_MAX_FILES] if start else ():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        found = _ITEM.match(line)
        if found is None:
            return
        name, option = found["name"] or "", found["option"]
        if name == "_self_" or (not name and not option) or option in ("null", "???"):
            continue
        group = "" if name == "." else name.strip("/")
        if option is None:
            group = group.rpartition("/")[0]
            yield _Default(name.strip("/"), group, found["package"])
        else:
            yield _Default(f"{group}/{option}" if group else option, group, found["package"])


def _package(default: _Default, text: str, parent: str) -> str:
    """Where a file's keys go: as the list says, as the file's own header says, else by its group's name."""
    own = default.package
    if own is None:
        header = _PACKAGE.search(text[:2000])
        own = header[1] if header else default.group.replace("/", ".")
        own = {"_group_": default.group.replace("/", "."), "_here_": ""}.get(own, own)
    if own.startswith("_global_"):
        return own.removeprefix("_global_").strip(".")
    return ".".join(part for part in (parent, own.removeprefix("_here_").strip(".")) if part)


def _of_name(name: str, folder: str, others: Mapping[str, Source]) -> Source | None:
    """The source that a default names: beside the file, or the only one whose path ends so."""
    for suffix in _SUFFIXES:
        wanted = name + suffix
        exact = others.get(str(PurePosixPath(folder) / wanted)) if folder else others.get(wanted)
        if exact is not None:
            return exact
        ends = [source for path, source in others.items() if path == wanted or path.endswith("/" + wanted)]
        if len(ends) == 1:
            return ends[0]
    return None


def included(source: Source, others: Sequence[Source]) -> list[Included]:
    """The files that a source takes in, outermost first; within each level the later ones win."""
    if not others or _LIST.search(source.text) is None:
        return []
    by_path = {other.name.replace("\\", "/"): other for other in others if other.name != source.name}
    out: list[Included] = []
    _follow(source, "", by_path, 0, out)
    return out


def _follow(source: Source, parent: str, others: Mapping[str, Source], depth: int, out: list[Included]) -> None:
    folder = source.name.replace("\\", "/").rpartition("/")[0]
    for default in _defaults(source.text):
        found = _of_name(default.file, folder, others)
        if found is None or found is source or len(out) >= _MAX_FILES:
            continue
        package = _package(default, found.text, parent)
        out.append(Included(found, package))
        if depth < _DEPTH:
            # What a file of a group takes in stands under that group's key, too.
            _follow(found, package, others, depth + 1, out)


def entries_of(taken: Included, base: int) -> list[Entry]:
    """The settings of a file that is taken in, under their keys in the whole, its places shifted by ``base``."""
    try:
        entries, _ = parse_yaml(taken.source.text[:100_000])
    except FormError:
        return []
    prefix = f"{taken.package}." if taken.package else ""
    return [_shifted(entry, prefix, base) for entry in entries if not entry.key.startswith("defaults")]


def _shifted(entry: Entry, prefix: str, base: int) -> Entry:
    moved: dict[str, Any] = {
        "key_span": (entry.key_span[0] + base, entry.key_span[1] + base),
        "value_span": (entry.value_span[0] + base, entry.value_span[1] + base),
    }
    return replace(entry, key=prefix + entry.key, **moved)


def files_named(path: Path, most: int = _MAX_FILES) -> list[Path]:
    """The files on disk that a configuration's defaults list names, beside it and in the folders below."""
    seen: dict[Path, None] = {}
    pending = [path]
    while pending and len(seen) < most:
        current = pending.pop()
        try:
            text = current.read_text(encoding="utf-8", errors="replace")[:100_000]
        except OSError:
            continue
        for default in _defaults(text):
            for folder in dict.fromkeys((current.parent, path.parent)):
                found = next((f for s in _SUFFIXES if (f := folder / f"{default.file}{s}").is_file()), None)
                if found is not None and found not in seen and found != path:
                    seen[found] = None
                    pending.append(found)
                    break
    return list(seen)
