"""The same behaviour on SQLite and on a real PostgreSQL server that the test starts itself."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from oomdoc.store.store import Conflict, Store, StoreDown, StoredResponse, default_database_url, open_store
from oomkb.errors import InputError


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/oomdoc.db"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


def test_a_diagnosis_comes_back(store: Store) -> None:
    identifier = store.add_diagnosis(language="zh", input_masked="显存\0不足", result={"verdict": "device-oom"})
    kept = store.diagnosis(identifier)
    assert kept is not None
    assert kept.result == {"verdict": "device-oom", "id": identifier}
    assert "\0" not in kept.input_masked
    assert store.diagnosis("nothing") is None


def test_opening_twice_is_safe(url: str, store: Store) -> None:
    identifier = store.add_diagnosis(language="en", input_masked="x", result={})
    again = open_store(url)
    assert again.diagnosis(identifier) is not None
    again.close()


def test_replicas_may_migrate_at_once(url: str) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            open_store(url).close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


def test_the_later_writer_of_a_chat_notices(store: Store) -> None:
    name = f"chat-{id(store)}"
    assert store.save_chat(name, {"steps": []}, version=0) == 1
    assert store.save_chat(name, {"steps": [1]}, version=1) == 2
    with pytest.raises(Conflict):
        store.save_chat(name, {"steps": [2]}, version=1)
    with pytest.raises(Conflict):
        store.save_chat(name, {"steps": [3]}, version=0)
    assert store.chat(name) == ({"steps": [1]}, 2)


def test_an_event_is_new_once(store: Store) -> None:
    assert store.first_time("slack", f"E{id(store)}")
    assert not store.first_time("slack", f"E{id(store)}")
    assert store.first_time("feishu", f"E{id(store)}")


def test_cases_come_in_order_and_once(store: Store) -> None:
    first = store.add_case(f"logits/a-{id(store)}", "schema: 1")
    second = store.add_case(f"logits/b-{id(store)}", "schema: 1")
    assert second > first
    assert [c.sequence for c in store.cases_after(first)] == [second]
    with pytest.raises(Conflict):
        store.add_case(f"logits/a-{id(store)}", "schema: 1")


def test_an_idempotency_key_keeps_its_first_answer(store: Store) -> None:
    key, runs = f"key-{id(store)}", []

    def effect(connection: Connection) -> dict[str, object]:
        runs.append(store.add_case(f"logits/once-{id(store)}", "schema: 1", connection=connection))
        return {"sequence": runs[-1]}

    first = store.once(key, "aa", 201, effect)
    assert store.once(key, "aa", 201, effect) == first == StoredResponse(201, f'{{"sequence": {runs[0]}}}')
    assert len(runs) == 1
    with pytest.raises(Conflict, match="another body"):
        store.once(key, "bb", 201, effect)


def test_an_effect_that_fails_leaves_neither_key_nor_rows(store: Store) -> None:
    key, name = f"half-{id(store)}", f"logits/half-{id(store)}"

    def dies(connection: Connection) -> dict[str, object]:
        store.add_case(name, "schema: 1", connection=connection)
        raise RuntimeError("killed here")

    with pytest.raises(RuntimeError):
        store.once(key, "aa", 201, dies)
    assert name not in store.case_ids()
    again = store.once(key, "aa", 201, lambda c: {"sequence": store.add_case(name, "schema: 1", connection=c)})
    assert again.status == 201
    assert name in store.case_ids()


DIES = """
import os, signal, sys
from oomdoc.store.store import open_store
store = open_store(sys.argv[1])
def effect(connection):
    store.add_case(sys.argv[2], "schema: 1", connection=connection)
    os.kill(os.getpid(), signal.SIGKILL)
store.once(sys.argv[3], "aa", 201, effect)
"""


def test_a_process_killed_before_its_commit_leaves_neither_key_nor_rows(url: str, store: Store) -> None:
    key, name = f"killed-{id(store)}", f"logits/killed-{id(store)}"
    died = subprocess.run([sys.executable, "-c", DIES, url, name, key], check=False, capture_output=True, timeout=600)
    assert died.returncode == -signal.SIGKILL, died.stderr
    again = store.once(key, "aa", 201, lambda c: {"sequence": store.add_case(name, "schema: 1", connection=c)})
    assert again.status == 201
    assert store.once(key, "aa", 201, lambda c: {"sequence": store.add_case(name, "x", connection=c)}) == again
    assert [case.id for case in store.cases_after(0)].count(name) == 1


def test_ten_at_once_with_one_key_write_once(store: Store) -> None:
    key, found = f"ten-{id(store)}", []
    before = store.counts()["feedback"]

    def effect(connection: Connection) -> dict[str, object]:
        time.sleep(0.05)
        row = {"diagnosis_id": "0123456789abcdef", "helpful": "yes", "cause": None, "comment_masked": None}
        return {"id": store.add_feedback(**row, connection=connection)}

    threads = [threading.Thread(target=lambda: found.append(store.once(key, "aa", 201, effect))) for _ in range(10)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10
    assert len(set(found)) == 1
    assert store.counts()["feedback"] == before + 1
    assert time.monotonic() - started < 60


def test_the_same_answer_is_kept_once(store: Store) -> None:
    text, result = "long log " * 500 + str(id(store)), {"verdict": "device-oom", "summary": "x" * 5000}
    before = store.counts()
    ids = [store.add_diagnosis(language="en", input_masked=text, result=result) for _ in range(20)]
    after = store.counts()
    assert after["diagnoses"] - before["diagnoses"] == 20
    assert after["contents"] - before["contents"] == 1
    assert all((kept := store.diagnosis(i)) is not None and kept.result == result | {"id": i} for i in ids)
    assert store.erase(ids[0])["diagnoses"] == 1
    assert store.diagnosis(ids[1]) is not None


def test_diagnoses_are_bounded_in_bytes(store: Store) -> None:
    for n in range(40):
        newest = store.add_diagnosis(language="en", input_masked=f"{n} {id(store)} " + "y" * 10_000, result={"n": n})
    store.purge(older_than_days=1, most_bytes=100_000)
    assert sum(row["size_bytes"] for row in store.everything() if row["table"] == "contents") <= 100_000
    kept = store.diagnosis(newest)
    assert kept is not None
    assert kept.result["n"] == 39


def test_everything_can_be_exported_and_erased(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/own.db")
    identifier = store.add_diagnosis(language="en", input_masked="x", result={})
    store.add_feedback(diagnosis_id=identifier, helpful="yes", cause=None, comment_masked="good")
    assert {row["table"] for row in store.everything()} == {"contents", "diagnoses", "feedback"}
    assert store.erase()["feedback"] == 1
    assert not any(store.counts().values())
    store.close()


def test_the_file_is_its_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OOMDOC_STATE", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    url = default_database_url()
    open_store(url).close()
    file = Path(url.removeprefix("sqlite:///"))
    assert file == tmp_path / ".local" / "state" / "oomdoc" / "oomdoc.db"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_newer_schema_is_told_as_such(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/newer.db"
    store = open_store(url)
    with store._transaction() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    store.close()
    with pytest.raises(InputError, match="newer version"):
        open_store(url)


def test_rows_of_the_first_version_are_read(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/old.db")
    with store._transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO diagnoses (id, created_at, language, input_masked, result) "
            "VALUES ('abc', '2026-01-01 00:00:00', 'en', 'text', '{\"verdict\": \"not-oom\"}')"
        )
    kept = store.diagnosis("abc")
    assert kept is not None
    assert (kept.input_masked, kept.result) == ("text", {"verdict": "not-oom", "id": "abc"})
    store.close()


def test_a_server_that_is_frozen_is_given_up(postgres_url: str, tmp_path: Path) -> None:
    import psutil

    store = open_store(postgres_url)
    store.ping()
    with store._transaction() as connection:
        folder = connection.exec_driver_sql("SHOW data_directory").scalar_one()
    main = int((Path(str(folder)) / "postmaster.pid").read_text().split()[0])
    stopped = [psutil.Process(main), *psutil.Process(main).children(recursive=True)]
    for process in stopped:
        process.suspend()
    try:
        started = time.monotonic()
        with pytest.raises(StoreDown):
            store.ping()
        assert time.monotonic() - started < 60
    finally:
        for process in stopped:
            process.resume()
    store.ping()
    store.close()


def test_purge_keeps_feedback_and_cases(store: Store) -> None:
    identifier = store.add_diagnosis(language="en", input_masked="x", result={})
    store.add_feedback(diagnosis_id=identifier, helpful="yes", cause=None, comment_masked="good")
    assert store.purge(older_than_days=0)["diagnoses"] >= 1
    assert store.diagnosis(identifier) is None
    assert store.feedback()[0]["diagnosis_id"] == identifier


def test_a_store_that_is_away_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be used"):
        open_store("postgresql://nobody@127.0.0.1:1/none")
    with pytest.raises(InputError):
        open_store("nonsense")


def test_a_store_that_goes_away_says_so(tmp_path: Path) -> None:
    opened = open_store(f"sqlite:///{tmp_path}/x.db")
    opened.close()
    (tmp_path / "x.db").write_bytes(b"not a database" * 1000)
    with pytest.raises(StoreDown):
        opened.counts()
