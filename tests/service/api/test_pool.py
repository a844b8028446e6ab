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

from oomdoc.api.pool import CALLER, Overloaded, Pool, _Line, _Task
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


async def send(pool: Pool, caller: str, task: str, arguments: dict[str, Any], blob: bytes = b"") -> Any:
    CALLER.set(caller)
    return await pool.run(task, arguments, blob)


def test_slow_inputs_of_one_caller_hold_a_part_of_the_places(endless: dict[str, Any]) -> None:
    async def use(pool: Pool) -> None:
        stuck = [asyncio.ensure_future(send(pool, "a", "diagnosis", endless)) for _ in range(8)]
        while pool._aside_of("a") < 2 or len([line for line in pool._lines if line == ("a", "large")]) < 1:
            await asyncio.sleep(0.05)
        for _ in range(4):
            assert (await send(pool, "b", "estimate", {}, JOB))[1]
            assert pool._aside_of("a") <= 3
        while sum(map(len, pool._lines.values())) < 6:
            await asyncio.sleep(0.05)
        assert len(pool._running) == pool._aside_of("a") == 2
        assert not any(task.done() for task in stuck)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
        assert not pool._running

    pooled(1, HANG_S, use)


def test_who_comes_last_gets_a_place_of_who_has_most(endless: dict[str, Any]) -> None:
    """Nobody is refused: the newest of a caller with several begins anew when there is room."""

    async def use(pool: Pool) -> None:
        callers = ["a", "a", "b", "c", "d"]
        stuck = [asyncio.ensure_future(send(pool, caller, "diagnosis", endless)) for caller in callers]
        await asyncio.sleep(0)
        while {task.caller for task in pool._running} != {"a", "b", "c", "d"}:
            await asyncio.sleep(0.05)
        assert (await send(pool, "e", "estimate", {}, JOB))[1]
        assert not any(task.done() for task in stuck)
        for task in stuck:
            task.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)

    pooled(1, HANG_S, use)


def test_what_is_large_takes_no_usual_place(tmp_path: Path) -> None:
    large = tmp_path / "x.log"
    large.write_bytes(b"CUDA out of memory\n" * 10_000)

    async def use(pool: Pool) -> None:
        files = {"files": [["x.log", str(large)]], "fields": {}, "limit_bytes": 1 << 20}
        reading = asyncio.ensure_future(send(pool, "a", "diagnosis", files))
        await asyncio.sleep(0)
        assert [task.slow for task in pool._running] == [True]
        assert reported(await send(pool, "a", "estimate", {}, JOB))[1]
        assert not reading.done()
        assert reported(await reading)[1]

    pooled(1, HANG_S, use)


def leave(pool: Pool, task: _Task) -> None:
    pool._running.discard(task)
    pool._call()


async def placed(pool: Pool, line: _Line, order: list[Any], name: Any) -> None:
    task = await pool._placed(line)
    order.append(name)
    await asyncio.sleep(0)
    leave(pool, task)


def test_who_waits_too_long_is_told_and_takes_no_place_away() -> None:
    """Also where one comes free in the very moment that waiting for it ends."""

    async def use(pool: Pool) -> None:
        taken = await pool._placed(("", ""))
        for _ in range(3):
            with pytest.raises(Overloaded):
                await pool.run("estimate", {}, JOB)
            waiting = asyncio.ensure_future(pool._placed(("", "")))
            await asyncio.sleep(0)
            leave(pool, taken)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            taken = await pool._placed(("", ""))
        leave(pool, taken)
        assert not pool._running

    pooled(1, 0.2, use)


def test_where_tasks_wait_for_long_the_newest_and_the_oldest_go_in_turn() -> None:
    """Who sent many at once waits for them; who asks once does not, and nobody waits until it gives up."""

    async def use(pool: Pool) -> None:
        taken = await pool._placed(("", ""))
        order: list[int] = []
        tasks = []
        for number in range(4):
            tasks.append(asyncio.ensure_future(placed(pool, ("", ""), order, number)))
            await asyncio.sleep(0)
        age(pool)
        leave(pool, taken)
        await asyncio.gather(*tasks)
        assert order == [3, 0, 1, 2]  # nobody has waited for long any more

    pooled(1, HANG_S, use)


def test_where_too_many_wait_the_oldest_of_who_has_most_is_given_up() -> None:
    async def use(pool: Pool) -> None:
        taken = await pool._placed(("a", "plan"))
        many = [asyncio.ensure_future(pool._placed(("a", "plan"))) for _ in range(3)]
        await asyncio.sleep(0)
        CALLER.set("a")
        assert not pool.shed()  # its own, and not stale
        age(pool)
        assert pool.shed()
        CALLER.set("b")
        assert pool.shed()
        for waiting in many[:2]:
            with pytest.raises(Overloaded, match="for other"):
                await waiting
        leave(pool, taken)
        leave(pool, await many[2])

    pooled(1, HANG_S, use)


def test_what_is_large_is_given_up_before_what_is_not() -> None:
    async def use(pool: Pool) -> None:
        taken = await pool._placed(("a", "plan"))
        pool._aside = 0
        large = asyncio.ensure_future(pool._placed(("b", "large")))
        small = [asyncio.ensure_future(pool._placed(("a", "plan"))) for _ in range(3)]
        await asyncio.sleep(0)
        CALLER.set("c")
        assert pool.shed()
        with pytest.raises(Overloaded):
            await large
        leave(pool, taken)
        for waiting in small:
            leave(pool, await waiting)

    pooled(1, HANG_S, use)


def test_a_long_line_delays_no_other_line() -> None:
    async def use(pool: Pool) -> None:
        taken = await pool._placed(("a", "plan"))
        order: list[str] = []
        lines = [("a", "plan")] * 4 + [("b", "plan"), ("a", "search")]
        tasks = [asyncio.ensure_future(placed(pool, line, order, " ".join(line))) for line in lines]
        await asyncio.sleep(0)
        pool._running.add(busy := _Task("a", large=True))
        leave(pool, taken)
        await asyncio.gather(*tasks)
        pool._running.discard(busy)
        assert order[0] == "b plan"
        assert order[-1] == "a search"  # of one caller who came first

    pooled(1, HANG_S, use)


def test_a_busy_machine_makes_no_task_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """What counts is the processor's time: a task that gets none of it is not ended in favour of others."""

    async def use(pool: Pool) -> None:
        os.kill(pool._idle[0].pid, signal.SIGSTOP)
        waiting = asyncio.ensure_future(pool.run("estimate", {}, JOB))
        await asyncio.sleep(1)
        [task] = pool._running
        assert not task.slow
        assert task.worker is not None
        os.kill(task.worker.pid, signal.SIGCONT)
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
