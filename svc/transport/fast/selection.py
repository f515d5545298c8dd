"""
The switch between the fast transports and Twisted's own.

The fast ones are selected where every private name that they rely on exists. ``SVC_TRANSPORT=stock`` in the environment
selects Twisted's own, for tests and to find out whether a fault lies in the fast path.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from OpenSSL import SSL
from twisted.internet import abstract
from twisted.internet import tcp as twisted_tcp
from twisted.protocols.tls import TLSMemoryBIOProtocol

from svc.transport.binding import lib
from svc.transport.fast import eager, tls

ENVIRONMENT: Final = "SVC_TRANSPORT"
#: A FileDescriptor only stores its reactor; any true value keeps it from importing the global one.
_NO_REACTOR: Final = object()


@dataclass(frozen=True)
class Selection:
    """Whether the fast transports are selected, and the private names that are missing."""

    fast: bool
    missing: tuple[str, ...]

    @property
    def name(self) -> str:
        """``fast`` or ``stock``."""
        return "fast" if self.fast else "stock"


def select_tls(environ: Mapping[str, str] = os.environ, *, binding: Any = lib) -> Selection:
    """Select the TLS data path; ``binding`` are the functions of OpenSSL."""
    connection = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    return _selection(
        environ,
        _missing("binding", binding, tls.REQUIRED_BINDING)
        + _missing("tls", TLSMemoryBIOProtocol, tls.REQUIRED_PROTOCOL)
        + _missing("Connection", connection, tls.REQUIRED_CONNECTION),
    )


def select_tcp(environ: Mapping[str, str] = os.environ) -> Selection:
    """Select the TCP transports."""
    descriptor = abstract.FileDescriptor(reactor=_NO_REACTOR)  # type: ignore[arg-type]
    return _selection(
        environ,
        _missing("FileDescriptor", descriptor, eager.REQUIRED_DESCRIPTOR)
        + _missing("tcp.Connection", twisted_tcp.Connection, eager.REQUIRED_CONNECTION),
    )


def _selection(environ: Mapping[str, str], missing: tuple[str, ...]) -> Selection:
    return Selection(not missing and environ.get(ENVIRONMENT) != "stock", missing)


def _missing(owner: str, found: object, names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{owner}.{name}" for name in names if not hasattr(found, name))
