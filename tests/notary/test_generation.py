"""Tests of :mod:`svc.notary.generation`."""

from __future__ import annotations

from datetime import timedelta

from twisted.trial.unittest import SynchronousTestCase

from svc.identity import X509Svid
from svc.notary.facts import WorkloadFacts
from svc.notary.generation import Generation, GenerationIncomplete
from svc.notary.pqproof import PqLeaf
from svc.notary.profile import Profile
from tests.notary.artifacts import FACTS, NOW, World, counting_random, peer_of

WORLD = World()


def issue(svid: X509Svid, pq_leaf: PqLeaf | None, profile: Profile) -> Generation:
    """A generation at the world's time."""
    return Generation.issue(svid, pq_leaf, FACTS, profile, NOW, counting_random())


class IssueTests(SynchronousTestCase):
    """Which keys sign under which profile."""

    def test_hybrid(self) -> None:
        """The profile hybrid signs with both keys and names the SVID as the server."""
        generation = WORLD.generation
        self.assertEqual(["ES256", "ML-DSA-65"], [signer.alg for signer in generation.signers])
        self.assertEqual(peer_of(WORLD.svid), generation.server)
        self.assertEqual(WORLD.svid.spiffe_id, generation.spiffe_id)

    def test_classical(self) -> None:
        """The profile classical signs with the SVID alone and needs no leaf."""
        generation = issue(WORLD.svid, None, Profile.CLASSICAL)
        self.assertEqual(["ES256"], [signer.alg for signer in generation.signers])

    def test_cnsa2(self) -> None:
        """The profile cnsa2 accepts P-384 with ML-DSA-87 and nothing less."""
        strong = WORLD.authority.svid("/w", algorithm="ECDSA-P384")
        leaf = PqLeaf.accept(*WORLD.pq_authority.pq_leaf(strong, algorithm="ML-DSA-87"), strong)  # type: ignore[arg-type]
        generation = issue(strong, leaf, Profile.CNSA2)
        self.assertEqual(["ES384", "ML-DSA-87"], [signer.alg for signer in generation.signers])
        self.assertRaises(GenerationIncomplete, issue, WORLD.svid, WORLD.pq_leaf(WORLD.svid), Profile.CNSA2)

    def test_pq_svid(self) -> None:
        """An ML-DSA SVID signs alone, which only the profile pq accepts."""
        svid = WORLD.authority.svid("/w", algorithm="ML-DSA-65")
        self.assertEqual(1, len(issue(svid, None, Profile.PQ).signers))
        self.assertRaises(GenerationIncomplete, issue, svid, None, Profile.HYBRID)

    def test_incomplete(self) -> None:
        """Without a leaf, or with that of another SVID, there is no generation: notary_unavailable, 503."""
        other = WORLD.pq_leaf(WORLD.authority.svid(WORLD.svid.spiffe_id.path))
        for leaf in (None, other):
            for profile in (Profile.HYBRID, Profile.PQ):
                error = self.assertRaises(GenerationIncomplete, issue, WORLD.svid, leaf, profile)
                self.assertEqual(("notary_unavailable", 503), (error.reason, error.http_status))


class LifeTests(SynchronousTestCase):
    """When connections of a generation end."""

    def test_times(self) -> None:
        """At 80 % of the life connections are renewed, 60 s before the end they are cut."""
        generation = WORLD.generation
        self.assertEqual(NOW + timedelta(hours=1), generation.expires)
        self.assertEqual(NOW + timedelta(minutes=48), generation.renew_connections_at)
        self.assertEqual(NOW + timedelta(minutes=59), generation.cut_at)

    def test_short_life(self) -> None:
        """A tenth of the life lies between asking for renewal and cutting, also where 60 s would leave less."""
        for life, cut in ((50, 45), (400, 360), (600, 540), (700, 640)):
            svid = WORLD.authority.svid("/w", ttl=timedelta(seconds=life))
            generation = issue(svid, WORLD.pq_leaf(svid), Profile.HYBRID)
            self.assertEqual(NOW + timedelta(seconds=life) * 0.8, generation.renew_connections_at)
            self.assertEqual(NOW + timedelta(seconds=cut), generation.cut_at)

    def test_valid_at(self) -> None:
        """New connections are accepted until the time of cutting."""
        generation = WORLD.generation
        self.assertTrue(generation.valid_at(generation.cut_at - timedelta(microseconds=1)))
        self.assertFalse(generation.valid_at(generation.cut_at))


class ServesTests(SynchronousTestCase):
    """A statement is signed once and anew only when its inputs change."""

    def test_serves(self) -> None:
        """The same inputs keep the generation; any other SVID, leaf, fact or profile ends it."""
        generation = WORLD.generation
        leaf = generation.pq_leaf
        other = WORLD.authority.svid(WORLD.svid.spiffe_id.path)
        self.assertTrue(generation.serves(WORLD.svid, leaf, FACTS, Profile.HYBRID))
        self.assertFalse(generation.serves(other, leaf, FACTS, Profile.HYBRID))
        self.assertFalse(generation.serves(WORLD.svid, None, FACTS, Profile.HYBRID))
        self.assertFalse(generation.serves(WORLD.svid, WORLD.pq_leaf(WORLD.svid), FACTS, Profile.HYBRID))
        self.assertFalse(generation.serves(WORLD.svid, leaf, WorkloadFacts(), Profile.HYBRID))
        self.assertFalse(generation.serves(WORLD.svid, leaf, FACTS, Profile.PQ))
