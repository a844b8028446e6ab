"""``oomdoc new``: start a case, parser, reader, fix, GPU, model or topic in a checkout."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from oomdoc.cli.common import show

app = typer.Typer(name="new", no_args_is_help=True, help="Scaffolds for contributors, run inside a checkout.")

_NEXT: Final = {
    "case": "Next: fill it in (cases/README.md), then oomdoc case lint on it",
    "parser": "Next: give the literals and rules, then run the test",
    "reader": "Next: give keys, marks, defaults and source (kb/oomkb/frameworks/declared.py), then run the test",
    "fix": "Next: write the row and its words (service/oomdoc/report/words), then run the test",
    "gpu": "Next: give each value with the page it comes from, then oomdoc estimate --set gpu=...",
    "topic": "Next: fill it in, then python -m oomkb.topics.lint and python bench/topic_recognition.py --write",
    "model": "Next: give each value with the page it comes from, then oomdoc model show",
}
_Root = Annotated[Path, typer.Option(help="The checkout.")]


def _scaffold(kind: str, name: str, root: Path, extra: str = "") -> None:
    from oomdoc.scaffold import scaffold

    for path in scaffold(kind, name, root, extra):
        show(f"{path}")
    show(_NEXT[kind])


@app.command()
def case(cause: str, slug: str, root: _Root = Path()) -> None:
    """A case record: `oomdoc new case logits qwen2-dpo-long-context`."""
    _scaffold("case", slug, root, cause)


@app.command()
def parser(name: str, root: _Root = Path()) -> None:
    """A log parser: `oomdoc new parser nccl`."""
    _scaffold("parser", name, root)


@app.command()
def reader(name: str, root: _Root = Path()) -> None:
    """A config reader: `oomdoc new reader verl`."""
    _scaffold("reader", name, root)


@app.command()
def fix(name: str, root: _Root = Path()) -> None:
    """A remedy: `oomdoc new fix chunked-loss`."""
    _scaffold("fix", name, root)


@app.command()
def gpu(name: str, root: _Root = Path()) -> None:
    """A GPU: `oomdoc new gpu "RTX 6090"`."""
    _scaffold("gpu", name, root)


@app.command()
def model(name: str, root: _Root = Path()) -> None:
    """A model: `oomdoc new model lab/name-7b`."""
    _scaffold("model", name, root)


@app.command()
def topic(name: str, root: _Root = Path()) -> None:
    """A topic: `oomdoc new topic sequence-packing`."""
    _scaffold("topic", name, root)
