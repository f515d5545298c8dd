"""
What a request asks of the notary: level and nonce, from its reserved fields.

Pure. A wish that is spelled wrong is refused, so that nobody believes to have asked for something.
"""

from __future__ import annotations

from svc.naming import HEADER_LEVEL, HEADER_NONCE
from svc.notary.ids import NonceMalformed, parse_nonce
from svc.notary.level import Level, LevelUnknown
from svc.proxy.errors import LevelInvalid, NonceInvalid
from svc.wire.http1 import RequestHead

_LEVEL = HEADER_LEVEL.lower().encode("ascii")
_NONCE = HEADER_NONCE.lower().encode("ascii")


def asked_level(head: RequestHead) -> Level:
    """
    Read the level.

    Args:
        head: the request.

    Returns:
        The level, ``NONE`` where none is asked for.

    Raises:
        LevelInvalid: the word is none of the three.
    """
    text = head.reserved.get(_LEVEL)
    if text is None:
        return Level.NONE
    try:
        level = Level.parse(text.decode("latin-1"))
    except LevelUnknown as error:
        raise LevelInvalid() from error
    if level is Level.NONE:
        raise LevelInvalid()
    return level


def given_nonce(head: RequestHead) -> str | None:
    """
    Read the nonce.

    Args:
        head: the request.

    Returns:
        The nonce, or None.

    Raises:
        NonceInvalid: it is not 22 characters of canonical base64url.
    """
    text = head.reserved.get(_NONCE)
    if text is None:
        return None
    try:
        return parse_nonce(text.decode("latin-1"))
    except NonceMalformed as error:
        raise NonceInvalid() from error
