"""A TLS client of plain pyOpenSSL, and assertions on refused handshakes."""

from __future__ import annotations

import contextlib
from typing import Any, ClassVar

from OpenSSL import SSL, crypto
from OpenSSL._util import lib as _lib

from svc.testing.ca import chain_pem, key_pem
from svc.testing.workload import MemorySource
from svc.transport.errors import TransportError
from svc.transport.handshake import TlsProtocol
from tests.mixins import TestsMixin
from tests.transport.pairs import Pair, Wire


class HandshakeCase(TestsMixin):
    """Helpers for tests on every data path."""

    tls: ClassVar[type[TlsProtocol]]

    def pair(self, **options: Any) -> Pair:
        return Pair(self.tls, **options).connect()

    def assert_refused(self, pair: Pair, by: str) -> tuple[str, str, str]:
        """Assert that the refusing side built no protocol; returns reason, detail and alert."""
        observer = getattr(pair, f"{by}_observer")
        self.assertEqual(getattr(pair, f"{by}_factory").built, [])
        self.assertEqual(observer.done, [])
        self.assertEqual(len(observer.failed), 1)
        self.assertTrue(pair.client_wire.lost and pair.server_wire.lost)
        self.assertEqual(pair.clock.getDelayedCalls(), [])
        role, error, address = observer.failed[0]
        self.assertEqual((role, address), (by, "192.0.2.2:50000" if by == "server" else "192.0.2.1:8443"))
        return error.reason, error.detail, error.alert

    def server_error(self, pair: Pair) -> TransportError:
        """The typed error of a server's failed handshake, from a second attempt of the same pair."""
        errors: list[TransportError] = []
        again = Pair.__new__(Pair)
        again.__dict__.update(pair.__dict__)
        factory = pair.server_tls_factory
        factory.failed = errors.append  # type: ignore[assignment]
        again.server_wire, again.client_wire = Wire("server"), Wire("client")
        again.server = factory.buildProtocol(Wire("server").getPeer())
        again.client = pair.client_tls_factory.buildProtocol(Wire("client").getPeer())
        if pair.client_wire.protocol is pair.client:
            again.connect()
        else:
            pair.client_wire.protocol.again().connect_to(again)
        [error] = errors
        return error

    def error_of(self, **options: Any) -> TransportError:
        """The typed error of a client's failed handshake."""
        errors: list[TransportError] = []
        pair = Pair(self.tls, **options)
        pair.client_tls_factory.failed = errors.append  # type: ignore[assignment]
        pair.connect()
        [error] = errors
        return error


class OpenSslClient:
    """A client of plain pyOpenSSL with the settings of a test."""

    def __init__(
        self,
        credentials: MemorySource | None = None,
        *,
        groups: bytes | None = None,
        maximum: int | None = None,
        session: SSL.Connection | None = None,
    ) -> None:
        self._options = (credentials, groups, maximum)
        context = SSL.Context(SSL.TLS_CLIENT_METHOD) if session is None else session.get_context()
        if maximum is not None:
            context.set_max_proto_version(maximum)
        if groups is not None:
            assert _lib.SSL_CTX_set1_curves_list(context._context, groups) == 1
        if credentials is not None and session is None:
            certificates = chain_pem(credentials.svid)
            context.use_certificate(crypto.load_certificate(crypto.FILETYPE_PEM, certificates).to_cryptography())
            for each in credentials.svid.chain[1:]:
                context.add_extra_chain_cert(each)
            context.use_privatekey(
                crypto.load_privatekey(crypto.FILETYPE_PEM, key_pem(credentials.svid)).to_cryptography_key()  # type: ignore[arg-type]
            )
        self.connection = SSL.Connection(context, None)
        self.connection.set_connect_state()
        if session is not None:
            self.connection.set_session(session.get_session())  # type: ignore[arg-type]
        self.alert = ""
        self.after_handshake = b""
        self.established = False
        self.wire: Any = None

    def again(self, earlier: OpenSslClient | None = None) -> OpenSslClient:
        """Another client with the same settings, which offers the session of an earlier one."""
        credentials, groups, maximum = self._options
        if earlier is None:
            return OpenSslClient(credentials, groups=groups, maximum=maximum)
        return OpenSslClient(credentials, session=earlier.connection)

    def connect_to(self, pair: Pair) -> None:
        """Replace the client of a pair and carry the handshake."""
        self.wire = pair.client_wire
        pair.client_wire.protocol = self
        pair.server_wire.protocol = pair.server
        pair.server.makeConnection(pair.server_wire)
        self._advance()
        pair.pump()

    def dataReceived(self, data: bytes) -> None:
        self.connection.bio_write(data)
        if self.established:
            self.after_handshake += data
        self._advance()

    def connectionLost(self, reason: object) -> None:
        pass

    def _advance(self) -> None:
        try:
            if not self.established:
                self.connection.do_handshake()
                self.established = True
            self.connection.recv(1)
        except SSL.WantReadError:
            pass
        except SSL.Error as error:
            self.alert = error.args[0][0][2] if error.args and error.args[0] else ""
        with contextlib.suppress(SSL.WantReadError):
            self.wire.write(self.connection.bio_read(1 << 20))
