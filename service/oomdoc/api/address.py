"""Who calls: the peer's address, or, behind proxies that the settings name, what they say of it."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import Scope

__all__ = ["Proxies"]


class Proxies:
    """The proxies whose ``X-Forwarded-For`` is believed; anybody else may write what they like into it."""

    def __init__(self, trusted: str) -> None:
        parts = [part.strip() for part in trusted.split(",") if part.strip()]
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(ip_network(p, strict=False) for p in parts)

    def caller(self, scope: Scope, headers: Headers) -> str:
        """The last address that a trusted proxy did not write of another trusted proxy."""
        address = str((scope.get("client") or ("unknown", 0))[0])
        if not self._networks or not _within(address, self._networks):
            return address
        for said in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
            hop = said.strip()[:64]
            if not _is_address(hop):
                break
            address = hop
            if not _within(hop, self._networks):
                break
        return address


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=4096)
def _within(text: str, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    return _is_address(text) and any(ip_address(text) in network for network in networks)
