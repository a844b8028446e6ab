"""The other half of :mod:`oomdoc.bots.aes`: what a platform does before it calls."""

from __future__ import annotations

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["encrypt"]


def encrypt(key: bytes, initial: bytes, plain: bytes, *, block: int = 16) -> bytes:
    """AES-256-CBC with padding to ``block`` bytes."""
    count = block - len(plain) % block
    encryptor = Cipher(algorithms.AES(key), modes.CBC(initial)).encryptor()
    return encryptor.update(plain + bytes([count]) * count) + encryptor.finalize()
