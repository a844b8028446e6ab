"""The embedding model as ONNX: exported once into the state folder, then a query needs only onnxruntime and tokenizers.

The export keeps the weights in a file of their own beside the graph, so that ONNX Runtime maps them instead of copying
90 MB: opening the session takes 20 to 60 ms instead of 150 to 300. Beside it lies the same model in eight bits
(:func:`~oomkb.retrieval.bert_graph.quantised`); each is opened when it is first asked. A wheel brings the eight-bit one
alone, made when the wheel was built: it then encodes cases that are added as well.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from oomkb.errors import OomdocError
from oomkb.retrieval.bert_graph import INPUTS, bert_graph, fits, quantised
from oomkb.retrieval.model_files import ModelFiles
from oomkb.state import publish_folder, state_dir, writers_lock

_GRAPH: Final = "model.onnx"
_WEIGHTS: Final = "model.bin"
_QUICK: Final = "quick.onnx"
_QUICK_WEIGHTS: Final = "quick.bin"
_FILES: Final = (_GRAPH, _WEIGHTS, _QUICK, _QUICK_WEIGHTS)
_MANIFEST: Final = "manifest.json"
EIGHT_BIT_FILES: Final = (_QUICK, _QUICK_WEIGHTS, _MANIFEST)
"""What a wheel takes over from an export."""
_SCHEMA: Final = 4
_THREADS: Final = 2
"""For one embedding where nothing else runs; ``OMP_NUM_THREADS=1`` says that other processes need the cores."""
_PACK_AFTER: Final = 12
"""Calls after which copying the weights, 15 ms and 11 MB, pays: each further one takes a fifth less time."""
_BATCH: Final = 4
"""Larger ones leave the cache and are slower on a CPU."""


def supported(files: ModelFiles) -> bool:
    """Whether it can be exported: a BERT encoder with mean pooling, like the default and the multilingual MiniLM."""
    has_files = (files.weights.is_file() or files.is_exported) and (files.folder / "tokenizer.json").is_file()
    return has_files and fits(files.document("config.json"), files.document("1_Pooling", "config.json"))


def exported(files: ModelFiles, *, damaged: bool = False) -> Path:
    """The folder of the model's ONNX export, made on first use or when the weights or ONNX Runtime have changed.

    :param damaged: whether the one that is there is; it is made anew.
    :raises OomdocError: when the weights do not hash to what they should, or came with the wheel and are damaged.
    """
    if files.is_exported and damaged:
        raise OomdocError("the encoder is damaged", where=str(files.folder), hint="install oomdoc again")
    if files.is_exported:
        return files.folder
    import onnxruntime

    root = state_dir() / "models"
    name = "".join(c if c.isalnum() else "-" for c in files.name)[-60:]
    final = root / f"{name}-ort{onnxruntime.__version__}"
    if not damaged and _current(final, files):
        return final
    with writers_lock(root):
        if damaged or not _current(final, files):
            sha256 = files.checked_hash()
            publish_folder(final, lambda folder: _export(files, sha256, folder))
    return final


def _current(folder: Path, files: ModelFiles) -> bool:
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        sizes = {name: (folder / name).stat().st_size for name in _FILES}
    except (OSError, ValueError):
        return False
    known = files.sha256 is None or manifest.get("sha256") == files.sha256
    return bool(
        known and manifest.get("schema") == _SCHEMA and manifest["stamp"] == files.stamp and manifest["sizes"] == sizes
    )


def _export(files: ModelFiles, sha256: str, folder: Path) -> None:
    """Write the graph exactly and in eight bits, each fused by ONNX Runtime (portable optimisations only)."""
    from safetensors.numpy import load_file

    plain = bert_graph(files.document("config.json"), load_file(files.weights))
    _fused(plain.SerializeToString(), folder / _GRAPH, _WEIGHTS)
    unfused = folder / "unfused.onnx"
    quantised(plain, unfused)
    _fused(unfused.read_bytes(), folder / _QUICK, _QUICK_WEIGHTS)
    unfused.unlink()
    manifest = {
        "schema": _SCHEMA,
        "sha256": sha256,
        "stamp": files.stamp,
        "sizes": {name: (folder / name).stat().st_size for name in _FILES},
        "sha256s": {name: _hash(folder / name) for name in _FILES},
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def _fused(model: bytes, graph: Path, weights: str) -> None:
    options = _options("ORT_ENABLE_EXTENDED")
    options.optimized_model_filepath = str(graph)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", weights)
    options.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "1024")
    _opened(model, options)


def _options(optimisation: str) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, optimisation)
    options.log_severity_level = 3
    return options


def _opened(model: str | bytes, options: Any) -> Any:
    import onnxruntime

    # Nothing is to leave the machine: the runtime's own usage events are turned off where it has them.
    getattr(onnxruntime, "disable_telemetry_events", lambda: None)()
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _whole(folder: Path, names: Sequence[str]) -> bool:
    """Whether files are as they were written: a flipped bit would change answers and nothing else would show it."""
    try:
        known = json.loads((folder / _MANIFEST).read_bytes())["sha256s"]
        return all(_hash(folder / name) == known[name] for name in names)
    except (OSError, ValueError, KeyError, TypeError):
        return False


class OnnxEncoder:
    """Texts to unit vectors. Opening it costs tens of milliseconds; keep it."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files
        self._folder = exported(files)
        self.key = f"{files.name}@{json.loads((self._folder / _MANIFEST).read_bytes())['sha256'][:16]}"
        self._tokenizer = _tokenizer(files)
        self._calls = 0
        self.dimension: int = files.document("config.json")["hidden_size"]

    @cached_property
    def _exact(self) -> Any:
        return self._quick if self._files.is_exported else self._opened(_GRAPH, _WEIGHTS)

    @cached_property
    def _quick(self) -> Any:
        return self._opened(_QUICK, _QUICK_WEIGHTS)

    @cached_property
    def _quickest(self) -> Any:
        return self._opened(_QUICK, _QUICK_WEIGHTS, packed=True)

    def _opened(self, graph: str, weights: str, *, packed: bool = False) -> Any:
        """:raises OomdocError: where the files are damaged and cannot be made anew."""
        if not _whole(self._folder, (graph, weights)):
            self._folder = exported(self._files, damaged=True)
            if not _whole(self._folder, (graph, weights)):
                raise OomdocError("the exported model is damaged", where=str(self._folder), hint="delete its folder")
        return _session(self._folder / graph, packed=packed)

    def encode(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """float32 (texts, dimension), each row of length one. What is longer than the model reads is cut.

        With the encoder of a wheel the weights have eight bits (cosine to the exact vectors: 0.991 in the mean).
        """
        return self._encoded(self._exact, texts)

    def encode_quickly(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """As :meth:`encode` with weights of eight bits: close to the exact vectors, in a third of the time."""
        if self._calls < _PACK_AFTER:
            self._calls += 1
            return self._encoded(self._quick, texts)
        self.__dict__.pop("_quick", None)
        return self._encoded(self._quickest, texts)

    def _encoded(self, session: Any, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        encodings = [self._tokenizer.encode(text) for text in texts]
        order = sorted(range(len(texts)), key=lambda i: len(encodings[i].ids))
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
            width = max(len(encodings[i].ids) for i in rows)
            ids = np.zeros((len(rows), width), dtype=np.int64)
            mask = np.zeros_like(ids)
            for row, i in enumerate(rows):
                length = len(encodings[i].ids)
                ids[row, :length] = encodings[i].ids
                mask[row, :length] = 1
            vectors[rows] = session.run(None, dict(zip(INPUTS, (ids, mask), strict=True)))[0]
        return vectors


def _session(graph: Path, *, packed: bool) -> Any:
    """:param packed: whether weights are copied into the order in which the processor reads them fastest."""
    options = _options("ORT_DISABLE_ALL")  # done at export
    options.intra_op_num_threads = min(_THREADS, os.cpu_count() or 1, _allowed_threads())
    options.add_session_config_entry("session.disable_prepacking", "0" if packed else "1")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # leave the cores to the caller
    try:
        return _opened(str(graph), options)
    except Exception as error:  # onnxruntime's own kinds share no public base
        raise OomdocError(
            f"the exported model does not open: {error}", where=str(graph), hint="delete its folder"
        ) from error


def _allowed_threads() -> int:
    said = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    return int(said) if said.isdigit() and int(said) > 0 else _THREADS


def _tokenizer(files: ModelFiles) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(files.folder / "tokenizer.json"))
    limit = files.document("sentence_bert_config.json").get("max_seq_length") or 256
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=int(limit))
    return tokenizer
