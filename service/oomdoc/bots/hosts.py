"""Which addresses the bots may call: the platform's own hosts and nothing else.

A callback names addresses (a reply hook, a file); without this check whoever can send one could make the service call
into the network it stands in.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from oomkb.errors import InputError

_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62})(?:\.[a-z0-9-]{1,63}){1,5}")
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]{1,4000}")


def allowed(url: str, hosts: Collection[str]) -> str:
    """The URL, written anew from its checked parts, where it is ``https`` on one of ``hosts``.

    An entry ``.example.com`` stands for every host below ``example.com``; any other for itself alone.

    :raises InputError: for another scheme, host or port, a login in the address, or anything a URL parser could read
        in two ways.
    """
    if not _PRINTABLE.fullmatch(url) or "\\" in url:
        raise _refused()
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise _refused() from None
    if parts.scheme != "https" or "@" in parts.netloc or port not in (None, 443) or not _HOST.fullmatch(host):
        raise _refused()
    if not any(host == h or (h.startswith(".") and host.endswith(h)) for h in hosts):
        raise _refused()
    query = f"?{parts.query}" if parts.query else ""
    return f"https://{host}{parts.path or '/'}{query}"


def _refused() -> InputError:
    # The address is not repeated: it may hold a token.
    return InputError("this address is not one of the platform's", where="callback")
