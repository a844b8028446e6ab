"""A real MCP client talks to `oomdoc mcp` over stdio."""

from __future__ import annotations

import json
import sys
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")


async def _talk(calls: list[tuple[str, dict[str, Any]]]) -> tuple[list[str], list[Any]]:
    from mcp import ClientSession, StdioServerParameters, stdio_client

    parameters = StdioServerParameters(command=sys.executable, args=["-m", "oomdoc", "mcp"])
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        return tools, [await session.call_tool(name, arguments) for name, arguments in calls]


def talk(*calls: tuple[str, dict[str, Any]]) -> tuple[list[str], list[Any]]:
    return anyio.run(_talk, list(calls))


def document(result: Any) -> dict[str, Any]:
    return json.loads(result.content[0].text)


def test_the_tools_answer() -> None:
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB"
    tools, (diagnosed, priced, refused, found, scanned) = talk(
        ("diagnose", {"text": log}),
        ("estimate", {"job": {"model": "Qwen/Qwen2.5-7B", "micro_batch": 1, "seq_len": 512}}),
        ("estimate", {"job": {"model": "Qwen/Qwen2.5-7B", "micro_batch": 0}}),
        ("search_cases", {"text": "OOM when saving a ZeRO-3 checkpoint", "top": 2}),
        ("scan", {"requirements": "deepspeed==0.16.3\n"}),
    )
    assert tools == ["diagnose", "estimate", "plan", "search_cases", "scan"]
    assert document(diagnosed)["verdict"] == "device-oom"
    assert document(priced)["peak_gib"]["process"] > 14
    assert refused.is_error
    assert "micro_batch" in refused.content[0].text
    assert len(document(found)["matches"]) == 2
    assert any(a["package"] == "deepspeed" for a in document(scanned)["advisories"])
