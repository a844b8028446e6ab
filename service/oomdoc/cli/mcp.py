"""``oomdoc mcp``: the Model Context Protocol door."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from oomkb.errors import InputError

__all__ = ["register"]


class Transport(StrEnum):
    """How the client speaks."""

    stdio = "stdio"
    http = "http"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(mcp)


def mcp(
    transport: Annotated[
        Transport, typer.Option(help="stdio for editors and agents, http for a server.")
    ] = Transport.stdio,
    host: Annotated[str, typer.Option(help="Address to listen on (http).")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on (http).")] = 8766,
) -> None:
    """Serve the tools diagnose, estimate, plan, search_cases and scan over the Model Context Protocol.

    Example: `oomdoc mcp` as the command of a server in your editor's MCP settings.
    """
    try:
        from oomdoc.mcp import create_server
    except ImportError as error:
        raise InputError(
            "the MCP SDK is not installed", where="oomdoc mcp", hint="pip install 'oomdoc[mcp]'"
        ) from error
    server = create_server()
    if transport is Transport.stdio:
        server.run("stdio")
    else:
        server.run("streamable-http", host=host, port=port)
