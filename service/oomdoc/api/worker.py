"""The processes that compute: one that is warm and only forks, and those that it forks, each with a socket and limits.

The warm one (``zygote``) loads the index and the catalogues once and starts no thread, so that a fork of it is whole
and shares that memory; a worker that was killed is replaced within milliseconds.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import random
import signal
import socket
import struct
from typing import Any, Final

from oomdoc.api.tasks import Outcome, run_task

_LOG: Final = logging.getLogger("oomdoc.service")
FORK: Final = b"f"
REFRESH: Final = b"r"

FRAME: Final = struct.Struct(">II")
"""Lengths of a message's document and blob."""
_EXTRA_BYTES: Final = 768 << 20
"""Memory that one task may take beside what is loaded."""


def packed(document: Any, blob: bytes) -> bytes:
    """A message."""
    head = json.dumps(document, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return FRAME.pack(len(head), len(blob)) + head + blob


def unpacked(head: bytes) -> Any:
    """A message's document."""
    return json.loads(head.decode("utf-8", "surrogatepass"))


def zygote(control: int) -> None:
    """Get ready, say so, and fork a worker for each socket that comes; end, with all workers, when nobody asks more."""
    from oomdoc.api.warm import COLLECT_AFTER, price_common_jobs, warm

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system clears the dead away
    _hold()
    warm()
    price_common_jobs()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
    children: set[int] = set()
    with socket.socket(fileno=control) as peer:
        peer.sendall(b"ready")
        with contextlib.suppress(OSError):
            while True:
                asked, descriptors, _, _ = socket.recv_fds(peer, 1, 1)
                if not asked:
                    break
                if asked == REFRESH:
                    peer.sendall(b"done" if _hold() else b"fail")
                    continue
                child = os.fork()
                if child == 0:
                    peer.close()
                    _work(descriptors[0])
                os.close(descriptors[0])
                children.add(child)
                peer.sendall(struct.pack(">I", child))
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _hold() -> bool:
    """Load the cases as they are now, and their index, for all workers to come; whether that worked."""
    from oomkb.records.loader import pin_cases
    from oomkb.retrieval.search import search

    try:
        pin_cases()
        search("CUDA out of memory", top=1)
    except Exception:  # the old ones go on, and /readyz tells of the index
        _LOG.exception("cases-not-loaded")
        return False
    gc.freeze()
    return True


def _work(descriptor: int) -> None:
    """Answer tasks until the other end goes; never returns."""
    status = 1
    try:
        random.seed()
        _limit()
        with socket.socket(fileno=descriptor) as peer, peer.makefile("rwb") as stream:
            while _one(stream):
                pass
        status = 0
    finally:
        os._exit(status)


def _one(stream: Any) -> bool:
    """Answer one task; whether to go on."""
    head = stream.read(FRAME.size)
    if len(head) < FRAME.size:
        return False
    sizes = FRAME.unpack(head)
    asked = unpacked(stream.read(sizes[0]))
    outcome: Outcome = run_task(asked["task"], asked["arguments"], stream.read(sizes[1]))
    stream.write(packed(*outcome))
    stream.flush()
    # After running out of memory nothing is sure: the next one starts afresh.
    return bool(outcome[0].get("failed", {}).get("kind") != "MemoryError")


def _limit() -> None:
    """Bound the memory of one task, and let the system prefer this process where the machine's runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
        file.write("1000")
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            data_bytes = int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_DATA, (data_bytes + _EXTRA_BYTES, data_bytes + _EXTRA_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
