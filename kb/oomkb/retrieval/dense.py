"""The vector index: FAISS, flat while vectors are few, IVF with compact codes in a mapped file when they are many."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
FLAT_LIMIT: Final = 50_000
"""Up to here exact search takes a few milliseconds on one core (384 dimensions)."""
_TRAIN_PER_LIST: Final = 40
_PROBED: Final = 16
"""One list in so many is read: what recall of 0.95 takes (``bench/retrieval_scale.py``)."""
_SEED: Final = 20260101


def build_dense(vectors: Array, *, flat_limit: int = FLAT_LIMIT) -> Any:
    """An inner-product index of unit vectors (rows, dimension); row numbers are its ids."""
    import faiss

    rows, dimension = vectors.shape
    if rows <= flat_limit:
        flat = faiss.IndexFlatIP(dimension)
        flat.add(np.ascontiguousarray(vectors, dtype=np.float32))
        return flat
    lists = 2 ** round(math.log2(4 * math.sqrt(rows)))
    coarse = faiss.IndexFlatIP(dimension)
    kind = faiss.ScalarQuantizer.QT_8bit
    index = faiss.IndexIVFScalarQuantizer(coarse, dimension, lists, kind, faiss.METRIC_INNER_PRODUCT)
    picked = np.random.default_rng(_SEED).choice(rows, min(rows, lists * _TRAIN_PER_LIST), replace=False)
    index.train(np.ascontiguousarray(vectors[np.sort(picked)], dtype=np.float32))
    for start in range(0, rows, 65_536):
        index.add(np.ascontiguousarray(vectors[start : start + 65_536], dtype=np.float32))
    index.nprobe = max(16, lists // _PROBED)
    return index


def save_dense(index: Any, path: Path) -> None:
    """Write the index file."""
    import faiss

    faiss.write_index(index, str(path))


def open_dense(path: Path) -> Any:
    """Open an index file; what is large in it is mapped, not read."""
    import faiss

    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC if path.stat().st_size > 64 * 2**20 else 0)


def nearest(index: Any, queries: Array, count: int) -> tuple[Array, Array]:
    """Cosines and row numbers (queries, count), best first; -1 where there are fewer rows."""
    import faiss

    threads = faiss.omp_get_max_threads()
    if index.ntotal <= FLAT_LIMIT:
        faiss.omp_set_num_threads(1)  # waking a team of threads costs more than so small a search
    try:
        wanted = min(count, max(1, index.ntotal))
        cosines, rows = index.search(np.ascontiguousarray(queries, dtype=np.float32), wanted)
    finally:
        faiss.omp_set_num_threads(threads)
    return cosines, rows
