"""What computes elsewhere: a slow, hungry or dying input delays nobody, and says what it was."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oomdoc.api.pool import CALLER, Overloaded, Pool, _Worker
from oomdoc.api.tasks import reported
from oomkb.errors import InputError, JobError

pytestmark = pytest.mark.slow
HANG_S = 600.0
"""A guard against hanging, on whatever machine: what is tested is who ends before whom."""
JOB = json.dumps({"job": {"model": "Qwen/Qwen2.5-7B", "seq_len": 1024}}).encode()


def pooled(size: int, deadline_s: float, use: Callable[[Pool], Awaitable[None]]) -> None:
    async def run() -> None:
        pool = Pool(size, deadline_s=deadline_s)
        await pool.start()
        try:
            await use(pool)
        finally:
            await pool.stop()

    asyncio.run(run())


def age(pool: Pool) -> None:
    """Whoever waits first has waited for long."""
    [places] = pool._lines.values()
    places[0] = (places[0][0] - 10, places[0][1])


@pytest.fixture
def endless(tmp_path: Path) -> dict[str, Any]:
    """A file that is never at its end, for reading takes for ever."""
    pipe = tmp_path / "endless"
    os.mkfifo(pipe)
    return {"files": [["x.log", str(pipe)]], "fields": {}, "limit_bytes": 1000}


def test_a_slow_input_delays_nobody(endless: dict[str, Any]) -> None:
    async def use(pool: Pool) -> None:
        stuck = asyncio.ensure_future(pool.run("diagnosis", endless))
        await asyncio.sleep(0.1)
        assert reported(await pool.run("estimate", {}, JOB))[1]
        assert not stuck.done()
        stuck.cancel()

    pooled(1, HANG_S, use)


def test_a_hopeless_input_ends(endless: dict[str, Any]) -> None:
    async def use(pool: Pool) -> None:
        with pytest.raises(InputError, match="longer than 3 s"):
            await pool.run("diagnosis", endless)

    pooled(1, 3.0, use)


def test_where_all_are_slow_the_oldest_goes(endless: dict[str, Any]) -> None:
    async def use(pool: Pool) -> None:
        stuck = [asyncio.ensure_future(pool.run("diagnosis", endless)) for _ in range(8)]
        while len([worker for worker in pool._busy if worker.slow]) < pool._max:
            await asyncio.sleep(0.05)
        waiting = [asyncio.ensure_future(pool.run("estimate", {}, JOB)) for _ in range(4)]
        done = await asyncio.gather(*waiting)
        assert all(outcome[1] for outcome in done)
        assert not all(task.done() for task in stuck)
        ended = next(iter((await asyncio.wait(stuck, return_when=asyncio.FIRST_COMPLETED))[0]))
        assert isinstance(ended.exception(), Overloaded)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)

    pooled(1, HANG_S, use)


def test_who_waits_too_long_is_told_and_takes_no_worker_away() -> None:
    """Also where a worker comes free in the very moment that waiting for one ends."""

    async def use(pool: Pool) -> None:
        taken = await pool._acquired()
        pool._size = pool._max = 1
        for _ in range(3):
            with pytest.raises(Overloaded):
                await pool.run("estimate", {}, JOB)
            waiting = asyncio.ensure_future(pool._another(""))
            await asyncio.sleep(0)
            pool._release(taken, spent=False)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            taken = await pool._acquired()
        pool._release(taken, spent=False)

    pooled(1, 0.2, use)


def test_where_tasks_wait_for_long_the_newest_and_the_oldest_go_in_turn() -> None:
    """Who sent many at once waits for them; who asks once does not, and nobody waits until it gives up."""

    async def use(pool: Pool) -> None:
        taken = await pool._acquired()
        pool._size = pool._max = 1
        order: list[int] = []

        async def one(number: int) -> None:
            worker = await pool._acquired()
            order.append(number)
            pool._release(worker, spent=False)

        tasks = []
        for number in range(4):
            tasks.append(asyncio.ensure_future(one(number)))
            await asyncio.sleep(0)
        age(pool)
        pool._release(taken, spent=False)
        await asyncio.gather(*tasks)
        assert order == [3, 0, 1, 2]  # nobody has waited for long any more

    pooled(1, HANG_S, use)


def test_where_too_many_wait_the_oldest_is_given_up() -> None:
    async def use(pool: Pool) -> None:
        taken = await pool._acquired()
        pool._size = pool._max = 1
        waiting = [asyncio.ensure_future(pool._acquired(" ")) for _ in range(3)]
        await asyncio.sleep(0)
        assert not pool.shed("")
        age(pool)
        assert pool.shed("")
        with pytest.raises(Overloaded, match="for other"):
            await waiting[0]
        pool._release(taken, spent=False)
        assert await waiting[1] is taken
        waiting[2].cancel()

    pooled(1, HANG_S, use)


def test_a_long_line_delays_no_other_line() -> None:
    async def use(pool: Pool) -> None:
        taken = await pool._acquired("a plan")
        pool._size = pool._max = 1
        order: list[str] = []

        async def one(line: str) -> None:
            worker = await pool._acquired(line)
            order.append(line)
            await asyncio.sleep(0)
            pool._release(worker, spent=False)

        lines = ["a plan"] * 5 + ["b plan", "a search"]
        tasks = [asyncio.ensure_future(one(line)) for line in lines]
        await asyncio.sleep(0)
        CALLER.set("b")
        assert pool.shed("plan")
        busy = _Worker(-1, taken.reader, taken.writer)
        busy.line = "a plan"
        pool._busy.add(busy)
        pool._release(taken, spent=False)
        done = await asyncio.gather(*tasks, return_exceptions=True)
        pool._busy.discard(busy)
        assert isinstance(done[0], Overloaded)
        assert order[:2] == ["b plan", "a search"]
        assert order[2:] == ["a plan"] * 4

    pooled(1, HANG_S, use)


def test_a_busy_machine_makes_no_task_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the processor's time: a task that gets none of it is not ended in favour of others."""

    async def use(pool: Pool) -> None:
        os.kill(pool._idle[0].pid, signal.SIGSTOP)
        waiting = asyncio.ensure_future(pool.run("estimate", {}, JOB))
        await asyncio.sleep(1)
        [worker] = pool._busy
        assert not worker.slow
        os.kill(worker.pid, signal.SIGCONT)
        assert reported(await waiting)[1]

    monkeypatch.setattr("oomdoc.api.pool._IDLE_SHARE", 0.0)
    pooled(1, HANG_S, use)


def test_a_hungry_input_is_refused() -> None:
    body = b'{"text": "x", "set": {"a": [' + b"[]," * 24_000_000 + b"[]]}}"

    async def use(pool: Pool) -> None:
        with pytest.raises((InputError, JobError)):
            reported(await pool.run("diagnosis", {"kind": "application/json"}, body))
        assert reported(await pool.run("estimate", {}, JOB))[1]

    pooled(1, HANG_S, use)


def test_errors_keep_their_kind_and_place() -> None:
    async def use(pool: Pool) -> None:
        bad = json.dumps({"job": {"model": "Qwen/Qwen2.5-7B", "seq_len": 0}}).encode()
        with pytest.raises(JobError) as refused:
            reported(await pool.run("estimate", {}, bad))
        assert refused.value.where == "seq_len"
        assert pool.alive

    pooled(2, HANG_S, use)


def test_the_warm_process_has_one_thread() -> None:
    """A fork of a process with several threads may hold a lock that nobody will open."""

    async def use(pool: Pool) -> None:
        assert pool._warm is not None
        assert len(list(Path(f"/proc/{pool._warm.pid}/task").iterdir())) == 1

    pooled(1, HANG_S, use)
