"""Tests of endpoint strings that begin with ``spiffe``."""

from __future__ import annotations

from typing import Any

from twisted.internet.endpoints import clientFromString, serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IStreamClientEndpoint,
    IStreamClientEndpointStringParserWithReactor,
    IStreamServerEndpoint,
    IStreamServerEndpointStringParser,
)
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.embedding import Workload
from svc.embedding.strings import SpiffeStrings
from svc.errors import SvcError
from tests.embedding.network import DOMAIN, Network, PqRoots, now, source

ALLOW = f"{DOMAIN}/ns/demo/*"


class StringTests(SynchronousTestCase):
    """Strings become endpoints."""

    def setUp(self) -> None:
        """Give workloads their identity in memory."""
        self.network = Network()
        self.opened: list[Workload] = []
        self.patch(Workload, "from_workload_api", self.open)

    def open(self, agent: str, *, reactor: Any) -> Workload:
        """Open a workload without an agent; the path is its identity."""
        self.opened.append(Workload(source(agent), reactor=reactor, pq_roots=PqRoots(), now=now))
        return self.opened[-1]

    def test_interfaces(self) -> None:
        """The parser is what Twisted looks for."""
        for interface in (IStreamServerEndpointStringParser, IStreamClientEndpointStringParserWithReactor):
            self.assertTrue(interface.providedBy(SpiffeStrings()))

    def test_both_ends(self) -> None:
        """A server and a client from strings connect; the server's identity ends with its port."""
        listening = serverFromString(
            self.network.reactor, f"spiffe:7000:interface=127.0.0.1:agent=/ns/demo/sa/web:allow={ALLOW}:alpn=a,b"
        )
        verifyObject(IStreamServerEndpoint, listening)
        port = self.successResultOf(listening.listen(Factory.forProtocol(Protocol)))
        self.assertEqual(self.network.reactor.tcpServers[0][0], 7000)
        calling = clientFromString(
            self.network.reactor, f"spiffe:127.0.0.1:7000:agent=/ns/demo/sa/guest:expect={DOMAIN}/ns/demo/sa/web:alpn=b"
        )
        verifyObject(IStreamClientEndpoint, calling)
        for _ in range(2):
            connecting = calling.connect(Factory.forProtocol(Protocol))
            self.network.join()
            called: Any = self.successResultOf(connecting)
            self.assertEqual(called.transport.negotiatedProtocol, b"b")
        server, client = self.opened
        self.assertTrue(server.running and client.running)
        self.successResultOf(port.stopListening())
        self.assertFalse(server.running)
        self.assertEqual(len(self.network.reactor.triggers["before"]["shutdown"]), 1)

    def test_port_that_is_taken(self) -> None:
        """The attempt fails, and the workload is stopped."""

        def taken(*_arguments: Any, **_keywords: Any) -> None:
            raise CannotListenError("", 7000, OSError("taken"))

        self.network.reactor.listenTCP = taken
        listening = serverFromString(self.network.reactor, f"spiffe:7000:agent=/ns/demo/sa/web:allow={ALLOW}")
        self.failureResultOf(listening.listen(Factory.forProtocol(Protocol)), CannotListenError)
        self.assertFalse(self.opened[0].running)

    def test_unexpected_server(self) -> None:
        """A server that the matcher of the string does not match is refused."""
        listening = serverFromString(self.network.reactor, f"spiffe:7000:agent=/ns/demo/sa/web:allow={ALLOW}")
        self.successResultOf(listening.listen(Factory.forProtocol(Protocol)))
        calling = clientFromString(
            self.network.reactor, f"spiffe:127.0.0.1:7000:agent=/ns/demo/sa/guest:expect={DOMAIN}/ns/demo/sa/other"
        )
        connecting = calling.connect(Factory.forProtocol(Protocol))
        self.network.join()
        self.assertEqual(getattr(self.failureResultOf(connecting).value, "reason", ""), "identity_unexpected")

    def test_incomplete(self) -> None:
        """Without an identity to allow or expect there is no endpoint."""
        for text in ("spiffe:7000:agent=/a", f"spiffe:7000:allow={ALLOW}", f"spiffe:7000:agent=/a:allow={ALLOW}:x=1"):
            with self.assertRaises(TypeError):
                serverFromString(self.network.reactor, text)
        with self.assertRaises(TypeError):
            clientFromString(self.network.reactor, "spiffe:127.0.0.1:7000:agent=/a")
        for allow in ("", "*", "prod.example.org/*/x"):
            with self.assertRaises(SvcError):
                serverFromString(self.network.reactor, f"spiffe:7000:agent=/a:allow={allow}")

    def test_whole_identities(self) -> None:
        """``spiffe://`` is accepted, with its colon escaped."""
        made = serverFromString(MemoryReactorClock(), f"spiffe:7000:agent=/ns/demo/sa/web:allow=spiffe\\://{ALLOW}")
        self.assertTrue(IStreamServerEndpoint.providedBy(made))


class ExportTests(SynchronousTestCase):
    """The public names."""

    def test_lazy_exports(self) -> None:
        """Each public name is found on first use, and no other."""
        import svc.embedding

        for name in svc.embedding.__all__:
            self.assertTrue(getattr(svc.embedding, name).__doc__, name)
        with self.assertRaises(AttributeError):
            _ = svc.embedding.nothing  # type: ignore[attr-defined]
