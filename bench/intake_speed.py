"""How fast a large multi-rank log is read, and in how much memory, beside ``grep -c "out of memory"``.

usage: python bench/intake_speed.py [--gigabytes 1] [--keep FILE] [--file LOG] [--packed]

Prints one JSON line: megabytes per second of reading and of grep by the clock and by processor time, the share of
grep's speed, what is wanted (150 MB/s, or a third of grep's speed where that is less), the peak of resident memory in
MiB. With --packed two more, of the same log packed by gzip and by zstd, in megabytes of the unpacked text.
The log is made up: eight ranks' training lines with one failure in the middle; ``--file`` measures one of yours.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import tempfile
import time
from pathlib import Path

from oomdoc.intake.read import read
from oomdoc.intake.stream import load_source

GREP = {".gz": "zgrep", ".zst": "zstdgrep"}
_STEP = (
    "[2025-01-01 12:{m:02d}:{s:02d},000] [INFO] [rank{r}]: step {i} loss=2.{i} lr=1.0e-5 grad_norm=0.{r} "
    "memory_used={r}GiB\n"
)
_FAILURE = (
    "[rank{r}]: Traceback (most recent call last):\n"
    '[rank{r}]:   File "/x/transformers/trainer.py", line 10, in training_step\n'
    "[rank{r}]:     self.accelerator.backward(loss)\n"
    "[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU {r} has a total capacity of 79.15 GiB of which 1.25 GiB is free.\n"
)


def write_log(path: Path, size_bytes: int) -> None:
    block = "".join(_STEP.format(m=i // 60 % 60, s=i % 60, r=i % 8, i=i) for i in range(20_000)).encode()
    failure = "".join(_FAILURE.format(r=r) for r in range(8)).encode()
    with path.open("wb") as file:
        written = 0
        while written < size_bytes:
            if written <= size_bytes // 2 < written + len(block):
                file.write(failure)
            file.write(block)
            written += len(block)


def measure(path: Path, text_bytes: int = 0) -> dict[str, float | int | str]:
    size = text_bytes or path.stat().st_size
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    subprocess.run([GREP.get(path.suffix, "grep"), "-c", "out of memory", str(path)], capture_output=True, check=False)
    grep = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    grep_busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    started, busy = time.perf_counter(), time.process_time()
    source = load_source(path)
    loaded = time.perf_counter() - started
    busy_loading = time.process_time() - busy
    evidence = read([source])
    whole = time.perf_counter() - started
    busy_whole = time.process_time() - busy
    return {
        "file": path.name,
        "bytes": size,
        "search_mb_per_s": round(size / 1e6 / loaded, 1),
        "search_mb_per_cpu_s": round(size / 1e6 / busy_loading, 1),
        "read_mb_per_s": round(size / 1e6 / whole, 1),
        "read_mb_per_cpu_s": round(size / 1e6 / busy_whole, 1),
        "grep_mb_per_s": round(size / 1e6 / grep, 1),
        "grep_mb_per_cpu_s": round(size / 1e6 / grep_busy, 1),
        "share_of_grep": round(grep / whole, 3),
        "wanted_mb_per_s": round(min(150.0, size / 1e6 / grep / 3), 1),
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "failures": len(evidence.failures),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--keep", type=Path, help="write the log here and keep it")
    parser.add_argument("--packed", action="store_true", help="measure it packed by gzip and zstd too")
    parser.add_argument("--file", type=Path, help="measure this log")
    options = parser.parse_args()
    if options.file is not None:
        print(json.dumps(measure(options.file)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "train.log"
        write_log(path, int(options.gigabytes * 1e9))
        print(json.dumps(measure(path)), flush=True)
        if options.packed:
            for name, command in (("gz", ["gzip", "-1", "-k"]), ("zst", ["zstd", "-q", "-k"])):
                subprocess.run([*command, str(path)], check=True)
                packed = path.with_name(f"{path.name}.{name}")
                print(json.dumps(measure(packed, path.stat().st_size)), flush=True)
                packed.unlink()


if __name__ == "__main__":
    main()
