"""``oomdoc model``: the model catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oomdoc.cli.common import print_json, show
from oomkb.errors import CatalogError

app = typer.Typer(name="model", no_args_is_help=True, help="Look up and add model shapes.")


@app.command()
def show_(name: Annotated[str, typer.Argument(help="A hub id or the way people write it.")]) -> None:
    """Print what the catalogue knows of a model.

    Example: `oomdoc model show qwen2.5-7b`
    """
    from oomkb.catalog.models import find
    from oomkb.memory.shape import ModelShape

    entry = find(name)
    if entry is None:
        raise CatalogError(f"{name!r} is not in the catalogue", where="model", hint="oomdoc model add config.json")
    shape = ModelShape.from_config(entry.config)
    print_json({"name": entry.name, "source": entry.source, "params": shape.params, "config": dict(entry.config)})


show_.__name__ = "show"
app.registered_commands[-1].name = "show"


@app.command()
def add(
    config: Annotated[Path, typer.Argument(help="A Hugging Face config.json.")],
    name: Annotated[str | None, typer.Option(help="The name to know it by; default: the file's own.")] = None,
) -> None:
    """Add a model from its config.json to your own catalogue.

    Example: `oomdoc model add ./my-13b/config.json --name lab/my-13b`
    """
    from oomkb.catalog.models import add_model

    entry = add_model(config, name=name)
    show(f"{entry.name} added")
