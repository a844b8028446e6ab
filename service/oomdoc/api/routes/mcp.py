"""The functions for agents at ``/mcp``: streamable HTTP of the Model Context Protocol, where its SDK is installed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from oomdoc.api.work import Work
from oomkb.errors import InputError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from oomdoc.tools import Tool


class _Endpoint:
    """Hands over to the application of the SDK; a class, so that any method is passed on."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        served = getattr(scope["app"].state, "mcp", None)
        if served is None:
            raise HTTPException(404, "the MCP SDK is not installed: pip install 'oomdoc[mcp]'")
        await served(scope, receive, send)


ROUTE: Final = Route("/mcp", _Endpoint(), include_in_schema=False)


@contextlib.asynccontextmanager
async def serving_mcp(app: FastAPI) -> AsyncIterator[None]:
    """Answer at :data:`ROUTE` as long as this lasts; what a function computes, the processes of the API compute."""
    if find_spec("mcp") is None:
        yield
        return
    from oomdoc.mcp import Report, http_app

    work: Work = app.state.work

    async def call(tool: Tool, arguments: Mapping[str, Any], report: Report) -> dict[str, Any]:
        await report(0.1, f"{tool.name}: computing")
        try:
            _, found = await work.run("tool", {"name": tool.name, "arguments": dict(arguments)})
        except HTTPException as error:
            raise InputError(str(error.detail), where=tool.name, hint="try again in a moment") from error
        answer: dict[str, Any] = json.loads(found)
        return answer

    served = http_app(call)
    async with served.router.lifespan_context(served):
        app.state.mcp = served
        yield
        app.state.mcp = None
