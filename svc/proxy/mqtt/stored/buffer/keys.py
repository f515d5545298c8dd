"""Encryption of what the buffer stores: AES-256-GCM, with the row to which the octets belong as associated data."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from svc.proxy.mqtt.stored.buffer.errors import BufferKeyRefused
from svc.strictjson import Base64Refused, b64u_decode
from svc.workload.files import FileMissing, FileRefused, read_trusted

KEY_OCTETS: Final = 32
#: Random for each encryption. NIST SP 800-38D allows 2^32 of them with one key.
_NONCE_OCTETS: Final = 12
_FINGERPRINT: Final = b"svc mqtt buffer key\0"
_MAX_FILE: Final = 1024


class ContentUnreadable(Exception):
    """A row is not what this program wrote there."""


class BufferKeys:
    """
    The keys of a buffer: the first one encrypts, all decrypt; without a key rows are stored in clear.

    With a key no row in clear is read: anybody who writes to the file could have stored it.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._ciphers = {fingerprint(key): AESGCM(key) for key in keys}
        #: The fingerprint of the key that encrypts; None is in clear.
        self.current = fingerprint(keys[0]) if keys else None

    @classmethod
    def read(cls, paths: Sequence[str]) -> BufferKeys:
        """Read the keys from files, or raise BufferKeyRefused."""
        return cls([_read_key(path) for path in paths])

    def contains(self, key: bytes | None) -> bool:
        """Whether what was encrypted with the key of this fingerprint, or None for in clear, can be read."""
        return self.current is None if key is None else key in self._ciphers

    def encrypt(self, octets: bytes, row: bytes) -> bytes:
        """Encrypt octets of the row with the current key, if there is one."""
        if self.current is None:
            return octets
        nonce = os.urandom(_NONCE_OCTETS)
        return nonce + self._ciphers[self.current].encrypt(nonce, octets, row)

    def decrypt(self, key: bytes | None, octets: bytes, row: bytes) -> bytes:
        """Decrypt octets of the row; raises ContentUnreadable where they or the row were altered, or are in clear."""
        if key is None and self.current is None:
            return octets
        if key is None:
            raise ContentUnreadable("it is in clear, and there are keys")
        try:
            return self._ciphers[key].decrypt(octets[:_NONCE_OCTETS], octets[_NONCE_OCTETS:], row)
        except (KeyError, InvalidTag, TypeError, ValueError) as error:
            raise ContentUnreadable("it was altered, or its key is gone") from error


def fingerprint(key: bytes) -> bytes:
    """The name of a key, from which nothing about it follows."""
    return hashlib.sha256(_FINGERPRINT + key).digest()[:8]


def _read_key(path: str) -> bytes:
    try:
        octets = read_trusted(path, max_bytes=_MAX_FILE)
        mode = os.stat(path).st_mode
    except (FileMissing, FileRefused, OSError) as error:
        raise BufferKeyRefused(path=path, defect=str(error)) from error
    if mode & 0o077:
        raise BufferKeyRefused(path=path, defect=f"its mode is {stat.S_IMODE(mode):04o}, other users could read it")
    if len(octets) == KEY_OCTETS:
        return octets
    try:
        key = b64u_decode(octets.decode("ascii").strip().rstrip("="))
    except (Base64Refused, UnicodeDecodeError):
        # Neither the error nor its context may show a part of the key.
        key = b""
    if len(key) != KEY_OCTETS:
        raise BufferKeyRefused(path=path, defect=f"it does not hold {KEY_OCTETS} octets")
    return key
