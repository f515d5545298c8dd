"""TLS of a server whose certificate is in memory and may be replaced at any time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cryptography import x509
from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from zope.interface import implementer

if TYPE_CHECKING:
    from twisted.protocols.tls import TLSMemoryBIOProtocol


@dataclass(frozen=True, eq=False)
class HeldTls:
    """
    What a server presents, and the authorities of its clients.

    Args:
        chain: its certificate, and the intermediates.
        key: of the first certificate, a private key of ``cryptography``.
        clients: authorities; with them a client may present a certificate of one of them, and none is needed.
    """

    chain: tuple[x509.Certificate, ...]
    key: Any = field(repr=False)
    clients: tuple[x509.Certificate, ...] = ()


@implementer(IOpenSSLServerConnectionCreator)
class HeldTlsCreator:
    """
    Creates the server side of TLS 1.2 and 1.3.

    Args:
        tls: returns what is in force for a new connection.
    """

    def __init__(self, tls: Callable[[], HeldTls]) -> None:
        self._tls = tls
        self._made: tuple[HeldTls, SSL.Context] | None = None

    def serverConnectionForTLS(self, tlsProtocol: TLSMemoryBIOProtocol) -> SSL.Connection:
        """Create the TLS state of one accepted connection."""
        tls = self._tls()
        if self._made is None or self._made[0] is not tls:
            self._made = tls, _context(tls)
        return SSL.Connection(self._made[1], None)


def _context(tls: HeldTls) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    # Who a client is, is verified for each connection: no session goes on with what was verified for another one.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    context.use_certificate(tls.chain[0])
    context.use_privatekey(tls.key)
    for each in tls.chain[1:]:
        context.add_extra_chain_cert(each)
    store = context.get_cert_store()
    if tls.clients and store is not None:
        for each in tls.clients:
            store.add_cert(crypto.X509.from_cryptography(each))
        context.set_verify(SSL.VERIFY_PEER, lambda _connection, _certificate, _number, _depth, good: bool(good))
    return context
