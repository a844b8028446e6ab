"""``oomdoc index``: the retrieval index."""

from __future__ import annotations

import typer

from oomdoc.cli.common import progress, show

app = typer.Typer(name="index", no_args_is_help=True, help="Build and inspect the retrieval index.")


@app.command()
def build() -> None:
    """Build the index from the case records (only what changed is embedded again).

    Example: `oomdoc index build`
    """
    from oomkb.records.loader import load_cases
    from oomkb.retrieval.index import build_index
    from oomkb.state import state_dir

    with progress() as bar:
        task = bar.add_task("embedding", total=None)
        built = build_index(load_cases(), progress=lambda done, total: bar.update(task, completed=done, total=total))
    show(f"{len(built.cases)} cases indexed in {state_dir()}")
