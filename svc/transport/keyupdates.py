"""
A limit on TLS messages after the handshake: KeyUpdates (RFC 8446, 4.6.3) and requests of TLS 1.2 to renegotiate.

A peer may request a reply to each, which stays in OpenSSL's memory until it is read. OpenSSL reports the messages by
its info callback, which is set when the handshake is complete, so neither handshakes nor records of data pay for it.
"""

from __future__ import annotations

from typing import Any, Final

from OpenSSL import SSL

from svc.transport.binding import ffi, lib

#: Messages a minute, received ones and replies. A KeyUpdate that requests a reply counts twice, and libraries send one
#: for each 2^24 records (RFC 8446, section 5.5): one a minute is 4.5 GB/s.
MAX_KEY_UPDATES: Final = 64
#: The interval of that limit in seconds.
KEY_UPDATE_SECONDS: Final = 60.0

_EXIT: Final[int] = SSL.SSL_CB_EXIT
_WRITE_ALERT: Final[int] = SSL.SSL_CB_WRITE_ALERT
_CLOSE_NOTIFY: Final = 0
_DROPPED_SIZE: Final = 16 * 1024
_DROPPED: Final[Any] = ffi.new("char[]", _DROPPED_SIZE)


class KeyUpdates:
    """
    Counts the messages after the handshake of one connection.

    Args:
        maximum: how many are accepted in :data:`KEY_UPDATE_SECONDS`.

    Attributes:
        uncounted: how many came since the last call of :meth:`within_limit`; 0 for nearly every read.
    """

    __slots__ = ("_count", "_maximum", "_since", "uncounted")

    def __init__(self, maximum: int = MAX_KEY_UPDATES) -> None:
        self._maximum = maximum
        self._since = 0.0
        self._count = 0
        self.uncounted = 0

    def start(self, connection: SSL.Connection) -> None:
        """Start counting on a connection whose handshake is complete."""
        connection.set_app_data(self)
        lib.SSL_set_info_callback(connection._ssl, _CALLBACK)

    def got_message(self) -> bool:
        """Count one; returns whether OpenSSL may process more of the data that was already received."""
        self.uncounted += 1
        return self.uncounted <= self._maximum

    def within_limit(self, now: float) -> bool:
        """Add the uncounted ones at a monotonic time; returns whether the connection is within its limit."""
        if now - self._since >= KEY_UPDATE_SECONDS:
            self._since, self._count = now, 0
        self._count += self.uncounted
        self.uncounted = 0
        return self._count <= self._maximum


def _on_info(ssl: Any, where: int, result: int) -> None:
    if not where & _EXIT and (where != _WRITE_ALERT or result & 0xFF == _CLOSE_NOTIFY):
        return
    connection = SSL.Connection._reverse_mapping.get(ssl)
    updates = None if connection is None else connection.get_app_data()
    if connection is not None and isinstance(updates, KeyUpdates) and not updates.got_message():
        # One read of the socket can hold thousands, for 40 µs each: discard the rest, so that OpenSSL returns.
        while lib.BIO_read(connection._into_ssl, _DROPPED, _DROPPED_SIZE) > 0:
            pass


#: Never freed, so that no connection can outlive it.
_CALLBACK: Final[Any] = ffi.callback("void (*)(const SSL *, int, int)", _on_info)
