"""Tests of svc.authority.x509ca and domain."""

from __future__ import annotations

import os
from datetime import timedelta

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.domain import ForeignDomain, LocalDomain, make_domain
from svc.authority.jwtsvid import validate
from svc.authority.registration import Entry, Selectors
from svc.authority.x509ca import ALGORITHMS, X509Authority
from svc.identity import BundleSet, SpiffeID, TrustDomain, verify_svid
from svc.pqissuer.rotation import BACKDATE
from tests.workload.messages import FOREIGN, NOW

DOMAIN = TrustDomain("example.org")
NAME = SpiffeID.parse("spiffe://example.org/ns/pay/sa/api")
HOUR = timedelta(hours=1)


class X509AuthorityTests(SynchronousTestCase):
    """Issued SVIDs, verified by the function that verifies peers."""

    def test_every_algorithm(self) -> None:
        """Each algorithm gives SVIDs that verify, with the requested identity and lifetime."""
        for algorithm in ALGORITHMS:
            authority = X509Authority(DOMAIN, algorithm=algorithm, leaf_algorithm=algorithm)
            authority.advance(NOW)
            svid = authority.issue(NAME, HOUR, NOW)
            evidence = verify_svid(svid.chain, BundleSet.of(authority.bundle()), NOW)
            self.assertEqual(evidence.spiffe_id, NAME)
            self.assertEqual((svid.not_before, svid.not_after), (NOW - BACKDATE, NOW + HOUR))
            self.assertEqual(evidence.post_quantum, algorithm.startswith("ML-DSA"))

    def test_rotation(self) -> None:
        """
        Over several lifetimes of roots every SVID verifies to the bundle of its time and of a sixth of a lifetime
        before.
        """
        authority = X509Authority(DOMAIN, ttl=24 * HOUR)
        authority.advance(NOW)
        earlier: list[BundleSet] = []
        for hour in range(80):
            now = NOW + hour * HOUR
            authority.advance(now)
            svid = authority.issue(NAME, 6 * HOUR, now)
            for bundles in (*earlier[-4:], BundleSet.of(authority.bundle())):
                verify_svid(svid.chain, bundles, now)
            self.assertEqual(svid.not_after, now + 6 * HOUR)
            earlier.append(BundleSet.of(authority.bundle()))
        self.assertNotEqual(earlier[0], earlier[-1])

    def test_signed_svids_outlast_rotation(self) -> None:
        """An SVID verifies until it expires, whatever is rotated meanwhile."""
        authority = X509Authority(DOMAIN, ttl=24 * HOUR)
        for hour in range(48):
            now = NOW + hour * HOUR
            authority.advance(now)
            svid = authority.issue(NAME, 6 * HOUR, now)
            authority_later = now + 6 * HOUR
            authority.advance(authority_later)
            verify_svid(svid.chain, BundleSet.of(authority.bundle()), authority_later)
            authority.advance(now + HOUR)

    def test_cut_at_the_end_of_the_root(self) -> None:
        """No SVID outlives its root."""
        authority = X509Authority(DOMAIN, ttl=2 * HOUR)
        authority.advance(NOW)
        self.assertEqual(authority.issue(NAME, 24 * HOUR, NOW).not_after, NOW + 2 * HOUR)


class LocalDomainTests(SynchronousTestCase):
    """The domain as the Workload API serves it."""

    def setUp(self) -> None:
        self.domain: LocalDomain = make_domain(
            DOMAIN, algorithm="ECDSA-P256", leaf_algorithm="ECDSA-P256", ttl=24 * HOUR, random=os.urandom
        )
        self.domain.advance(NOW)
        self.entry = Entry(NAME, Selectors(uid=0), HOUR, HOUR)

    def test_renewal_at_half(self) -> None:
        """A stream keeps its SVID for the first half of its lifetime and then gets a new one."""
        (held,) = self.domain.renew((self.entry,), (), NOW)
        self.assertEqual(held.renew_at, NOW + HOUR / 2)
        almost = NOW + HOUR / 2 - timedelta(seconds=1)
        self.assertEqual(self.domain.renew((self.entry,), (held,), almost), (held,))
        (fresh,) = self.domain.renew((self.entry,), (held,), NOW + HOUR / 2)
        self.assertNotEqual(fresh.svid, held.svid)

    def test_entries_change(self) -> None:
        """A new entry gets an SVID, a removed one none, the others keep theirs."""
        other = Entry(SpiffeID.parse("spiffe://example.org/other"), Selectors(uid=0), HOUR, HOUR)
        held = self.domain.renew((self.entry,), (), NOW)
        both = self.domain.renew((self.entry, other), held, NOW)
        self.assertEqual(both[0], held[0])
        self.assertEqual([each.svid.spiffe_id for each in both], [NAME, other.spiffe_id])
        self.assertEqual(self.domain.renew((other,), both, NOW), (both[1],))

    def test_clock_set_back(self) -> None:
        """An SVID that is not valid yet is replaced."""
        held = self.domain.renew((self.entry,), (), NOW)
        self.assertNotEqual(self.domain.renew((self.entry,), held, NOW - HOUR), held)

    def test_clock_set_back_before_every_root(self) -> None:
        """What is signed then is valid then, and what was signed before is valid again when the clock is corrected."""
        (before,) = self.domain.renew((self.entry,), (), NOW)
        (held,) = self.domain.renew((self.entry,), (before,), NOW - HOUR)
        verify_svid(held.svid.chain, self.domain.bundles(), NOW - HOUR)
        verify_svid(before.svid.chain, self.domain.bundles(), NOW)
        self.domain.advance(NOW)
        (after,) = self.domain.renew((self.entry,), (held,), NOW)
        verify_svid(after.svid.chain, self.domain.bundles(), NOW)

    def test_clock_set(self) -> None:
        """Streams check at once; after a step back they get new SVIDs, whose renewal is due soon enough."""
        held, number = self.domain.renew((self.entry,), (), NOW), self.domain.changes.number
        self.domain.clock_stepped(600.0)
        self.assertEqual(self.domain.changes.number, number + 1)
        later = NOW + HOUR / 3
        self.assertEqual(self.domain.renew((self.entry,), held, later), held)
        self.domain.clock_stepped(-900.0)
        self.assertEqual(self.domain.changes.number, number + 2)
        fresh = self.domain.renew((self.entry,), held, later - timedelta(seconds=900))
        self.assertNotEqual(fresh, held)
        self.assertEqual(self.domain.renew((self.entry,), fresh, later), fresh)

    def test_clock_set_far_forward(self) -> None:
        """After a step past every root the next SVID is signed by a new one, and streams are notified of the bundle."""
        number, later = self.domain.changes.number, NOW + 1000 * HOUR
        (fresh,) = self.domain.renew((self.entry,), (), later)
        verify_svid(fresh.svid.chain, self.domain.bundles(), later)
        self.assertEqual(fresh.svid.not_after, later + HOUR)
        self.assertGreater(self.domain.changes.number, number)
        again = NOW + 2000 * HOUR
        evidence = validate(self.domain.issue_jwt(self.entry, ("us",), again), "us", self.domain.jwt_bundles(), again)
        self.assertEqual(evidence.spiffe_id, NAME)
        verify_svid(self.domain.own_svid(NAME, HOUR, again).chain, self.domain.bundles(), again)

    def test_foreign(self) -> None:
        """A federated bundle is served, notified once, and replaced when it changes."""
        number = self.domain.changes.number
        self.assertTrue(self.domain.set_foreign(ForeignDomain(FOREIGN.bundle())))
        self.assertFalse(self.domain.set_foreign(ForeignDomain(FOREIGN.bundle())))
        self.assertEqual(self.domain.changes.number, number + 1)
        self.assertEqual(
            [str(each) for each in self.domain.bundles().trust_domains], ["example.org", "foreign.example"]
        )
        self.assertTrue(self.domain.set_foreign(ForeignDomain(FOREIGN.bundle(), ({"kid": "a"},))))
        self.assertEqual(self.domain.jwt_bundles()[TrustDomain("foreign.example")], ({"kid": "a"},))

    def test_sequence(self) -> None:
        """The number of the bundle rises with each change, also after a restart."""
        first = self.domain.sequence
        self.assertFalse(self.domain.advance(NOW + HOUR))
        self.assertEqual(self.domain.sequence, first)
        self.assertTrue(self.domain.advance(NOW + 12 * HOUR))
        self.assertGreater(self.domain.sequence, first)
        restarted = make_domain(
            DOMAIN, algorithm="ECDSA-P256", leaf_algorithm="ECDSA-P256", ttl=24 * HOUR, random=os.urandom
        )
        restarted.advance(NOW + 13 * HOUR)
        self.assertGreater(restarted.sequence, self.domain.sequence)
