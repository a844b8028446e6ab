"""``oomdoc serve`` and ``oomdoc settings``."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from oomdoc.cli.common import show
from oomkb.errors import InputError


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    workers: Annotated[int | None, typer.Option(help="Server processes.")] = None,
) -> None:
    """Serve the HTTP API, the page and the bots.

    Examples:

        oomdoc serve

        OOMDOC_DATABASE_URL=postgresql://oomdoc@db/oomdoc oomdoc serve --host 0.0.0.0 --workers 4
    """
    loaded = _load(host=host, port=port, workers=workers)
    for name, value in (("HOST", host), ("PORT", port), ("WORKERS", workers)):
        if value is not None:
            os.environ[f"OOMDOC_{name}"] = str(value)
    from oomdoc.api.server import run

    run(loaded)


def settings() -> None:
    """Print every setting, its value (secrets masked) and what it does.

    Example: `OOMDOC_CONFIG=oomdoc.toml oomdoc settings`
    """
    from oomdoc.settings import masked

    for name, (value, description) in masked(_load()).items():
        show(f"{name}={value}")
        show(f"    {description}")


def _load(**overrides: object):  # type: ignore[no-untyped-def]  # noqa: ANN202  (its type needs the serve extra)
    try:
        from oomdoc.settings import load_settings
    except ImportError as error:
        raise InputError(
            "the server is not installed", where="oomdoc serve", hint="pip install 'oomdoc[serve]'"
        ) from error
    return load_settings(**overrides)
