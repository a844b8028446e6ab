"""From text and files to evidence: facts with source and line."""

from __future__ import annotations

from oomdoc.intake.read import read, read_text

__all__ = ["read", "read_text"]
