"""The same behaviour on SQLite and on a real PostgreSQL server that the test starts itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from oomdoc.store.store import Claim, Conflict, Store, StoreDown, open_store
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
    key = f"key-{id(store)}"
    assert store.claim(key, "aa") is None
    held = store.claim(key, "aa")
    assert held is not None
    assert held.status == 0
    store.settle(key, 201, "first")
    store.release(key)
    assert store.claim(key, "bb") == Claim("aa", 201, "first")
    assert store.claim(f"{key}-2", "aa") is None
    assert store.claim(f"{key}-2", "aa", lease_s=-1) is None


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
