"""Which language model is set up, if any; nothing is loaded where none is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oomdoc.language_model.client import LanguageModel
    from oomdoc.settings import Settings


def from_settings(settings: Settings) -> LanguageModel | None:
    """The model, where one is set up."""
    if not settings.llm_url:
        return None
    from oomdoc.language_model.client import LanguageModel

    key = settings.llm_key.get_secret_value()
    return LanguageModel(
        settings.llm_url, key, settings.llm_model, settings.llm_timeout, settings.llm_style, settings.llm_context
    )


def from_environment() -> LanguageModel | None:
    """The model of ``OOMDOC_LLM_URL`` (or of the file ``OOMDOC_CONFIG``), where one is set up.

    :raises InputError: naming every setting that is wrong.
    """
    if not (os.environ.get("OOMDOC_LLM_URL") or os.environ.get("OOMDOC_CONFIG")):
        return None
    from oomdoc.settings import load_settings

    return from_settings(load_settings())
