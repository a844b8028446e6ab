"""The server with a language model: asked beside the processes that compute, left out where the request says so."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from standin import StandIn, completion

from oomdoc.api.app import create_app
from oomdoc.language_model import failing
from oomdoc.settings import Settings

TEXT = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.64 GiB. It dies in the loss, learning from better and worse answers."
REPLY = {
    "what": "device-memory",
    "what_quote": "CUDA out of memory",
    "causes": [{"cause": "logits", "quote": "It dies in the loss", "sure": "high"}],
    "facts": [{"key": "objective", "value": "dpo", "quote": "learning from better and worse answers"}],
    "statements": [],
}


@pytest.fixture
def client(endpoint: StandIn, tmp_path: object) -> Iterator[TestClient]:
    failing._BREAKERS.clear()
    endpoint.say = lambda _request: completion(json.dumps(REPLY))
    settings = Settings(
        llm_url=endpoint.url, llm_timeout=60.0, database_url=f"sqlite:///{tmp_path}/x.db", diagnosing_processes=0
    )
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as made:
        yield made


def test_json_text_and_files_are_read_with_it(client: TestClient, endpoint: StandIn) -> None:
    answers = [
        client.post("/v1/diagnose", json={"text": TEXT, "plans": False}),
        client.post("/v1/diagnose", content=TEXT, headers={"content-type": "text/plain"}),
        client.post("/v1/diagnose", files={"file": ("log.txt", TEXT)}, data={"plans": "false"}),
    ]
    for answer in answers:
        document = answer.json()
        assert document["causes"][0]["cause"] == "logits", document
        assert document["facts"]["objective"]["origin"] == "language-model"
        assert document["language_model"]["trouble"] is None
    assert len(endpoint.requests) == 3


def test_a_request_may_leave_it_out(client: TestClient, endpoint: StandIn) -> None:
    body = {"text": TEXT, "plans": False, "language_model": False}
    assert "language_model" not in client.post("/v1/diagnose", json=body).json()
    sent = {"plans": "false", "language_model": "false"}
    answer = client.post("/v1/diagnose", files={"file": ("log.txt", TEXT)}, data=sent)
    assert "language_model" not in answer.json()
    assert not endpoint.requests


def test_a_failure_is_not_kept_for_the_next_who_asks(client: TestClient, endpoint: StandIn) -> None:
    endpoint.say = lambda _request: (503, {})
    body = {"text": TEXT, "plans": False}
    first = client.post("/v1/diagnose", json=body).json()
    assert first["language_model"]["trouble"] == "failed"
    assert first["warnings"]
    endpoint.say = lambda _request: completion(json.dumps(REPLY))
    assert client.post("/v1/diagnose", json=body).json()["language_model"]["trouble"] is None
    assert client.post("/v1/diagnose", json=body).json()["language_model"]["trouble"] is None
    assert len(endpoint.requests) == 2  # the good one is kept
