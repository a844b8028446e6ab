"""The HTTP application: everything put together. ``oomdoc serve`` runs it; any ASGI server can.

Following the store's submitted cases: each replica mirrors them into a private case folder of its own. The loader and
the index notice new files by themselves, so a case added through one replica is found by the others within a refresh.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType
from typing import Any, Final

import anyio.to_thread
from fastapi import FastAPI
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware

from oomdoc import __version__
from oomdoc.api import problems
from oomdoc.api.guard import Guard
from oomdoc.api.routes import ROUTERS
from oomdoc.api.routes.mcp import ROUTE, serving_mcp
from oomdoc.api.warm import frozen_heap, price_common_jobs, warm
from oomdoc.api.work import Work
from oomdoc.settings import Settings, load_settings
from oomdoc.store.store import StoreDown
from oomkb.errors import OomdocError
from oomkb.records.files import case_files, case_id
from oomkb.records.loader import shipped_ids
from oomkb.state import state_dir

# Sequence numbers are given out before commit: one may become visible after a larger one.
_LOOK_BACK: Final = 64


class Corpus:
    """Mirrors submitted cases and says when something was new."""

    def __init__(self, work: Work, folder: Path | None = None) -> None:
        self._work = work
        self._folder = folder or state_dir() / "submitted-cases"
        self._sequence = 0
        self._stop = threading.Event()
        # The follower and a caller may refresh at the same time: two writers of one mirror file would race.
        self._refreshing = threading.Lock()
        self._thread = threading.Thread(target=self._follow, name="oomdoc-corpus", daemon=True)

    def start(self) -> None:
        """Begin to follow; the folder joins ``OOMDOC_CASES`` for this process."""
        self._folder.mkdir(parents=True, exist_ok=True)
        known = [p for p in os.environ.get("OOMDOC_CASES", "").split(os.pathsep) if p]
        if str(self._folder) not in known:
            os.environ["OOMDOC_CASES"] = os.pathsep.join([*known, str(self._folder)])
        self._thread.start()

    def stop(self) -> None:
        """Stop following; the folder leaves ``OOMDOC_CASES`` again."""
        self._stop.set()
        known = [p for p in os.environ.get("OOMDOC_CASES", "").split(os.pathsep) if p and p != str(self._folder)]
        os.environ["OOMDOC_CASES"] = os.pathsep.join(known)
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def refresh(self) -> int:
        """Fetch what is new; how many cases. Callers take turns.

        :raises StoreDown: where the store does not answer.
        """
        with self._refreshing:
            return self._refresh()

    def _refresh(self) -> int:
        store, shipped = self._work.store(), shipped_ids()
        new = self._withdrawn(store.case_ids())
        for case in store.cases_after(max(0, self._sequence - _LOOK_BACK)):
            path = self._folder / f"{case.id}.yaml"
            # A later version may ship a case of the same id: the shipped one counts.
            if case.id in shipped:
                continue
            if not path.exists() or path.read_text(encoding="utf-8") != case.yaml:
                path.parent.mkdir(parents=True, exist_ok=True)
                partial = path.with_suffix(f".{os.getpid()}.part")
                partial.write_text(case.yaml, encoding="utf-8")
                partial.replace(path)
                new += 1
            self._sequence = max(self._sequence, case.sequence)
        if new:
            self._work.answers.clear()
            self._work.cases_changed()
        return new

    def _withdrawn(self, known: set[str]) -> int:
        """Delete the mirrors of cases that are in the store no more (or of another store); how many."""
        gone = [path for path in case_files(self._folder) if case_id(path) not in known]
        for path in gone:
            path.unlink(missing_ok=True)
        return len(gone)

    def _follow(self) -> None:
        while not self._stop.is_set():
            # /readyz tells about a store that is down; the next round tries again.
            with contextlib.suppress(StoreDown, OSError):
                self.refresh()
            self._stop.wait(self._work.settings.case_refresh_s)


_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "where": {"type": "string"},
        "hint": {"type": "string"},
    },
    "required": ["type", "title", "status", "detail"],
}
_PROBLEM_EXAMPLE: Final[dict[str, Any]] = {
    "type": "about:blank",
    "title": "Unprocessable Content",
    "status": 422,
    "detail": "0 is not a whole number of at least 1",
    "where": "micro_batch",
}
_CONTENT: Final[dict[str, Any]] = {"application/problem+json": {"schema": _PROBLEM, "example": _PROBLEM_EXAMPLE}}
_PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    422: {"description": "The body says something impossible", "content": _CONTENT},
    "default": {"description": "What is wrong, as RFC 9457 says it", "content": _CONTENT},
}
_PURGE_EVERY_S: Final = 3600.0
# Threads wait for the store and for the processes that compute; they hardly compute themselves.
_THREADS: Final = 32


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application.

    :raises InputError: for settings that are wrong.
    """
    settings = settings or load_settings()
    app = FastAPI(
        title="oomdoc",
        version=__version__,
        summary="Why an LLM job ran out of memory, and what would fit.",
        lifespan=_lifespan,
        docs_url=None,
        responses=_PROBLEMS,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.work = Work(settings)
    app.state.corpus = Corpus(app.state.work)
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.router.routes.append(ROUTE)
    if settings.cors_origins:
        origins = [o.strip() for o in settings.cors_origins.split(",") if o.strip()]
        app.add_middleware(
            CORSMiddleware, allow_origins=origins, allow_methods=["GET", "POST", "DELETE"], allow_headers=["*"]
        )
    app.add_middleware(Guard, settings=settings)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    app.state.draining = False
    # The folder of submitted cases is known before the processes that compute are started.
    app.state.corpus.start()
    await app.state.work.start()
    own = not app.state.work.elsewhere
    if own:
        await run_in_threadpool(warm)
    _notice_termination(app)
    playing = asyncio.create_task(run_in_threadpool(price_common_jobs)) if own else None
    app.state.work.index_state = await app.state.work.looked_at_index()
    watching = [asyncio.create_task(app.state.work.watch()), asyncio.create_task(app.state.work.follow_cases())]
    purging = asyncio.create_task(_purge(app.state.work))
    try:
        async with serving_mcp(app):
            with frozen_heap():
                yield
    finally:
        app.state.draining = True
        purging.cancel()
        for task in watching:
            task.cancel()
        if playing is not None:
            playing.cancel()
        await app.state.work.stop()
        await run_in_threadpool(app.state.corpus.stop)
        app.state.work.close()


def _notice_termination(app: FastAPI) -> None:
    """At SIGTERM /readyz says draining for a moment, so that balancers look elsewhere; then the server stops as usual.

    uvicorn has put its handler in place before this runs; where the server is not the main thread, signals are its
    caller's.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    stop = signal.getsignal(signal.SIGTERM)
    loop = asyncio.get_running_loop()
    if not callable(stop):
        return

    def drain(number: int, frame: FrameType | None) -> None:
        if app.state.draining:
            stop(number, frame)  # asked twice: at once
            return
        app.state.draining = True
        loop.call_soon_threadsafe(loop.call_later, app.state.settings.drain_notice_s, stop, number, None)

    signal.signal(signal.SIGTERM, drain)


async def _purge(work: Work) -> None:
    while True:
        with contextlib.suppress(OomdocError):
            await run_in_threadpool(work.purge)
        await asyncio.sleep(_PURGE_EVERY_S)
