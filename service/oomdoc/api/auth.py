"""API keys with scopes: off on loopback, required elsewhere unless turned off by name."""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from oomdoc.settings import Settings


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


_OPEN: Final = ("/integrations/", "/static/", "/docs")
_OPEN_PATHS: Final = frozenset({"/", "/openapi.json", "/favicon.ico"})


def needed_scope(method: str, path: str) -> str | None:
    """The scope a request needs; ``None`` where it is open (the page, messengers with signatures of their own)."""
    # A browser asks by OPTIONS, without a key, whether a page may call; what is asked for then needs its key.
    if method == "OPTIONS" or path in _OPEN_PATHS or path.startswith(_OPEN):
        return None
    if path == "/mcp":  # whatever the method: its tools change nothing
        return "read"
    if path == "/metrics" or path.startswith("/v1/admin"):
        return "admin"
    if method == "DELETE" or (method == "POST" and path in ("/v1/cases", "/v1/feedback")):
        return "write"
    return "read"


class Keys:
    """Who may call what."""

    def __init__(self, settings: Settings) -> None:
        self._required = settings.keys_required
        self._proxies = Proxies(settings.trusted_proxies)
        # Only digests are kept and compared, in constant time.
        self._scopes = {hashlib.sha256(key.encode()).digest(): scopes for key, scopes in settings.keys().items()}

    def address(self, scope: Scope, headers: Headers) -> str:
        """The caller's address."""
        return self._proxies.caller(scope, headers)

    @staticmethod
    def given(headers: Headers) -> bool:
        """Whether a key was sent at all."""
        return _key(headers) is not None

    def is_admin(self, headers: Headers) -> bool:
        """Whether the key that was sent may do everything."""
        return "admin" in (self._scopes_of(_key(headers)) or ())

    def _scopes_of(self, key: str | None) -> frozenset[str] | None:
        digest = hashlib.sha256((key or "").encode()).digest()
        return next((s for known, s in self._scopes.items() if hmac.compare_digest(known, digest)), None)

    def admit(self, scope: Scope, headers: Headers) -> str:
        """The caller's name for rate limits: the key's digest, or the address.

        :raises HTTPException: 401 without a valid key, 403 without the scope.
        """
        address = self._proxies.caller(scope, headers)
        needed = needed_scope(scope["method"], scope["path"])
        key = _key(headers)
        if key is None:
            if self._required and needed is not None:
                raise HTTPException(401, "an API key is needed", headers={"WWW-Authenticate": "Bearer"})
            return f"address:{address}"
        scopes = self._scopes_of(key)
        if scopes is None:
            if not self._required:
                return f"address:{address}"
            raise HTTPException(401, "this API key is not known", headers={"WWW-Authenticate": "Bearer"})
        if self._required and needed is not None and not {needed, "admin"} & scopes:
            raise HTTPException(403, f"this API key lacks the scope {needed}")
        return f"key:{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def _key(headers: Headers) -> str | None:
    bearer = headers.get("authorization", "")
    if bearer[:7].lower() == "bearer ":
        return bearer[7:].strip() or None
    return headers.get("x-api-key")
