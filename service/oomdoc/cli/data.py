"""``oomdoc data``: what the service keeps, and deleting it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from oomdoc.cli.common import print_json
from oomkb.errors import InputError

if TYPE_CHECKING:
    from oomdoc.settings import Settings
    from oomdoc.store.store import Store

_IDS: Final = "oomdoc data export lists ids"
app = typer.Typer(name="data", no_args_is_help=True, help="What the service keeps, and deleting it.")


@app.command()
def counts() -> None:
    """Print how many rows each table holds.

    Example: `oomdoc data counts`
    """
    store, _ = _opened()
    print_json(store.counts())


@app.command()
def purge(
    older_than: Annotated[
        float | None, typer.Option(min=0, help="Days; 0 deletes all. Default: the days of retention of the settings.")
    ] = None,
) -> None:
    """Delete old diagnoses, chats, event ids and idempotency keys; feedback and submitted cases stay.

    Prints how many rows of each table went.

    Examples:

        oomdoc data purge

        oomdoc data purge --older-than 7
    """
    store, settings = _opened()
    days = float(settings.retention_days) if older_than is None else older_than
    print_json(store.purge(older_than_days=days, most_bytes=settings.retention_bytes))


@app.command()
def export() -> None:
    """Print every row that is kept as one JSON object a line, `table` first; what was masked stays masked.

    Example: `oomdoc data export > oomdoc.jsonl`
    """
    store, _ = _opened()
    for row in store.everything():
        print_json(row, line=True)


@app.command()
def erase(
    identifier: Annotated[str | None, typer.Argument(help="The id of a diagnosis or a chat.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All rows of all tables.")] = False,
) -> None:
    """Delete a diagnosis or a chat with all that belongs to it, or everything.

    Prints how many rows of each table went.

    Examples:

        oomdoc data erase 0123456789abcdef01234567

        oomdoc data erase --everything
    """
    if (identifier is None) != everything:
        raise InputError("name one id, or --everything", where="oomdoc data erase", hint=_IDS)
    store, _ = _opened()
    gone = store.erase(identifier)
    if identifier is not None and not any(gone.values()):
        raise InputError(f"no diagnosis or chat is {identifier!r}", where="oomdoc data erase", hint=_IDS)
    print_json(gone)


def _opened() -> tuple[Store, Settings]:
    try:
        from oomdoc.settings import load_settings
        from oomdoc.store.store import default_database_url, open_store
    except ImportError as error:
        raise InputError(
            "the store is not installed", where="oomdoc data", hint="pip install 'oomdoc[serve]'"
        ) from error
    settings = load_settings()
    return open_store(settings.database_url or default_database_url()), settings
