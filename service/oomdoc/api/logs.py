"""The service's log: one JSON object a line, without anything that was pasted.

An error's own text may quote what was pasted, so of an exception only its kind and its places in the code are written.
"""

from __future__ import annotations

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["JsonLines", "log_config"]

_FRAMES: Final = 20


class JsonLines(logging.Formatter):
    """``time``, ``level``, ``logger``, ``event``, and the fields that the call gave as ``extra={"fields": ...}``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": _event(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = record.exc_info[0].__name__
            entry["at"] = _places(record.exc_info[2])
        return json.dumps(entry, ensure_ascii=False, default=str)


def _event(record: logging.LogRecord) -> str:
    """The message; of an exception only its first line, as it was written in the code."""
    if record.exc_info:
        return str(record.msg).strip().partition("\n")[0][:200]
    return record.getMessage()[:500]


def _places(trace: Any) -> list[str]:
    frames = traceback.extract_tb(trace)[-_FRAMES:]
    return [f"{'/'.join(frame.filename.split('/')[-3:])}:{frame.lineno} {frame.name}" for frame in frames]


def log_config(level: str) -> dict[str, Any]:
    """For :func:`logging.config.dictConfig`: everything to standard error, as JSON lines."""
    to_stderr = {"level": level.upper(), "handlers": ["stderr"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": "oomdoc.api.logs.JsonLines"}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "json"}},
        "loggers": {"oomdoc": to_stderr, "uvicorn": to_stderr},
        "root": {"level": "WARNING", "handlers": ["stderr"]},
    }
