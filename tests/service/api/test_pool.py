"""What computes elsewhere: a slow, hungry or dying input delays nobody, and says what it was."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oomdoc.api.pool import Overloaded, Pool
from oomdoc.api.tasks import reported
from oomkb.errors import InputError, JobError

pytestmark = pytest.mark.slow
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


@pytest.fixture
def endless(tmp_path: Path) -> dict[str, Any]:
    """A file that is never at its end, for reading takes for ever."""
    pipe = tmp_path / "endless"
    os.mkfifo(pipe)
    return {"files": [["x.log", str(pipe)]], "fields": {}, "limit_bytes": 1000}


def test_a_slow_input_delays_nobody_and_ends(endless: dict[str, Any]) -> None:
    async def use(pool: Pool) -> None:
        stuck = asyncio.ensure_future(pool.run("diagnosis", endless))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        reported(await pool.run("estimate", {}, JOB))
        assert time.monotonic() - started < 2
        with pytest.raises(InputError, match="longer than 3 s"):
            await stuck
        assert reported(await pool.run("estimate", {}, JOB))[1]

    pooled(1, 3.0, use)


def test_where_all_are_slow_the_oldest_goes(endless: dict[str, Any]) -> None:
    async def use(pool: Pool) -> None:
        stuck = [asyncio.ensure_future(pool.run("diagnosis", endless)) for _ in range(8)]
        await asyncio.sleep(2.5)
        started = time.monotonic()
        waiting = [asyncio.ensure_future(pool.run("estimate", {}, JOB)) for _ in range(4)]
        done = await asyncio.gather(*waiting)
        assert all(outcome[1] for outcome in done)
        assert time.monotonic() - started < 8
        ended = await asyncio.gather(*stuck, return_exceptions=True)
        assert any(isinstance(error, Overloaded) for error in ended)

    pooled(1, 10.0, use)


def test_a_hungry_input_is_refused() -> None:
    body = b'{"text": "x", "set": {"a": [' + b"[]," * 24_000_000 + b"[]]}}"

    async def use(pool: Pool) -> None:
        with pytest.raises((InputError, JobError)):
            reported(await pool.run("diagnosis", {"kind": "application/json"}, body))
        assert reported(await pool.run("estimate", {}, JOB))[1]

    pooled(1, 20.0, use)


def test_errors_keep_their_kind_and_place() -> None:
    async def use(pool: Pool) -> None:
        bad = json.dumps({"job": {"model": "Qwen/Qwen2.5-7B", "seq_len": 0}}).encode()
        with pytest.raises(JobError) as refused:
            reported(await pool.run("estimate", {}, bad))
        assert refused.value.where == "seq_len"
        assert pool.alive

    pooled(2, 10.0, use)


def test_the_warm_process_has_one_thread() -> None:
    """A fork of a process with several threads may hold a lock that nobody will open."""

    async def use(pool: Pool) -> None:
        assert pool._warm is not None
        assert len(list(Path(f"/proc/{pool._warm.pid}/task").iterdir())) == 1

    pooled(1, 10.0, use)
