"""``oomdoc run -- command``: the command untouched, its tail kept, and the diagnosis under the log when memory ran out.

Where standard output is a terminal the command gets one, too (a pseudo-terminal), so colours and progress bars stay;
standard input is the real one throughout. Bytes are passed on as they come; of a command that prints without a pause,
some milliseconds' worth at a time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pty
import selectors
import signal
import subprocess
import sys
import termios
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from oomdoc.evidence import Source
from oomkb.dataclass import dataclass
from oomkb.errors import InputError

_CHUNK_BYTES: Final = 1 << 20
_PIPE_BYTES: Final = 1 << 20
"""The most that Linux lets an unprivileged process ask for: the command seldom waits for us."""
_BUSY_S: Final = 0.001
"""A pipe that has more within this time is busy."""
_GATHER_S: Final = 0.004
"""How long the output of a busy pipe is gathered: far below what a person sees, far above what a wake-up costs."""
_HEAD_BYTES: Final = 256 << 10
_TAIL_BYTES: Final = 4 << 20
_CONFIG_BYTES: Final = 1 << 20
_CONFIG_ENDINGS: Final = (".yaml", ".yml", ".json", ".toml", ".sh", ".py", ".ini")
_ENVIRONMENT: Final = (
    "NPROC_PER_NODE",
    "NNODES",
    "CUDA_VISIBLE_DEVICES",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
)
_KILL_COUNTERS: Final = ("/proc/vmstat", "/sys/fs/cgroup/memory.events")
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Tail:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._chunks: deque[bytes] = deque()
        self._size = 0

    def add(self, data: bytes) -> None:
        """Note what was printed."""
        if len(self._head) < _HEAD_BYTES:
            taken = _HEAD_BYTES - len(self._head)
            self._head += data[:taken]
            data = data[taken:]
        if not data:
            return
        self._chunks.append(data)
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= _TAIL_BYTES:
            self._size -= len(self._chunks.popleft())

    def text(self) -> str:
        """What was kept; a terminal's carriage returns become line ends."""
        data = bytes(self._head) + b"".join(self._chunks)
        return data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")


@dataclass(frozen=True, slots=True)
class Finished:
    """How the command ended: ``status`` as a shell would say it (128 + signal), and what it printed."""

    status: int
    output: str


def run_command(command: Sequence[str]) -> Finished:
    """Run a command in the foreground until it ends.

    :raises InputError: where it cannot be started.
    """
    tail = Tail()
    with contextlib.ExitStack() as stack:
        streams = stack.enter_context(_streams())
        try:
            child = subprocess.Popen(list(command), stdout=streams.child_out, stderr=streams.child_err)
        except OSError as error:
            raise InputError(
                error.strerror or str(error), where=command[0], hint="check the command after --"
            ) from error
        stack.enter_context(_forwarding(child))
        streams.started()
        _pump(streams.pairs, tail)
        status = child.wait()
    return Finished(128 - status if status < 0 else status, tail.text())


@dataclass(slots=True)
class _Streams:
    child_out: int
    child_err: int
    pairs: dict[int, int]
    """Where to read what the command prints -> where to write it."""

    def started(self) -> None:
        """The child has its ends: closing ours lets the end of its output be seen."""
        for descriptor in {self.child_out, self.child_err}:
            os.close(descriptor)


@contextlib.contextmanager
def _streams() -> Iterator[_Streams]:
    out, err = sys.stdout.fileno(), sys.stderr.fileno()
    opened: list[int] = []

    def channel(target: int) -> tuple[int, int]:
        ours, theirs = _terminal(target) if os.isatty(target) else _pipe()
        opened.append(ours)
        return ours, theirs

    sys.stdout.flush()
    sys.stderr.flush()
    out_ours, out_theirs = channel(out)
    if os.isatty(out) and os.isatty(err):
        # One terminal for both, so that their order stays as the command wrote it.
        streams = _Streams(out_theirs, out_theirs, {out_ours: out})
    else:
        err_ours, err_theirs = channel(err)
        streams = _Streams(out_theirs, err_theirs, {out_ours: out, err_ours: err})
    try:
        yield streams
    finally:
        for descriptor in opened:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _pipe() -> tuple[int, int]:
    ours, theirs = os.pipe()
    # Linux only, and refused where an administrator allows less: the usual 64 KiB do, too.
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(ours, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return ours, theirs


def _terminal(like: int) -> tuple[int, int]:
    """A pseudo-terminal of the same size that passes bytes through as they are."""
    ours, theirs = pty.openpty()
    attributes = termios.tcgetattr(theirs)
    attributes[1] &= ~termios.OPOST  # the real terminal adds the carriage returns
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    with contextlib.suppress(OSError, termios.error):
        termios.tcsetwinsize(theirs, termios.tcgetwinsize(like))
    return ours, theirs


def _pump(pairs: dict[int, int], tail: Tail) -> None:
    with selectors.DefaultSelector() as selector:
        for source in pairs:
            selector.register(source, selectors.EVENT_READ)
        left = len(pairs)
        # A pseudo-terminal holds 4 KiB only: letting it fill would hold the command up.
        patient = not any(os.isatty(source) for source in pairs)
        last = 0.0
        while left:
            ready = selector.select()
            if patient and time.monotonic() - last < _BUSY_S:
                time.sleep(_GATHER_S)
            last = time.monotonic()
            for key, _ in ready:
                source = key.fd
                data = _read(source)
                if not data:
                    selector.unregister(source)
                    left -= 1
                    continue
                _write(pairs[source], data)
                tail.add(data)


def _read(source: int) -> bytes:
    try:
        return os.read(source, _CHUNK_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:  # how Linux says that a pseudo-terminal's other end has closed
            return b""
        raise


def _write(target: int, data: bytes) -> None:
    """All of it; a reader that has gone away does not stop the command."""
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(target, view) :]
        except BlockingIOError:
            continue
        except OSError:
            return


@contextlib.contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Signals that reach us reach the command; Ctrl-C does by itself, and we wait for its answer to it."""

    def forward(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(number)

    previous = {number: signal.signal(number, forward) for number in _FORWARDED}
    previous[signal.SIGINT] = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory, here and in this container; 0 where it does not say.

    A process that is ended so prints nothing: the count before and after a command tells.
    """
    count = 0
    for place in _KILL_COUNTERS:
        with contextlib.suppress(OSError, ValueError):
            for line in Path(place).read_text(encoding="ascii").splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    count += int(number)
    return count


def sources_of(command: Sequence[str], output: str) -> list[Source]:
    """What to diagnose: the output, the command itself, and the config files that it names."""
    exports = [f"export {name}={os.environ[name]}" for name in _ENVIRONMENT if name in os.environ]
    line = " ".join(command)
    found = [Source("output", output), Source("command", "\n".join([*exports, line]))]
    seen: set[Path] = set()
    for word in command:
        path = Path(word.rpartition("=")[2])
        if path.suffix.lower() not in _CONFIG_ENDINGS or path in seen or len(seen) >= 16:
            continue
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.is_file() and path.stat().st_size <= _CONFIG_BYTES:
                seen.add(path)
                found.append(Source(str(path), path.read_text(encoding="utf-8")))
    return found
