"""``oomdoc new``: the files of a new case, parser, reader, fix, GPU or model, and its one line in the list."""

from __future__ import annotations

from oomdoc.scaffold.making import scaffold

__all__ = ["scaffold"]
