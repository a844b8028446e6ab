"""The service's calls of the library: answered once for repeated input, counted, and kept in the store, masked."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from starlette.exceptions import HTTPException

from oomdoc.api import metrics
from oomdoc.api.answers import Answer, Answers, digest
from oomdoc.evidence import Source
from oomdoc.settings import Settings
from oomdoc.store.engine import migrate, open_engine
from oomdoc.store.journal import Journal
from oomdoc.store.store import DiagnosisRow, Store, StoreDown, default_database_url
from oomkb.errors import InputError, OomdocError

__all__ = ["Work"]

T = TypeVar("T")
_LOG: Final = logging.getLogger("oomdoc.service")
_RETRY_S: Final = 2.0
_STORE_S: Final = 5.0
_NOT_STORED: Final = "not stored: the store does not answer"
_MASKED_CHARS: Final = 200_000


class Work:
    """What the routes share: settings, the store and answers kept in memory."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.answers = Answers(settings.cache_entries)
        self.prices = Answers(settings.cache_entries, 64 << 20)
        self._store: Store | None = None
        self._tried_at = -_RETRY_S
        self._failed_at = -_RETRY_S
        self._lock = threading.Lock()
        self._journal = Journal(self.store)
        # A diagnosis is arithmetic in Python: more threads than cores only make each other wait.
        self._threads = ThreadPoolExecutor(settings.diagnosing_threads, thread_name_prefix="oomdoc-diagnosis")
        self._waiting = 0

    def store(self) -> Store:
        """The store, opened when first needed and again after it was away.

        :raises StoreDown: where it does not answer; a failed attempt is not repeated within two seconds.
        """
        with self._lock:
            if self._store is not None:
                return self._store
            if time.monotonic() - self._tried_at < _RETRY_S:
                raise StoreDown("the store cannot be reached", hint="see OOMDOC_DATABASE_URL")
            self._tried_at = time.monotonic()
            try:
                engine = open_engine(self.settings.database_url or default_database_url())
                migrate(engine)
            except InputError as error:
                raise StoreDown(error.message, where=error.where, hint=error.hint) from error
            self._store = Store(engine)
            return self._store

    def close(self) -> None:
        """Write what is waiting and give the store's connections back."""
        self._journal.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._store is not None:
            self._store.close()

    async def computed(self, run: Callable[[], T]) -> T:
        """Run a diagnosis on one of few threads.

        :raises HTTPException: 503 at once where too many wait already: a late answer helps nobody.
        """
        if self._waiting >= self.settings.max_diagnosing:
            raise HTTPException(503, "too many diagnoses are being worked out", headers={"Retry-After": "1"})
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        finally:
            self._waiting -= 1

    def answer(
        self,
        sources: Sequence[Source],
        *,
        options: Mapping[str, Any],
        language: str = "auto",
        plans: bool = True,
    ) -> Answer:
        """A diagnosis, worked out once for the same input."""
        said = json.dumps([dict(options), language, plans], sort_keys=True, default=str)
        parts = [part.encode("utf-8", "replace") for s in sources for part in (s.name, s.text)]
        key = digest(said.encode("utf-8", "replace"), *parts)

        def run() -> tuple[Answer, int]:
            from oomdoc.intake.redact import mask
            from oomdoc.library import diagnose

            report = diagnose(list(sources), options=options, language=language, plans=plans)
            document = report.document()
            document["language"] = report.language
            causes = document["causes"]
            masked = "\n".join(mask(source.text[:_MASKED_CHARS]).text for source in sources)
            text = json.dumps({k: v for k, v in document.items() if k != "id"}, ensure_ascii=False)
            cause = causes[0]["cause"] if causes else "none"
            found = Answer(text, tuple(document["warnings"]), report.language, masked, document["verdict"], cause)
            return found, 2 * (len(text) + len(masked))

        answer: Answer = self.answers.once(key, run)
        return answer

    async def kept(self, answer: Answer, *, keep: bool) -> str:
        """The answer's JSON text, after it was kept in the store; without an id where it was not.

        A store that is down takes nothing away from the answer: it is given, with a warning.
        """
        metrics.diagnosed(answer.verdict, answer.cause)
        if not keep:
            return answer.document(None)
        if time.monotonic() - self._failed_at < _RETRY_S:
            return _unkept(answer)
        identifier = secrets.token_hex(12)
        row = DiagnosisRow(identifier, answer.language, answer.input_masked, answer.document(identifier))
        try:
            await asyncio.wait_for(asyncio.wrap_future(self._journal.add(row)), _STORE_S)
        except (StoreDown, TimeoutError) as error:
            self._failed_at = time.monotonic()
            reason = error.message if isinstance(error, StoreDown) else "it is too slow"
            _LOG.warning("store-down", extra={"fields": {"reason": reason[:200]}})
            return _unkept(answer)
        return row.result

    def ready(self) -> dict[str, str]:
        """Component -> ``ok`` or what is wrong."""
        return {"store": _check(lambda: self.store().ping()), "index": _check(_index_answers)}


def _unkept(answer: Answer) -> str:
    document = json.loads(answer.document(None))
    document["warnings"] = [*answer.warnings, _NOT_STORED]
    return json.dumps(document, ensure_ascii=False)


def _index_answers() -> None:
    from oomkb.retrieval.search import search

    if not search("CUDA out of memory", top=1):
        raise InputError("the index holds no cases", hint="oomdoc index build")


def _check(run: Any) -> str:
    try:
        run()
    except OomdocError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}"
    return "ok"
