"""Whether clients that were let in may stay: bundles, ends of SVIDs, the broker's own identity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.access import Rule, Rules
from svc.broker.broker import Broker
from svc.broker.connection import BrokerConnection
from svc.broker.standing import Standing
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
RULES = Rules((Rule(parse_matcher("spiffe://example.org/*"), ("#",), ("#",)), Rule(None, (), ("#",))))


class StandingCase(SynchronousTestCase):
    """A broker, its credentials, and a wall clock that the test sets."""

    def setUp(self) -> None:
        """Start it."""
        self.now = NOW
        self.clock = Clock()
        self.source = MemorySource(AUTHORITY.svid("/broker"), AUTHORITY.bundles())
        self.standing = Standing(self.source, lambda: self.now)
        self.broker = Broker(self.clock, RULES, wall=lambda: self.now.timestamp())
        self.broker.startService()

    def evidence(self, path: str = "/device", authority: TestAuthority = AUTHORITY, **knobs: Any) -> PeerEvidence:
        """What a handshake with a client proved."""
        svid = verify_svid(authority.svid(path, **knobs).chain, authority.bundles(), NOW)
        return PeerEvidence(svid, "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", "1.3", True, self.source.svid)

    def client(self, name: str, evidence: PeerEvidence | None = None, version: Version = Version.V5) -> Wire:
        """Connect a client with a will; one without evidence is anonymous."""
        wire = Wire(self.broker, version, evidence)
        will = None if evidence is None else Will("wills", name.encode())
        wire.says(Connect(name, version, will=will))
        return wire


class ChangeTests(StandingCase):
    """After a change of credentials."""

    def test_nothing_changed(self) -> None:
        """Who would be let in again stays, also under a clock that was set back."""
        wire = self.client("c", self.evidence())
        for now in (NOW, NOW - timedelta(days=400)):
            self.now = now
            self.broker.reauthorize(self.standing.after_change)
            self.assertEqual(wire.says(Pingreq()), [Pingresp()])

    def test_bundle_without_its_root(self) -> None:
        """Exactly those are closed whose root is not trusted any more: told so, counted, will published."""
        other = TestAuthority("example.org", now=NOW, algorithm="ECDSA-P256")
        both = self.client("watcher")
        both.says(Subscribe(1, [Subscription("wills")]))
        gone, stays = self.client("gone", self.evidence()), self.client("stays", self.evidence("/b", other))
        old = self.client("old", self.evidence(), Version.V311)
        self.source.rotate(other.svid("/broker"), other.bundles())
        self.broker.reauthorize(self.standing.after_change)
        self.assertEqual(gone.hears(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
        self.assertEqual(old.hears(), [])
        self.assertEqual([each.ended for each in (gone, old, stays, both)], [True, True, False, False])
        self.assertEqual(self.broker.hub.statistics.refused, {"chain_untrusted": 2})
        self.assertEqual({each.payload for each in both.hears() if isinstance(each, Publish)}, {b"gone", b"old"})
        self.broker.reauthorize(self.standing.after_change)
        self.assertEqual(self.broker.hub.statistics.refused, {"chain_untrusted": 2})

    def test_own_identity_withdrawn(self) -> None:
        """Without the identity that clients were shown, none of them stays; anonymous ones do."""
        plain, wire = self.client("plain"), self.client("c", self.evidence())
        self.source.withdraw()
        self.broker.reauthorize(self.standing.after_change)
        self.assertEqual((plain.ended, wire.ended), (False, True))
        self.assertEqual(self.broker.hub.statistics.refused, {"identity_withdrawn": 1})

    def test_own_identity_is_another(self) -> None:
        """So it is where the broker has become somebody else; a new SVID of the same name changes nothing."""
        wire = self.client("c", self.evidence())
        self.source.rotate(AUTHORITY.svid("/broker"))
        self.broker.reauthorize(self.standing.after_change)
        self.assertFalse(wire.ended)
        self.source.rotate(AUTHORITY.svid("/other"))
        self.broker.reauthorize(self.standing.after_change)
        self.assertTrue(wire.ended)
        self.assertEqual(self.broker.hub.statistics.refused, {"identity_withdrawn": 1})

    def test_before_connect(self) -> None:
        """A client that has not said CONNECT yet is closed without a word."""
        wire = Wire(self.broker, evidence=self.evidence())
        self.source.withdraw()
        self.broker.reauthorize(self.standing.after_change)
        self.assertTrue(wire.ended)
        self.assertEqual(wire.hears(), [])


class TimeTests(StandingCase):
    """As time passes."""

    def test_end_of_an_svid(self) -> None:
        """A client stays to the last second of its SVID and not a second longer."""
        evidence = self.evidence()
        wire = self.client("c", evidence)
        self.now = evidence.svid.not_after
        self.broker.reauthorize(self.standing.after_time)
        self.assertFalse(wire.ended)
        self.now += timedelta(seconds=1)
        self.broker.reauthorize(self.standing.after_time)
        self.assertEqual(wire.hears(), [Disconnect(ReasonCode.NOT_AUTHORIZED)])
        self.assertEqual(self.broker.hub.statistics.refused, {"expired": 1})


class DefectTests(StandingCase):
    """What must not happen, and does not end everything where it does."""

    def test_one_connection(self) -> None:
        """A defect in the judgement of one connection drops that one; the others are judged, and times go on."""
        first, second = self.client("a", self.evidence("/a")), self.client("b", self.evidence("/b"))

        def judge(evidence: PeerEvidence) -> None:
            if evidence.svid.spiffe_id.path == "/a":
                raise RuntimeError("a defect")
            self.standing.after_change(evidence)

        self.broker.reauthorize(judge)
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)
        self.assertEqual((first.transport.disconnected, second.ended), (True, False))

    def test_times_go_on(self) -> None:
        """So it is with the judgement of times."""
        self.client("a")
        (connection,) = self.broker._connections
        self.assertIsInstance(connection, BrokerConnection)
        self.patch(connection, "judge", lambda now: 1 / 0)
        silent = Wire(self.broker)
        self.clock.pump([1] * 12)
        self.assertTrue(self.flushLoggedErrors(ZeroDivisionError))
        self.assertTrue(silent.ended)
