"""The messengers' doors: one file per platform, all of them told apart only by how they sign, ask and format.

A platform is there where its settings are; nothing here is imported by the plain commands.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import httpx

    from oomdoc.bots.message import Platform
    from oomdoc.settings import Settings

__all__ = ["PLATFORMS", "configured"]

PLATFORMS: Final[tuple[tuple[str, str], ...]] = (
    ("dingtalk", "DingTalk"),
    ("feishu", "Feishu"),
    ("slack", "Slack"),
    ("wecom", "WeCom"),
)
"""Module (also the name in the path) and class of each."""


def configured(settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> dict[str, Platform]:
    """The platforms that are set up, by name."""
    found: dict[str, Platform] = {}
    for name, kind in PLATFORMS:
        build: Callable[..., Any] = getattr(import_module(f"oomdoc.bots.{name}"), kind).from_settings
        platform = build(settings, transport)
        if platform is not None:
            found[name] = platform
    return found
