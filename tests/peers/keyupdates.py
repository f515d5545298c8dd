"""
KeyUpdates of Python's own TLS client (RFC 8446, section 4.6.3), for which the ``ssl`` module has no call.

Owns the way to ``SSL_key_update`` of the library that the module has loaded.
"""

from __future__ import annotations

import _ssl
import ctypes
import ssl
from typing import Any, Final

_LIBRARY: Final = ctypes.CDLL(_ssl.__file__)
_LIBRARY.SSL_key_update.argtypes = [ctypes.c_void_p, ctypes.c_int]
_LIBRARY.SSL_renegotiate.argtypes = [ctypes.c_void_p]
_LIBRARY.SSL_do_handshake.argtypes = [ctypes.c_void_p]
#: PyObject_HEAD, the socket, ``SSL *``: so ``PySSLSocket`` begins in CPython 3.11 to 3.14.
_OFFSET: Final = 3 * ctypes.sizeof(ctypes.c_void_p)


def key_update(tls: ssl.SSLSocket | ssl.SSLObject, *, answer: bool = True) -> None:
    """
    Send a KeyUpdate.

    Args:
        tls: a client whose handshake is complete, over TLS 1.3.
        answer: whether the peer is asked for one.
    """
    pointer = _pointer(tls)
    if _LIBRARY.SSL_key_update(pointer, 1 if answer else 0) != 1 or _LIBRARY.SSL_do_handshake(pointer) != 1:
        raise ConnectionError("the connection takes no KeyUpdate")


def renegotiate(tls: ssl.SSLSocket | ssl.SSLObject) -> None:
    """
    Ask to renegotiate, as TLS 1.2 allowed.

    Args:
        tls: a client whose handshake is complete, over TLS 1.2.
    """
    pointer = _pointer(tls)
    _LIBRARY.SSL_renegotiate(pointer)
    _LIBRARY.SSL_do_handshake(pointer)


def _pointer(tls: Any) -> Any:
    return ctypes.c_void_p.from_address(id(tls._sslobj) + _OFFSET).value
