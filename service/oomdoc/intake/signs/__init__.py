"""What machines print that points to a cause, as a table: one file per cause, ``<cause>.toml``, one table per sign.

A sign belongs to the cause that it was collected for, and says no more than that it was seen: how much it speaks for
this cause or another is for whoever weighs it. What a sign matches, what it must not match, and who printed it stand
beside each other; :mod:`~oomdoc.intake.signs.schema` says how a row is written, and its tests refuse one that
breaks its own examples.
"""

from __future__ import annotations

from oomdoc.intake.signs.schema import read_signs

__all__ = ["read_signs"]
