"""The messengers: one file per platform, which differ only in how they sign, ask and format.

A platform is there where its settings are; nothing here is imported by the plain commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx

    from oomdoc.bots.message import Platform
    from oomdoc.settings import Settings

__all__ = ["CALLBACKS", "PLATFORMS", "configured"]

PLATFORMS: Final[tuple[tuple[str, str], ...]] = (
    ("dingtalk", "DingTalk"),
    ("feishu", "Feishu"),
    ("slack", "Slack"),
    ("wecom", "WeCom"),
)
"""Module (also the name in the path) and class of each."""

CALLBACKS: Final[Mapping[str, frozenset[str]]] = {
    "dingtalk": frozenset({"messages"}),
    "feishu": frozenset({"events"}),
    "slack": frozenset({"events", "commands"}),
    "wecom": frozenset({"messages"}),
}
"""The last part of the addresses that each platform calls."""


def configured(name: str, settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> Platform | None:
    """A platform, where it is one and is set up.

    :raises InputError: for settings of it that cannot be right, or a package that it needs and is not installed.
    """
    kind = dict(PLATFORMS).get(name)
    if kind is None:
        return None
    build: Callable[..., Platform | None] = getattr(import_module(f"oomdoc.bots.{name}"), kind).from_settings
    return build(settings, transport)
