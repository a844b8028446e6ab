"""What is kept, who may ask how often, and what the log says."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, insert
from starlette.datastructures import Headers
from typer.testing import CliRunner

from oomdoc.api.answers import Answer, Answers
from oomdoc.api.app import create_app
from oomdoc.api.auth import Proxies
from oomdoc.api.server import JsonLines
from oomdoc.cli.main import app as command
from oomdoc.settings import Settings, load_settings
from oomdoc.store import schema
from oomkb.errors import InputError

LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. secret-word-4711 is in /data/run"
FEEDBACK = {"diagnosis": "0123456789abcdef", "helpful": "yes"}


def client(tmp_path: Path, **settings: object) -> TestClient:
    options = {"database_url": f"sqlite:///{tmp_path}/oomdoc.db", **settings}
    return TestClient(create_app(Settings(**options)), raise_server_exceptions=False)  # type: ignore[arg-type]


def test_a_diagnosis_can_be_asked_for_again_and_deleted(tmp_path: Path) -> None:
    with client(tmp_path) as api:
        first = api.post("/v1/diagnose", json={"text": LOG}).json()
        again = api.post("/v1/diagnose", json={"text": LOG}).json()
        assert first["id"] != again["id"]
        assert api.get(f"/v1/diagnoses/{first['id']}").json() == first
        assert api.delete(f"/v1/diagnoses/{first['id']}").status_code == 204
        assert api.get(f"/v1/diagnoses/{first['id']}").status_code == 404
        assert api.get(f"/v1/diagnoses/{again['id']}").status_code == 200
        unkept = api.post("/v1/diagnose", json={"text": LOG, "keep": False}).json()
        assert unkept["id"] is None
        assert unkept["causes"] == first["causes"]


def test_two_requests_with_one_key_at_once_run_once(tmp_path: Path) -> None:
    with client(tmp_path) as api:
        store = api.app.state.work.store()  # type: ignore[attr-defined]
        answers: list[tuple[int, str]] = []

        def send() -> None:
            got = api.post("/v1/feedback", json=FEEDBACK, headers={"idempotency-key": "one-key-for-all"})
            answers.append((got.status_code, got.text))

        threads = [threading.Thread(target=send) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(answers)) == 1
        assert answers[0][0] == 201
        assert store.counts()["feedback"] == 1


def test_who_waits_for_a_key_keeps_nobody_out(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another replica holds the key in PostgreSQL, and 40 requests wait for it: others are answered meanwhile."""
    monkeypatch.setattr("oomdoc.store.timeouts._PATIENCE_S", 600.0)
    url = f"{postgres_url}{'&' if '?' in postgres_url else '?'}options=-c%20statement_timeout%3D0"
    key = {"idempotency-key": f"held-{tmp_path.name}"}
    row = {"key": key["idempotency-key"], "created_at": datetime.now(UTC), "status": 201, "response": '{"id": 0}'}
    with client(tmp_path, database_url=url, max_concurrent_each=60) as api, ThreadPoolExecutor(40) as pool:
        store = api.app.state.work.store()  # type: ignore[attr-defined]
        with store._transaction() as connection:
            connection.execute(insert(schema.idempotency).values(row | {"body_sha256": "another"}))
            waiters = [pool.submit(api.post, "/v1/feedback", json=FEEDBACK, headers=key) for _ in range(40)]
            waiting = 0
            while waiting < 12:
                with store._transaction() as other:
                    waiting = other.exec_driver_sql("SELECT count(*) FROM pg_locks WHERE NOT granted").scalar_one()
            assert api.get("/v1/cases?limit=1").status_code == 200
            assert api.post("/v1/search", json={"text": LOG}).status_code == 200
            assert not any(waiter.done() for waiter in waiters)
        assert {waiter.result().status_code for waiter in waiters} == {409}


def test_a_refused_request_gives_its_key_back(tmp_path: Path) -> None:
    with client(tmp_path) as api:
        body = {"id": "nonsense/x-y", "yaml": "a: 1"}
        for _ in range(2):
            assert api.post("/v1/cases", json=body, headers={"idempotency-key": "key-of-a-case"}).status_code == 422


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    with client(tmp_path) as api:
        store = api.app.state.work.store()  # type: ignore[attr-defined]

        def full(connection, _record, _proxy) -> None:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count={pages}")

        event.listen(store._engine, "checkout", full)
        long = FEEDBACK | {"comment": "word " * 790}
        answers = [api.post("/v1/feedback", json=long) for _ in range(8)]
        refused = [a for a in answers if a.status_code != 201]
        assert refused
        assert refused[-1].status_code == 503
        assert "full" in refused[-1].json()["detail"]
        answer = api.post("/v1/diagnose", json={"text": LOG}).json()
        assert answer["causes"]
        assert answer["id"] is None


@pytest.mark.parametrize(
    ("trusted", "peer", "said", "caller"),
    [
        ("", "10.0.0.1", "1.2.3.4", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.0/8", "10.0.0.1", "6.6.6.6, 1.2.3.4, 10.0.0.9", "1.2.3.4"),
        ("10.0.0.0/8", "9.9.9.9", "1.2.3.4", "9.9.9.9"),
        ("10.0.0.0/8", "10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.0/8", "10.0.0.1", "", "10.0.0.1"),
    ],
)
def test_who_calls_behind_proxies(trusted: str, peer: str, said: str, caller: str) -> None:
    headers = Headers({"x-forwarded-for": said} if said else {})
    assert Proxies(trusted).caller({"client": (peer, 1)}, headers) == caller


def test_an_address_that_says_another_is_limited_all_the_same(tmp_path: Path) -> None:
    with client(tmp_path, rate_per_minute=6) as api:
        got = [api.get("/openapi.json", headers={"x-forwarded-for": f"1.2.3.{n}"}).status_code for n in range(3)]
    assert got[-1] == 429


def test_estimates_cost_less_than_diagnoses(tmp_path: Path) -> None:
    with client(tmp_path, rate_per_minute=60) as api:
        job = {"job": {"model": "Qwen/Qwen2.5-7B"}}
        assert {api.post("/v1/estimate", json=job).status_code for _ in range(60)} == {200}


def test_the_log_holds_nothing_that_was_pasted(tmp_path: Path) -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines().format(record))

    logger, handler = logging.getLogger("oomdoc"), Keep()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel("DEBUG")
    try:
        with client(tmp_path) as api:
            api.post("/v1/diagnose", json={"text": LOG})
            api.post("/v1/diagnose?secret-word-4711", content=b"secret-word-4711", headers={"content-type": "text/x"})
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
    entries = [json.loads(line) for line in lines]
    assert [e["status"] for e in entries if e["event"] == "request"] == [200, 415]
    assert all({"time", "level", "logger"} <= set(e) for e in entries)
    assert "secret-word-4711" not in "".join(lines)


def test_an_exception_is_logged_without_its_text() -> None:
    try:
        raise ValueError("secret-word-4711")
    except ValueError:
        record = logging.getLogger("x").makeRecord("x", logging.ERROR, "f", 1, "it broke", (), None)
        import sys

        record.exc_info = sys.exc_info()
    entry = json.loads(JsonLines().format(record))
    assert entry["error"] == "ValueError"
    assert "test_keeping.py" in entry["at"][0]
    assert "4711" not in json.dumps(entry)


def test_every_body_has_an_example(tmp_path: Path) -> None:
    document = create_app(Settings(database_url=f"sqlite:///{tmp_path}/x.db")).openapi()
    schemas = document["components"]["schemas"]
    for path, methods in document["paths"].items():
        for content in methods.get("post", {}).get("requestBody", {}).get("content", {}).items():
            kind, said = content
            if not path.startswith("/v1/") or kind == "multipart/form-data":
                continue
            schema = said["schema"]
            schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
            shown = "example" in said or any("examples" in p for p in schema.get("properties", {}).values())
            assert shown, f"{path} {kind}"


def test_data_is_counted_and_purged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOMDOC_DATABASE_URL", f"sqlite:///{tmp_path}/oomdoc.db")
    with client(tmp_path) as api:
        api.post("/v1/diagnose", json={"text": LOG})
        api.post("/v1/feedback", json=FEEDBACK)
    run = CliRunner().invoke
    assert json.loads(run(command, ["data", "counts"]).stdout)["diagnoses"] == 1
    assert json.loads(run(command, ["data", "purge"]).stdout)["diagnoses"] == 0
    assert json.loads(run(command, ["data", "purge", "--older-than", "0"]).stdout)["diagnoses"] == 1
    left = json.loads(run(command, ["data", "counts"]).stdout)
    assert (left["diagnoses"], left["feedback"]) == (0, 1)


def test_settings_come_from_a_file_below_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "oomdoc.toml"
    file.write_text('port = 9000\nretention_days = 7\ntrusted_proxies = "10.0.0.0/8"\n')
    monkeypatch.setenv("OOMDOC_CONFIG", str(file))
    monkeypatch.setenv("OOMDOC_PORT", "9001")
    settings = load_settings()
    assert (settings.port, settings.retention_days, settings.trusted_proxies) == (9001, 7, "10.0.0.0/8")
    file.write_text('trusted_proxies = "everybody"\n')
    with pytest.raises(InputError, match="TRUSTED_PROXIES"):
        load_settings()


def test_the_same_question_is_worked_out_once() -> None:
    answers, runs = Answers(10), []

    async def work() -> tuple[str, int]:
        runs.append(1)
        await asyncio.sleep(0.05)
        return "answer", 6

    async def ask() -> list[str]:
        return await asyncio.gather(*(answers.once(b"k", work) for _ in range(4)))

    assert (asyncio.run(ask()), len(runs)) == (["answer"] * 4, 1)


def test_what_was_asked_before_a_change_is_not_kept() -> None:
    answers = Answers(10)

    async def work() -> tuple[str, int]:
        answers.clear()
        return "old", 3

    assert asyncio.run(answers.once(b"k", work)) == "old"
    assert answers.get(b"k") is None


def test_an_answer_counts_with_all_that_it_holds() -> None:
    long = Answer("{" + "x" * 1_000_000, ("w",), "en", "masked" * 100_000, "unclear", "none")
    assert long.size_bytes > 1_600_000


def test_answers_are_bounded_in_bytes() -> None:
    answers = Answers(1000, most_bytes=100)
    for n in range(50):
        answers.put(b"%d" % n, n, 20, generation=answers.generation)
    assert sum(answers.get(b"%d" % n) is not None for n in range(50)) == 5
