"""A job field in the words of the person's framework: the key of its table, as the person's own file spells it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from oomdoc.diagnosis.planning.spelling import DASHED
from oomdoc.evidence import Document

_SEVERAL: Final = frozenset(
    [
        *("autocast", "param_dtype", "method", "quant", "extra_models", "gpu", "capacity_gib", "world", "gpus"),
        *("sharding", "offload", "rollout.colocated", "serving.cuda_graphs"),
    ]
)
"""Said by several keys together, by none, or the other way round: the job's own word is clearer."""
_ABOUT: Final = {"grad_ckpt": "checkpoint"}


@lru_cache(maxsize=4096)
def _names(framework: str | None, field: str) -> tuple[str, ...]:
    from oomdoc.intake.configs import TABLES
    from oomkb.frameworks import canonical

    wanted = canonical(framework)
    for table in TABLES:
        if table.name != wanted:
            continue
        for key in table.all_keys():
            if key.field == field:
                return key.names
        for group in table.all_groups():
            if field in group.fields:
                # A group's keys say several things; only those that are about this one name it.
                return tuple(n for n in group.names if _ABOUT.get(field, "") in n)
    return ()


def key_of(framework: str | None, field: str, documents: Sequence[Document] = ()) -> str:
    """The framework's key for a job field, as a document spells it; the field's own name where there is none."""
    if field in _SEVERAL:
        return field
    names = _names(framework, field)
    plain = {name.rpartition(":")[2].replace("-", "_"): name.rpartition(":")[2] for name in names}
    for document in documents:
        for setting in document.settings:
            spelled = setting.key.lstrip("-").replace("-", "_")
            if spelled in plain or any(spelled.endswith(f".{name}") for name in plain if "." in name):
                return _as_typed(setting.key, document)
    first = next(iter(plain.values()), field)
    if documents or not plain:
        return _as_option(first, documents[0]) if documents and plain else first
    return f"--{first}" if framework in DASHED and "." not in first else first


def _as_typed(key: str, document: Document) -> str:
    """The key with the dashes that stand before it in a command."""
    return next((f"{dashes}{key}" for dashes in ("--", "-") if f"{dashes}{key}" in _typed(document)), key)


def _as_option(key: str, document: Document) -> str:
    """A key that a document does not have yet, in the form of those that it has."""
    dashed = "." not in key and any(word.startswith("--") for word in _typed(document))
    return f"--{key}" if dashed else key


def _typed(document: Document) -> frozenset[str]:
    """The words of a command; of other forms none."""
    if document.form != "shell":
        return frozenset()
    return frozenset(document.text.translate(_APART).split())


_APART: Final = str.maketrans(dict.fromkeys("=\"'[]()", " "))


@lru_cache(maxsize=4096)
def value_of(framework: str | None, field: str, value: Any) -> Any:
    """A job's word as the framework writes it (``flash2``: ``fa2``, ``flash_attention_2``), or as it is."""
    from oomdoc.intake.configs import TABLES
    from oomkb.frameworks import canonical

    wanted = canonical(framework)
    for table in (t for t in TABLES if t.name == wanted and isinstance(value, str)):
        for key in (k for k in table.all_keys() if k.field == field):
            written = key.codec.write(value, None)
            return written if isinstance(written, str) else value
    return value


def spelt_in(document: Document, field: str) -> bool:
    """Whether a document has a key already that says this field."""
    known = {name.rpartition(":")[2].replace("-", "_") for name in _names(document.framework, field)}
    return any(setting.key.lstrip("-").replace("-", "_") in known for setting in document.settings)
