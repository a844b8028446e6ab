"""Computing in other processes, so that no input delays another: a slow one is set aside, a hopeless one is ended.

As many workers as processors take tasks in turn. Who takes more than half a second of a processor goes on beside them
(after one at a lower priority), and its place is given to a fresh one; where too many do, the one that has for longest
is ended, and so is whoever passes the deadline or its memory. A free worker goes to the line that has the fewest, a
line being a caller's requests of one kind; of a line that waits for long the newest and the oldest go in turn, and
where too many wait the oldest of the longest line is given up: who sends many at once waits for them, and hardly
anybody else does.
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
from contextvars import ContextVar
from typing import Any, Final

from oomdoc.api.tasks import Outcome
from oomdoc.api.worker import FORK, FRAME, REFRESH, packed, unpacked
from oomkb.errors import InputError, OomdocError

_LOG: Final = logging.getLogger("oomdoc.service")
CALLER: Final[ContextVar[str]] = ContextVar("caller", default="")
"""Whose request it is."""
_SLOW_S: Final = 0.5
_LOW_S: Final = 1.0
"""Of a processor: on a machine that is busy with other things, what is light stays so."""
_IDLE_SHARE: Final = 0.1
"""What a second of waiting for anything else counts."""
_WAITED_S: Final = 2.0
"""After so long a wait of the first, the last is next, and then the first: with the last alone, eight clients that ask
again and again would keep the first waiting until it gives up."""
_TASKS_EACH: Final = 2_000
"""After so many tasks a worker is replaced: what leaked goes with it."""
_ASIDE: Final = 3
"""Workers that may compute for long beside the usual ones, times their number."""
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
        self.line = ""
        self.since = 0.0
        self.cpu_s = 0.0
        self.slow = False
        self.low = False
        self.given_up = False

    async def answer(self, message: bytes) -> Outcome:
        self.writer.write(message)
        await self.writer.drain()
        sizes = FRAME.unpack(await self.reader.readexactly(FRAME.size))
        document = unpacked(await self.reader.readexactly(sizes[0]))
        return document, await self.reader.readexactly(sizes[1])

    def begin(self, line: str) -> None:
        self.line, self.since, self.cpu_s, self.slow = line, time.monotonic(), _cpu_s(self.pid), False

    def spent_s(self) -> float:
        """What its task has taken so far."""
        return max(_cpu_s(self.pid) - self.cpu_s, _IDLE_SHARE * (time.monotonic() - self.since))

    def end(self) -> None:
        self.writer.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


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
        self._max = size * (1 + _ASIDE)
        self._deadline_s = deadline_s
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._starting = 0
        self._newest = False
        """Whether the newest of a line went last time."""
        self._lines: dict[str, deque[tuple[float, asyncio.Future[_Worker | None]]]] = {}
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
        for worker in [*self._idle, *self._busy]:
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
        for worker in self._busy:
            worker.tasks = _TASKS_EACH
        stale, self._idle = self._idle, []
        for worker in stale:
            worker.end()
        for _ in range(self._size - len(self._busy)):
            self._hand_on(await self._forked())

    def _refreshed(self) -> bytes:
        control = self._control
        if control is None or not self.alive:
            return b""
        control.sendall(REFRESH)
        return control.recv(4, socket.MSG_WAITALL)

    async def run(self, task: str, arguments: dict[str, Any], blob: bytes = b"") -> Outcome:
        """A task's outcome (see :mod:`oomdoc.api.tasks`).

        :raises InputError: where it needs more time or memory than a task may have.
        :raises Overloaded: where it was given up for others.
        """
        message = packed({"task": task, "arguments": arguments}, blob)
        worker = await self._acquired(f"{CALLER.get()} {task}")
        watching = asyncio.ensure_future(self._watch(worker))
        try:
            outcome = await asyncio.wait_for(worker.answer(message), self._deadline_s)
        except TimeoutError:
            self._drop(worker)
            raise InputError(
                f"this input takes longer than {self._deadline_s:g} s to read", hint="send the part around the failure"
            ) from None
        except (asyncio.IncompleteReadError, OSError) as error:
            self._drop(worker)
            if worker.given_up:
                raise Overloaded("given up for other requests", hint="send a smaller part of it") from error
            raise InputError("this input needs too much memory", hint="send the part around the failure") from error
        except BaseException:
            self._drop(worker)
            raise
        finally:
            watching.cancel()
        self._release(worker, spent="failed" in outcome[0])
        return outcome

    async def _acquired(self, line: str = "") -> _Worker:
        while True:
            worker = self._idle.pop() if self._idle else await self._another(line)
            if worker is not None:
                worker.begin(line)
                self._busy.add(worker)
                return worker

    async def _another(self, line: str) -> _Worker | None:
        """A new worker where there is room for one, else one that somebody is done with."""
        quick = sum(not worker.slow for worker in self._busy)
        everyone = len(self._busy) + len(self._idle) + self._starting
        if quick + len(self._idle) + self._starting < self._size and everyone < self._max:
            return await self._forked()
        place: asyncio.Future[_Worker | None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(line, deque()).append((time.monotonic(), place))
        self._make_room()
        try:
            async with asyncio.timeout(self._deadline_s):
                return await place
        except (TimeoutError, asyncio.CancelledError) as error:
            # A place may have come in the very moment that it was given up.
            if place.done() and not place.cancelled() and place.exception() is None:
                self._pass_on(place.result())
            if isinstance(error, TimeoutError):
                raise Overloaded("too many tasks before it", hint="try again") from None
            raise

    async def _forked(self) -> _Worker:
        self._starting += 1
        try:
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
        finally:
            self._starting -= 1

    def _ask(self, theirs: socket.socket) -> int:
        control = self._control
        if control is None:
            raise OomdocError("the diagnosing processes have ended")
        socket.send_fds(control, [FORK], [theirs.fileno()])
        said = control.recv(4, socket.MSG_WAITALL)
        if len(said) < 4:
            raise OomdocError("the warm process has ended")
        return int(struct.unpack(">I", said)[0])

    def shed(self, task: str) -> bool:
        """Give up the oldest of the longest line in favour of one of another line, or of its own where it is stale.

        :param task: what is asked for now.
        :returns: whether there was one.
        """
        self._tidy()
        if not self._lines:
            return False
        line, places = max(self._lines.items(), key=lambda item: len(item[1]))
        since, place = places[0]
        if line == f"{CALLER.get()} {task}" and time.monotonic() - since < _WAITED_S:
            return False
        places.popleft()
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

    async def _watch(self, worker: _Worker) -> None:
        """Where its task takes long, others need not wait for it; where very long, what they compute goes first."""
        while (left_s := _SLOW_S - worker.spent_s()) > 0:
            await asyncio.sleep(max(left_s, 0.05))
        worker.slow = True
        self._wake()
        self._make_room()
        while (left_s := _LOW_S - worker.spent_s()) > 0:
            await asyncio.sleep(max(left_s, 0.05))
        worker.low = True
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, worker.pid, 10)

    def _make_room(self) -> None:
        """Where everybody computes for long and somebody waits, end the one that has for longest."""
        everyone = len(self._busy) + len(self._idle) + self._starting
        self._tidy()
        if not self._lines or everyone < self._max:
            return
        slow = [worker for worker in self._busy if worker.slow and not worker.given_up]
        if slow and len(slow) == len(self._busy):
            running = Counter(worker.line for worker in self._busy)
            oldest = min(slow, key=lambda worker: (-running[worker.line], worker.since))
            oldest.given_up = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(oldest.pid, signal.SIGKILL)

    def _release(self, worker: _Worker, *, spent: bool) -> None:
        self._busy.discard(worker)
        worker.tasks += 1
        # A worker at low priority stays so: only the system's administrator may raise it again.
        surplus = worker.slow and len(self._busy) + len(self._idle) + self._starting >= self._size
        if surplus or worker.low or spent or worker.given_up or worker.tasks >= _TASKS_EACH:
            worker.end()
            self._wake()
        else:
            self._hand_on(worker)

    def _pass_on(self, worker: _Worker | None) -> None:
        if worker is None:
            self._wake()
        else:
            self._hand_on(worker)

    def _hand_on(self, worker: _Worker) -> None:
        if not self._called(worker):
            self._idle.append(worker)

    def _drop(self, worker: _Worker) -> None:
        self._busy.discard(worker)
        worker.end()
        self._wake()

    def _wake(self) -> None:
        """Let one who waits look again: there may be room for a new worker."""
        self._called(None)

    def _called(self, worker: _Worker | None) -> bool:
        """Whether somebody waited, who now goes on: of the line that has the fewest workers."""
        self._tidy()
        if not self._lines:
            return False
        running = Counter(busy.line for busy in self._busy)
        places = min(self._lines.items(), key=lambda item: (running[item[0]], item[1][0][0]))[1]
        late = time.monotonic() - places[0][0] > _WAITED_S
        self._newest = late and not self._newest
        _, place = places.pop() if self._newest else places.popleft()
        place.set_result(worker)
        return True
