"""``oomdoc mcp``: a server of the Model Context Protocol."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from oomkb.errors import InputError


class Transport(StrEnum):
    """How the client speaks."""

    stdio = "stdio"
    http = "http"


def mcp(
    transport: Annotated[
        Transport, typer.Option(help="stdio for editors and agents, http for a server.")
    ] = Transport.stdio,
    host: Annotated[str, typer.Option(help="Address to listen on (http).")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on (http).")] = 8766,
) -> None:
    """Serve oomdoc's functions to agents and editors over the Model Context Protocol.

    Over http it listens at /mcp, as `oomdoc serve` does beside its API, and takes the API's keys (OOMDOC_API_KEYS).

    Examples:

        oomdoc mcp

        OOMDOC_API_KEYS=a-key-of-16-chars:read oomdoc mcp --transport http --host 0.0.0.0
    """
    try:
        from oomdoc.mcp import create_server, http_app
    except ImportError as error:
        raise InputError(
            "the MCP SDK is not installed", where="oomdoc mcp", hint="pip install 'oomdoc[mcp]'"
        ) from error
    if transport is Transport.stdio:
        create_server().run("stdio")
        return
    try:
        import uvicorn

        from oomdoc.api.guard import Guard
        from oomdoc.settings import load_settings
    except ImportError as error:
        raise InputError(
            "the server is not installed", where="oomdoc mcp --transport http", hint="pip install 'oomdoc[mcp,serve]'"
        ) from error
    settings = load_settings(host=host, port=port)
    uvicorn.run(Guard(http_app(), settings), host=host, port=port, log_level="warning", proxy_headers=False)
