"""Secrets planted wherever a request can carry them: none is in the store, in an answer that is kept, or in the log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.service.intake.planted import planted

from oomdoc.api.app import create_app
from oomdoc.api.server import JsonLines
from oomdoc.settings import Settings

LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB"
HF = "hf_abcdefghijklmnopqrstuvwxyz012345"
KEY = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def api(tmp_path: Path) -> Iterator[TestClient]:
    app = create_app(Settings(database_url=f"sqlite:///{tmp_path}/x.db"))
    with TestClient(app, raise_server_exceptions=False) as opened:
        yield opened


def stored(api: TestClient) -> str:
    store = api.app.state.work.store()  # type: ignore[attr-defined]
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in store.everything())


def test_pasted_secrets_are_not_stored_or_answered(api: TestClient) -> None:
    secrets = []
    for number in range(4):
        lines = [(text, secret) for n, (_, text, secret) in enumerate(planted(1)) if n % 4 == number]
        secrets += [secret for _, secret in lines]
        answer = api.post("/v1/diagnose", json={"text": "\n".join([LOG, *(text for text, _ in lines), LOG])})
        assert answer.status_code == 200
        assert not [s for s in secrets if s in answer.text]
    held = stored(api)
    assert "CUDA out of memory" in held
    assert not [s for s in secrets if s in held or s[: max(8, len(s) // 2)] in held]


def test_names_and_stated_values_are_masked(api: TestClient) -> None:
    body = {
        "text": LOG,
        "configs": {f"/home/zhangsan/{HF}.yaml": "model_name_or_path: /home/zhangsan/m\nlearning_rate: 1e-5\n"},
        "set": {"env": {"WANDB_API_KEY": KEY, "PATH": "/home/zhangsan/bin"}, "model": "/home/zhangsan/Qwen2.5-7B"},
    }
    answer = api.post("/v1/diagnose", json=body)
    assert answer.status_code == 200, answer.text
    uploaded = api.post(
        "/v1/diagnose",
        files={"file": (f"zhangsan@corp.example-{HF}.log", LOG.encode())},
        data={"set": json.dumps({"env": {"HF_TOKEN": HF}})},
    )
    assert uploaded.status_code == 200
    for word in ("zhangsan", HF, KEY):
        assert word not in answer.text
        assert word not in uploaded.text
        assert word not in stored(api)


@pytest.mark.parametrize("field", ["env", "versions"])
def test_names_of_stated_values_are_masked(api: TestClient, field: str) -> None:
    answer = api.post("/v1/diagnose", json={"text": LOG, "set": {field: {HF: "1", "HF_HOME": "/x"}}})
    assert answer.status_code == 200, answer.text
    assert HF not in answer.text + stored(api)


def test_an_id_that_is_a_credential_is_not_told_again(api: TestClient) -> None:
    for given in (HF, KEY, "日志".encode()):
        told = api.get("/healthz", headers={"x-request-id": given}).headers["x-request-id"]
        assert len(told) == 16


def test_what_people_say_is_masked(api: TestClient) -> None:
    said = {"diagnosis": "0123456789abcdef", "helpful": "no", "cause": HF, "comment": f"my password is hunter2x {KEY}"}
    assert api.post("/v1/feedback", json=said | {"comment": f"wandb login {KEY}"}).status_code == 201
    first = api.post("/v1/chat", json={"text": f"HF_TOKEN={HF} LoRA of Qwen2.5-7B at /home/zhangsan/x on one RTX 4090"})
    second = api.post("/v1/chat", json={"text": f"wandb login {KEY}, seq 2048", "session": first.json()["session"]})
    assert second.status_code == 200
    held = stored(api)
    assert not [word for word in (HF, KEY, "zhangsan") if word in held]


def test_the_log_says_nothing(api: TestClient) -> None:
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonLines().format(record))

    handler = Keep()
    logging.getLogger("oomdoc").addHandler(handler)
    logging.getLogger("oomdoc").setLevel("DEBUG")
    try:
        api.post("/v1/diagnose", json={"text": f"{LOG} {HF}", "set": {"seq_len": HF}})
        api.post("/v1/estimate", json={"job": {"model": HF}})
        api.post("/v1/cases", json={"id": "leak/x-y", "yaml": f"token: {HF}"})
        api.get(f"/v1/cases/leak/{HF.lower().replace('_', '-')}?token={HF}")
    finally:
        logging.getLogger("oomdoc").removeHandler(handler)
    assert lines
    assert HF not in "\n".join(lines)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/diagnose", {"text": LOG, "set": {"seq_len": f"wandb login {KEY}"}}),
        ("/v1/diagnose", {"text": LOG, "set": {f"HF_TOKEN={HF}": 1}}),
        ("/v1/estimate", {"job": {"model": "Qwen/Qwen2.5-7B", "optimizer": f"password: {KEY}"}}),
        ("/v1/plan", {"job": {"model": "Qwen/Qwen2.5-7B", "gpu": f"api_key={KEY}"}}),
    ],
)
def test_a_refusal_does_not_quote_them(api: TestClient, path: str, body: dict[str, object]) -> None:
    plain = api.post(path, json=body)
    streamed = api.post(path, json=body, headers={"accept": "text/event-stream"})
    assert plain.status_code in (400, 422), plain.text
    for answer in (plain, streamed):
        assert HF not in answer.text
        assert KEY not in answer.text


def test_a_notebooks_text_is_masked_though_it_is_json(api: TestClient) -> None:
    source = ['api.connect(passwd="c0rrect-h0rse")\n', "# 密码: c0rrect-h0rse\n"]
    outputs = [{"output_type": "stream", "text": [LOG]}]
    notebook = {"nbformat": 4, "cells": [{"cell_type": "code", "source": source, "outputs": outputs}]}
    answer = api.post("/v1/diagnose", files={"file": ("a.ipynb", json.dumps(notebook).encode())})
    assert answer.status_code == 200, answer.text
    assert "c0rrect-h0rse" not in answer.text
    assert "c0rrect-h0rse" not in stored(api)


def test_a_refusal_does_not_quote_an_address_or_the_name_of_a_function(api: TestClient) -> None:
    assert HF not in api.get(f"/v1/cases/leak/{HF}").text
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": HF, "arguments": {}}}
    answer = api.post("/mcp", json=call, headers={"accept": "application/json, text/event-stream"})
    assert "no such tool" in answer.text
    assert HF not in answer.text
