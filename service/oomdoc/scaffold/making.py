"""Making the files of a new piece inside a checkout."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from oomdoc.scaffold import templates
from oomkb.dataclass import dataclass
from oomkb.errors import InputError

_ITEM: Final = re.compile(r"^    (\w{1,80})((?:\.\w{1,80})?),$")


def register(text: str, *, package: str, tuple_name: str, name: str, suffix: str, where: str) -> str:
    """The source of an ``__init__.py`` with ``name`` imported from ``package`` and listed in ``tuple_name``.

    :raises InputError: where the file no longer has the form of a list, or knows the name already.
    """
    lines = text.splitlines()
    imports = _block(lines, lambda line: line == f"from {package} import (", where)
    if f"    {name}," in lines[imports[0] : imports[1]]:
        raise InputError(f"{name} is already listed", where=where, hint="choose another name")
    _insert(lines, imports, f"    {name},", name)
    listed = _block(lines, lambda line: line.startswith(tuple_name) and line.endswith("= ("), where)
    _insert(lines, listed, f"    {name}{suffix},", name)
    return "\n".join(lines) + "\n"


def _block(lines: list[str], opens, where: str) -> tuple[int, int]:  # type: ignore[no-untyped-def]  # noqa: ANN001
    for start, line in enumerate(lines):
        if opens(line):
            end = next((i for i in range(start + 1, len(lines)) if lines[i] == ")"), None)
            if end is not None:
                return start + 1, end
    raise InputError("this file has no list to add to", where=where, hint="add the line by hand")


def _insert(lines: list[str], block: tuple[int, int], line: str, name: str) -> None:
    for index in range(*block):
        match = _ITEM.match(lines[index])
        if match and match[1] > name:
            lines.insert(index, line)
            return
    lines.insert(block[1], line)


_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{1,60}\Z")


@dataclass(frozen=True, slots=True)
class _Kind:
    """Where a kind's files go; ``listed``: the source is a row of a file that is there already."""

    source: str
    source_template: str
    test: str
    test_template: str
    listed: bool = False


_CODE: Final[dict[str, _Kind]] = {
    "parser": _Kind(
        "service/oomdoc/intake/logs/{module}.toml",
        templates.PARSER,
        "tests/service/intake/logs/test_{module}.py",
        templates.PARSER_TEST,
    ),
    "reader": _Kind(
        "kb/oomkb/frameworks/records/{name}.toml",
        templates.READER,
        "tests/service/intake/configs/test_{module}.py",
        templates.READER_TEST,
    ),
    "fix": _Kind(
        "service/oomdoc/diagnosis/fixes/settings.toml",
        templates.FIX,
        "tests/service/diagnosis/fixes/test_{module}.py",
        templates.FIX_TEST,
        listed=True,
    ),
}
_DATA: Final = {
    "gpu": ("kb/oomkb/catalog/data/gpus/90_{module}.json", templates.GPU),
    "model": ("kb/oomkb/catalog/data/models/{module}.json", templates.MODEL),
    "topic": ("kb/oomkb/topics/data/{module}.toml", templates.TOPIC),
}


def scaffold(kind: str, name: str, root: Path, cause: str = "") -> list[Path]:
    """Write the files of a new piece; which ones were written or changed.

    :param kind: ``case parser reader fix gpu model topic``.
    :param root: the checkout.
    :param cause: for a case, the cause it is filed under.
    :raises InputError: outside a checkout, for an unfit name, or where a file exists.
    """
    if not (root / "kb" / "oomkb").is_dir() or not (root / "service" / "oomdoc").is_dir():
        raise InputError(
            "this is no checkout of oomdoc", where=str(root.resolve()), hint="run it there, or give --root"
        )
    if kind == "case":
        from oomdoc.casework import write_new

        return [write_new(root / "cases", cause, name)]
    if kind in _DATA:
        return [_data(kind, name, root)]
    if not _NAME.match(name):
        raise InputError(
            f"{name!r} is no fit name", where="name", hint="small letters, digits and -, for example kv-cache"
        )
    return _code(_CODE[kind], name, root)


def _code(kind: _Kind, name: str, root: Path) -> list[Path]:
    module = name.replace("-", "_")
    title = name.replace("_", " ").replace("-", " ").capitalize()
    values = {"name": name, "module": module, "title": title}
    source, test = root / kind.source.format(**values), root / kind.test.format(**values)
    written = kind.source_template.format(**values)
    if kind.listed:
        rows = source.read_text(encoding="utf-8")
        if f"\n[{name}]\n" in rows:
            raise InputError(f"{name} is already listed", where=str(source), hint="choose another name")
        _write(test, kind.test_template.format(**values))
        source.write_text(rows + written, encoding="utf-8")
    else:
        _write(source, written)
        _write(test, kind.test_template.format(**values))
    return [source, test]


def _data(kind: str, name: str, root: Path) -> Path:
    place, template = _DATA[kind]
    slug: Callable[[str], str] = lambda separator: re.sub(r"[^a-z0-9]+", separator, name.lower()).strip(separator)  # noqa: E731
    path = root / place.format(module=slug("_"))
    _write(path, template.format(title=name, words=slug(" "), id=slug("-")))
    return path


def _write(path: Path, text: str) -> None:
    if path.exists():
        raise InputError("this file exists", where=str(path), hint="choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
