"""The service's calls of the library: computed elsewhere, answered once for repeated input, counted, kept masked."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Literal, TypeVar

import anyio
from fastapi.responses import Response
from sqlalchemy import Connection
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from oomdoc.api import metrics
from oomdoc.api.answers import Answer, Answers
from oomdoc.api.pool import Pool
from oomdoc.api.tasks import Outcome, reported, run_task
from oomdoc.language_model import LanguageModel, from_settings
from oomdoc.settings import Settings
from oomdoc.store.engine import migrate, open_engine
from oomdoc.store.journal import Journal
from oomdoc.store.store import DiagnosisRow, Store, StoreDown, default_database_url
from oomkb.errors import InputError, OomdocError


def once(
    work: Work, headers: Headers, body: str, status: int, effect: Callable[[Connection], dict[str, Any]]
) -> Response:
    """Do a write at most once per ``Idempotency-Key``: key, effect and answer are one transaction.

    :param effect: writes through the connection that it is given, and nothing else; what it gives is the answer.
    :raises Conflict: where the key was used with another body.
    """
    key = headers.get("idempotency-key")
    store = work.store()
    if key is None:
        return _json(json.dumps(store.written(effect), ensure_ascii=False), status)
    if not 8 <= len(key) <= 200 or not key.isprintable():
        raise InputError("a key has 8 to 200 printable characters", where="Idempotency-Key")
    settled = store.once(key, hashlib.sha256(body.encode()).hexdigest(), status, effect)
    return _json(settled.response, settled.status)


def _json(text: str, status: int) -> Response:
    return Response(text, status_code=status, media_type="application/json")


_LOG: Final = logging.getLogger("oomdoc.service")
_RETRY_S: Final = 2.0
_STORE_S: Final = 1.5
"""An answer waits so long for its id; one that is late is kept all the same."""
_OPENING_S: Final = 1.0
_REFRESH_EVERY_S: Final = 1.0
_WATCH_EVERY_S: Final = 2.0
_NOT_STORED: Final = "not stored: the store does not answer"
_MAX_PROCESSES: Final = 8
_WAITING: Final[Mapping[str, int]] = {"store": 12, "talk": 24}
"""Threads that may wait for the store, and for a language model or a conversation's turn: others are always left."""
T = TypeVar("T")


class Work:
    """What the routes share: settings, the store, the processes that compute, and answers kept in memory."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.answers = Answers(settings.cache_entries)
        self.prices = Answers(settings.cache_entries, 64 << 20)
        self._store: Store | None = None
        self._tried_at = -_RETRY_S
        self._refused: InputError | None = None
        self._slow_until = 0.0
        self.store_up = True
        """As it was when last looked at."""
        self.index_state = "starting"
        self._lock = threading.Lock()
        self._journal = Journal(self.store)
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Without processes: a diagnosis is arithmetic in Python, more threads than cores only make each other wait.
        self._threads = ThreadPoolExecutor(settings.diagnosing_threads, thread_name_prefix="oomdoc-diagnosis")
        self._waiting = 0
        self._limiters = {what: anyio.CapacityLimiter(most) for what, most in _WAITING.items()}
        self._changed = asyncio.Event()

    def store(self) -> Store:
        """The store, opened when first needed and again after it was away.

        :raises StoreDown: where it does not answer; a failed attempt is not repeated within two seconds, and nobody
            waits long for somebody else's. Nor is one asked that did not answer when it was last looked at.
        """
        if not self.store_up:
            raise self._down()
        return self._opened_store()

    def _opened_store(self) -> Store:
        if self._store is not None:
            return self._store
        if not self._lock.acquire(timeout=_OPENING_S):
            raise StoreDown("the store is being opened", hint="try again")
        try:
            if self._store is not None:
                return self._store
            if self._refused is not None and time.monotonic() - self._tried_at < _RETRY_S:
                raise self._down()
            self._tried_at = time.monotonic()
            try:
                engine = open_engine(self.settings.database_url or default_database_url())
                migrate(engine)
            except InputError as error:
                self._refused = error
                raise self._down() from error
            self._store = Store(engine)
            return self._store
        finally:
            self._lock.release()

    def _down(self) -> StoreDown:
        known = self._refused
        if known is None or self._store is not None:
            return StoreDown("the store does not answer", hint="see /readyz and the database's log")
        return StoreDown(known.message, where=known.where, hint=known.hint)

    async def watch(self) -> None:
        """Find out again and again how the store and the index are, so that nobody who asks has to wait for it."""
        asked: asyncio.Future[bool] | None = None
        while True:
            asked = asked or asyncio.ensure_future(asyncio.to_thread(self._pings))
            try:
                self._set_store(up=await asyncio.wait_for(asyncio.shield(asked), _STORE_S))
                asked = None
            except TimeoutError:  # it is asked no second time before it has answered the first
                self._set_store(up=False)
            if self.index_state != "ok":
                self.index_state = await self.looked_at_index()
            await asyncio.sleep(_WATCH_EVERY_S)

    def _pings(self) -> bool:
        try:
            self._opened_store().ping()
        except Exception as error:  # whatever a driver raises
            if self.store_up:
                reason = error.message if isinstance(error, StoreDown) else type(error).__name__
                _LOG.warning("store-down", extra={"fields": {"reason": reason[:200]}})
            return False
        return True

    def _set_store(self, *, up: bool) -> None:
        self.store_up = up
        metrics.store_up(up)

    async def looked_at_index(self) -> str:
        """``ok``, or what is wrong with the index in a word."""
        try:
            _, found = await self.run("search", {"text": "CUDA out of memory", "top": 1, "lang": "en"})
            return "ok" if json.loads(found)["matches"] else "empty"
        except Exception as error:  # the log tells more
            _LOG.warning("index-down", extra={"fields": {"error": type(error).__name__}})
            return "down"

    def purge(self) -> dict[str, int]:
        """Delete what is past its days or its bytes; how many rows of each table."""
        settings = self.settings
        return self.store().purge(older_than_days=settings.retention_days, most_bytes=settings.retention_bytes)

    def cases_changed(self) -> None:
        """The folder of submitted cases holds others than before: the processes that compute get them soon."""
        if self._loop is not None and self._pool is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    async def follow_cases(self) -> None:
        """Have changed cases loaded and indexed aside, however often they change, for at most a third of the time."""
        while self._pool is not None:
            await self._changed.wait()
            self._changed.clear()
            started = time.monotonic()
            try:
                await self._pool.refresh()
            except (OSError, OomdocError) as error:
                _LOG.warning("cases-not-loaded", extra={"fields": {"error": type(error).__name__}})
            self.answers.clear()
            await asyncio.sleep(max(_REFRESH_EVERY_S, 2 * (time.monotonic() - started)))

    async def start(self) -> None:
        """Start the processes that compute, where the settings ask for them."""
        self._loop = asyncio.get_running_loop()
        size = processes(self.settings)
        if size:
            pool = Pool(size, deadline_s=self.settings.diagnose_timeout_s)
            await pool.start()
            self._pool = pool
        self._set_store(up=await asyncio.to_thread(self._pings))

    async def stop(self) -> None:
        """End them."""
        if self._pool is not None:
            await self._pool.stop()

    def close(self) -> None:
        """Write what is waiting and give the store's connections back."""
        self._journal.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()

    async def run(self, task: str, arguments: Mapping[str, Any], blob: bytes = b"") -> Outcome:
        """Compute (see :mod:`oomdoc.api.tasks`), never on the event loop.

        :raises HTTPException: 503 at once where too many wait already: a late answer helps nobody.
        :raises OomdocError: what the task refuses with.
        """
        if self._waiting >= self.settings.max_diagnosing and not (self._pool is not None and self._pool.shed()):
            raise HTTPException(503, "too many diagnoses are being worked out", headers={"Retry-After": "1"})
        self._waiting += 1
        try:
            if self._pool is not None:
                return reported(await self._pool.run(task, dict(arguments), blob))
            loop = asyncio.get_running_loop()
            return reported(await loop.run_in_executor(self._threads, run_task, task, arguments, blob))
        finally:
            self._waiting -= 1

    async def apart(self, what: Literal["store", "talk"], function: Callable[..., T], *arguments: Any) -> T:
        """Call, in a thread, what may have to wait: who waits for one of these keeps nobody from anything else."""
        return await anyio.to_thread.run_sync(partial(function, *arguments), limiter=self._limiters[what])

    def run_from_thread(self, task: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """As :meth:`run`, from a thread that may wait; the outcome's document."""
        if self._loop is None:
            return reported(run_task(task, arguments, b""))[0]
        return asyncio.run_coroutine_threadsafe(self.run(task, arguments), self._loop).result()[0]

    def turn(self, session: dict[str, Any] | None, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """A turn of a conversation, from a thread that may wait; see :data:`oomdoc.sessions.Turn`."""
        taken = self.run_from_thread("turn", {"session": session, "text": text})
        return taken["session"], taken["reply"]

    async def diagnosed(self, arguments: Mapping[str, Any], blob: bytes = b"") -> Answer:
        """A diagnosis; where a language model is set up, with what it reads. Nothing that computes waits for it."""
        model = from_settings(self.settings)
        reading = await self._read_by(model, arguments, blob) if model is not None else None
        said = {} if reading is None else {"reading": reading}
        result, text = await self.run("diagnosis", {**arguments, **said}, blob)
        return Answer(
            text.decode(),
            tuple(result["warnings"]),
            result["language"],
            result["input_masked"],
            result["verdict"],
            result["cause"],
            result["keep"],
            lasts=reading is None or not reading["trouble"],
        )

    async def _read_by(self, model: LanguageModel, arguments: Mapping[str, Any], blob: bytes) -> dict[str, Any] | None:
        """The model's replies, as the diagnosis takes them; ``None`` where the request wants none."""
        from oomdoc.language_model.reader import Question, replies_to

        how = {"style": model.style, "context_tokens": model.context_tokens}
        questions = (await self.run("questions", {**arguments, **how}, blob))[0]["questions"]
        if not questions:
            return None
        asked = [Question(**question) for question in questions]
        replies, trouble = await self.apart("talk", replies_to, model, asked)
        return {"replies": replies, "trouble": trouble, **how}

    async def kept(self, answer: Answer, *, keep: bool) -> str:
        """The answer's JSON text, after it was kept in the store; without an id where it was not.

        A store that is down takes nothing away from the answer: it is given, with a warning.
        """
        metrics.diagnosed(answer.verdict, answer.cause)
        if not keep:
            return answer.document(None)
        if not self.store_up or time.monotonic() < self._slow_until:
            return _unkept(answer)
        identifier = secrets.token_hex(12)
        row = DiagnosisRow(identifier, answer.language, answer.input_masked, answer.document(identifier))
        try:
            await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._journal.add(row))), _STORE_S)
        except StoreDown as error:
            self._set_store(up=False)
            _LOG.warning("store-down", extra={"fields": {"reason": error.message[:200]}})
            return _unkept(answer)
        except TimeoutError:
            self._slow_until = time.monotonic() + _RETRY_S
            _LOG.warning("store-slow")
            return _unkept(answer)
        return row.result

    @property
    def elsewhere(self) -> bool:
        """Whether other processes compute."""
        return self._pool is not None

    @property
    def computes(self) -> bool:
        """Whether a diagnosis would be answered now."""
        return self._pool is None or self._pool.alive


def processes(settings: Settings) -> int:
    """Processes that compute for one server process; 0 where threads do."""
    if settings.diagnosing_processes >= 0:
        return settings.diagnosing_processes
    if not hasattr(os, "fork"):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MAX_PROCESSES, cores // settings.workers))


def _unkept(answer: Answer) -> str:
    document = json.loads(answer.document(None))
    document["warnings"] = [*answer.warnings, _NOT_STORED]
    return json.dumps(document, ensure_ascii=False)
