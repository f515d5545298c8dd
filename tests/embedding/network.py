"""A reactor without sockets, credentials of a test authority, and a fixed time."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.testing import MemoryReactorClock
from twisted.test.iosim import FakeTransport, IOPump, connect

from svc.envelope.profile import Profile
from svc.identity import BundleSet
from svc.notary.credentials import CredentialSet
from svc.notary.facts import WorkloadFacts
from svc.notary.pqleaf import PqLeaf
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource

NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
DOMAIN = "prod.example.org"
AUTHORITY = TestAuthority(DOMAIN, now=NOW)
PQ_AUTHORITY = TestAuthority(DOMAIN, now=NOW, algorithm="ML-DSA-65")
SOMEWHERE = IPv4Address("TCP", "127.0.0.1", 7000)


def now() -> datetime:
    """The time of these tests."""
    return NOW


def source(path: str) -> MemorySource:
    """Credentials of a workload."""
    return MemorySource(AUTHORITY.svid(path), AUTHORITY.bundles())


def generation(path: str = "/ns/demo/sa/web") -> CredentialSet:
    """The credentials of a proxy before that workload."""
    svid = AUTHORITY.svid(path)
    chain, key = PQ_AUTHORITY.pq_leaf(svid)
    assert not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey)
    facts = WorkloadFacts.explicit(host_name="host")
    return CredentialSet.issue(svid, PqLeaf(chain, key, svid.not_after), facts, Profile.HYBRID, NOW, os.urandom)


class PqRoots:
    """The content of a PQ bundle file."""

    def __init__(self, bundles: BundleSet | None = None) -> None:
        self.bundles = bundles if bundles is not None else PQ_AUTHORITY.bundles()


class Network:
    """Connects attempts with the listener in memory."""

    def __init__(self) -> None:
        self.reactor = MemoryReactorClock()
        self.pumps: list[IOPump] = []

    def join(self) -> None:
        """Connect each new attempt to the one listener, and carry data until nothing moves."""
        factory: IProtocolFactory = self.reactor.tcpServers[0][1]
        while self.reactor.tcpClients:
            attempt: IProtocolFactory = self.reactor.tcpClients.pop(0)[2]
            server, client = factory.buildProtocol(SOMEWHERE), attempt.buildProtocol(SOMEWHERE)
            self.pumps.append(
                connect(server, FakeTransport(server, True), client, FakeTransport(client, False), greet=False)
            )
        self.carry()

    def carry(self) -> None:
        """Carry data until nothing moves."""
        moved = True
        while moved:
            moved = False
            for pump in self.pumps:
                moved = bool(pump.pump()) or moved
            self.reactor.advance(0)
