"""The service's calls of the library: cached for repeated input, counted, and kept in the store, masked."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from oomdoc.api import metrics
from oomdoc.evidence import Source
from oomdoc.settings import Settings
from oomdoc.store.engine import migrate, open_engine
from oomdoc.store.store import Store, StoreDown
from oomkb.errors import InputError, OomdocError

__all__ = ["Work"]

_LOG: Final = logging.getLogger("oomdoc.service")
_RETRY_S: Final = 2.0


class Work:
    """What the routes share: settings, the store and a cache of answers."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._store: Store | None = None
        self._tried_at = -_RETRY_S
        self._lock = threading.Lock()
        self._answers: OrderedDict[str, dict[str, Any]] = OrderedDict()

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
        """Give the store's connections back."""
        if self._store is not None:
            self._store.close()

    def diagnose(
        self,
        sources: Sequence[Source],
        *,
        options: Mapping[str, Any],
        language: str = "auto",
        plans: bool = True,
        keep: bool = True,
    ) -> dict[str, Any]:
        """A diagnosis document; ``id`` is its number in the store, ``None`` where it was not kept.

        A store that is down takes nothing away from the answer: it is given, with a warning.
        """
        key = _key(sources, options, language, plans)
        document = self._cached(key)
        if document is None:
            from oomdoc.library import diagnose

            report = diagnose(list(sources), options=options, language=language, plans=plans)
            document = report.document()
            document["language"] = report.language
            self._keep(key, document)
        causes = document["causes"]
        metrics.diagnosed(document["verdict"], causes[0]["cause"] if causes else "none")
        return self._stored(sources, document) if keep else document

    def _stored(self, sources: Sequence[Source], document: dict[str, Any]) -> dict[str, Any]:
        from oomdoc.intake.redact import mask

        masked = "\n".join(mask(source.text[:200_000]).text for source in sources)
        try:
            identifier = self.store().add_diagnosis(
                language=document["language"],
                input_masked=masked,
                result={k: v for k, v in document.items() if k != "id"},
            )
        except StoreDown as error:
            _LOG.warning(json.dumps({"event": "store-down", "reason": error.message[:200]}))
            return document | {"warnings": [*document["warnings"], "not stored: the store does not answer"]}
        return document | {"id": identifier}

    def _cached(self, key: str) -> dict[str, Any] | None:
        with self._lock:
            document = self._answers.get(key)
            if document is not None:
                self._answers.move_to_end(key)
            return document

    def _keep(self, key: str, document: dict[str, Any]) -> None:
        with self._lock:
            self._answers[key] = document
            while len(self._answers) > self.settings.cache_entries:
                self._answers.popitem(last=False)

    def forget_answers(self) -> None:
        """After the known cases have changed, every answer may differ."""
        with self._lock:
            self._answers.clear()

    def ready(self) -> dict[str, str]:
        """Component -> ``ok`` or what is wrong."""
        return {"store": _check(lambda: self.store().ping()), "index": _check(_index_answers)}


def default_database_url() -> str:
    """An SQLite file in the state folder."""
    from oomkb.retrieval.state import state_dir

    return f"sqlite:///{state_dir() / 'oomdoc.db'}"


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


def _key(sources: Sequence[Source], options: Mapping[str, Any], language: str, plans: bool) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(f"{len(source.name)}:{source.name}{len(source.text)}:".encode("utf-8", "replace"))
        digest.update(source.text.encode("utf-8", "replace"))
    digest.update(json.dumps([dict(options), language, plans], sort_keys=True, default=str).encode())
    return digest.hexdigest()
