"""Text to vectors: the default model through ONNX, any other sentence-transformers model where ONNX cannot follow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from oomkb.errors import OomdocError
from oomkb.retrieval.model_files import ModelFiles, find_model
from oomkb.retrieval.onnx_model import OnnxEncoder, supported


class Encoder(Protocol):
    """Texts to unit vectors."""

    key: str
    """Name and weights: vectors of different keys cannot be compared."""
    dimension: int

    def encode(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """float32 (texts, dimension), each row of length one."""
        ...

    def encode_quickly(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """As :meth:`encode`, less exact where that is quicker: for questions, never for what is kept."""
        ...


class SentenceTransformersEncoder:
    """The model run by sentence-transformers itself: any architecture, on a GPU where there is one."""

    def __init__(self, files: ModelFiles) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            hint = "pip install 'oomdoc[embed]'"
            raise OomdocError(
                f"{files.name} needs sentence-transformers", where=str(files.folder), hint=hint
            ) from error
        if files.sha256 is not None:
            files.checked_hash()
        self._model = SentenceTransformer(str(files.folder))
        self.key = f"{files.name}@{files.stamp}"
        self.dimension = int(self._model.get_sentence_embedding_dimension() or 0)

    def encode(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """See :class:`Encoder`."""
        vectors = self._model.encode(list(texts), normalize_embeddings=True, show_progress_bar=False)
        return np.asarray(vectors, dtype=np.float32).reshape(len(texts), self.dimension)

    encode_quickly = encode


def model_stamp() -> str:
    """Changes when another model is chosen or its weights change; cheap."""
    files = find_model()
    return f"{files.name}|{files.stamp}"


def encoder() -> Encoder:
    """The encoder of ``$OOMDOC_EMBEDDING_MODEL``, else the default, opened once per process."""
    return _opened(find_model())


@lru_cache(maxsize=2)
def _opened(files: ModelFiles) -> Encoder:
    return OnnxEncoder(files) if supported(files) else SentenceTransformersEncoder(files)
