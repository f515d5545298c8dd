"""Tests of ``svc.transport.endpoints`` on a reactor in memory."""

from __future__ import annotations

import errno
from typing import Any

from twisted.internet import error, reactor
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError
from twisted.internet.interfaces import IStreamClientEndpoint, IStreamServerEndpoint
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.identity import parse_matcher
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource
from svc.transport.creators import client_creator, server_creator
from svc.transport.endpoints import (
    MutualTlsClientEndpoint,
    MutualTlsServerEndpoint,
    PlainClientEndpoint,
    PlainServerEndpoint,
    TcpAddress,
    UnixAddress,
)
from svc.transport.errors import (
    ConnectFailed,
    ConnectTimeout,
    HandshakeTimeout,
    OwnCredentialsMissing,
    PeerIdentityUnexpected,
    PeerSvidInvalid,
)
from svc.transport.evidence import peer_evidence
from svc.transport.limits import Timeouts
from tests.transport.pairs import AUTHORITY, NOW, Applications, Pair, Recording, Wire, source

ADDRESS = TcpAddress("192.0.2.1", 8443)
PEER = IPv4Address("TCP", "192.0.2.1", 8443)
FOREIGN = TestAuthority("foreign.example", now=NOW)


class MutualTlsClientEndpointTests(SynchronousTestCase):
    """Tests of ``MutualTlsClientEndpoint``."""

    def start(self, *, server: MemorySource | None = None, client: MemorySource | None = None, **options: Any) -> None:
        """Start to connect, and prepare a server."""
        self.reactor = MemoryReactorClock()
        self.applications = Applications()
        self.observer = Recording()
        expected = parse_matcher(options.pop("expected", "spiffe://example.org/*"))
        creator = client_creator(
            client or source("/client"), clock=lambda: NOW, expected=expected, observer=self.observer
        )
        endpoint = MutualTlsClientEndpoint(self.reactor, ADDRESS, creator, **options)
        self.connecting = endpoint.connect(self.applications)
        self.server_source = server or source("/server")

    def establish(self) -> Pair:
        """TCP is connected; carry the handshake with the server."""
        from svc.transport.handshake import FastTlsProtocol

        pair = Pair(FastTlsProtocol, server_source=self.server_source)
        pair.client = self.reactor.tcpClients[0][2].buildProtocol(PEER)  # type: ignore[assignment]
        return pair.connect()

    def test_fires_with_the_protocol_of_a_verified_server(self) -> None:
        """The Deferred fires after the handshake, with the application's protocol, connected."""
        self.start()
        self.assertNoResult(self.connecting)
        pair = self.establish()
        protocol: Any = self.successResultOf(self.connecting)
        self.assertIs(protocol, self.applications.built[0])
        self.assertTrue(protocol.made)
        self.assertEqual(str(peer_evidence(protocol.transport).svid.spiffe_id), "spiffe://example.org/server")
        protocol.transport.write(b"hello")
        pair.pump()
        self.assertEqual(pair.server_app.received, b"hello")
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_invalid_server(self) -> None:
        """A server that fails verification gives the typed error; no protocol is built."""
        self.start(server=MemorySource(FOREIGN.svid(), AUTHORITY.bundles()))
        self.establish()
        found = self.failureResultOf(self.connecting, PeerSvidInvalid).value
        self.assertEqual((found.reason, found.detail), ("svid_invalid", "trust_domain_unknown"))
        self.assertEqual(self.applications.built, [])

    def test_unexpected_server(self) -> None:
        """A valid server of another identity gives its own error."""
        self.start(expected="spiffe://example.org/other")
        self.establish()
        self.failureResultOf(self.connecting, PeerIdentityUnexpected)

    def test_connection_refused(self) -> None:
        """A TCP error becomes ConnectFailed with the address and a plain text."""
        self.start()
        self.reactor.tcpClients[0][2].clientConnectionFailed(None, Failure(error.ConnectionRefusedError()))  # type: ignore[arg-type]
        found = self.failureResultOf(self.connecting, ConnectFailed).value
        self.assertEqual(str(found), "cannot connect to 192.0.2.1:8443: connection refused")

    def test_connect_timeout(self) -> None:
        """No TCP connection in time is ConnectTimeout, a gateway timeout for an HTTP proxy."""
        self.start(connect_timeout=3)
        self.reactor.tcpClients[0][2].clientConnectionFailed(None, Failure(error.TimeoutError()))  # type: ignore[arg-type]
        found = self.failureResultOf(self.connecting, ConnectTimeout).value
        self.assertEqual((found.reason, found.http_status), ("connect_timeout", 504))

    def test_silent_server(self) -> None:
        """A server that never answers the ClientHello is a HandshakeTimeout."""
        self.start(timeouts=Timeouts(handshake=4))
        tls = self.reactor.tcpClients[0][2].buildProtocol(PEER)
        wire = Wire("client")
        wire.protocol = tls
        tls.makeConnection(wire)  # type: ignore[arg-type]
        self.reactor.advance(4)
        self.assertTrue(wire.aborted)
        wire.lose(error.ConnectionAborted())
        self.failureResultOf(self.connecting, HandshakeTimeout)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_cancel_during_the_handshake(self) -> None:
        """Cancelling aborts the connection and fails with CancelledError."""
        self.start()
        tls = self.reactor.tcpClients[0][2].buildProtocol(PEER)
        wire = Wire("client")
        wire.protocol = tls
        tls.makeConnection(wire)  # type: ignore[arg-type]
        self.connecting.cancel()
        self.assertTrue(wire.aborted)
        wire.lose(error.ConnectionAborted())
        self.failureResultOf(self.connecting, CancelledError)
        self.assertEqual(self.reactor.getDelayedCalls(), [])

    def test_cancel_before_tcp(self) -> None:
        """Cancelling while TCP is not connected stops the attempt."""
        self.start()
        self.connecting.cancel()
        self.failureResultOf(self.connecting, CancelledError)
        self.assertTrue(self.reactor.connectors[0].stoppedConnecting)

    def test_no_credentials(self) -> None:
        """Without an SVID the connection fails with the precise reason, not with a TCP error."""
        self.start(client=MemorySource())
        self.assertIsNone(self.reactor.tcpClients[0][2].buildProtocol(PEER))
        self.failureResultOf(self.connecting, OwnCredentialsMissing)
        self.assertEqual(self.observer.refused, [("credentials_missing", "192.0.2.1:8443")])

    def test_application_that_raises(self) -> None:
        """An exception of the application's connectionMade fails the Deferred."""
        self.start()

        class Broken(Applications):
            def buildProtocol(self, addr: object) -> Any:
                raise ZeroDivisionError("a defect")

        self.reactor.tcpClients.clear()
        creator = client_creator(source("/client"), clock=lambda: NOW, expected=parse_matcher("spiffe://example.org/*"))
        self.connecting = MutualTlsClientEndpoint(self.reactor, ADDRESS, creator).connect(Broken())
        self.assertRaises(ZeroDivisionError, self.establish)
        self.failureResultOf(self.connecting, ZeroDivisionError)

    def test_interface(self) -> None:
        """The endpoints implement Twisted's interfaces."""
        reactor = MemoryReactorClock()
        client = client_creator(source(), clock=lambda: NOW, expected=parse_matcher("spiffe://example.org/*"))
        server = server_creator(source(), clock=lambda: NOW)
        for endpoint, interface in (
            (MutualTlsClientEndpoint(reactor, ADDRESS, client), IStreamClientEndpoint),
            (PlainClientEndpoint(reactor, ADDRESS), IStreamClientEndpoint),
            (MutualTlsServerEndpoint(reactor, ADDRESS, server), IStreamServerEndpoint),
            (PlainServerEndpoint(reactor, ADDRESS), IStreamServerEndpoint),
        ):
            self.assertTrue(verifyObject(interface, endpoint))


class PlainClientEndpointTests(SynchronousTestCase):
    """Tests of ``PlainClientEndpoint``."""

    def test_unix(self) -> None:
        """A Unix socket is connected through the reactor."""
        reactor = MemoryReactorClock()
        PlainClientEndpoint(reactor, UnixAddress("/run/x.sock"), timeout=2).connect(Applications())
        [(path, _, timeout, _)] = reactor.unixClients
        self.assertEqual((path, timeout), ("/run/x.sock", 2))

    def test_error_texts(self) -> None:
        """Each of Twisted's connection errors has a plain text."""
        for raised, text in (
            (error.ConnectionRefusedError(), "connection refused"),
            (error.NoRouteError(), "no route to the host"),
            (error.DNSLookupError(), "the name does not resolve"),
            (error.ConnectBindError(), "the local address cannot be used"),
            (error.getConnectError((errno.ENOENT, "2: no")), "no such file or directory"),
            (error.getConnectError((errno.EACCES, "13: no")), "permission denied"),
        ):
            with self.subTest(text):
                reactor = MemoryReactorClock()
                connecting = PlainClientEndpoint(reactor, ADDRESS).connect(Applications())
                reactor.tcpClients[0][2].clientConnectionFailed(None, Failure(raised))  # type: ignore[arg-type]
                found = self.failureResultOf(connecting, ConnectFailed).value
                self.assertEqual(found.detail, text)
                self.assertIs(found.__cause__, raised)

    def test_zone_that_does_not_exist(self) -> None:
        """An address whose zone is no interface here is one that cannot be connected to."""
        runtime: Any = reactor
        for address in (TcpAddress("fe80::1%nope", 9), TcpAddress("::ffff:192.0.2.1%nope", 9)):
            connecting = PlainClientEndpoint(runtime, address).connect(Applications())
            found = self.failureResultOf(connecting, ConnectFailed).value
            self.assertEqual("its zone is no network interface of this machine", found.detail)


class ServerEndpointTests(SynchronousTestCase):
    """Tests of the server endpoints."""

    def test_listen(self) -> None:
        """Listening gives the port of the reactor; the factory behind it does mutual TLS."""
        reactor = MemoryReactorClock()
        creator = server_creator(source("/server"), clock=lambda: NOW)
        endpoint = MutualTlsServerEndpoint(reactor, TcpAddress("127.0.0.1", 0), creator)
        applications = Applications()
        self.successResultOf(endpoint.listen(applications))
        [(port, factory, _, interface)] = reactor.tcpServers
        self.assertEqual((port, interface), (0, "127.0.0.1"))
        self.assertIs(factory.wrappedFactory, applications)  # type: ignore[attr-defined]

    def test_listen_unix(self) -> None:
        """A Unix socket is listened on through the reactor."""
        reactor = MemoryReactorClock()
        self.successResultOf(PlainServerEndpoint(reactor, UnixAddress("/run/x.sock")).listen(Applications()))
        self.assertEqual(reactor.unixServers[0][0], "/run/x.sock")

    def test_port_taken(self) -> None:
        """A port that cannot be bound fails the Deferred."""

        class Taken(MemoryReactorClock):
            def listenTCP(self, *args: Any, **kwargs: Any) -> Any:
                raise error.CannotListenError("127.0.0.1", 80, OSError(98, "Address already in use"))

        listening = PlainServerEndpoint(Taken(), TcpAddress("127.0.0.1", 80)).listen(Applications())
        self.failureResultOf(listening, error.CannotListenError)
