"""A language model behind an OpenAI-compatible endpoint: it reads and converses; what it says is checked.

Off unless ``OOMDOC_LLM_URL`` is set. Whatever goes wrong is one :class:`Unavailable` with a reason of a closed list,
and the caller answers without it.
"""

from __future__ import annotations

from oomdoc.language_model.client import LanguageModel
from oomdoc.language_model.connection import from_environment, from_settings
from oomdoc.language_model.failing import REASONS, Budget, Unavailable
from oomdoc.language_model.replies import Reply, Tool, ToolCall

__all__ = [
    "REASONS",
    "Budget",
    "LanguageModel",
    "Reply",
    "Tool",
    "ToolCall",
    "Unavailable",
    "from_environment",
    "from_settings",
]
