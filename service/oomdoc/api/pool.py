"""Computing in other processes, so that no input delays another: what is slow computes aside, what is hopeless ends.

As many tasks as there are processors run in turn. Who is large, or takes more than a part of a second of a processor,
goes on beside them at a lower priority, a few at once, and its place is free for the next. Of one caller as many
compute aside as there are processors: a further one is put back, to begin anew when one of them has ended. A free place
goes to the caller that has the fewest, and where too many wait the one that has the most large ones waiting gives one
up: who sends many or slow ones waits for them, and hardly anybody else does. Deadlines count processor time: a busy
machine ends nothing that is light.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from oomdoc.api.tasks import Outcome
from oomdoc.api.worker import FORK, FRAME, REFRESH, packed, unpacked
from oomkb.errors import InputError, OomdocError

_LOG: Final = logging.getLogger("oomdoc.service")
CALLER: Final[ContextVar[str]] = ContextVar("caller", default="")
"""Whose request it is."""
_SLOW_S: Final = 0.4
"""Of a processor: on a machine that is busy with other things, what is light stays so."""
_LARGE_BYTES: Final = 1 << 16
"""What is longer is slow from the start."""
_IDLE_SHARE: Final = 0.1
"""What a second of waiting for anything else counts."""
_WALL: Final = 3
"""What a task's deadline is in time, waiting for a processor included, times what it is of a processor."""
_BEGINS: Final = 3
"""A task is put back once less often."""
_WAITED_S: Final = 2.0
"""After so long a wait of the first, the last is next, and then the first: with the last alone, eight clients that ask
again and again would keep the first waiting until it gives up."""
_TASKS_EACH: Final = 2_000
"""After so many tasks a worker is replaced: what leaked goes with it."""
_ASIDE: Final = 3
"""Tasks that may compute aside, for each that computes in turn."""
_START: Final = "import sys; sys.path[:] = {path!r}; from oomdoc.api.worker import zygote; zygote({descriptor})"
# A fork of a process with several threads may hold a lock that nobody will open.
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
_START_S: Final = 300.0


class Overloaded(OomdocError):
    """A task was given up so that others could run."""


class _Worker:
    """One process and its socket."""

    def __init__(self, pid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid, self.reader, self.writer = pid, reader, writer
        self.tasks = 0

    async def answer(self, message: bytes) -> Outcome:
        self.writer.write(message)
        await self.writer.drain()
        sizes = FRAME.unpack(await self.reader.readexactly(FRAME.size))
        document = unpacked(await self.reader.readexactly(sizes[0]))
        return document, await self.reader.readexactly(sizes[1])

    def end(self) -> None:
        self.writer.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class _Task:
    """What has a place: whose it is, and how it fares."""

    def __init__(self, caller: str, *, large: bool) -> None:
        self.caller, self.slow = caller, large
        self.worker: _Worker | None = None
        self.since, self.cpu_s = 0.0, 0.0
        self.ended = ""
        """Why its worker was ended, if it was."""

    def begin(self, worker: _Worker) -> None:
        self.worker, self.since, self.cpu_s = worker, time.monotonic(), _cpu_s(worker.pid)
        if self.slow:
            self.make_way()

    def spent_s(self) -> float:
        """What it has taken so far."""
        assert self.worker is not None
        return max(_cpu_s(self.worker.pid) - self.cpu_s, _IDLE_SHARE * (time.monotonic() - self.since))

    def make_way(self) -> None:
        """What others compute goes first."""
        self.slow = True
        if self.worker is not None:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self.worker.pid, 10)

    def end(self, why: str) -> None:
        self.ended = why
        if self.worker is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.worker.pid, signal.SIGKILL)


_Line = tuple[str, str]
"""A caller, and what it asks for; :data:`_LARGE` for all that is slow."""
_LARGE: Final = "large"
_LARGE_COUNTS: Final = 10
_PUT_BACK: Final = "put back"
_LATE: Final = "late"


def _cpu_s(pid: int) -> float:
    """Processor seconds of a process so far; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


class Pool:
    """Workers of one event loop."""

    def __init__(self, size: int, *, deadline_s: float) -> None:
        self._size = size
        self._aside = size * _ASIDE
        self._each = max(2, size)
        """Tasks of one caller that may compute aside."""
        self._deadline_s = deadline_s
        self._idle: list[_Worker] = []
        self._running: set[_Task] = set()
        self._newest = False
        """Whether the newest of a line went last time."""
        self._lines: dict[_Line, deque[tuple[float, asyncio.Future[_Task]]]] = {}
        self._warm: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._forking = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether tasks can be taken."""
        return self._warm is not None and self._warm.poll() is None

    async def start(self) -> None:
        """Start the warm process and the first workers.

        :raises OomdocError: where it does not start.
        """
        await asyncio.to_thread(self._start)
        for _ in range(self._size):
            self._idle.append(await self._forked())

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        code = _START.format(path=sys.path, descriptor=theirs.fileno())
        environment = {**os.environ, **_ONE_THREAD}
        with theirs:
            self._warm = subprocess.Popen(
                [sys.executable, "-c", code], pass_fds=[theirs.fileno()], env=environment, stdin=subprocess.DEVNULL
            )
        ours.settimeout(_START_S)
        if ours.recv(5, socket.MSG_WAITALL) != b"ready":
            raise OomdocError("the diagnosing processes do not start", hint="see the log above")
        self._control = ours

    async def stop(self) -> None:
        """End all processes."""
        for worker in [*self._idle, *(task.worker for task in self._running)]:
            if worker is not None:
                worker.end()
        self._idle.clear()
        if self._control is not None:
            self._control.close()
        if self._warm is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._warm.wait, 5)
            self._warm.kill()
            await asyncio.to_thread(self._warm.wait)

    async def refresh(self) -> None:
        """Have the cases loaded anew, then replace every worker as soon as it is free."""
        async with self._forking:
            if await asyncio.to_thread(self._refreshed) != b"done":
                return
        for task in self._running:
            if task.worker is not None:
                task.worker.tasks = _TASKS_EACH
        stale, self._idle = self._idle, []
        for worker in stale:
            worker.end()
        for _ in range(self._size - len(self._running)):
            self._idle.append(await self._forked())

    def _refreshed(self) -> bytes:
        control = self._control
        if control is None or not self.alive:
            return b""
        control.sendall(REFRESH)
        return control.recv(4, socket.MSG_WAITALL)

    async def run(self, task: str, arguments: dict[str, Any], blob: bytes = b"") -> Outcome:
        """A task's outcome (see :mod:`oomdoc.api.tasks`).

        :raises InputError: where it needs more time or memory than a task may have.
        :raises Overloaded: where it was given up for others, or its turn did not come.
        """
        message = packed({"task": task, "arguments": arguments}, blob)
        large = len(message) + _size_bytes(arguments) > _LARGE_BYTES
        for _ in range(_BEGINS):
            place = await self._placed((CALLER.get(), _LARGE if large else task))
            try:
                outcome = await self._answered(place, message)
            finally:
                self._running.discard(place)
                self._call()
            if outcome is not None:
                return outcome
            large = True
        raise Overloaded("given up for other requests", hint="send a smaller part of it")

    async def _answered(self, task: _Task, message: bytes) -> Outcome | None:
        """The outcome; nothing where it has to begin anew."""
        worker = self._idle.pop() if self._idle else await self._forked()
        task.begin(worker)
        watching = asyncio.ensure_future(self._watch(task))
        kept = False
        try:
            outcome = await asyncio.wait_for(worker.answer(message), _WALL * self._deadline_s)
            worker.tasks += 1
            # A worker at low priority stays so: only the system's administrator may raise it again.
            kept = not (task.slow or task.ended or "failed" in outcome[0] or worker.tasks >= _TASKS_EACH)
            return outcome
        except (TimeoutError, asyncio.IncompleteReadError, OSError) as error:
            if task.ended == _PUT_BACK:
                return None
            why = "needs too much memory"
            if task.ended == _LATE or isinstance(error, TimeoutError):
                why = f"takes longer than {self._deadline_s:g} s to read"
            raise InputError(f"this input {why}", hint="send the part around the failure") from error
        finally:
            watching.cancel()
            if kept and len(self._idle) < self._size:
                self._idle.append(worker)
            else:
                worker.end()

    async def _placed(self, line: _Line) -> _Task:
        """A place, when it is this line's turn."""
        place: asyncio.Future[_Task] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(line, deque()).append((time.monotonic(), place))
        self._call()
        try:
            async with asyncio.timeout(self._deadline_s):
                return await place
        except (TimeoutError, asyncio.CancelledError) as error:
            # It may have come in the very moment that it was given up.
            if place.done() and not place.cancelled() and place.exception() is None:
                self._running.discard(place.result())
            place.cancel()
            self._call()
            if isinstance(error, TimeoutError):
                raise Overloaded("too many tasks before it", hint="try again") from None
            raise

    async def _forked(self) -> _Worker:
        async with self._forking:
            if not self.alive:
                _LOG.warning("restarting", extra={"fields": {"what": "the warm process"}})
                await asyncio.to_thread(self._start)
            ours, theirs = socket.socketpair()
            with theirs:
                pid = await asyncio.to_thread(self._ask, theirs)
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        return _Worker(pid, reader, writer)

    def _ask(self, theirs: socket.socket) -> int:
        control = self._control
        if control is None:
            raise OomdocError("the diagnosing processes have ended")
        socket.send_fds(control, [FORK], [theirs.fileno()])
        said = control.recv(4, socket.MSG_WAITALL)
        if len(said) < 4:
            raise OomdocError("the warm process has ended")
        return int(struct.unpack(">I", said)[0])

    def shed(self) -> bool:
        """Give up the oldest of who has the most waiting, large ones first, in favour of somebody else's, or of its own
        where it is stale.

        :returns: whether there was one.
        """
        self._tidy()
        if not self._lines:
            return False
        waiting: Counter[str] = Counter()
        for (caller, kind), places in self._lines.items():
            waiting[caller] += len(places) * (_LARGE_COUNTS if kind == _LARGE else 1)
        who = max(waiting, key=waiting.__getitem__)
        line = max(
            (line for line in self._lines if line[0] == who),
            key=lambda line: (line[1] == _LARGE, self._lines[line][0][0]),
        )
        since, place = self._lines[line][0]
        if who == CALLER.get() and time.monotonic() - since < _WAITED_S:
            return False
        place.set_exception(Overloaded("given up for other requests", hint="try again"))
        return True

    def _tidy(self) -> None:
        """Forget who does not wait any more."""
        for line, places in [*self._lines.items()]:
            kept = deque(entry for entry in places if not entry[1].done())
            if kept:
                self._lines[line] = kept
            else:
                del self._lines[line]

    async def _watch(self, task: _Task) -> None:
        """Where it takes long, others need not wait for it; where too long, it ends."""
        while (spent_s := task.spent_s()) < self._deadline_s:
            if not task.slow and spent_s >= _SLOW_S:
                task.make_way()
                if self._aside_of(task.caller) > self._each:
                    task.end(_PUT_BACK)
                self._call()
            await asyncio.sleep(max((self._deadline_s if task.slow else _SLOW_S) - spent_s, 0.05))
        task.end(_LATE)

    def _aside_of(self, caller: str) -> int:
        return sum(task.slow and task.caller == caller for task in self._running)

    def _may_begin(self, caller: str, kind: str) -> bool:
        """Whether there is a place for it. Who has its share aside leaves one of the usual places to others."""
        aside, own = sum(task.slow for task in self._running), self._aside_of(caller)
        if kind == _LARGE:
            return aside < self._aside and own < self._each
        if len(self._running) - aside >= self._size or len(self._running) >= self._size + self._aside:
            return False
        quick = sum(not task.slow and task.caller == caller for task in self._running)
        return own < self._each or quick < max(1, self._size - 1)

    def _call(self) -> None:
        """Have as many begin as there are places: of the caller that has the fewest first."""
        self._tidy()
        while ready := [line for line in self._lines if self._may_begin(*line)]:
            running = Counter(task.caller for task in self._running)
            line = min(ready, key=lambda line: (running[line[0]], self._lines[line][0][0]))
            places = self._lines[line]
            late = time.monotonic() - places[0][0] > _WAITED_S
            self._newest = late and not self._newest
            _, place = places.pop() if self._newest else places.popleft()
            task = _Task(line[0], large=line[1] == _LARGE)
            self._running.add(task)
            place.set_result(task)
            self._tidy()
        self._make_room()

    def _make_room(self) -> None:
        """Where nobody's turn comes since all compute aside, put the newest back of who has the most there."""
        running = Counter(task.caller for task in self._running)
        aside = [task for task in self._running if task.slow and not task.ended and task.worker is not None]
        full = len(self._running) >= self._size + self._aside
        kept_out = {caller for caller, kind in self._lines if full or kind == _LARGE} - running.keys()
        if not kept_out or not aside or len(aside) < self._aside:
            return
        newest = max(aside, key=lambda task: (running[task.caller], task.since))
        if running[newest.caller] > 1 or len(aside) == len(self._running):
            newest.end(_PUT_BACK)


def _size_bytes(arguments: Mapping[str, Any]) -> int:
    """Of the files that a task is to read."""
    with contextlib.suppress(OSError):
        return sum(os.stat(path).st_size for _, path in arguments.get("files", ()))  # noqa: PTH116
    return 0
