"""AES-256-CBC for encrypted callbacks, with the padding that Feishu (16 bytes) and WeCom (32 bytes) put on."""

from __future__ import annotations

import base64
import binascii

from oomdoc.bots.message import Refused
from oomkb.errors import InputError


def ready() -> None:
    """Whether ciphers are installed.

    :raises InputError: where they are not.
    """
    try:
        import cryptography.hazmat.primitives.ciphers  # noqa: F401
    except ImportError as error:
        raise InputError(
            "encrypted callbacks need the package cryptography", where="bots", hint="pip install 'oomdoc[bots]'"
        ) from error


def sealed_bytes(text: str) -> bytes:
    """What a callback carries in base64.

    :raises Refused: for anything else.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Refused("not encrypted as agreed", status=400) from error


def decrypt(key: bytes, initial: bytes, data: bytes, *, block: int = 16) -> bytes:
    """Plain bytes, padding taken off.

    :raises Refused: for data that this key cannot have made.
    """
    ready()
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    if not data or len(data) % 16:
        raise Refused("not encrypted as agreed", status=400)
    decryptor = Cipher(algorithms.AES(key), modes.CBC(initial)).decryptor()
    padded = decryptor.update(data) + decryptor.finalize()
    count = padded[-1]
    if not 1 <= count <= block or padded[-count:] != bytes([count]) * count:
        raise Refused("not encrypted with this key", status=400)
    return padded[:-count]
