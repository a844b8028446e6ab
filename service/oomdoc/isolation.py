"""Reading what may harm the reader: in a process of its own, with limits on its memory and time, that may die of it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

from oomkb.errors import InputError

_LEAST_BYTES: Final = 256 << 20
_MAX_BYTES: Final = 8 << 30
_TIMES_THE_FILE: Final = 64
"""Bytes that the values of a byte may take: an entry of a list takes eight, a small dictionary two hundred."""
_LEAST_S: Final = 2
_MAX_SECONDS: Final = 30
_BYTES_PER_S: Final = 1 << 20
# One such process at a time: their limits must not add up.
_ALONE: Final = threading.Lock()
_CGROUPS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def run_isolated(module: str, file: Path, *, where: str) -> dict[str, Any]:
    """Run ``module.main()`` in a fresh process with ``file`` as its standard input; the JSON object that it prints.

    Its memory is bounded by 64 times the file beside what it starts with, and by half of what this process may use; its
    time by a second a mebibyte beside two, and by 30 s.

    :raises InputError: where it dies of its input, takes too long, or prints ``{"error": ..., "hint": ...}``.
    """
    size_bytes = file.stat().st_size
    most_bytes = max(_LEAST_BYTES, min(_MAX_BYTES, memory_of_machine_bytes() // 2))
    memory_bytes = min(most_bytes, _LEAST_BYTES + _TIMES_THE_FILE * size_bytes)
    seconds = min(_MAX_SECONDS, _LEAST_S + size_bytes // _BYTES_PER_S)
    start = (
        f"import sys; sys.path[:] = {sys.path!r}; from oomdoc.isolation import limit_self; "
        f"limit_self({memory_bytes}, {seconds}); from {module} import main; main()"
    )
    with _ALONE, file.open("rb") as given:
        try:
            done = subprocess.run(
                [sys.executable, "-c", start],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=2 * seconds + 2,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise InputError("it takes too long to read", where=where, hint="give a smaller one") from error
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        problem = "it needs too much memory or time to read, or is damaged"
        raise InputError(problem, where=where, hint="record fewer entries, or dump it again") from error
    if "error" in answer:
        raise InputError(str(answer["error"]), where=where, hint=str(answer.get("hint", "")))
    return dict(answer)


def limit_self(memory_bytes: int, seconds: int) -> None:
    """Bound this process's address space and processor time; nothing where the system has no such limits."""
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def memory_of_machine_bytes() -> int:
    """What this process may use at most: its container's limit, else the machine's memory."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else _MAX_BYTES
    for name in _CGROUPS:
        with contextlib.suppress(OSError, ValueError):
            found = min(found, int(Path(name).read_text(encoding="ascii")))
    return found
