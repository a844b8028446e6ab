"""Before a launch: findings about a config, and how a person, code scanning or a CI server is shown them."""

from __future__ import annotations

from oomdoc.checking.check import Checked, Finding, check_text

__all__ = ["Checked", "Finding", "check_text"]
