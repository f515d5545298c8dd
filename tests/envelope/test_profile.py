"""The verification profile."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.envelope.profile import Profile, ProfileUnknown, check_chain_b_algorithm
from tests.refusals import assert_refused

#: The result of each profile for each pair of algorithms; None is an absent signature.
TABLE = {
    (Profile.HYBRID, "ES256", "ML-DSA-65"): "ok",
    (Profile.HYBRID, "ES384", "ML-DSA-87"): "ok",
    (Profile.HYBRID, "ES256", "ML-DSA-44"): "alg_not_allowed",
    (Profile.HYBRID, "ES256", None): "hybrid_incomplete",
    (Profile.HYBRID, None, "ML-DSA-65"): "hybrid_incomplete",
    (Profile.PQ, "ES256", "ML-DSA-65"): "ok",
    (Profile.PQ, "ES256", "ML-DSA-44"): "alg_not_allowed",
    (Profile.PQ, None, "ML-DSA-65"): "ok",
    (Profile.PQ, None, "ML-DSA-44"): "ok",
    (Profile.PQ, "ES256", None): "hybrid_incomplete",
    (Profile.CLASSICAL, "ES256", None): "ok",
    (Profile.CLASSICAL, "PS256", "ML-DSA-44"): "ok",
    (Profile.CLASSICAL, None, "ML-DSA-65"): "hybrid_incomplete",
    (Profile.CNSA2, "ES384", "ML-DSA-87"): "ok",
    (Profile.CNSA2, "ES256", "ML-DSA-87"): "alg_not_allowed",
    (Profile.CNSA2, "ES384", "ML-DSA-65"): "alg_not_allowed",
    (Profile.CNSA2, "ES384", None): "hybrid_incomplete",
    (Profile.CNSA2, None, "ML-DSA-87"): "hybrid_incomplete",
}


class ProfileTests(SynchronousTestCase):
    """Names and demands."""

    def test_parse(self) -> None:
        """Exactly the four names are accepted."""
        self.assertEqual([Profile.parse(each.value) for each in Profile], list(Profile))
        for text in ("", "Hybrid", " hybrid", "HYBRID", "none"):
            error = self.assertRaises(ProfileUnknown, Profile.parse, text)
            self.assertIn("hybrid, pq, classical, cnsa2", error.hint)

    def test_table(self) -> None:
        """Every profile accepts and refuses each pair of algorithms as the format specifies."""
        for (profile, classical, post_quantum), expected in TABLE.items():
            try:
                profile.check_algorithms(classical, post_quantum)
                found = "ok"
            except EnvelopeError as error:
                found = error.reason
            self.assertEqual(found, expected, (profile, classical, post_quantum))

    def test_missing_is_named(self) -> None:
        """The error names the signature that is missing."""
        error = assert_refused(self, "hybrid_incomplete", Profile.HYBRID.check_algorithms, "ES256", None)
        self.assertEqual(str(error), "the profile hybrid needs an ML-DSA signature, which the envelope lacks")

    def test_warning(self) -> None:
        """Only the profile classical warns."""
        self.assertEqual([each for each in Profile if each.warning], [Profile.CLASSICAL])

    def test_chain_b(self) -> None:
        """A post-quantum leaf is ML-DSA-65 or ML-DSA-87."""
        check_chain_b_algorithm("ML-DSA-65")
        check_chain_b_algorithm("ML-DSA-87")
        for alg in ("ML-DSA-44", "ES256"):
            assert_refused(self, "alg_not_allowed", check_chain_b_algorithm, alg)
