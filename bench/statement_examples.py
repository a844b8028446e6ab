"""The sentences that the classifier of statements learns from (``service/oomdoc/intake/statements/examples``).

They are what people write: English and Chinese sentences that say a statement, and near misses that do not. A line may
end in ``@id``: it says that statement as well.
"""

from __future__ import annotations

import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from oomdoc.intake import statements as package
from oomdoc.intake.statements import statements

HERE: Final = Path(package.__file__).parent
_MIN_EXAMPLES: Final = {"en": 12, "zh": 7, "near": 3}
"""Examples of each kind that a statement needs."""


class Example(NamedTuple):
    """A sentence and all that it says of the list."""

    text: str
    says: frozenset[str]
    table: str
    """The statement that it is an example, or a near miss, of."""


def examples() -> list[Example]:
    """Every shipped example.

    :raises ValueError: for an unknown statement, one with too few examples, or a sentence that stands twice.
    """
    known = statements()
    out: list[Example] = []
    tables: set[str] = set()
    for path in sorted((HERE / "examples").iterdir(), key=lambda p: p.name):
        for table, parts in tomllib.loads(path.read_text(encoding="utf-8")).items():
            where = f"{path.name}: {table}"
            if table in tables or table not in known:
                raise ValueError(f"{where}: given twice, or not in statements.toml")
            tables.add(table)
            for part, text in parts.items():
                lines = [line.strip() for line in text.splitlines() if line.strip()]
                if part not in _MIN_EXAMPLES or len(lines) < _MIN_EXAMPLES[part]:
                    raise ValueError(f"{where}: {part}: at least {_MIN_EXAMPLES} lines are needed")
                out += [_example(line, table, part, where) for line in lines]
    if missing := known.keys() - tables:
        raise ValueError(f"no examples of {', '.join(sorted(missing))}")
    texts = [example.text for example in out]
    if twice := {text for text in texts if texts.count(text) > 1} if len(set(texts)) < len(texts) else set():
        raise ValueError(f"given twice: {sorted(twice)}")
    return out


def _example(line: str, table: str, part: str, where: str) -> Example:
    text, *also = line.split(" @")
    says = {name.strip() for name in also}
    if unknown := says - statements().keys():
        raise ValueError(f"{where}: {line!r}: unknown {', '.join(unknown)}")
    if part != "near":
        says.add(table)
    return Example(text.strip(), frozenset(says), table)


def examples_hash() -> str:
    """Changes when an example, a definition's name or a concept does: the weights were fitted on what it stands for."""
    here = HERE
    parts = [(here / "concepts.toml").read_bytes(), " ".join(statements()).encode()]
    parts += [p.read_bytes() for p in sorted((here / "examples").iterdir(), key=lambda p: p.name)]
    return sha256(b"\0".join(part.replace(b"\r\n", b"\n") for part in parts)).hexdigest()[:16]
