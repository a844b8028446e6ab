"""The ``oomdoc`` command: its subcommands, and errors as two lines with an exit status."""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Callable
from copy import copy
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperGroup

from oomdoc import __version__
from oomdoc.cli import (
    batch,
    case,
    chat,
    check,
    data,
    diagnose,
    estimate,
    explain,
    fix,
    index,
    mcp,
    model,
    new,
    plan,
    run,
    scan,
    search,
    serve,
    trace,
)
from oomdoc.cli.common import coloured
from oomkb.errors import OomdocError


class Command(TyperCommand):
    """A command whose texts, paths and choices are validated only where they are not plainly right."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As any command, with those validators."""
        return _eased(super().get_params(ctx))


class Group(TyperGroup):
    """The same of a command with subcommands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """As any group, with those validators."""
        return _eased(super().get_params(ctx))


def _eased(params: list[Any]) -> list[Any]:
    for param in params:
        if getattr(param, "_runtime_param", param) is None:
            param._runtime_param = _Plain()
    return params


class _Plain:
    """In place of typer's validator, which it hands everything on to that it does not know to be right."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        """The value as the command takes it.

        :raises typer.BadParameter: where typer's own validator refuses it.
        """
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        kind = param.type_descriptor.annotation
        if get_origin(kind) is list and several:
            found = [_taken(one, get_args(kind)[0]) for one in value]
            plain = None not in found
        else:
            found = _taken(value, kind)
            plain = found is not None
        if plain:
            return found
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def _taken(value: Any, kind: Any) -> Any:
    """A text, a word of a choice, a path that is not there yet or can be read; ``None`` for anything else."""
    if kind is str:
        return value if isinstance(value, str) else None
    if kind is Path and isinstance(value, str):
        path = Path(value)
        return path if not path.exists() or (path.is_file() and os.access(path, os.R_OK)) else None
    if isinstance(kind, type) and issubclass(kind, Enum):
        return value if isinstance(value, kind) else next((one for one in kind if one.value == value), None)
    return None


app = typer.Typer(
    name="oomdoc",
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Why an LLM job ran out of memory, and what would fit.\n\n"
    "Examples: `oomdoc diagnose log.txt --config train.yaml` · `oomdoc estimate job.yaml` · "
    "`oomdoc plan train.yaml --gpu 'RTX 4090' --gpus 7`",
)
_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "After a failure": (diagnose.diagnose, run.run, batch.batch, fix.fix, chat.chat),
    "Before a launch": (estimate.estimate, plan.plan, check.check, scan.scan, trace.trace),
    "What is known": (search.search, explain.explain),
    "Services": (serve.serve, serve.settings, mcp.mcp),
}
_GROUPS = {"What is known": (case, model, index), "Services": (data,), "For contributors": (new,)}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _about = vars(sys.modules[_command.__module__])
        app.command(
            cls=Command,
            rich_help_panel=_panel,
            epilog=_about.get("EPILOG"),
            context_settings=_about.get("SETTINGS"),
        )(_command)
for _panel, _groups in _GROUPS.items():
    for _group in _groups:
        app.add_typer(_group.app, rich_help_panel=_panel)


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"oomdoc {__version__}\n")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command. Every error a person can act on is two lines and exit status 2, never a traceback."""
    gc.set_threshold(200_000, 20, 50)  # looking for cycles while modules load would be a tenth of a command's time
    _utf8()
    try:
        _asked_for(sys.argv[1:2])()
    except OomdocError as error:
        _fail(str(error.message), where=error.where, hint=error.hint, status=error.exit_status)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (extra := _extra_with(error.name or "")):
            _fail(f"{error.name} is not installed", hint=f"pip install 'oomdoc[{extra}]'", status=2)
        if os.environ.get("OOMDOC_DEBUG"):
            raise
        _fail(
            f"internal error: {type(error).__name__}: {str(error)[:200]}",
            hint="please report it with the input; OOMDOC_DEBUG=1 shows the traceback",
            status=2,
        )
    finally:
        # What is left goes with the process: nobody looks for cycles in it, which would be a fifth of a command's time.
        gc.disable()
        gc.freeze()


def _asked_for(names: list[str]) -> typer.Typer:
    """The app with the command of this name alone, where there is one: typer reads every parameter of all commands."""
    alone = copy(app)
    alone.registered_commands = [
        c for c in app.registered_commands if [c.name or getattr(c.callback, "__name__", "")] == names
    ]
    alone.registered_groups = []
    return alone if alone.registered_commands else app


def _extra_with(module: str) -> str:
    """The extra of this package that brings a missing module; empty for none."""
    from importlib.metadata import requires

    package = module.partition(".")[0].replace("_", "-")
    found = re.compile(rf"{re.escape(package)}\b(?!-).*extra == ['\"](\w+)['\"]", re.IGNORECASE)
    return next((match[1] for line in requires("oomdoc") or () if (match := found.match(line))), "")


def _utf8() -> None:
    """Answers may be Chinese whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and (stream.encoding or "").lower() not in ("utf-8", "utf8"):
            reconfigure(encoding="utf-8", errors="replace")


def _fail(message: str, *, where: str = "", hint: str = "", status: int) -> None:
    red, plain = ("\033[31m", "\033[0m") if coloured(sys.stderr) else ("", "")
    place = f"{where}: " if where else ""
    sys.stderr.write(f"{red}error:{plain} {place}{message}\n")
    if hint:
        sys.stderr.write(f"  hint: {hint}\n")
    raise SystemExit(status)
