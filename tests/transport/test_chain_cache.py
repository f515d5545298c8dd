"""Tests of ``svc.transport.chain_cache``."""

from __future__ import annotations

from datetime import timedelta

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import BundleSet, TrustAnchor, X509Bundle, X509Svid
from svc.identity.errors import (
    ChainUntrusted,
    SvidExpired,
    SvidInvalid,
    SvidMalformed,
    SvidNotYetValid,
)
from svc.identity.svid import MAX_CHAIN_CERTIFICATES
from svc.testing.ca import TestAuthority
from svc.transport.chain_cache import VerifiedChainCache
from tests.refusals import assert_refused
from tests.transport.pairs import AUTHORITY, NOW, days

HOUR = timedelta(hours=1)


def sent(svid: X509Svid) -> tuple[bytes, ...]:
    """The certificates of an SVID as they are sent."""
    return tuple(certificate.public_bytes(Encoding.DER) for certificate in svid.chain)


class VerifiedChainCacheTests(SynchronousTestCase):
    """An accepted chain is accepted again only while nothing has changed."""

    def setUp(self) -> None:
        self.bundles = AUTHORITY.bundles()
        self.svid = AUTHORITY.svid(not_before=NOW - HOUR, not_after=NOW + HOUR)
        self.cache = VerifiedChainCache()

    def test_same_evidence(self) -> None:
        """The same octets give the same evidence object."""
        first = self.cache.verify(sent(self.svid), self.bundles, NOW)
        self.assertIs(self.cache.verify(sent(self.svid), self.bundles, NOW + HOUR), first)
        self.assertEqual(first.spiffe_id, self.svid.spiffe_id)

    def test_validity(self) -> None:
        """A cached chain is refused before and after its validity, each for its own reason."""
        self.cache.verify(sent(self.svid), self.bundles, NOW)
        late, early = NOW + HOUR + timedelta(seconds=1), NOW - HOUR - timedelta(seconds=1)
        self.assertRaises(SvidExpired, self.cache.verify, sent(self.svid), self.bundles, late)
        self.assertRaises(SvidNotYetValid, self.cache.verify, sent(self.svid), self.bundles, early)
        self.cache.verify(sent(self.svid), self.bundles, NOW)

    def test_intermediate_that_ends_first(self) -> None:
        """The shortest validity of the chain counts, not the leaf's."""
        short = AUTHORITY.intermediate(not_before=NOW - days(1), not_after=NOW + timedelta(minutes=5))
        svid = short.svid(not_before=NOW - HOUR, not_after=NOW + HOUR)
        self.cache.verify(sent(svid), self.bundles, NOW)
        self.assertRaises(SvidExpired, self.cache.verify, sent(svid), self.bundles, NOW + timedelta(minutes=6))

    def test_other_bundles(self) -> None:
        """A chain is refused when its root is no longer in the bundles, although it was accepted before."""
        self.cache.verify(sent(self.svid), self.bundles, NOW)
        rival = AUTHORITY.rotated().bundles()
        self.assertRaises(ChainUntrusted, self.cache.verify, sent(self.svid), rival, NOW)
        self.assertRaises(ChainUntrusted, self.cache.verify, sent(self.svid), rival, NOW)

    def test_refusals_are_not_cached(self) -> None:
        """A chain that is refused now may be accepted later."""
        svid = AUTHORITY.svid(not_before=NOW + HOUR, not_after=NOW + 2 * HOUR)
        self.assertRaises(SvidInvalid, self.cache.verify, sent(svid), self.bundles, NOW)
        self.assertEqual(self.cache.verify(sent(svid), self.bundles, NOW + HOUR).spiffe_id, svid.spiffe_id)

    def test_another_chain_of_the_same_identity(self) -> None:
        """The cache is by certificates, not by the identity in them."""
        self.cache.verify(sent(self.svid), self.bundles, NOW)
        foreign = TestAuthority(str(self.svid.spiffe_id.trust_domain), now=NOW)
        self.assertRaises(ChainUntrusted, self.cache.verify, sent(foreign.svid()), self.bundles, NOW)

    def test_roots_with_a_window(self) -> None:
        """Where a root is trusted for a window only, nothing is cached."""
        trust_domain = self.svid.spiffe_id.trust_domain
        anchor = TrustAnchor(AUTHORITY.certificate, None, NOW + timedelta(minutes=5))
        bundles = BundleSet.of(X509Bundle(trust_domain, (anchor,)))
        first = self.cache.verify(sent(self.svid), bundles, NOW)
        self.assertIsNot(self.cache.verify(sent(self.svid), bundles, NOW), first)
        self.assertRaises(SvidInvalid, self.cache.verify, sent(self.svid), bundles, NOW + timedelta(minutes=6))

    def test_additional_certificates(self) -> None:
        """Certificates beside the path neither cause a miss nor take the room of another chain."""
        cache = VerifiedChainCache(max_chains=2)
        svid = AUTHORITY.intermediate().svid()
        first, other = (cache.verify(sent(each), self.bundles, NOW) for each in (svid, self.svid))
        for number in range(9):
            unused = sent(TestAuthority(f"unused{number}.example", now=NOW).svid())[0]
            for order in ((*sent(svid), unused), (sent(svid)[0], unused, b"no certificate", sent(svid)[1])):
                self.assertIs(cache.verify(order, self.bundles, NOW), first)
        self.assertIs(cache.verify(sent(self.svid), self.bundles, NOW), other)

    def test_additional_certificates_that_cannot_be_parsed(self) -> None:
        """A certificate beside the path that cannot be parsed is ignored, whether the chain is cached or not."""
        self.cache.verify((*sent(self.svid), b"\x30\x00"), self.bundles, NOW)
        self.assertRaises(SvidMalformed, self.cache.verify, (b"\x30\x00", *sent(self.svid)), self.bundles, NOW)
        self.assertRaises(SvidMalformed, self.cache.verify, (), self.bundles, NOW)

    def test_path_must_be_sent(self) -> None:
        """A cached leaf is not accepted without the intermediates of its path."""
        svid = AUTHORITY.intermediate().svid()
        self.cache.verify(sent(svid), self.bundles, NOW)
        self.assertRaises(ChainUntrusted, self.cache.verify, sent(svid)[:1], self.bundles, NOW)

    def test_too_many_certificates_of_a_cached_chain(self) -> None:
        """The number of certificates that a peer may send is the same for a cached chain."""
        leaf = sent(self.svid)
        self.cache.verify(leaf * MAX_CHAIN_CERTIFICATES, self.bundles, NOW)
        assert_refused(
            self, "chain_too_long", self.cache.verify, leaf * (MAX_CHAIN_CERTIFICATES + 1), self.bundles, NOW
        )

    def test_octets_are_bounded(self) -> None:
        """At the limit of octets the least recently used chain is dropped."""
        peers = [AUTHORITY.svid(f"/{number}", names=(x509.DNSName("x" * 60),)) for number in range(3)]
        sizes = [len(sent(each)[0]) for each in peers]
        for octets, kept in ((sum(sizes), [0, 1, 2]), (sum(sizes) - 1, [1, 2])):
            cache = VerifiedChainCache(max_octets=octets)
            found = [cache.verify(sent(each), self.bundles, NOW) for each in peers]
            for number in kept:
                self.assertIs(cache.verify(sent(peers[number]), self.bundles, NOW), found[number])
            if 0 not in kept:
                self.assertIsNot(cache.verify(sent(peers[0]), self.bundles, NOW), found[0])

    def test_chains_are_bounded(self) -> None:
        """At the limit of chains the least recently used one is dropped."""
        cache = VerifiedChainCache(max_chains=2)
        peers = [AUTHORITY.svid(f"/{number}") for number in range(3)]
        first, second = (cache.verify(sent(each), self.bundles, NOW) for each in peers[:2])
        self.assertIs(cache.verify(sent(peers[0]), self.bundles, NOW), first)
        cache.verify(sent(peers[2]), self.bundles, NOW)
        self.assertIs(cache.verify(sent(peers[0]), self.bundles, NOW), first)
        self.assertIsNot(cache.verify(sent(peers[1]), self.bundles, NOW), second)
