"""Making the files of a new piece inside a checkout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

from oomkb.errors import InputError

_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{1,60}\Z")


_TEMPLATES: Final = Path(__file__).with_name("templates")
_CODE: Final = {
    "parser": ("service/oomdoc/intake/logs/{module}.toml", "tests/service/intake/logs/test_{module}.py"),
    "reader": ("kb/oomkb/frameworks/records/{name}.toml", "tests/service/intake/configs/test_{module}.py"),
    "fix": ("service/oomdoc/diagnosis/fixes/settings.toml", "tests/service/diagnosis/fixes/test_{module}.py"),
}
"""Kind -> where its file goes, or the file that it is a row of, and where its test goes."""
_DATA: Final = {
    "gpu": "kb/oomkb/catalog/data/gpus/90_{module}.json",
    "model": "kb/oomkb/catalog/data/models/{module}.json",
    "topic": "kb/oomkb/topics/data/{module}.toml",
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
    return _code(kind, name, root)


def _code(kind: str, name: str, root: Path) -> list[Path]:
    module = name.replace("-", "_")
    values = {"name": name, "module": module, "title": module.replace("_", " ").capitalize()}
    source, test = (root / place.format(**values) for place in _CODE[kind])
    if kind == "fix" and f"\n[{name}]\n" in source.read_text(encoding="utf-8"):
        raise InputError(f"{name} is already listed", where=str(source), hint="choose another name")
    _write(test, _filled(f"{kind}-test", values))
    if kind == "fix":
        source.write_text(source.read_text(encoding="utf-8") + _filled(kind, values), encoding="utf-8")
    else:
        _write(source, _filled(kind, values))
    return [source, test]


def _data(kind: str, name: str, root: Path) -> Path:
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()
    path = root / _DATA[kind].format(module=words.replace(" ", "_"))
    _write(path, _filled(kind, {"title": name, "words": words, "id": words.replace(" ", "-")}))
    return path


def _filled(template: str, values: Mapping[str, str]) -> str:
    return Template((_TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(values)


def _write(path: Path, text: str) -> None:
    if path.exists():
        raise InputError("this file exists", where=str(path), hint="choose another name")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
