"""The server under load: ``oomdoc serve`` with a store of its own, its processor time and memory."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024


class Server:
    """A running ``oomdoc serve`` and its worker processes."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def pids(self) -> list[int]:
        """Its own and its children's."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            found.append(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                todo += [int(child) for child in children.read_text().split()]
        return found

    def cpu_s(self) -> float:
        """User and system time of all processes so far."""
        total = 0
        for pid in self.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    def rss_kib(self) -> int:
        """Resident memory of all processes."""
        return sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_KIB for pid in self.pids())


@contextmanager
def serving(*, workers: int, **settings: str) -> Iterator[Server]:
    """Start it on a free port of the loopback and stop it afterwards."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="oomdoc-load-") as folder:
        names = {f"OOMDOC_{name.upper()}": value for name, value in settings.items()}
        environment = {**os.environ, "OOMDOC_DATABASE_URL": f"sqlite:///{folder}/load.db", **names}
        command = [str(Path(sys.executable).with_name("oomdoc")), "serve", "--port", str(port)]
        log = (Path(folder) / "log").open("wb")
        process = subprocess.Popen([*command, "--workers", str(workers)], env=environment, stdout=log, stderr=log)
        try:
            _wait(port)
            yield Server(process, port)
        finally:
            process.terminate()
            process.wait(timeout=60)
            log.close()


def _wait(port: int) -> None:
    for _ in range(240):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.25)
    raise SystemExit("the server did not start")
