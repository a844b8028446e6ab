"""Where what can be built again is kept: ``$OOMDOC_STATE``, or ``~/.cache/oomdoc``; and how it is written.

A second folder of the same layout is only read: what the wheel was built with, or what ``$OOMDOC_BAKED`` names.

Nothing here is ever half written for a reader: files are swapped in by a rename, folders appear whole under their name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from oomkb.errors import OomdocError

_VARIABLE: Final = "OOMDOC_STATE"
_BAKED: Final = "OOMDOC_BAKED"


def state_dir() -> Path:
    """The state folder, made if needed; a private temporary one where the home cannot be written (containers).

    :raises OomdocError: where a folder that was asked for by name cannot be written.
    """
    asked = os.environ.get(_VARIABLE)
    if asked:
        return _made(Path(asked).expanduser())
    cache = os.environ.get("XDG_CACHE_HOME")
    home = Path(cache) if cache else Path(os.path.expanduser("~")) / ".cache"  # noqa: PTH111 (never raises)
    try:
        return _made(home / "oomdoc")
    except OomdocError:
        return _private_temporary()


def lasting_dir() -> Path:
    """Where what cannot be built again is kept, readable by its user alone: ``$OOMDOC_STATE``, or the state folder.

    That is ``$XDG_STATE_HOME/oomdoc``, by default ``~/.local/state/oomdoc``.

    :raises OomdocError: where a folder that was asked for by name cannot be written.
    """
    if os.environ.get(_VARIABLE):
        return state_dir()
    home = os.environ.get("XDG_STATE_HOME")
    folder = (Path(home) if home else Path(os.path.expanduser("~")) / ".local" / "state") / "oomdoc"  # noqa: PTH111
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
    except OSError:
        return _private_temporary()
    return folder


def baked_dir() -> Path | None:
    """The folder with what was built beforehand: the one that ``$OOMDOC_BAKED`` names, else the wheel's own."""
    named = os.environ.get(_BAKED)
    folder = Path(named) if named else Path(__file__).parent / "_baked"
    return folder if folder.is_dir() else None


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise OomdocError(f"cannot be made: {error.strerror}", where=str(folder), hint=f"set {_VARIABLE}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OomdocError("cannot be written", where=str(folder), hint=f"set {_VARIABLE} to a folder of yours")
    return folder


def _private_temporary() -> Path:
    """A folder of this user alone under the system's temporary one: for containers without a writable home."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"oomdoc-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    facts = folder.lstat()
    # Somebody else's folder under that name could feed us a model or an index of theirs.
    if folder.is_symlink() or (hasattr(os, "getuid") and (facts.st_uid != user or facts.st_mode & 0o022)):
        raise OomdocError("belongs to somebody else", where=str(folder), hint=f"set {_VARIABLE} to a folder of yours")
    return _made(folder)


def write_atomically(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` so that a reader sees the old content or the new, and a crash leaves one of them."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def publish_folder(final: Path, fill: Callable[[Path], None]) -> Path:
    """Make the folder ``final``, replacing an existing one: fill a temporary folder beside it, then rename.

    A crash leaves at most a ``.tmp-*`` folder, which :func:`writers_lock` clears away.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=final.parent, prefix=".tmp-"))
    try:
        fill(temporary)
        if final.exists():
            aside = Path(tempfile.mkdtemp(dir=final.parent, prefix=".tmp-"))
            final.rename(aside / "old")
            temporary.rename(final)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            temporary.rename(final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


@contextlib.contextmanager
def writers_lock(folder: Path) -> Iterator[None]:
    """One writer at a time in ``folder`` (released by the system when the process dies); readers never wait.

    Whoever holds it may delete what dead writers left: ``.tmp-*``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("a+b") as file:
        with contextlib.suppress(ImportError):  # Windows has no fcntl: two writers then do the work twice, safely
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
            for left in folder.glob(".tmp-*"):
                shutil.rmtree(left, ignore_errors=True)
        yield
