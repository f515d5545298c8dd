"""Open connections are reauthorized: changed bundles, expired SVIDs, another identity of the broker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import AccessRule, Rules
from svc.broker.broker import Broker
from svc.broker.connection import BrokerConnection
from svc.identity import verify_svid
from svc.identity.matchers import parse_matcher
from svc.testing.ca import TestAuthority
from svc.testing.workload import MemorySource
from svc.transport.evidence import PeerEvidence
from svc.wire.mqtt import (
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Publish,
    ReasonCode,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from tests.broker.test_connection import Wire

NOW = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
AUTHORITY = TestAuthority("example.org", now=NOW, algorithm="ECDSA-P256")
RULES = Rules((AccessRule(parse_matcher("spiffe://example.org/*"), ("#",), ("#",)), AccessRule(None, (), ("#",))))


class ReauthorizationCase(SynchronousTestCase):
    """A broker, its credentials, and a wall clock that the test sets."""

    def setUp(self) -> None:
        """Start the broker."""
        self.now = NOW
        self.clock = Clock()
        self.source = MemorySource(AUTHORITY.svid("/broker"), AUTHORITY.bundles())
        self.broker = Broker(self.clock, RULES, wall=lambda: self.now.timestamp())
        self.broker.startService()

    def reauthorize(self) -> None:
        """Reauthorize by what is in force, in the next turn."""
        self.broker.reauthorize(self.source, self.now)
        self.clock.advance(0)

    def evidence(self, path: str = "/device", authority: TestAuthority = AUTHORITY, **knobs: Any) -> PeerEvidence:
        """The evidence of a handshake with a client."""
        issuer = knobs.pop("issuer", authority)
        svid = verify_svid(issuer.svid(path, **knobs).chain, authority.bundles(), NOW)
        return PeerEvidence(svid, "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", "1.3", True, self.source.svid)

    def client(self, name: str, evidence: PeerEvidence | None = None, version: Version = Version.V5) -> Wire:
        """Connect a client with a will; one without evidence is anonymous."""
        wire = Wire(self.broker, version, evidence)
        will = None if evidence is None else Will("wills", name.encode())
        wire.sends(Connect(name, version, will=will))
        return wire


class ChangeTests(ReauthorizationCase):
    """After a change of credentials or bundles."""

    def test_nothing_changed(self) -> None:
        """A client whose handshake would succeed again stays, also under a clock that was set back."""
        wire = self.client("c", self.evidence())
        for now in (NOW, NOW - timedelta(days=400)):
            self.now = now
            self.reauthorize()
            self.assertEqual(wire.sends(Pingreq()), [Pingresp()])

    def test_bundle_without_its_root(self) -> None:
        """The connections whose root is no longer trusted end: DISCONNECT 0x87, counted, will published."""
        other = TestAuthority("example.org", now=NOW, algorithm="ECDSA-P256")
        both = self.client("watcher")
        both.sends(Subscribe(1, [Subscription("wills")]))
        gone, stays = self.client("gone", self.evidence()), self.client("stays", self.evidence("/b", other))
        old = self.client("old", self.evidence(), Version.V311)
        self.source.rotate(other.svid("/broker"), other.bundles())
        self.reauthorize()
        self.assertEqual(gone.receives(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
        self.assertEqual(old.receives(), [])
        self.assertEqual([each.ended for each in (gone, old, stays, both)], [True, True, False, False])
        self.assertEqual(self.broker.hub.statistics.refused, {"chain_untrusted": 2})
        self.assertEqual({each.payload for each in both.receives() if isinstance(each, Publish)}, {b"gone", b"old"})
        self.reauthorize()
        self.assertEqual(self.broker.hub.statistics.refused, {"chain_untrusted": 2})

    def test_own_identity_withdrawn(self) -> None:
        """When the identity that was presented to clients is withdrawn, their connections end; anonymous ones stay."""
        plain, wire = self.client("plain"), self.client("c", self.evidence())
        self.source.withdraw()
        self.reauthorize()
        self.assertEqual((plain.ended, wire.ended), (False, True))
        self.assertEqual(self.broker.hub.statistics.refused, {"identity_withdrawn": 1})

    def test_own_identity_is_another(self) -> None:
        """The same happens when the broker gets another identity; a new SVID with the same identity changes nothing."""
        wire = self.client("c", self.evidence())
        self.source.rotate(AUTHORITY.svid("/broker"))
        self.reauthorize()
        self.assertFalse(wire.ended)
        self.source.rotate(AUTHORITY.svid("/other"))
        self.reauthorize()
        self.assertTrue(wire.ended)
        self.assertEqual(self.broker.hub.statistics.refused, {"identity_withdrawn": 1})

    def test_packets_before_the_walk(self) -> None:
        """The first octets of a client that the walk has not reached end its connection; it is counted once."""
        wire = self.client("c", self.evidence())
        self.source.withdraw()
        self.broker.reauthorize(self.source, self.now)
        self.assertEqual([Disconnect(ReasonCode.NOT_AUTHORIZED)], wire.sends(Pingreq()))
        self.clock.advance(0)
        self.assertEqual(self.broker.hub.statistics.refused, {"identity_withdrawn": 1})

    def test_defect(self) -> None:
        """A connection that cannot be decided is aborted; the others are decided."""
        bad, wire = self.client("bad", self.evidence()), self.client("c", self.evidence())
        bad.protocol.rules_changed = lambda: 1 / 0  # type: ignore[assignment]
        self.reauthorize()
        self.assertEqual((True, False), (bad.protocol.ended, wire.ended))
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_end_of_the_broker(self) -> None:
        """No timer of a walk is left."""
        self.client("c", self.evidence())
        self.broker.reauthorize(self.source, self.now)
        self.broker.stopService()
        self.assertFalse(self.broker._connections.running)

    def test_before_connect(self) -> None:
        """A connection without CONNECT is closed without a packet."""
        wire = Wire(self.broker, evidence=self.evidence())
        self.source.withdraw()
        self.reauthorize()
        self.assertTrue(wire.ended)
        self.assertEqual(wire.receives(), [])


class TimeTests(ReauthorizationCase):
    """As time passes."""

    def test_end_of_an_svid(self) -> None:
        """A connection lasts to the last second of the client's SVID and not a second longer."""
        evidence = self.evidence()
        wire = self.client("c", evidence)
        self.now = evidence.svid.not_after
        self.broker.end_expired(self.now)
        self.assertFalse(wire.ended)
        self.now += timedelta(seconds=1)
        self.broker.end_expired(self.now)
        self.assertEqual(wire.receives(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
        self.assertEqual(self.broker.hub.statistics.refused, {"expired": 1})

    def test_end_of_an_intermediate(self) -> None:
        """It ends with a certificate between the client's leaf and the root as well."""
        ends = NOW + timedelta(minutes=5)
        wire = self.client("c", self.evidence("/d", AUTHORITY, issuer=AUTHORITY.intermediate(not_after=ends)))
        self.now = ends
        self.broker.end_expired(self.now)
        self.assertFalse(wire.ended)
        self.now += timedelta(seconds=1)
        self.broker.end_expired(self.now)
        self.assertEqual(wire.receives(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
        self.assertEqual(self.broker.hub.statistics.refused, {"expired": 1})

    def test_end_of_the_own_svid(self) -> None:
        """It outlives the SVID that the broker presented, which the broker renews meanwhile."""
        wire = self.client("c", self.evidence(ttl=timedelta(hours=9)))
        ends = self.source.svid.not_after
        self.source.rotate(AUTHORITY.svid("/broker", ttl=timedelta(hours=9)))
        self.now = ends + timedelta(seconds=1)
        self.broker.end_expired(self.now)
        self.assertFalse(wire.ended)


class DefectTests(ReauthorizationCase):
    """A defect in one connection does not affect the others."""

    def test_one_connection(self) -> None:
        """A defect in the check of one connection aborts that one; the others are checked."""
        broken = replace(self.evidence("/a"), own_svid=None)  # type: ignore[arg-type]
        first, second = self.client("a", broken), self.client("b", self.evidence("/b"))
        self.reauthorize()
        self.assertEqual(len(self.flushLoggedErrors(AttributeError)), 1)
        self.assertEqual((first.transport.disconnected, second.ended), (True, False))

    def test_timeouts(self) -> None:
        """A defect in the timeouts of one connection does not stop those of the others."""
        self.client("a")
        (connection,) = self.broker._connections
        self.assertIsInstance(connection, BrokerConnection)
        self.patch(connection, "check_timeouts", lambda now: 1 / 0)
        silent = Wire(self.broker)
        self.clock.pump([1] * 12)
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))
        self.assertTrue(silent.ended)
