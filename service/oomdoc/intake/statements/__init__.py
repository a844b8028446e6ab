"""What people say about a failure, from a closed list, read by one classifier.

``statements.toml`` is the list, ``examples`` what it is learned from, ``concepts.toml`` the words that mean the same,
``weights.npz`` what ``bench/train_statements.py`` made of them.
"""

from __future__ import annotations

from oomdoc.intake.statements.causes import read_causes
from oomdoc.intake.statements.reader import read_statements, statements

__all__ = ["read_causes", "read_statements", "statements"]
