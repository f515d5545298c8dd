"""The error for a port that cannot be opened, the same at a start, at a reload and in ``--check-config``."""

from __future__ import annotations

from typing import Self

from twisted.internet.error import CannotListenError

from svc.errors import SvcError


class ListenFailed(SvcError):
    """{what} cannot be opened at {address}: {why}"""

    reason = "listen_failed"
    hint = (
        "does another process use the port, such as this service that runs already? choose another one in {key}; a port"
        " below 1024 needs CAP_NET_BIND_SERVICE"
    )

    @classmethod
    def from_error(cls, error: Exception, *, what: str, address: object, key: str) -> Self:
        """
        Describe a failed attempt to listen.

        Args:
            error: from ``bind``, or from a reactor.
            what: the listener, for people: ``the listener web``, ``metricsAddr``.
            address: where it was to listen.
            key: names the address in the configuration, for the hint.
        """
        cause = error.socketError if isinstance(error, CannotListenError) else error
        return cls(what=what, address=str(address), why=getattr(cause, "strerror", None) or str(cause), key=key)
