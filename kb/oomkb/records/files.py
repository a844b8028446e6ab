"""Reading one case file: YAML with a limit on its size, no repeated keys, plain values only."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, Final

from oomkb.errors import InputError, RecordError
from oomkb.kept import lazy
from oomkb.records.case import SCHEMA
from oomkb.untrusted import yaml_document

_TOKEN: Final = lazy(r"[㐀-鿿]|[a-z0-9_]{1,200}")
_CHINESE: Final = lazy(r"[㐀-鿿]")
MAX_BYTES: Final = 64 * 1024
Listed = tuple[str, int, int]
"""A case file: its path, its size in bytes and when it was changed (ns)."""


def tokens(text: str) -> list[str]:
    """Words in lower case; each Chinese character counts as one."""
    return _TOKEN.findall(text.lower())


def has_chinese(text: str) -> bool:
    """Whether there is a Chinese character in it."""
    return _CHINESE.search(text) is not None


def shingles(text: str, size: int = 3) -> frozenset[tuple[str, ...]]:
    """The runs of ``size`` tokens."""
    return frozenset(_runs(tokens(text), size))


def overlap(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    """Shared part of two sets of shingles, 0..1 (Jaccard)."""
    union = len(one | other)
    return len(one & other) / union if union else 0.0


def shared_run(one: str, other: str, *, words: int = 8, characters: int = 14) -> str:
    """The first run that both texts hold: ``words`` tokens, or ``characters`` where the run is Chinese; else ``""``."""
    for size, chinese in ((words, False), (characters, True)):
        common = shingles(other, size)
        for run in _runs(tokens(one), size):
            if run in common and chinese == (sum(map(has_chinese, run)) * 2 > size):
                return (" " if not chinese else "").join(run)
    return ""


def _runs(words: list[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + size]) for i in range(max(len(words) - size + 1, 0))]


def listed(folder: Path) -> list[Listed]:
    """The case files of a folder, ``<cause>/<slug>.yaml``, in order of their ids; none where it does not exist.

    Every diagnosis asks whether a case has changed, so it is one walk: 1 ms for 300 files.
    """
    found: list[Listed] = []
    for cause in _entries(folder):
        if cause.is_dir():
            for entry in _entries(cause.path):
                if entry.name.endswith(".yaml") and entry.is_file():
                    facts = entry.stat()
                    found.append((entry.path, facts.st_size, facts.st_mtime_ns))
    return sorted(found)


def _entries(folder: Path | str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def case_files(folder: Path) -> Iterator[Path]:
    """The case files of a folder, ``<cause>/<slug>.yaml``, in order of their ids."""
    return (Path(path) for path, _, _ in listed(folder))


def case_id(path: Path) -> str:
    """``cause/slug``, from where the file lies."""
    return f"{path.parent.name}/{path.stem}"


def read_text(path: Path) -> str:
    """The file's text.

    :raises RecordError: where it cannot be read, is too long or not UTF-8.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RecordError(f"longer than {MAX_BYTES // 1024} KiB", where=str(path), hint="a case fits in 80 lines")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise RecordError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise RecordError("is not UTF-8 text", where=str(path)) from error


def parse(text: str, *, where: str = "") -> dict[str, Any]:
    """The document in ``text``.

    :raises RecordError: for broken YAML, a repeated key, an alias, anything but a mapping, or another schema.
    """
    try:
        # An alias may stand for exponentially many values; a case needs none.
        found = yaml_document(text, where=where, loader=_loader(), aliases=False)
    except InputError as error:
        place = error.where.removeprefix(where).split(":")[:2]  # of line and column, the line
        raise RecordError(error.message, where=f"{where}{':'.join(place)}", hint=error.hint) from error
    if not isinstance(found, dict):
        raise RecordError("a case is a mapping of fields", where=where, hint="see the template in cases/README.md")
    version = found.get("schema")
    if isinstance(version, bool) or version != SCHEMA:
        said = f"schema {version!r}; this program reads {SCHEMA}"
        raise RecordError(said, where=f"{where}: schema", hint="update oomdoc, or write the case anew: oomdoc case new")
    return {str(k): v for k, v in found.items()}


def _loader() -> Any:
    import yaml

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        """Safe, and strict where YAML is lax: a repeated key is an error."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
            seen: set[Any] = set()
            for key, _ in node.value:
                if not isinstance(key, yaml.ScalarNode):
                    raise yaml.constructor.ConstructorError(None, None, "a key that is no text", key.start_mark)
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"key {key.value!r} twice", key.start_mark)
                seen.add(key.value)
            return dict(super().construct_mapping(node, deep=deep))

    return Loader
