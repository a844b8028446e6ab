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
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

pytestmark = pytest.mark.slow
HANG_S = 600.0
"""A guard against hanging, on whatever machine; how fast it is, ``bench/load`` measures."""
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(met: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + HANG_S
    while not met():
        assert time.monotonic() < end, what
        time.sleep(0.1)


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

        def answers() -> bool:
            assert process.poll() is None, "the server ended"
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{base}/healthz", timeout=5).status_code == 200
            return False

        until(answers, "the server does not start")
        yield process, base
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=HANG_S)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/oomdoc.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    url = f"sqlite:///{tmp_path_factory.mktemp('patient')}/x.db"
    limits = {"header_timeout_s": "2", "body_timeout_s": "2", "max_body_bytes": "5000"}
    with serving(url, **limits) as (_, base):
        yield base


def talk(base: str, *parts: bytes, pause_s: float = 0.3) -> bytes:
    """Send the parts slowly; what came back until the server closed, which it must."""
    said = b""
    with opened(base) as peer:
        for part in parts:
            with contextlib.suppress(OSError):
                peer.sendall(part)
            time.sleep(pause_s)
        with contextlib.suppress(ConnectionError):
            while chunk := peer.recv(4096):
                said += chunk
    return said


def test_a_head_that_never_ends_is_cut_off(patient: str) -> None:
    said = talk(patient, b"GET /healthz HTTP/1.1\r\n", *[b"X-More: 1\r\n"] * 12)
    assert b"408" in said[:40] or not said
    assert b"200" not in talk(patient)


def test_a_body_that_never_ends_is_cut_off(patient: str) -> None:
    head = b"POST /v1/diagnose HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\nContent-Length: 4000\r\n\r\n"
    assert b"408" in talk(patient, head, *[b"x"] * 10)[:40]


def test_a_body_that_is_too_large_is_cut_off(patient: str) -> None:
    head = b"POST /v1/diagnose HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
    assert b"413" in talk(patient, head + b"Content-Length: 9000000000\r\n\r\n", pause_s=0)[:40]
    chunk = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"
    assert b"413" in talk(patient, head + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 4, pause_s=0.05)[:40]
    assert httpx.get(f"{patient}/healthz").status_code == 200


def test_who_sends_too_much_still_reads_why(patient: str) -> None:
    for path in ("/v1/diagnose", "/v1/search"):
        answer = httpx.post(f"{patient}{path}", content=b"x" * (6 << 20), headers={"content-type": "application/json"})
        assert answer.status_code == 413


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


def diagnosed(base: str) -> None:
    """Something new is diagnosed."""
    answer = httpx.post(f"{base}/v1/diagnose", json={"text": f"{LOG} at {time.monotonic()}"}, timeout=HANG_S)
    assert answer.status_code == 200, answer.text


def opened(base: str) -> socket.socket:
    host, port = base.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=HANG_S)


def test_bodies_that_never_come_keep_nobody_out(usual: tuple[subprocess.Popen[bytes], str]) -> None:
    _, base = usual
    diagnosed(base)
    form = b"POST /v1/diagnose HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    text = b"POST /v1/diagnose HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    with contextlib.ExitStack() as stack:
        peers = [stack.enter_context(opened(base)) for _ in range(160)]
        for n, peer in enumerate(peers):
            head, length = (form, 2 << 30) if n % 2 else (text, 20 << 20)
            peer.sendall(head + b"Content-Length: %d\r\n\r\n--x" % length)
        diagnosed(base)
        assert httpx.get(f"{base}/readyz", timeout=HANG_S).status_code == 200
        assert b"408" in peers[1].recv(100)
        diagnosed(base)


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
        diagnosed(base)
        assert memory_bytes(process) - before < 100 << 20


def test_bytes_around_a_body_are_bounded(usual: tuple[subprocess.Popen[bytes], str]) -> None:
    """A chunk's extension, and chunks of one byte each: cut off, and neither answered nor waited for (408)."""
    _, base = usual
    head = b"POST /v1/diagnose HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    head += b"Transfer-Encoding: chunked\r\n\r\n"
    for around in (b"2;" + b"a" * (4 << 20), b"1\r\nx\r\n" * 200_000 + b"0\r\n\r\n"):
        said = talk(base, head, around, pause_s=0)
        assert b"431" in said[:40] or not said, said[:200]
    usual_pieces = b"".join(b"%x\r\n" % 900 + b"step 1 \n " * 100 + b"\r\n" for _ in range(300))
    assert b"200" in talk(base, head + usual_pieces + b"0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")[:40]


def test_requests_sent_ahead_are_bounded(usual: tuple[subprocess.Popen[bytes], str]) -> None:
    _, base = usual
    said = talk(base, b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3000, pause_s=0)
    assert said.count(b"HTTP/1.1 200") < 3000
    few = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8
    last = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert talk(base, few + last, pause_s=0).count(b"HTTP/1.1 200") == 9


def test_what_kills_a_worker_kills_nobody_else(usual: tuple[subprocess.Popen[bytes], str]) -> None:
    process, base = usual
    started = memory_bytes(process)
    hungry = b'{"text": "x", "set": {"a": [' + b"[]," * 8_000_000 + b"[]]}}"
    answers = [
        httpx.post(f"{base}/v1/diagnose", content=hungry, headers={"content-type": "application/json"}, timeout=HANG_S)
        for _ in range(2)
    ]
    assert {a.status_code for a in answers} <= {400, 413, 422}
    diagnosed(base)
    assert memory_bytes(process) - started < 400 << 20


def test_termination_is_noticed_and_running_requests_end(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/x.db", drain_notice_s="8") as (process, base):
        answers: list[int] = []
        text = "\n".join(f"{LOG} step {n}" for n in range(400))
        thread = threading.Thread(
            target=lambda: answers.append(
                httpx.post(f"{base}/v1/diagnose", json={"text": text}, timeout=HANG_S).status_code
            )
        )
        thread.start()
        process.send_signal(signal.SIGTERM)
        until(lambda: httpx.get(f"{base}/readyz", timeout=HANG_S).json()["status"] == "draining", "it does not say so")
        thread.join()
        assert answers == [200]
        assert process.wait(timeout=HANG_S) in (0, -signal.SIGTERM)


def test_processes_count_together(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/x.db", "--workers", "2") as (_, base):
        for _ in range(20):
            httpx.get(f"{base}/v1/cases?limit=1", timeout=HANG_S)
        text = httpx.get(f"{base}/metrics", timeout=HANG_S).text
    counted = [line for line in text.splitlines() if line.startswith("oomdoc_requests_total") and '"/v1/cases"' in line]
    assert sum(float(line.rpartition(" ")[2]) for line in counted) == 20


def test_a_killed_replica_loses_nothing_it_acknowledged(url: str) -> None:
    acknowledged: list[int] = []
    diagnoses: list[str] = []

    def feed(base: str, word: int) -> None:
        with contextlib.suppress(httpx.HTTPError), httpx.Client(timeout=HANG_S) as api:
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
        until(lambda: len(acknowledged) > 20 and len(diagnoses) > 20, "nothing is acknowledged")
        os.killpg(process.pid, signal.SIGKILL)
        for thread in threads:
            thread.join()
    from oomdoc.store.store import open_store

    store = open_store(url)
    kept = {row["id"] for row in store.feedback(limit=100_000)}
    assert set(acknowledged) <= kept
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
        httpx.Client(timeout=HANG_S) as api,
    ):
        api.post(f"{two}/v1/search", json={"text": title})
        sent = api.post(f"{one}/v1/cases", json={"id": "leak/zanzibar-replica", "yaml": record})
        assert sent.status_code == 201, sent.text

        def found() -> bool:
            matches = api.post(f"{two}/v1/search", json={"text": title, "top": 20}).json()["matches"]
            return any(match["case"] == "leak/zanzibar-replica" for match in matches)

        until(found, "the other replica does not get it")
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
        diagnosed(base)
        main = psutil.Process(int((Path(str(folder)) / "postmaster.pid").read_text().split()[0]))
        frozen = [main, *main.children(recursive=True)]
        for process in frozen:
            process.suspend()
        try:
            # It thaws only when all of this is answered: who waits for it waits for ever.
            diagnosed(base)
            until(lambda: store_state(base) == "down", "it is not noticed")
            for _ in range(3):
                diagnosed(base)
                assert httpx.post(f"{base}/v1/search", json={"text": LOG}, timeout=HANG_S).status_code == 200
                assert httpx.get(f"{base}/v1/cases?limit=1", timeout=HANG_S).status_code == 200
                assert httpx.get(f"{base}/readyz", timeout=HANG_S).status_code == 200
                lost = httpx.post(
                    f"{base}/v1/feedback", json={"diagnosis": "0123456789abcdef", "helpful": "yes"}, timeout=HANG_S
                )
                assert lost.status_code == 503
        finally:
            for process in frozen:
                process.resume()
        until(lambda: kept(base), "nothing is kept again")


def store_state(base: str) -> str:
    return str(httpx.get(f"{base}/readyz", timeout=HANG_S).json()["components"]["store"])


def kept(base: str) -> bool:
    """Whether a diagnosis gets an id."""
    text = f"{LOG} {time.monotonic()}"
    return bool(httpx.post(f"{base}/v1/diagnose", json={"text": text}, timeout=HANG_S).json()["id"])


def test_cases_that_keep_coming_delay_no_diagnosis(tmp_path: Path, root: Path) -> None:
    """Who loads and indexes them is held up for good: nobody who asks for a diagnosis waits for that."""
    import psutil

    record = next(iter(sorted((root / "cases" / "leak").glob("*.yaml")))).read_text(encoding="utf-8")
    state = tmp_path / "state"
    shutil.copytree(os.environ["OOMDOC_STATE"], state, ignore=shutil.ignore_patterns("submitted-cases", "*.db*"))
    with serving(f"sqlite:///{tmp_path}/x.db", state=str(state), diagnosing_processes="2") as (process, base):
        diagnosed(base)
        loader = next(p for p in psutil.Process(process.pid).children() if "zygote" in " ".join(p.cmdline()))
        assert len(loader.children()) == 2
        loader.suspend()
        for number in range(20):
            body = {"id": f"leak/own-{number:03d}", "yaml": record}
            assert httpx.post(f"{base}/v1/cases", json=body, timeout=HANG_S).status_code == 201
            diagnosed(base)
        before = {p.pid for p in loader.children()}
        loader.resume()
        until(lambda: not before & {p.pid for p in loader.children()}, "the workers are not replaced")
        diagnosed(base)


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
        ready = httpx.get(f"{base}/readyz", timeout=HANG_S)
        assert ready.json()["components"] == {"store": "ok", "index": "ok"}
        assert httpx.post(f"{base}/v1/search", json={"text": LOG}, timeout=HANG_S).json()["matches"]


def test_a_store_that_goes_away_takes_no_answer_away(tmp_path: Path) -> None:
    database = tmp_path / "x.db"
    with serving(f"sqlite:///{database}") as (_, base), httpx.Client(timeout=HANG_S) as api:
        assert api.post(f"{base}/v1/diagnose", json={"text": LOG}).json()["id"]
        for file in tmp_path.glob("x.db*"):
            file.write_bytes(b"no database" * 4000)
        answer = api.post(f"{base}/v1/diagnose", json={"text": LOG}).json()
        assert answer["causes"]
        assert answer["id"] is None
        assert "not stored" in json.dumps(answer["warnings"])
        until(lambda: store_state(base) == "down", "it is not noticed")
        assert api.get(f"{base}/readyz").status_code == 200
