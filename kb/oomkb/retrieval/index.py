"""The index over the cases: built on first use, checked when opened, swapped whole.

::

    <state>/index/<scope>/CURRENT          the name of the generation that counts
    <state>/index/<scope>/gen-<n>/         manifest.json, vectors.npy, two FAISS indexes, two lexical ones

A writer fills a hidden folder, renames it to the next generation and then replaces ``CURRENT``, so a reader sees the
old index or the new one, and a writer killed at any moment leaves the old one in force. Vectors of texts that did not
change are taken over from the generation before.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np

from oomkb.dataclass import dataclass
from oomkb.errors import IndexDamaged
from oomkb.records.case import Case
from oomkb.retrieval import dense, documents
from oomkb.retrieval.dense import Array
from oomkb.retrieval.embed import Encoder, encoder, model_stamp
from oomkb.retrieval.facets import Columns, Facets, case_facets
from oomkb.retrieval.lexical import LexicalIndex, build_lexical, open_lexical
from oomkb.state import baked_dir, publish_folder, state_dir, write_atomically, writers_lock

SCHEMA: Final = 6
"""Raise it when what is indexed, or how, changes."""
Progress = Callable[[int, int], None]
_HASHED_LIMIT_BYTES: Final = 64 * 2**20
_KEPT_GENERATIONS: Final = 2
_DATA: Final = ("causes.toml", "bilingual.tsv", "synonyms.tsv")


@dataclass(frozen=True, slots=True)
class Index:
    """An open index. Row ``i`` of :attr:`case_vectors` belongs to case number ``case_owners[i]``."""

    cases: tuple[Case, ...]
    facets: tuple[Facets, ...]
    columns: Columns
    causes: tuple[str, ...]
    case_causes: Array
    """(cases,) the number of each case's cause in :attr:`causes`; -1 for a cause of a private folder's own."""
    case_vectors: Any
    case_owners: Array
    cause_vectors: Any
    cause_owners: Array
    case_words: LexicalIndex
    cause_words: LexicalIndex
    manifest: dict[str, Any]


def build_index(cases: Sequence[Case], progress: Progress | None = None) -> Index:
    """Build the index of these cases now and put it in force.

    :param progress: called with (texts embedded, texts to embed).
    """
    root = _scope(cases)
    with writers_lock(root):
        return _build(root, cases, progress)


def open_index(cases: Sequence[Case]) -> Index:
    """The index of exactly these cases; built first where it is missing, stale or damaged."""
    root, wanted = _place(_Same(tuple(cases)), model_stamp(), state_dir())
    held = _held(root, wanted)
    if not held:
        found = _in_force(root, cases, wanted) or _baked(cases, wanted)
        if found is None:
            with writers_lock(root):
                # Somebody else may have built it while we waited.
                found = _in_force(root, cases, wanted) or _build(root, cases, None)
        held.append(found)
    return held[0]


@lru_cache(maxsize=2)
def _held(_root: Path, _fingerprint: str) -> list[Index]:
    """Room for the open index of one state of the cases, so that a service opens it once."""
    return []


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """The cases of one state, equal to nothing but the very same: asking a hundred times hashes them once.

    A tuple of a tuple is the tuple itself, so what the loader keeps is recognised.
    """

    cases: tuple[Case, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.cases is self.cases

    def __hash__(self) -> int:
        return id(self.cases)


@lru_cache(maxsize=4)
def _place(same: _Same, _stamp: str, _state: Path) -> tuple[Path, str]:
    """Where the index of these cases lies, and its fingerprint."""
    return _scope(same.cases), _fingerprint(same.cases)


def _scope(cases: Sequence[Case]) -> Path:
    folders = sorted({os.path.dirname(os.path.dirname(case.path)) for case in cases if case.path})  # noqa: PTH120
    key = json.dumps([model_stamp().partition("|")[0], folders])
    return state_dir() / "index" / hashlib.sha256(key.encode()).hexdigest()[:12]


def _baked(cases: Sequence[Case], wanted: str) -> Index | None:
    """The same index as the wheel, or an image, was built with."""
    baked = baked_dir()
    scopes = () if baked is None else sorted((baked / "index").glob("*"))
    return next((found for scope in scopes if (found := _in_force(scope, cases, wanted)) is not None), None)


def _fingerprint(cases: Sequence[Case]) -> str:
    """What the index depends on; a few hundred microseconds for hundreds of cases."""
    parts = [f"{SCHEMA}", model_stamp(), _data_hash()]
    parts += [f"{case.id}={case.digest or hashlib.sha256(repr(case).encode()).hexdigest()}" for case in cases]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@cache
def _data_hash() -> str:
    folder = Path(__file__).parent / "data"
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in _DATA)).hexdigest()


def _in_force(root: Path, cases: Sequence[Case], wanted: str) -> Index | None:
    """The current generation where it is whole and of this fingerprint."""
    for _ in range(3):  # a writer may clear away the generation between our two reads
        try:
            folder = root / (root / "CURRENT").read_text(encoding="utf-8").strip()
            manifest = _manifest(folder)
            return _open(folder, cases, manifest) if manifest["fingerprint"] == wanted else None
        except (OSError, IndexDamaged):
            continue
        except Exception as error:  # faiss, numpy and json each have their own kinds for a broken file
            if not isinstance(error, (ValueError, KeyError, RuntimeError, EOFError)):
                raise
            return None
    return None


def _manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a generation whose files are all as they were written.

    :raises IndexDamaged: where one is not.
    """
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
    for name, facts in manifest["files"].items():
        if _facts(folder / name) != facts:
            raise IndexDamaged("the file is not as it was written", where=str(folder / name))
    return manifest


def _facts(path: Path) -> dict[str, Any]:
    size = path.stat().st_size
    with path.open("rb") as file:  # a huge vector file is checked by its size alone
        digest = hashlib.file_digest(file, "sha256").hexdigest() if size <= _HASHED_LIMIT_BYTES else ""
    return {"size": size, "sha256": digest}


def _open(folder: Path, cases: Sequence[Case], manifest: dict[str, Any]) -> Index:
    causes = tuple(documents.causes())
    numbers = {name: number for number, name in enumerate(causes)}
    known = tuple(case_facets(case) for case in cases)  # not stored: a GPU's generation is the catalogue's to say
    return Index(
        cases=tuple(cases),
        facets=known,
        columns=Columns.of(known, cases),
        causes=causes,
        case_causes=np.asarray([numbers.get(case.cause, -1) for case in cases], dtype=np.int32),
        case_vectors=dense.open_dense(folder / "cases.faiss"),
        case_owners=np.asarray(manifest["case_owners"], dtype=np.int32),
        cause_vectors=dense.open_dense(folder / "causes.faiss"),
        cause_owners=np.asarray(manifest["cause_owners"], dtype=np.int32),
        case_words=open_lexical(folder, "case-words"),
        cause_words=open_lexical(folder, "cause-words"),
        manifest={key: value for key, value in manifest.items() if key not in ("texts", "case_owners")},
    )


def _build(root: Path, cases: Sequence[Case], progress: Progress | None) -> Index:
    numbers = [int(p.name[4:]) for p in root.glob("gen-*") if p.name[4:].isdigit()]
    name = f"gen-{max(numbers, default=0) + 1}"
    fingerprint = _fingerprint(cases)
    opened = encoder()
    known = _known_vectors(root, opened.key) or _vectors_beside(root.parent, opened.key)

    def fill(place: Path) -> None:
        head = {"fingerprint": fingerprint, "model": opened.key}
        _fill(place, cases, head, lambda texts, hashes: _embedded(texts, hashes, opened, known, progress))

    folder = publish_folder(root / name, fill)
    write_atomically(root / "CURRENT", name.encode())
    for number in sorted(numbers)[: 1 - _KEPT_GENERATIONS]:
        shutil.rmtree(root / f"gen-{number}", ignore_errors=True)
    return _open(folder, cases, _manifest(folder))


def _vectors_beside(scopes: Path, key: str) -> Mapping[str, Array]:
    """The most that another set of folders, or an image, has: a submitted case makes an index of mostly known texts."""
    baked = baked_dir()
    places = (scopes, *(() if baked is None else (baked / "index",)))
    found = (_known_vectors(scope, key) for place in places for scope in sorted(place.glob("*")))
    return max(found, key=len, default={})


def _known_vectors(root: Path, key: str) -> Mapping[str, Array]:
    """Text hash -> vector of the generation in force, where there is one of this model."""
    try:
        folder = root / (root / "CURRENT").read_text(encoding="utf-8").strip()
        manifest = _manifest(folder)
        vectors = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        return dict(zip(manifest["texts"], vectors, strict=True)) if manifest["model"] == key else {}
    except (OSError, ValueError, KeyError, IndexDamaged):
        return {}


def _fill(
    folder: Path,
    cases: Sequence[Case],
    head: Mapping[str, str],
    embed: Callable[[Sequence[str], Sequence[str]], Array],
) -> None:
    of_cases = [(text, number) for number, case in enumerate(cases) for text in documents.case_passages(case)]
    names = list(documents.causes())
    of_causes = [(text, number) for number, name in enumerate(names) for text in documents.cause_passages(name)]
    texts = [text for text, _ in of_cases + of_causes]
    hashes = [hashlib.sha256(text.encode()).hexdigest()[:20] for text in texts]
    vectors = embed(texts, hashes)
    np.save(folder / "vectors.npy", vectors)
    dense.save_dense(dense.build_dense(vectors[: len(of_cases)]), folder / "cases.faiss")
    dense.save_dense(dense.build_dense(vectors[len(of_cases) :]), folder / "causes.faiss")
    build_lexical([documents.case_words(case) for case in cases]).save(folder, "case-words")
    build_lexical([documents.cause_words(name) for name in names]).save(folder, "cause-words")
    manifest = {
        "schema": SCHEMA,
        **head,
        "libraries": {name: version(name) for name in ("faiss-cpu", "numpy", "onnxruntime")},
        "cases": {case.id: case.digest for case in cases},
        "texts": hashes,
        "case_owners": [owner for _, owner in of_cases],
        "cause_owners": [owner for _, owner in of_causes],
        "files": {path.name: _facts(path) for path in sorted(folder.iterdir())},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def _embedded(
    texts: Sequence[str], hashes: Sequence[str], model: Encoder, known: Mapping[str, Array], progress: Progress | None
) -> Array:
    """One vector per text, embedding only what the last generation does not hold."""
    nothing = np.zeros(model.dimension, dtype=np.float32)
    vectors = np.asarray([known.get(text, nothing) for text in hashes], dtype=np.float32)
    missing = sorted((at for at, text in enumerate(hashes) if text not in known), key=lambda at: len(texts[at]))
    for start in range(0, len(missing), 64):
        part = missing[start : start + 64]
        vectors[part] = model.encode([texts[at] for at in part])
        if progress is not None:
            progress(min(start + 64, len(missing)), len(missing))
    return vectors
