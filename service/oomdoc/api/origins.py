"""Which names this server answers to, and which pages may call it: a web page elsewhere is nobody who was let in.

Where callers need a key, that is what protects; these rules are for servers that ask for none, on a person's own
machine, which any page in that person's browser could reach otherwise.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from oomdoc.settings import Settings


class Origins:
    """The rules of one server's settings."""

    def __init__(self, settings: Settings) -> None:
        self._hosts = frozenset(_listed(settings.allowed_hosts))
        self._origins = frozenset(o.rstrip("/") for o in _listed(settings.cors_origins))

    def check(self, method: str, headers: Headers) -> None:
        """Refuse a foreign ``Host`` (a name that was pointed here), and what a foreign page sends.

        :raises HTTPException: 421 for the host, 403 for the page.
        """
        host = headers.get("host", "")
        if "@" in host or not self._known(_name(f"//{host}")):
            raise HTTPException(421, "this server is not known by that name: see OOMDOC_ALLOWED_HOSTS")
        if method in ("GET", "HEAD", "OPTIONS"):
            return
        origin = headers.get("origin")
        if origin is None:
            if headers.get("sec-fetch-site") == "cross-site":
                raise HTTPException(403, "pages elsewhere may not call this server: see OOMDOC_CORS_ORIGINS")
            return
        same = urlsplit(origin).netloc.lower() == host.lower() if "://" in origin else False
        if not (same or origin.lower().rstrip("/") in self._origins or "*" in self._origins):
            raise HTTPException(403, "pages elsewhere may not call this server: see OOMDOC_CORS_ORIGINS")

    def _known(self, name: str) -> bool:
        """Addresses and names without a dot are nobody's to register; any other name has to be listed."""
        if not name or "*" in self._hosts or name in self._hosts:
            return True
        if name.endswith(".localhost") or "." not in name.strip("."):
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True


def _name(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return "invalid.invalid"


def _listed(value: str) -> list[str]:
    return [part.strip().lower() for part in value.split(",") if part.strip()]
