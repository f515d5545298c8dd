"""Tests of ``svc.transport.evidence``, and of endpoints that close connections when credentials end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import BundleSet, TrustDomain, X509Bundle, verify_svid
from svc.identity.bundle import TrustAnchor
from svc.identity.errors import SvidInvalid
from svc.testing.workload import MemorySource
from svc.transport.errors import OwnCredentialsEnded, PeerCredentialsEnded, TransportError
from svc.transport.evidence import PeerEvidence
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, TlsProtocol
from tests.mixins import TestsMixin
from tests.transport.pairs import AUTHORITY, NOW, Pair

TICK = timedelta(microseconds=1)
LATER = NOW + timedelta(hours=5)


def source(path: str, ends: datetime, intermediate: datetime | None = None) -> MemorySource:
    """Credentials whose leaf and intermediate end at given times."""
    issuer = AUTHORITY if intermediate is None else AUTHORITY.intermediate(not_after=intermediate)
    return MemorySource(issuer.svid(path, not_after=ends), AUTHORITY.bundles())


def evidence(peer: MemorySource, own: MemorySource) -> PeerEvidence:
    """The evidence of a handshake."""
    proved = verify_svid(peer.svid.chain, AUTHORITY.bundles(), NOW)
    return PeerEvidence(proved, "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", "1.3", True, own.svid)


class EvidenceTests(SynchronousTestCase):
    """Tests of ``PeerEvidence``."""

    @given(*(st.integers(1, 9),) * 4)
    def test_earliest_end(self, leaf: int, between: int, own: int, own_between: int) -> None:
        """The earliest end of either chain counts, up to and including that moment, and names the side."""
        peers, ours = (
            source("/x", *(NOW + timedelta(minutes=each) for each in ends))
            for ends in ((leaf, between), (own, own_between))
        )
        found = evidence(peers, ours)
        ends = NOW + timedelta(minutes=min(leaf, between, own, own_between))
        self.assertEqual(ends, found.ends)
        found.verify_time(ends)
        kind = PeerCredentialsEnded if min(leaf, between) <= min(own, own_between) else OwnCredentialsEnded
        error = self.assertRaises(TransportError, found.verify_time, ends + TICK)
        self.assertIsInstance(error, kind)
        self.assertIn(ends.isoformat(timespec="seconds"), str(error))

    def test_root(self) -> None:
        """The end of the root counts too."""
        found = evidence(source("/x", AUTHORITY.certificate.not_valid_after_utc + TICK * 10**6), source("/own", LATER))
        self.assertEqual(AUTHORITY.certificate.not_valid_after_utc, found.svid.chain_not_after)


class ReauthorizeTests(SynchronousTestCase):
    """The peer is verified again by other bundles, and by the same ones where time alone could end the acceptance."""

    def setUp(self) -> None:
        """Make the evidence of a handshake."""
        self.own = source("/own", LATER)
        self.found = evidence(source("/x", NOW + timedelta(hours=1)), self.own)
        (self.bundle,) = AUTHORITY.bundles()

    def again(self, bundles: BundleSet, now: datetime = NOW) -> str:
        """Verify again; returns the reason of a refusal."""
        try:
            self.found.reauthorize(self.own.svid.spiffe_id, bundles, now)
        except SvidInvalid as error:
            return error.reason
        return ""

    def test_bundles(self) -> None:
        """The bundle of the peer's trust domain decides, as often as it changes; others do not matter."""
        (other,) = AUTHORITY.rotated().bundles()
        trust_domain = self.bundle.trust_domain
        steps: list[tuple[tuple[X509Bundle, ...], str]] = [
            ((self.bundle,), ""),
            ((X509Bundle(trust_domain, self.bundle.anchors),), ""),
            ((X509Bundle(trust_domain, self.bundle.anchors + other.anchors),), ""),
            ((X509Bundle(trust_domain, other.anchors),), "chain_untrusted"),
            ((X509Bundle(trust_domain),), "chain_untrusted"),
            ((X509Bundle(TrustDomain.parse("elsewhere.example"), self.bundle.anchors),), "trust_domain_unknown"),
            ((X509Bundle(TrustDomain.parse("elsewhere.example"), other.anchors), self.bundle), ""),
        ]
        for bundles, reason in steps:
            self.assertEqual(reason, self.again(BundleSet.of(*bundles)))

    def test_time(self) -> None:
        """After the end of a certificate it is refused, by unchanged bundles, too; before its beginning it is not."""
        bundles = AUTHORITY.bundles()
        ends = self.found.svid.chain_not_after
        self.assertEqual(
            ["", "", "expired"],
            [self.again(bundles, each) for each in (NOW - timedelta(days=400), ends, ends + timedelta(minutes=5))],
        )

    def test_window(self) -> None:
        """A root that is trusted for a window is looked at each time."""
        (anchor,) = self.bundle.anchors
        limited = TrustAnchor(anchor.certificate, last_seen=NOW + timedelta(minutes=1))
        bundles = BundleSet.of(X509Bundle(self.bundle.trust_domain, (limited,)))
        self.assertEqual("", self.again(bundles))
        self.assertNotEqual("", self.again(bundles, NOW + timedelta(minutes=2)))


class EndingConnectionsMixin(TestsMixin):
    """Connections of endpoints with a wall clock."""

    tls: ClassVar[type[TlsProtocol]]

    def pair(self, client: MemorySource, server: MemorySource, *watching: str) -> Any:
        """A connection; the named sides have a wall clock."""
        pair: Any = None

        def wall() -> datetime:
            return NOW + timedelta(seconds=pair.clock.seconds() + self.stepped if pair is not None else 0)

        self.stepped = 0.0
        pair = Pair(self.tls, client_source=client, server_source=server)
        for side in watching:
            getattr(pair, f"{side}_tls_factory").wall = wall
        pair.connect()
        return pair

    def test_each_side(self) -> None:
        """The side with a wall clock closes at the earliest end of a chain, with the reason; no timer is left."""
        soon = NOW + timedelta(minutes=10)
        for client, server, side, kind in (
            (source("/client", LATER, soon), source("/server", LATER), "server", PeerCredentialsEnded),
            (source("/client", LATER), source("/server", soon), "server", OwnCredentialsEnded),
            (source("/client", LATER), source("/server", LATER, soon), "client", PeerCredentialsEnded),
            (source("/client", soon), source("/server", LATER), "client", OwnCredentialsEnded),
        ):
            pair = self.pair(client, server, side)
            application = pair.server_app if side == "server" else pair.client_app
            pair.clock.pump([60.0] * 10 + [1.9])
            pair.pump()
            self.assertIsNone(application.lost)
            pair.clock.advance(0.1)
            pair.pump()
            application.lost.trap(kind)
            self.assertIsNotNone(pair.client_app.lost and pair.server_app.lost)
            self.assertEqual([], pair.clock.getDelayedCalls())

    def test_clock_that_is_set(self) -> None:
        """A clock that is set forward is noticed within a minute."""
        pair = self.pair(source("/client", LATER), source("/server", LATER), "server")
        self.stepped = 6 * 3600.0
        pair.clock.advance(60.0)
        pair.pump()
        pair.server_app.lost.trap(PeerCredentialsEnded)

    def test_no_wall_clock(self) -> None:
        """Without a clock nothing is closed and no timer runs."""
        pair = self.pair(source("/client", LATER), source("/server", LATER))
        self.assertEqual([], pair.clock.getDelayedCalls())

    def test_closed_before(self) -> None:
        """A connection that ended before leaves no timer."""
        pair = self.pair(source("/client", LATER), source("/server", LATER), "server", "client")
        pair.client_app.transport.loseConnection()
        pair.pump()
        self.assertEqual([], pair.clock.getDelayedCalls())

    def test_own_credentials_that_have_ended(self) -> None:
        """A connection with own credentials that have ended fails with a typed error and builds no protocol."""
        failed: list[BaseException] = []
        pair = Pair(self.tls, client_source=source("/client", NOW + timedelta(minutes=1)))
        factory = pair.client_tls_factory
        factory.wall = lambda: NOW + timedelta(minutes=2)
        factory.failed = failed.append  # type: ignore[assignment]
        pair.connect()
        self.assertEqual([], pair.client_factory.built)
        self.assertIsInstance(failed[0], OwnCredentialsEnded)


class FastEndingTests(EndingConnectionsMixin, SynchronousTestCase):
    """On the fast data path."""

    tls = FastTlsProtocol


class StockEndingTests(EndingConnectionsMixin, SynchronousTestCase):
    """On Twisted's data path."""

    tls = StockTlsProtocol
