"""
Which transports run: the fast ones where everything they rely on is there, else Twisted's own.

Owns the feature test. ``SVC_TRANSPORT=stock`` in the environment forces Twisted's own, for tests and for finding out
whether a fault lies in the fast path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from OpenSSL import SSL
from twisted.internet import abstract, tcp
from twisted.protocols.tls import TLSMemoryBIOProtocol

from svc.transport import eager, fasttls
from svc.transport.binding import lib
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsProtocol

ENVIRONMENT: Final = "SVC_TRANSPORT"


@dataclass(frozen=True)
class TlsChoice:
    """
    The TLS protocol that endpoints use.

    Attributes:
        selected: ``fast`` or ``stock``.
        protocol: the class.
        missing: what the fast path would need and does not find.
    """

    selected: Literal["fast", "stock"]
    protocol: type[TlsProtocol]
    missing: tuple[str, ...]


@dataclass(frozen=True)
class TcpChoice:
    """
    The TCP transports that endpoints use.

    Attributes:
        selected: ``fast`` (eager writes) or ``stock``.
        missing: what the fast path would need and does not find.
    """

    selected: Literal["fast", "stock"]
    missing: tuple[str, ...]

    @property
    def eager(self) -> bool:
        """Whether writes are sent eagerly."""
        return self.selected == "fast"


def choose_tls_protocol(environ: Mapping[str, str] = os.environ, *, binding: Any = lib) -> TlsChoice:
    """
    Choose the TLS protocol class.

    Args:
        environ: the environment.
        binding: the functions of OpenSSL.

    Returns:
        The choice, with what is missing where it is not the fast one.
    """
    missing = [f"binding.{name}" for name in fasttls.REQUIRED_BINDING if not hasattr(binding, name)]
    missing += [f"tls.{name}" for name in fasttls.REQUIRED_PROTOCOL if not hasattr(TLSMemoryBIOProtocol, name)]
    missing += [f"Connection.{name}" for name in _absent_on_connection()]
    if missing or environ.get(ENVIRONMENT) == "stock":
        return TlsChoice("stock", StockTlsProtocol, tuple(missing))
    return TlsChoice("fast", FastTlsProtocol, ())


def choose_transports(environ: Mapping[str, str] = os.environ) -> TcpChoice:
    """
    Choose the TCP transports.

    Args:
        environ: the environment.

    Returns:
        The choice, with what is missing where it is not the fast one.
    """
    probe = abstract.FileDescriptor(reactor=_NO_REACTOR)  # type: ignore[arg-type]
    missing = tuple(f"FileDescriptor.{name}" for name in eager.REQUIRED_NAMES if not hasattr(probe, name))
    missing += tuple(
        f"tcp.Connection.{name}" for name in eager.REQUIRED_CONNECTION if not hasattr(tcp.Connection, name)
    )
    if missing or environ.get(ENVIRONMENT) == "stock":
        return TcpChoice("stock", missing)
    return TcpChoice("fast", ())


#: A FileDescriptor only stores its reactor; anything true keeps it from importing the global one.
_NO_REACTOR: Final = object()


def _absent_on_connection() -> list[str]:
    probe = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    return [name for name in fasttls.REQUIRED_CONNECTION if not hasattr(probe, name)]
