"""The HTTP API: what it takes, what it refuses, and how."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from oomdoc.api.app import Corpus, create_app
from oomdoc.settings import Settings

LOG = (
    "8 x V100 16GB, LoRA of Qwen2.5-7B\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 0 has a total capacity of 15.77 GiB of which 1.00 GiB is free. password=hunter2secret"
)
KEY = "0123456789abcdef-write"


def client(tmp_path: Path, **settings: object) -> TestClient:
    options = {"database_url": f"sqlite:///{tmp_path}/oomdoc.db", **settings}
    app = create_app(Settings(**options))  # type: ignore[arg-type]
    # A replica of its own: what one test submits, no other test finds.
    app.state.corpus = Corpus(app.state.work, tmp_path / f"submitted-{len(list(tmp_path.iterdir()))}")
    return TestClient(app, raise_server_exceptions=False)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client(tmp_path_factory.mktemp("api")) as opened:
        yield opened


def test_json_text_gzip_and_files_give_the_same_answer(api: TestClient) -> None:
    answers = [
        api.post("/v1/diagnose", json={"text": LOG}),
        api.post("/v1/diagnose", content=LOG.encode(), headers={"content-type": "text/plain"}),
        api.post(
            "/v1/diagnose",
            content=gzip.compress(LOG.encode()),
            headers={"content-type": "text/plain", "content-encoding": "gzip"},
        ),
        api.post("/v1/diagnose", files={"file": ("input", LOG.encode())}),
    ]
    assert [a.status_code for a in answers] == [200] * 4
    documents = [a.json() for a in answers]
    assert len({json.dumps(d["causes"]) for d in documents}) == 1
    assert documents[0]["verdict"] == "device-oom"


def test_what_is_kept_is_masked(api: TestClient) -> None:
    identifier, until = None, time.monotonic() + 60
    while identifier is None and time.monotonic() < until:  # on a busy machine the store may not answer in time
        identifier = api.post("/v1/diagnose", json={"text": LOG}).json()["id"]
    kept = api.app.state.work.store().diagnosis(identifier)  # type: ignore[attr-defined]
    assert kept is not None
    assert "hunter2secret" not in kept.input_masked
    assert "hunter2secret" not in json.dumps(kept.result)


def test_events_end_with_the_result(api: TestClient) -> None:
    answer = api.post("/v1/diagnose", json={"text": LOG}, headers={"accept": "text/event-stream"})
    events = [block.split("\n")[0] for block in answer.text.strip().split("\n\n")]
    assert events[0] == "event: progress"
    assert events[-1] == "event: result"


def test_a_turn_is_streamed_where_asked_for(api: TestClient) -> None:
    said = {"text": "LoRA of Qwen2.5-7B on one RTX 4090, seq 4096, batch 1", "language_model": False}
    whole = api.post("/v1/chat", json=said).json()
    answer = api.post("/v1/chat", json=said, headers={"accept": "text/event-stream"})
    events = [block.split("\n") for block in answer.text.strip().split("\n\n")]
    assert [name for name, _ in events] == ["event: delta", "event: result"]
    result = json.loads(events[-1][1].removeprefix("data: "))
    assert result["answer"] == json.loads(events[0][1].removeprefix("data: "))["text"] == whole["answer"]
    gone = {"text": "batch 2", "session": "no-such-session"}
    refused = api.post("/v1/chat", json=gone, headers={"accept": "text/event-stream"})
    assert "event: error" in refused.text
    assert api.post("/v1/chat", json=gone).status_code == 400


def test_an_estimate(api: TestClient) -> None:
    body = {"job": {"model": "Qwen/Qwen2.5-7B", "micro_batch": 1, "seq_len": 1024}}
    document = api.post("/v1/estimate", json=body).json()
    assert document["peak_gib"]["process"] > document["peak_gib"]["allocated"] > 14


@pytest.mark.parametrize(
    ("path", "body", "status", "where"),
    [
        ("/v1/estimate", {"job": {"model": "Qwen/Qwen2.5-7B", "micro_batch": 0}}, 422, "micro_batch"),
        ("/v1/estimate", {"job": {"model": "no/such-thing"}}, 422, "model"),
        ("/v1/estimate", {}, 422, "body.job"),
        ("/v1/diagnose", {"text": ""}, 422, "body.text"),
        ("/v1/diagnose", {"text": "x", "unknown": 1}, 422, "body.unknown"),
        ("/v1/chat", {"text": "hello", "session": "0123456789"}, 400, "session 0123456789"),
        ("/v1/cases", {"id": "nonsense/x-y", "yaml": "a: 1"}, 422, "nonsense/x-y"),
    ],
)
def test_refusals_are_problem_documents(api: TestClient, path: str, body: dict, status: int, where: str) -> None:
    answer = api.post(path, json=body)
    assert answer.status_code == status
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert answer.json()["where"] == where


def test_unknown_paths_and_methods_are_problem_documents(api: TestClient) -> None:
    for answer in (
        api.get("/nowhere"),
        api.get("/v1/estimate"),
        api.post("/v1/diagnose", content=b"x", headers={"content-type": "a/b"}),
    ):
        assert answer.status_code in (404, 405, 415)
        assert answer.json()["title"]


def test_every_answer_carries_an_id_and_a_policy(api: TestClient) -> None:
    answer = api.get("/healthz", headers={"x-request-id": "my-id"})
    assert answer.headers["x-request-id"] == "my-id"
    assert "default-src" in answer.headers["content-security-policy"]
    assert api.get("/healthz", headers={"x-request-id": "bad id\t"}).headers["x-request-id"] != "bad id\t"


def test_a_chat_goes_on(api: TestClient) -> None:
    first = api.post("/v1/chat", json={"text": "LoRA of Qwen2.5-7B on one RTX 4090, seq 4096, batch 1"}).json()
    second = api.post("/v1/chat", json={"text": "seq 2048", "session": first["session"]}).json()
    assert second["changed"] == {"seq_len": 2048}
    assert second["peak_gib"] < first["peak_gib"]


def test_feedback_is_idempotent(api: TestClient) -> None:
    body = {"diagnosis": "0123456789abcdef", "helpful": "no", "cause": "leak"}
    headers = {"idempotency-key": "feedback-one"}
    first = api.post("/v1/feedback", json=body, headers=headers)
    again = api.post("/v1/feedback", json=body, headers=headers)
    assert (first.status_code, first.json()) == (201, again.json())
    other = api.post("/v1/feedback", json=body | {"helpful": "yes"}, headers=headers)
    assert other.status_code == 409


def test_metrics_and_openapi(api: TestClient) -> None:
    assert "oomdoc_requests_total" in api.get("/metrics").text
    paths = api.get("/openapi.json").json()["paths"]
    assert {"/v1/diagnose", "/v1/estimate", "/v1/plan", "/v1/search", "/v1/chat", "/v1/cases", "/v1/feedback"} <= set(
        paths
    )


def test_bodies_are_bounded(tmp_path: Path) -> None:
    with client(tmp_path, max_body_bytes=2000) as small:
        plain = {"content-type": "text/plain"}
        assert small.post("/v1/diagnose", content=b"x" * 3000, headers=plain).status_code == 413
        bomb = gzip.compress(b"0" * 10_000_000)
        answer = small.post("/v1/diagnose", content=bomb, headers=plain | {"content-encoding": "gzip"})
        assert answer.status_code == 413
        bad = small.post("/v1/diagnose", content=b"no gzip", headers=plain | {"content-encoding": "gzip"})
        assert bad.status_code == 400


def test_keys_and_scopes(tmp_path: Path) -> None:
    with client(tmp_path, auth="required", api_keys=f"{KEY}:write,read-only-key-0123456789:read") as closed:
        job = {"job": {"model": "Qwen/Qwen2.5-7B"}}
        assert closed.get("/healthz").status_code == 200
        assert closed.post("/v1/estimate", json=job).status_code == 401
        assert closed.post("/v1/estimate", json=job, headers={"x-api-key": "wrong-key-0123456789"}).status_code == 401
        reader = {"authorization": "Bearer read-only-key-0123456789"}
        assert closed.post("/v1/estimate", json=job, headers=reader).status_code == 200
        feedback = {"diagnosis": "0123456789abcdef", "helpful": "yes"}
        assert closed.post("/v1/feedback", json=feedback, headers=reader).status_code == 403
        assert closed.post("/v1/feedback", json=feedback, headers={"x-api-key": KEY}).status_code == 201
        assert closed.get("/metrics", headers=reader).status_code == 403


def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    with client(tmp_path, rate_per_minute=6) as slow:
        statuses = [slow.get("/openapi.json") for _ in range(4)]
        assert statuses[0].status_code == 200
        assert statuses[-1].status_code == 429
        assert int(statuses[-1].headers["retry-after"]) >= 1


def test_a_dead_store_takes_no_answer_away(tmp_path: Path) -> None:
    with client(tmp_path, database_url="postgresql://nobody@127.0.0.1:1/none") as alone:
        answer = alone.post("/v1/diagnose", json={"text": LOG})
        assert answer.status_code == 200
        assert answer.json()["causes"]
        assert answer.json()["id"] is None
        ready = alone.get("/readyz")
        assert (ready.status_code, ready.json()["components"]) == (200, {"store": "down", "index": "ok"})
        assert alone.get("/healthz").status_code == 200
        lost = alone.post("/v1/feedback", json={"diagnosis": "0123456789abcdef", "helpful": "yes"})
        assert lost.status_code == 503


def test_a_case_added_through_one_replica_is_found_by_another(tmp_path: Path, root: Path) -> None:
    shipped = next((root / "cases" / "leak").glob("*.yaml"))
    marked = shipped.read_text(encoding="utf-8")
    url = {"database_url": f"sqlite:///{tmp_path}/shared.db"}
    (tmp_path / "one").mkdir()
    with client(tmp_path / "one", **url) as one, client(tmp_path, **url) as two:
        sent = one.post("/v1/cases", json={"id": "leak/from-another-replica", "yaml": marked})
        assert sent.status_code == 201, sent.text
        two.app.state.corpus.refresh()  # type: ignore[attr-defined]
        mirrored = list(tmp_path.glob("submitted-*/leak/from-another-replica.yaml"))
        assert len(mirrored) == 1
        listed = two.get("/v1/cases", params={"cause": "leak", "limit": 1000}).json()["cases"]
        assert "leak/from-another-replica" in {case["case"] for case in listed}


def test_threads_that_refresh_at_once_write_each_case_once(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = next((root / "cases" / "leak").glob("*.yaml")).read_text(encoding="utf-8")
    with client(tmp_path) as one:
        work = one.app.state.work  # type: ignore[attr-defined]
        for number in range(8):
            sent = one.post("/v1/cases", json={"id": f"leak/at-once-{number}", "yaml": shipped})
            assert sent.status_code == 201, sent.text
        store = type(work.store())
        read = store.cases_after

        def read_slowly(self: Any, sequence: int) -> Any:
            found = read(self, sequence)
            time.sleep(0.02)  # long enough that another thread would read before this one writes
            return found

        monkeypatch.setattr(store, "cases_after", read_slowly)
        late = Corpus(work, tmp_path / "late")
        with ThreadPoolExecutor(8) as pool:
            fetched = list(pool.map(lambda _: late.refresh(), range(8)))
        assert sum(fetched) == 8
        assert len(list((tmp_path / "late").rglob("*.yaml"))) == 8
