"""Nothing leaves the machine that nobody asked for: no host is looked up, no device id is written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# What a process asks the system's resolver is written to a file, and refused.
WATCH = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void told(const char *name) {
    const char *path = getenv("WATCHED");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (file >= 0) { dprintf(file, "%s\n", name ? name : "?"); close(file); }
}
int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    told(node);
    return EAI_FAIL;
}
struct hostent *gethostbyname(const char *name) { told(name); return 0; }
"""
LIBRARY = (
    "import oomdoc; oomdoc.diagnose('CUDA out of memory. Tried to allocate 2.00 GiB').text(); oomdoc.search('OOM')"
)
COMMAND = "from oomdoc.cli.main import main; import sys; sys.argv = ['oomdoc', 'search', 'OOM']; main()"
SERVER = """
from fastapi.testclient import TestClient
from oomdoc.api.app import create_app
with TestClient(create_app()) as api:
    assert api.post('/v1/search', json={'text': 'OOM'}).status_code == 200
"""


@pytest.fixture(scope="module")
def watcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("no C compiler to build the watched resolver with")
    folder = tmp_path_factory.mktemp("watch")
    (folder / "watch.c").write_text(WATCH)
    built = folder / "watch.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, folder / "watch.c"], check=True, timeout=60)
    return built


def run(code: str, home: Path, watcher: Path, **more: str) -> tuple[list[str], list[str]]:
    """Hosts that were looked up, and files in the home folder that are not ours."""
    watched = home / "watched"
    environment = {**os.environ, "HOME": str(home), "LD_PRELOAD": str(watcher), "WATCHED": str(watched), **more}
    for name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
        if name not in more:
            environment.pop(name, None)
    environment["OOMDOC_DATABASE_URL"] = f"sqlite:///{home}/x.db"
    subprocess.run([sys.executable, "-c", code], env=environment, check=False, capture_output=True, timeout=300)
    hosts = watched.read_text().split() if watched.exists() else []
    files = [str(f.relative_to(home)) for f in home.rglob("*") if f.is_file() and "icrosoft" in str(f)]
    return [h for h in hosts if h not in ("localhost", "127.0.0.1", "testserver")], files


@pytest.mark.parametrize("code", [LIBRARY, COMMAND, SERVER], ids=["library", "command", "server"])
def test_nothing_is_looked_up(tmp_path: Path, watcher: Path, code: str) -> None:
    assert run(code, tmp_path, watcher) == ([], [])


def test_the_watch_would_notice(tmp_path: Path, watcher: Path) -> None:
    """The same, had nobody turned the runtime's telemetry off: it writes a device id as it is imported."""
    look = "import socket\ntry: socket.getaddrinfo('telemetry.example', 443)\nexcept OSError: pass"
    assert run(look, tmp_path, watcher)[0] == ["telemetry.example"]
    _, files = run("import onnxruntime", tmp_path, watcher, ORT_DISABLE_TELEMETRY="0")
    if not files:
        pytest.skip("this build of ONNX Runtime has no telemetry")
