"""A million case vectors: recall against exact search, latency on one thread, memory of the searching process.

The vectors are synthetic and made to lie like real ones: each is a random mixture of three texts of the real cases plus
noise in all directions, of length one. The queries are made the same way from the questions that stand for the causes,
so none of them is in the index and most have no near-duplicate. Real cases would cluster more tightly around their
subjects, which is easier. The index is the one that `oomkb.retrieval.dense` builds by itself for so many vectors, and
it is searched in a process of its own that maps the file.

Usage: python bench/retrieval_scale.py [--vectors 1000000] [--write]
Needs 2 GB of disk for the vectors and 0.5 for the index.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results" / "retrieval_scale.json"
NOISE = 0.35
QUERIES = 1000
NEIGHBOURS = 10
PART = 50_000
THREADS = 2


def mixtures(base: np.ndarray[Any, Any], count: int, generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """``count`` unit vectors between the rows of ``base``."""
    weights = np.sort(generator.dirichlet((1.0, 1.0, 1.0), count).astype(np.float32), axis=1)
    rows = generator.integers(0, len(base), (count, 3))
    out = np.einsum("nk,nkd->nd", weights, base[rows])
    noise = generator.standard_normal(out.shape, dtype=np.float32)
    out /= np.linalg.norm(out, axis=1, keepdims=True)
    out += NOISE * noise / np.linalg.norm(noise, axis=1, keepdims=True)
    return np.asarray(out / np.linalg.norm(out, axis=1, keepdims=True), dtype=np.float32)


def real_vectors() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Those of the cases' texts, and those of the questions that stand for the causes."""
    from oomkb.records.loader import load_cases
    from oomkb.retrieval.index import open_index

    index = open_index(load_cases())
    of_cases = index.case_vectors.reconstruct_n(0, index.case_vectors.ntotal)
    return of_cases, index.cause_vectors.reconstruct_n(0, index.cause_vectors.ntotal)


def exact(vectors: np.ndarray[Any, Any], queries: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The row numbers of the ``NEIGHBOURS`` true nearest vectors of each query."""
    best = np.full((len(queries), NEIGHBOURS), -2.0, dtype=np.float32)
    rows = np.full((len(queries), NEIGHBOURS), -1, dtype=np.int64)
    for start in range(0, len(vectors), PART):
        cosines = queries @ np.asarray(vectors[start : start + PART]).T
        near = np.argpartition(-cosines, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
        best = np.concatenate([best, np.take_along_axis(cosines, near, 1)], axis=1)
        rows = np.concatenate([rows, near + start], axis=1)
        order = np.argsort(-best, axis=1)[:, :NEIGHBOURS]
        best, rows = np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
    return rows


def build(folder: Path, count: int) -> dict[str, Any]:
    """Write vectors, queries, truth and index into ``folder``."""
    import faiss

    from oomkb.retrieval.dense import build_dense, save_dense

    faiss.omp_set_num_threads(THREADS)
    generator = np.random.default_rng(0)
    of_cases, of_causes = real_vectors()
    vectors = np.lib.format.open_memmap(folder / "v.npy", "w+", np.float32, (count, of_cases.shape[1]))
    for start in range(0, count, PART):
        vectors[start : start + PART] = mixtures(of_cases, min(PART, count - start), generator)
    queries = mixtures(of_causes, QUERIES, generator)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "truth.npy", exact(vectors, queries))
    began = time.perf_counter()
    index = build_dense(vectors)
    seconds = time.perf_counter() - began
    save_dense(index, folder / "index.faiss")
    size = (folder / "index.faiss").stat().st_size
    kind = type(index).__name__
    return {"vectors": count, "kind": kind, "build_seconds": round(seconds, 1), "index_bytes": size}


def peak_resident_bytes() -> int:
    """The most this process ever held, mapped pages included (`getrusage` would count the parent's before `exec`)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def measure(folder: Path) -> dict[str, Any]:
    """Search one query at a time on one thread; run in a process that has done nothing else."""
    import faiss

    from oomkb.retrieval.dense import nearest, open_dense

    faiss.omp_set_num_threads(1)
    began = time.perf_counter()
    index = open_dense(folder / "index.faiss")
    opened = time.perf_counter() - began
    queries, truth = np.load(folder / "queries.npy"), np.load(folder / "truth.npy")
    # Once through first, so that the file is in memory; what it then takes is counted below.
    found = np.concatenate([nearest(index, query[None], NEIGHBOURS)[1] for query in queries])
    recall = np.mean([len(set(a) & set(b)) / NEIGHBOURS for a, b in zip(found.tolist(), truth.tolist(), strict=True)])
    seconds = []
    for query in queries:
        began = time.perf_counter()
        nearest(index, query[None], NEIGHBOURS)
        seconds.append(time.perf_counter() - began)
    return {
        "recall_at_10": round(float(recall), 4),
        "p50_ms": round(float(np.percentile(seconds, 50)) * 1e3, 2),
        "p99_ms": round(float(np.percentile(seconds, 99)) * 1e3, 2),
        "open_ms": round(opened * 1e3, 1),
        "peak_resident_bytes": peak_resident_bytes(),
        "threads": 1,
        "queries": len(queries),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--write", action="store_true", help=f"keep the figures in {RESULTS.name}")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure)))
        return
    with tempfile.TemporaryDirectory() as name:
        results = build(Path(name), arguments.vectors)
        print(results, flush=True)
        command = [sys.executable, __file__, "--measure", name]
        results |= json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    results["vectors_are"] = (
        "synthetic: mixtures of three real case texts plus noise; queries likewise, not in the index"
    )
    print(json.dumps(results, indent=2))
    if arguments.write:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
