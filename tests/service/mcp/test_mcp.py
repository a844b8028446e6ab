"""The official MCP client talks to `oomdoc mcp` over stdio, and to `oomdoc serve` over HTTP with and without a key."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

import httpx2
import jsonschema
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from oomdoc.tools import TOOLS, tool_named

MCP, SERVE = ("mcp", "--transport", "http"), ("serve",)
LOG = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB"
KEY = "a-key-of-sixteen-or-more"
Talk = Callable[[ClientSession], Awaitable[Any]]


def over_stdio(talk: Talk) -> Any:
    async def run() -> Any:
        parameters = StdioServerParameters(command=sys.executable, args=["-m", "oomdoc", "mcp"], env=dict(os.environ))
        async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            return await talk(session)

    return anyio.run(run)


def over_http(url: str, talk: Talk, key: str = "") -> Any:
    async def run() -> Any:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=600) as client,
            streamable_http_client(url, http_client=client) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            return await talk(session)

    return anyio.run(run)


@contextlib.contextmanager
def serving(command: tuple[str, ...], folder: Path, **settings: str) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = [sys.executable, "-m", "oomdoc", *command, "--port", str(port)]
    kept = {"OOMDOC_DATABASE_URL": f"sqlite:///{folder}/oomdoc.db"}
    process = subprocess.Popen(arguments, env={**os.environ, **kept, **settings}, stdout=subprocess.DEVNULL)
    try:
        for _ in range(1200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None
            time.sleep(0.25)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        process.wait(timeout=120)


def document(result: Any) -> dict[str, Any]:
    assert not result.is_error, result.content[0].text
    assert json.loads(result.content[0].text) == result.structured_content
    return result.structured_content


async def everything(session: ClientSession) -> None:
    """What any client may do, whatever carries it."""
    tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    assert list(tools) == ["diagnose", "estimate", "compare", "extrapolate", "plan", "fix", "search", "explain", "scan"]
    job = tools["estimate"].input_schema["properties"]["job"]
    assert job["properties"]["seq_len"]["description"].endswith("[tokens]")
    assert "qlora" in job["properties"]["method"]["enum"]
    assert job["properties"]["serving"]["properties"]["max_model_len"]["examples"] == [32768]
    for name, tool in tools.items():
        assert tool.input_schema == tool_named(name).input_schema

    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, _total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    calls: dict[str, tuple[str, dict[str, Any]]] = {
        "diagnosed": ("diagnose", {"text": LOG}),
        "priced": ("estimate", {"job": {"model": "Qwen/Qwen2.5-7B", "micro_batch": 1, "seq_len": 512}}),
        "compared": (
            "compare",
            {"base": {"model": "Qwen/Qwen2.5-7B", "gpu": "4090"}, "jobs": [{"method": "full"}, {"method": "qlora"}]},
        ),
        "planned": ("plan", {"job": {"model": "Qwen/Qwen2.5-14B", "method": "lora", "gpu": "RTX 4090"}}),
        "fixed": ("fix", {"text": "cutoff_len: 4096\nstage: sft\n", "filename": "a.yaml", "fields": {"seq_len": 2048}}),
        "found": ("search", {"text": "OOM when saving a ZeRO-3 checkpoint", "top": 2}),
        "explained": ("explain", {"cause": "logits"}),
        "scanned": ("scan", {"requirements": "deepspeed==0.16.3\n"}),
    }
    answers = {}
    for name, (tool, arguments) in calls.items():
        answers[name] = document(await session.call_tool(tool, arguments, progress_callback=hear))
        jsonschema.validate(answers[name], tools[tool].output_schema)
    assert answers["diagnosed"]["verdict"] == "device-oom"
    assert answers["priced"]["peak_gib"]["process"] > 14
    assert answers["compared"]["best"] == "method=qlora"
    assert any(plan["fits_probability"] > 0.8 for plan in answers["planned"]["plans"])
    assert "+cutoff_len: 2048" in answers["fixed"]["diff"]
    assert len(answers["found"]["matches"]) == 2
    assert "Mechanism" in answers["explained"]["page"]
    assert any(a["package"] == "deepspeed" for a in answers["scanned"]["advisories"])
    assert (1.0, "done") in heard
    assert any(part < 1 and message for part, message in heard)

    for arguments, where in [
        ({"job": {"model": "Qwen/Qwen2.5-7B", "micro_batch": 0}}, "micro_batch"),
        ({"job": {"model": "Qwen/Qwen2.5-7B", "seqlen": 1}}, "seq_len"),
        ({"job": {"model": "Qwen/Qwen2.5-7B", "optimizer": "adamz"}}, "optimizer"),
        ({"job": {"model": "Qwen/Qwen2.5-7B"}, "jobb": {}}, "perhaps job"),
        ({"job": {"model": "Qwen/Qwen2.5-7B"}, "seq_len": 4096}, 'a field of a job: {"job": {"seq_len"'),
    ]:
        refused = await session.call_tool("estimate", arguments)
        assert refused.is_error
        assert where in refused.content[0].text

    uris = {str(r.uri) for r in (await session.list_resources()).resources}
    assert {"oomdoc://job-schema", "oomdoc://taxonomy", "oomdoc://cases", "oomdoc://gpus", "oomdoc://models"} <= uris
    for uri in uris:
        read = await session.read_resource(uri)
        assert json.loads(read.contents[0].text)
    cases = json.loads((await session.read_resource("oomdoc://cases")).contents[0].text)
    for uri, said in [
        ("oomdoc://taxonomy/logits", "vocabulary"),
        (f"oomdoc://cases/{cases[0]['id']}", cases[0]["title"]),
        ("oomdoc://frameworks/llama-factory", "cutoff_len"),
    ]:
        assert said in (await session.read_resource(uri)).contents[0].text
    prompts = {prompt.name for prompt in (await session.list_prompts()).prompts}
    assert prompts == {"diagnose_failure", "plan_a_run"}
    prompt = await session.get_prompt("diagnose_failure", {"log": LOG})
    assert "15.77" in prompt.messages[0].content.text


def test_over_stdio() -> None:
    over_stdio(everything)


@pytest.mark.parametrize("command", [MCP, SERVE], ids=["mcp", "serve"])
def test_over_streamable_http(command: tuple[str, ...], tmp_path: Path) -> None:
    with serving(command, tmp_path) as url:
        over_http(url, everything)


@pytest.mark.parametrize("command", [MCP, SERVE], ids=["mcp", "serve"])
def test_keys_are_those_of_the_api(command: tuple[str, ...], tmp_path: Path) -> None:
    async def tools(session: ClientSession) -> int:
        return len((await session.list_tools()).tools)

    with serving(command, tmp_path, OOMDOC_AUTH="required", OOMDOC_API_KEYS=f"{KEY}:read") as url:
        assert over_http(url, tools, KEY) == len(TOOLS)
        for wrong in ("", "another-key-of-sixteen"):
            with pytest.raises(BaseExceptionGroup, match="TaskGroup"):
                over_http(url, tools, wrong)
            answer = httpx2.post(
                url, json={}, headers={"authorization": f"Bearer {wrong}"} if wrong else {}, timeout=600
            )
            assert answer.status_code == 401
        answer = httpx2.post(
            url, json={}, headers={"host": "evil.example", "origin": "http://evil.example"}, timeout=600
        )
        assert answer.status_code == 401


@pytest.mark.parametrize("command", [MCP, SERVE], ids=["mcp", "serve"])
def test_a_page_elsewhere_may_not_call_a_server_without_keys(command: tuple[str, ...], tmp_path: Path) -> None:
    with serving(command, tmp_path) as url:
        answer = httpx2.post(url, json={}, headers={"origin": "http://evil.example"}, timeout=600)
        assert answer.status_code == 403
        answer = httpx2.post(url, content=b"x" * (9 << 20), timeout=600)
        assert answer.status_code == 413
