"""One two-way table per framework: what reads a key also writes it.

:func:`read_documents` turns any text into facts with their places, :func:`to_job` facts into a job document, and
:func:`patch` writes job fields back into a person's own file.
"""

from __future__ import annotations

from oomdoc.intake.configs.declared import TABLES
from oomdoc.intake.configs.jobs import to_job
from oomdoc.intake.configs.patching import Patched, patch, patch_batch_row
from oomdoc.intake.configs.reading import ConfigReading, read_documents
from oomdoc.intake.configs.whole_text import Text

__all__ = ["TABLES", "ConfigReading", "Patched", "Text", "patch", "patch_batch_row", "read_documents", "to_job"]
