"""Tests of :mod:`svc.notary.credentials`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.profile import Profile
from svc.identity import BundleSet, X509Svid
from svc.notary.credentials import CredentialSet
from svc.notary.facts import WorkloadFacts
from svc.notary.pqleaf import PqLeaf
from svc.notary.statement import verify_statement
from svc.notary.verification import Anchors
from svc.testing.ca import TestAuthority
from tests.notary.artifacts import DOMAIN, FACTS, NOW, Fixture, counting_random, peer_of
from tests.refusals import assert_refused

FIXTURE = Fixture()


def issue(svid: X509Svid, pq_leaf: PqLeaf | None, profile: Profile) -> CredentialSet:
    """A credential set at the time of the fixture."""
    return CredentialSet.issue(svid, pq_leaf, FACTS, profile, NOW, counting_random())


class IssueTests(SynchronousTestCase):
    """Which keys sign under which profile."""

    def test_hybrid(self) -> None:
        """The profile hybrid signs with both keys and names the SVID as the server."""
        credentials = FIXTURE.credentials
        self.assertEqual(["ES256", "ML-DSA-65"], [signer.alg for signer in credentials.signers])
        self.assertEqual(peer_of(FIXTURE.svid), credentials.server)
        self.assertEqual(FIXTURE.svid.spiffe_id, credentials.spiffe_id)

    def test_classical(self) -> None:
        """The profile classical signs with the SVID alone and needs no leaf."""
        credentials = issue(FIXTURE.svid, None, Profile.CLASSICAL)
        self.assertEqual(["ES256"], [signer.alg for signer in credentials.signers])

    def test_cnsa2(self) -> None:
        """The profile cnsa2 accepts P-384 with ML-DSA-87 and nothing less."""
        strong = FIXTURE.authority.svid("/w", algorithm="ECDSA-P384")
        leaf = PqLeaf.accept(*FIXTURE.pq_authority.pq_leaf(strong, algorithm="ML-DSA-87"), strong)  # type: ignore[arg-type]
        credentials = issue(strong, leaf, Profile.CNSA2)
        self.assertEqual(["ES384", "ML-DSA-87"], [signer.alg for signer in credentials.signers])
        assert_refused(self, "notary_unavailable", issue, FIXTURE.svid, FIXTURE.pq_leaf(FIXTURE.svid), Profile.CNSA2)

    def test_pq_svid(self) -> None:
        """An ML-DSA SVID signs alone, which only the profile pq accepts."""
        svid = FIXTURE.authority.svid("/w", algorithm="ML-DSA-65")
        self.assertEqual(1, len(issue(svid, None, Profile.PQ).signers))
        assert_refused(self, "notary_unavailable", issue, svid, None, Profile.HYBRID)

    def test_without_end(self) -> None:
        """Credentials that end with the calendar (RFC 5280, 4.1.2.5: no well-defined end) are issued and verified."""
        end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
        authority = TestAuthority(DOMAIN, now=NOW, not_after=end)
        credentials = issue(authority.svid("/w", not_after=end), None, Profile.CLASSICAL)
        self.assertEqual((end, end - timedelta(seconds=60)), (credentials.expires, credentials.close_at))
        evidence = verify_statement(
            credentials.statement.envelope,
            expected_id=None,
            profile=Profile.CLASSICAL,
            anchors=Anchors(authority.bundles(), BundleSet()),
            now=NOW,
            peer=None,
            unbound_ok=True,
        )
        self.assertEqual(end, evidence.expires)

    def test_incomplete(self) -> None:
        """Without a leaf, or with that of another SVID, there is no credentials: notary_unavailable, 503."""
        other = FIXTURE.pq_leaf(FIXTURE.authority.svid(FIXTURE.svid.spiffe_id.path))
        for leaf in (None, other):
            for profile in (Profile.HYBRID, Profile.PQ):
                error = assert_refused(self, "notary_unavailable", issue, FIXTURE.svid, leaf, profile)
                self.assertEqual(("notary_unavailable", 503), (error.reason, error.http_status))


class LifeTests(SynchronousTestCase):
    """When connections of a credentials end."""

    def test_times(self) -> None:
        """At 80 % of the life connections are renewed, 60 s before the end they are cut."""
        credentials = FIXTURE.credentials
        self.assertEqual(NOW + timedelta(hours=1), credentials.expires)
        self.assertEqual(NOW + timedelta(minutes=48), credentials.renew_connections_at)
        self.assertEqual(NOW + timedelta(minutes=59), credentials.close_at)

    def test_short_life(self) -> None:
        """A tenth of the lifetime is between the request for renewal and the cut, also where 60 s would leave less."""
        for life, cut in ((50, 45), (400, 360), (600, 540), (700, 640)):
            svid = FIXTURE.authority.svid("/w", ttl=timedelta(seconds=life))
            credentials = issue(svid, FIXTURE.pq_leaf(svid), Profile.HYBRID)
            self.assertEqual(NOW + timedelta(seconds=life) * 0.8, credentials.renew_connections_at)
            self.assertEqual(NOW + timedelta(seconds=cut), credentials.close_at)

    def test_valid_at(self) -> None:
        """New connections are accepted until the time of cutting."""
        credentials = FIXTURE.credentials
        self.assertTrue(credentials.valid_at(credentials.close_at - timedelta(microseconds=1)))
        self.assertFalse(credentials.valid_at(credentials.close_at))


class ServesTests(SynchronousTestCase):
    """A statement is signed once and anew only when its inputs change."""

    def test_serves(self) -> None:
        """The same inputs keep the credentials; any other SVID, leaf, fact or profile ends it."""
        credentials = FIXTURE.credentials
        leaf = credentials.pq_leaf
        other = FIXTURE.authority.svid(FIXTURE.svid.spiffe_id.path)
        self.assertTrue(credentials.is_built_from(FIXTURE.svid, leaf, FACTS, Profile.HYBRID))
        self.assertFalse(credentials.is_built_from(other, leaf, FACTS, Profile.HYBRID))
        self.assertFalse(credentials.is_built_from(FIXTURE.svid, None, FACTS, Profile.HYBRID))
        self.assertFalse(credentials.is_built_from(FIXTURE.svid, FIXTURE.pq_leaf(FIXTURE.svid), FACTS, Profile.HYBRID))
        self.assertFalse(credentials.is_built_from(FIXTURE.svid, leaf, WorkloadFacts(), Profile.HYBRID))
        self.assertFalse(credentials.is_built_from(FIXTURE.svid, leaf, FACTS, Profile.PQ))
