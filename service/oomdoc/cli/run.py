"""``oomdoc run``: run a command; when it dies of memory, print the diagnosis under its log."""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from oomdoc.cli.common import Language, coloured, terminal_width
from oomkb.errors import InputError, OomdocError

_KILLED = 137


EPILOG: Final = "Exit status: that of the command."
SETTINGS: Final = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def run(
    command: Annotated[list[str], typer.Argument(help="The command and its arguments, after --.")],
    lang: Annotated[Language, typer.Option(help="Language of the answer.")] = Language.auto,
) -> None:
    """Run a command as it is; when it runs out of memory, print the diagnosis after its log.

    Examples:

        oomdoc run -- torchrun --nproc_per_node 8 train.py --deepspeed ds_z3.json

        oomdoc run -- llamafactory-cli train train.yaml
    """
    from oomdoc.wrap import oom_kills, run_command, sources_of

    words = command[1:] if command and command[0] == "--" else command
    if not words:
        raise InputError("no command is given", where="oomdoc run", hint="for example oomdoc run -- torchrun train.py")
    before = oom_kills()
    finished = run_command(words)
    if finished.status != 0:
        output = finished.output
        if finished.status == _KILLED and oom_kills() > before:
            output += "\nKilled: out of memory, ended by the kernel's OOM killer (oom-kill), exit code 137\n"
        try:
            _explain(sources_of(words, output), lang)
        except OomdocError as error:
            sys.stderr.write(f"oomdoc: {error}\n")
    raise typer.Exit(finished.status)


def _explain(sources: list, lang: Language) -> None:  # type: ignore[type-arg]
    from oomdoc.library import diagnose

    report = diagnose(sources, language=lang)
    # Only what was read as a failure counts: a command may die of anything, and settings alone prove nothing.
    if report.diagnosis.evidence.root is None or report.diagnosis.verdict in ("no-failure", "not-oom"):
        return
    text = report.text(width=terminal_width(), colour=coloured(sys.stderr))
    sys.stderr.write(f"\n{'─' * 20} oomdoc {'─' * 20}\n\n{text}")
