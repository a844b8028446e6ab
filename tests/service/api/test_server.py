"""The server as a process, on the loopback: faults, several processes, several replicas."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def serving(url: str, *options: str, **settings: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    port = free_port()
    names = {f"OOMDOC_{name.upper()}": value for name, value in settings.items()}
    environment = {**os.environ, "OOMDOC_DATABASE_URL": url, **names}
    command = [sys.executable, "-m", "oomdoc", "serve", "--port", str(port), *options]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(f"{base}/healthz", timeout=5)
                break
            assert process.poll() is None, "the server ended"
            time.sleep(0.25)
        yield process, base
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=20)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/oomdoc.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('patient')}/x.db"
    limits = {"header_timeout_s": "1", "body_timeout_s": "1", "max_body_bytes": "5000"}
    with serving(url, **limits) as (_, base):
        yield base


def talk(base: str, *parts: bytes, pause_s: float = 0.3) -> tuple[bytes, float]:
    """Send the parts slowly; what came back until the server closed, and after how long."""
    host, port = base.removeprefix("http://").split(":")
    began, said = time.monotonic(), b""
    with socket.create_connection((host, int(port)), timeout=15) as peer:
        for part in parts:
            with contextlib.suppress(OSError):
                peer.sendall(part)
            time.sleep(pause_s)
        with contextlib.suppress(ConnectionError):
            while chunk := peer.recv(4096):
                said += chunk
    return said, time.monotonic() - began


def test_a_head_that_never_ends_is_cut_off(patient: str) -> None:
    said, seconds = talk(patient, b"GET /healthz HTTP/1.1\r\n", *[b"X-More: 1\r\n"] * 12)
    assert b"408" in said[:40] or not said
    assert seconds < 8
    silent, seconds = talk(patient)
    assert b"200" not in silent
    assert seconds < 8


def test_a_body_that_never_ends_is_cut_off(patient: str) -> None:
    head = b"POST /v1/diagnose HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 4000\r\n\r\n"
    said, seconds = talk(patient, head, *[b"x"] * 10)
    assert b"408" in said[:40]
    assert seconds < 8


def test_a_body_that_is_too_large_is_cut_off(patient: str) -> None:
    head = b"POST /v1/diagnose HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
    said, _ = talk(patient, head + b"Content-Length: 9000000000\r\n\r\n", pause_s=0)
    assert b"413" in said[:40]
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    said, _ = talk(patient, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 4, pause_s=0.05)
    assert b"413" in said[:40]
    assert httpx.get(f"{patient}/healthz").status_code == 200


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server as it is started, with worker processes."""
    url = f"sqlite:///{tmp_path_factory.mktemp('usual')}/x.db"
    with serving(url, diagnosing_processes="2") as (process, base):
        yield process, base


def memory_bytes(process: subprocess.Popen[bytes]) -> int:
    import psutil

    whole = psutil.Process(process.pid)
    return sum(p.memory_info().rss for p in [whole, *whole.children(recursive=True)])


def diagnosed_s(base: str) -> float:
    began = time.monotonic()
    answer = httpx.post(f"{base}/v1/diagnose", json={"text": f"{LOG} at {began}"}, timeout=30)
    assert answer.status_code == 200, answer.text
    return time.monotonic() - began


def opened(base: str) -> socket.socket:
    host, port = base.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=15)


def test_bodies_that_never_come_keep_nobody_out(usual: tuple[subprocess.Popen[bytes], str]) -> None:
    _, base = usual
    diagnosed_s(base)
    form = b"POST /v1/diagnose HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    text = b"POST /v1/diagnose HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(opened(base)) for _ in range(160)]
        for n, peer in enumerate(peers):
            head, length = (form, 2 << 30) if n % 2 else (text, 20 << 20)
            peer.sendall(head + b"Content-Length: %d\r\n\r\n--x" % length)
        time.sleep(0.5)
        assert diagnosed_s(base) < 2
        assert httpx.get(f"{base}/readyz").status_code == 200
        time.sleep(6)
        peers[1].settimeout(10)
        assert b"408" in peers[1].recv(100)
        assert diagnosed_s(base) < 2


def test_endless_heads_take_no_memory(usual: tuple[subprocess.Popen[bytes], str]) -> None:
    process, base = usual
    before = memory_bytes(process)
    chunked = b"POST /v1/estimate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    with contextlib.ExitStack() as stack:
        for n in range(24):
            peer = stack.enter_context(opened(base))
            with contextlib.suppress(OSError):
                peer.sendall((chunked if n % 2 else b"GET / HTTP/1.1\r\n") + b"X-A: ")
                for _ in range(20):
                    peer.sendall(b"a" * (1 << 20))
        assert diagnosed_s(base) < 2
        assert memory_bytes(process) - before < 100 << 20


def test_what_kills_a_worker_kills_nobody_else(usual: tuple[subprocess.Popen[bytes], str]) -> None:
    process, base = usual
    started = memory_bytes(process)
    hungry = b'{"text": "x", "set": {"a": [' + b"[]," * 8_000_000 + b"[]]}}"
    answers = [
        httpx.post(f"{base}/v1/diagnose", content=hungry, headers={"content-type": "application/json"}, timeout=60)
        for _ in range(2)
    ]
    assert {a.status_code for a in answers} <= {400, 413, 422}
    assert diagnosed_s(base) < 2
    assert memory_bytes(process) - started < 400 << 20


def test_termination_is_noticed_and_running_requests_end(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/x.db", drain_notice_s="1.5") as (process, base):
        answers: list[int] = []
        text = "\n".join(f"{LOG} step {n}" for n in range(400))
        thread = threading.Thread(
            target=lambda: answers.append(
                httpx.post(f"{base}/v1/diagnose", json={"text": text}, timeout=60).status_code
            )
        )
        thread.start()
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        ready = httpx.get(f"{base}/readyz", timeout=10)
        thread.join()
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        assert answers == [200]
        assert process.wait(timeout=30) in (0, -signal.SIGTERM)


def test_processes_count_together(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/x.db", "--workers", "2") as (_, base):
        for _ in range(20):
            httpx.get(f"{base}/v1/cases?limit=1", timeout=60)
        text = httpx.get(f"{base}/metrics", timeout=60).text
    counted = [line for line in text.splitlines() if line.startswith("oomdoc_requests_total") and '"/v1/cases"' in line]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == 20


def test_a_killed_replica_loses_nothing_it_acknowledged(url: str) -> None:
    acknowledged: list[int] = []
    diagnoses: list[str] = []

    def feed(base: str, word: int) -> None:
        with contextlib.suppress(httpx.HTTPError), httpx.Client(timeout=20) as api:
            for _ in range(10_000):
                body = {"diagnosis": f"{word:016x}", "helpful": "yes"}
                answer = api.post(f"{base}/v1/feedback", json=body)
                if answer.status_code == 201:
                    acknowledged.append(answer.json()["id"])
                answer = api.post(f"{base}/v1/diagnose", json={"text": LOG})
                if answer.status_code == 200 and answer.json()["id"]:
                    diagnoses.append(answer.json()["id"])

    with serving(url) as (process, base):
        threads = [threading.Thread(target=feed, args=(base, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(4)
        os.killpg(process.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
    from oomdoc.store.store import open_store

    store = open_store(url)
    kept = {row["id"] for row in store.feedback(limit=100_000)}
    assert len(acknowledged) > 10
    assert set(acknowledged) <= kept
    assert diagnoses
    assert all(store.diagnosis(identifier) is not None for identifier in diagnoses)
    store.close()


def test_two_replicas_on_one_postgresql(postgres_url: str, tmp_path: Path, root: Path) -> None:
    shipped = (root / "cases" / "leak").glob("*.yaml")
    record = next(p for p in sorted(shipped)).read_text(encoding="utf-8")
    states = []
    for name in ("one", "two"):
        state = tmp_path / name
        shutil.copytree(os.environ["OOMDOC_STATE"], state, ignore=shutil.ignore_patterns("submitted-cases", "*.db*"))
        states.append(str(state))
    title = "Zanzibar replica memory"
    record = re.sub(r"(?m)^(\s+en: ).*$", rf"\g<1>{title}", record, count=1)
    with (
        serving(postgres_url, state=states[0]) as (_, one),
        serving(postgres_url, state=states[1]) as (_, two),
        httpx.Client(timeout=60) as api,
    ):
        api.post(f"{two}/v1/search", json={"text": title})
        sent = api.post(f"{one}/v1/cases", json={"id": "leak/zanzibar-replica", "yaml": record})
        assert sent.status_code == 201, sent.text
        began, found = time.monotonic(), False
        while not found and time.monotonic() - began < 30:
            matches = api.post(f"{two}/v1/search", json={"text": title, "top": 20}).json()["matches"]
            found = any(match["case"] == "leak/zanzibar-replica" for match in matches)
        assert found, [m["case"] for m in matches]
        assert time.monotonic() - began < 5
        first = api.post(
            f"{one}/v1/chat", json={"text": "LoRA of Qwen2.5-7B on one RTX 4090, seq 4096, batch 1"}
        ).json()
        second = api.post(f"{two}/v1/chat", json={"text": "seq 2048", "session": first["session"]}).json()
        assert second["changed"] == {"seq_len": 2048}


def test_a_frozen_database_stalls_nobody(postgres_url: str) -> None:
    import psutil

    from oomdoc.store.store import open_store

    store = open_store(postgres_url)
    with store._transaction() as connection:
        folder = connection.exec_driver_sql("SHOW data_directory").scalar_one()
    store.close()
    with serving(postgres_url, diagnosing_processes="2") as (_, base):
        diagnosed_s(base)
        main = psutil.Process(int((Path(str(folder)) / "postmaster.pid").read_text().split()[0]))
        frozen = [main, *main.children(recursive=True)]
        for process in frozen:
            process.suspend()
        try:
            assert diagnosed_s(base) < 4
            time.sleep(4)
            for _ in range(3):
                assert diagnosed_s(base) < 2
                began = time.monotonic()
                assert httpx.post(f"{base}/v1/search", json={"text": LOG}, timeout=30).status_code == 200
                assert httpx.get(f"{base}/v1/cases?limit=1", timeout=30).status_code == 200
                ready = httpx.get(f"{base}/readyz", timeout=30)
                assert (ready.status_code, ready.json()["components"]["store"]) == (200, "down")
                lost = httpx.post(
                    f"{base}/v1/feedback", json={"diagnosis": "0123456789abcdef", "helpful": "yes"}, timeout=30
                )
                assert lost.status_code == 503
                assert time.monotonic() - began < 2
        finally:
            for process in frozen:
                process.resume()
        began, answer = time.monotonic(), {}
        while not answer.get("id") and time.monotonic() - began < 20:
            answer = httpx.post(f"{base}/v1/diagnose", json={"text": f"{LOG} {time.monotonic()}"}, timeout=30).json()
            time.sleep(0.5)
        assert answer["id"], httpx.get(f"{base}/readyz").text


def test_cases_that_keep_coming_delay_no_diagnosis(tmp_path: Path, root: Path) -> None:
    record = next(iter(sorted((root / "cases" / "leak").glob("*.yaml")))).read_text(encoding="utf-8")
    state = tmp_path / "state"
    shutil.copytree(os.environ["OOMDOC_STATE"], state, ignore=shutil.ignore_patterns("submitted-cases", "*.db*"))
    with serving(f"sqlite:///{tmp_path}/x.db", state=str(state), diagnosing_processes="2") as (_, base):
        diagnosed_s(base)
        ending = threading.Event()

        def add() -> None:
            number = 0
            while not ending.wait(0.1):
                number += 1
                body = {"id": f"leak/own-{number:03d}", "yaml": record}
                assert httpx.post(f"{base}/v1/cases", json=body, timeout=30).status_code == 201

        adding = threading.Thread(target=add)
        adding.start()
        try:
            slowest = max(diagnosed_s(base) for _ in range(30))
        finally:
            ending.set()
            adding.join()
        assert slowest < 3


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_an_index_that_is_missing_or_damaged_is_rebuilt(tmp_path: Path, harm: str) -> None:
    state = tmp_path / "state"
    shutil.copytree(os.environ["OOMDOC_STATE"], state, ignore=shutil.ignore_patterns("*.db*"))
    if harm == "missing":
        shutil.rmtree(state / "index")
    else:
        for file in (state / "index").rglob("*"):
            if file.is_file():
                file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with serving(f"sqlite:///{tmp_path}/x.db", state=str(state)) as (_, base):
        ready = httpx.get(f"{base}/readyz", timeout=300)
        assert ready.json()["components"] == {"store": "ok", "index": "ok"}
        assert httpx.post(f"{base}/v1/search", json={"text": LOG}, timeout=60).json()["matches"]


def test_a_store_that_goes_away_takes_no_answer_away(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    with serving(f"sqlite:///{database}") as (_, base), httpx.Client(timeout=60) as api:
        assert api.post(f"{base}/v1/diagnose", json={"text": LOG}).json()["id"]
        for file in tmp_path.glob("x.db*"):
            file.write_bytes(b"no database" * 4000)
        answer = api.post(f"{base}/v1/diagnose", json={"text": LOG}).json()
        assert answer["causes"]
        assert answer["id"] is None
        assert "not stored" in json.dumps(answer["warnings"])
        time.sleep(2.5)
        ready = api.get(f"{base}/readyz")
        assert (ready.status_code, ready.json()["components"]["store"]) == (200, "down")
