"""Diagnoses, chat sessions, feedback, submitted cases and seen events: SQLite by default, PostgreSQL by URL."""

from __future__ import annotations

from oomdoc.store.store import Store, StoredCase, StoredDiagnosis, open_store

__all__ = ["Store", "StoredCase", "StoredDiagnosis", "open_store"]
