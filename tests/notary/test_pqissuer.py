"""The post-quantum issuer: challenges, the root, the leaf, and the whole request."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import mldsa
from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE, Envelope, sign_envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.identity import (
    BundleSet,
    SpiffeID,
    SvidInvalid,
    TrustDomain,
    X509Bundle,
    binding_of,
    verify_svid,
)
from svc.notary.pqissuer import MAX_CHALLENGES, Challenges, PqIssuer
from svc.notary.pqleaf import PqLeaf, PqLeafRequest, PqLeafResponse, make_proof
from svc.notary.verification import Anchors, verify_envelope
from svc.strictjson import b64u_decode, dumps
from svc.testing.ca import TestAuthority
from tests.refusals import assert_refused

NOW = datetime(2026, 11, 21, 0, 25, 32, 500000, tzinfo=UTC)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
TD = TrustDomain.parse("example.org")
ISSUER = SpiffeID.parse("spiffe://example.org/svc/authority")


def counting() -> Callable[[int], bytes]:
    """A source of octets that differ from call to call and not from run to run."""
    calls = itertools.count()

    def random(size: int) -> bytes:
        return hashlib.shake_256(str(next(calls)).encode()).digest(size)

    return random


class ChallengeTests(SynchronousTestCase):
    """The list of outstanding challenges."""

    def setUp(self) -> None:
        """An empty list."""
        self.challenges = Challenges(counting())

    def test_once(self) -> None:
        """A challenge is 32 octets and can be used once."""
        challenge = self.challenges.issue("a", NOW)
        self.assertEqual(len(b64u_decode(challenge)), 32)
        self.challenges.consume(challenge, "a", NOW)
        assert_refused(self, "challenge_unknown", self.challenges.consume, challenge, "a", NOW)

    def test_other_caller(self) -> None:
        """Only the caller that a challenge was issued to can use it; an attempt of another one leaves it valid."""
        challenge = self.challenges.issue(SpiffeID.parse("spiffe://example.org/a"), NOW)
        for other in (SpiffeID.parse("spiffe://example.org/A"), 0, None):
            assert_refused(self, "challenge_unknown", self.challenges.consume, challenge, other, NOW)
        self.challenges.consume(challenge, SpiffeID.parse("spiffe://example.org/a"), NOW)

    def test_unknown(self) -> None:
        """A challenge that was never issued is refused and uses none up."""
        self.challenges.issue("a", NOW)
        for caller in ("a", None):
            assert_refused(self, "challenge_unknown", self.challenges.consume, "x", caller, NOW)
        self.assertEqual(len(self.challenges), 1)

    def test_time(self) -> None:
        """It can be used for exactly 60 seconds."""
        for after, counts in ((60 * SECOND, True), (60 * SECOND + timedelta(microseconds=1), False)):
            challenge = self.challenges.issue("a", NOW)
            if counts:
                self.challenges.consume(challenge, "a", NOW + after)
            else:
                assert_refused(self, "challenge_unknown", self.challenges.consume, challenge, "a", NOW + after)

    def test_clock_set_back(self) -> None:
        """A clock that is set back does not prolong a challenge, also after one that is still valid."""
        first = self.challenges.issue("a", NOW)
        second = self.challenges.issue("a", NOW + 30 * SECOND)
        self.challenges.consume(first, "a", NOW)
        assert_refused(self, "challenge_unknown", self.challenges.consume, second, "a", NOW)

    def is_usable(self, challenges: Challenges, challenge: str, caller: str, now: datetime = NOW) -> bool:
        """Whether it can be used; it is used up then."""
        try:
            challenges.consume(challenge, caller, now)
        except EnvelopeError:
            return False
        return True

    def test_limit(self) -> None:
        """As many as the limit may be outstanding; for one more the oldest is evicted, and old ones expire."""
        challenges = Challenges(counting(), limit=3)
        issued = [challenges.issue("a", NOW) for _ in range(3)]
        self.assertEqual(len(challenges), 3)
        issued.append(challenges.issue("a", NOW))
        self.assertEqual(len(challenges), 3)
        self.assertEqual([self.is_usable(challenges, each, "a") for each in issued], [False, True, True, True])
        challenges.issue("a", NOW)
        challenges.issue("a", NOW + 61 * SECOND)
        self.assertEqual(len(challenges), 1)

    def test_default_limit(self) -> None:
        """A caller with more than 1,024 challenges does not prevent other callers from using theirs."""
        for _ in range(MAX_CHALLENGES):
            self.challenges.issue("flooding", NOW)
        honest = [self.challenges.issue(f"other {number}", NOW) for number in range(10)]
        for _ in range(2 * MAX_CHALLENGES):
            self.challenges.issue("flooding", NOW)
        self.assertEqual(len(self.challenges), MAX_CHALLENGES)
        for number, challenge in enumerate(honest):
            self.assertTrue(self.is_usable(self.challenges, challenge, f"other {number}"))

    def test_who_is_evicted(self) -> None:
        """The oldest challenge of the caller with most is evicted, the new one counted; among equals the oldest."""
        for before, newcomer, evicted in (
            ("abb", "c", 1),
            ("bab", "a", 0),
            ("abb", "b", 1),
            ("abc", "d", 0),
            ("abc", "c", 2),
            ("aab", "b", 0),
        ):
            challenges = Challenges(counting(), limit=3)
            issued = [(challenges.issue(caller, NOW), caller) for caller in before]
            new = challenges.issue(newcomer, NOW)
            counted = [self.is_usable(challenges, *each) for each in issued]
            self.assertEqual(counted, [position != evicted for position in range(3)], (before, newcomer))
            self.assertTrue(self.is_usable(challenges, new, newcomer))

    @given(
        st.lists(
            st.tuples(st.booleans(), st.sampled_from("abcd"), st.integers(-90, 90), st.integers(0, 9)), max_size=60
        )
    )
    def test_any_history(self, steps: list[tuple[bool, str, int, int]]) -> None:
        """With any clock, no challenge can be used twice or by another caller, and the limit is kept."""
        challenges = Challenges(counting(), limit=5)
        issued: list[tuple[str, str]] = []
        used: set[str] = set()
        now = NOW
        for issue, caller, seconds, pick in steps:
            now += seconds * SECOND
            if issue:
                issued.append((challenges.issue(caller, now), caller))
            elif issued:
                challenge, holder = issued[pick % len(issued)]
                if self.is_usable(challenges, challenge, caller, now):
                    self.assertEqual(caller, holder)
                    self.assertNotIn(challenge, used)
                    used.add(challenge)
            self.assertLessEqual(len(challenges), 5)

    @given(st.integers(1, 12), st.lists(st.sampled_from("abcdef"), max_size=80))
    def test_fair(self, limit: int, callers: list[str]) -> None:
        """With n callers the last limit // n challenges of each can be used, however many the others request."""
        challenges = Challenges(counting(), limit=limit)
        issued: dict[str, list[str]] = {}
        for caller in callers:
            issued.setdefault(caller, []).append(challenges.issue(caller, NOW))
        share = limit // max(1, len(issued))
        for caller, own in issued.items():
            for challenge in own[len(own) - min(share, len(own)) :]:
                self.assertTrue(self.is_usable(challenges, challenge, caller))


class RootTests(SynchronousTestCase):
    """The root of a trust domain."""

    def test_root(self) -> None:
        """It is a self-signed ML-DSA signing certificate with the trust domain's own SPIFFE ID."""
        for algorithm in ("ML-DSA-65", "ML-DSA-87"):
            issuer = PqIssuer.create(TD, NOW, 30 * DAY, counting(), algorithm=algorithm)
            root = issuer.certificate
            root.verify_directly_issued_by(root)
            names = root.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            self.assertEqual(names.get_values_for_type(x509.UniformResourceIdentifier), ["spiffe://example.org"])
            self.assertTrue(root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca)
            self.assertEqual(root.not_valid_after_utc, NOW.replace(microsecond=0) + 30 * DAY)
            self.assertNotIn("private_key", repr(issuer))

    def test_random(self) -> None:
        """Key and serial number come from the given source alone."""
        first, second = (PqIssuer.create(TD, NOW, DAY, counting()).certificate for _ in range(2))
        self.assertEqual(first.public_key(), second.public_key())
        self.assertEqual(first.serial_number, second.serial_number)
        self.assertTrue(0 < first.serial_number < 2**128)

    def test_algorithm(self) -> None:
        """A classical root, and one of category 2, cannot be made."""
        for algorithm in ("ES256", "ML-DSA-44", ""):
            assert_refused(self, "signers_unsuitable", PqIssuer.create, TD, NOW, DAY, counting(), algorithm=algorithm)


class IssueTests(SynchronousTestCase):
    """The leaf."""

    def setUp(self) -> None:
        """A SPIFFE authority beside a post-quantum issuer."""
        self.authority = TestAuthority("example.org", now=NOW)
        self.issuer = PqIssuer.create(TD, NOW, 30 * DAY, counting())
        self.key = mldsa.MLDSA65PrivateKey.from_seed_bytes(bytes(32))
        self.anchors = BundleSet.of(X509Bundle.from_certificates(TD, [self.issuer.certificate]))

    def issue(self, at: datetime = NOW, **fields: Any) -> x509.Certificate:
        """Issue a leaf for an SVID with these properties."""
        svid = self.authority.svid(**fields)
        found = verify_svid(svid.chain, self.authority.bundles(), at)
        (leaf,) = self.issuer.issue(found, self.key.public_key(), at, counting())
        return leaf

    def test_verifies(self) -> None:
        """The leaf verifies to the post-quantum bundle, with the SVID's name."""
        found = verify_svid([self.issue()], self.anchors, NOW)
        self.assertEqual(str(found.spiffe_id), "spiffe://example.org/workload")
        self.assertTrue(found.post_quantum)

    def test_binding(self) -> None:
        """The extension is not critical and holds the digest of the SVID's key as a DER OCTET STRING."""
        svid = self.authority.svid()
        found = verify_svid(svid.chain, self.authority.bundles(), NOW)
        (leaf,) = self.issuer.issue(found, self.key.public_key(), NOW, counting())
        self.assertEqual(binding_of(leaf), found.spki_sha256)
        extension = leaf.extensions.get_extension_for_oid(x509.ObjectIdentifier(naming.OID_SVID_BINDING))
        self.assertFalse(extension.critical)
        assert isinstance(extension.value, x509.UnrecognizedExtension)
        self.assertEqual(extension.value.value, bytes.fromhex("0420") + found.spki_sha256)

    def test_times(self) -> None:
        """It begins with the SVID or a minute ago, whichever is later, and ends with the SVID."""
        start = NOW.replace(microsecond=0)
        old = self.issue(not_before=start - DAY, ttl=2 * DAY)
        self.assertEqual(old.not_valid_before_utc, start - timedelta(minutes=1))
        self.assertEqual(old.not_valid_after_utc, start + 2 * DAY)
        fresh = self.issue(not_before=start - 10 * SECOND)
        self.assertEqual(fresh.not_valid_before_utc, start - 10 * SECOND)

    def test_expired(self) -> None:
        """An SVID that has ended meanwhile gets no leaf."""
        svid = self.authority.svid(ttl=DAY)
        found = verify_svid(svid.chain, self.authority.bundles(), NOW)
        late = NOW + DAY + SECOND
        assert_refused(
            self, "certificate_not_valid_at_time", self.issuer.issue, found, self.key.public_key(), late, counting()
        )

    def test_foreign(self) -> None:
        """An SVID of a federated trust domain gets no leaf."""
        foreign = TestAuthority("other.example", now=NOW)
        found = verify_svid(foreign.svid().chain, foreign.bundles(), NOW)
        assert_refused(self, "wrong_trust_domain", self.issuer.issue, found, self.key.public_key(), NOW, counting())


class AnswerTests(SynchronousTestCase):
    """A whole request."""

    def setUp(self) -> None:
        """An issuer with one workload that has asked for a challenge."""
        self.authority = TestAuthority("example.org", now=NOW)
        self.issuer = PqIssuer.create(TD, NOW, 30 * DAY, counting())
        self.challenges = Challenges(counting())
        self.svid = self.authority.svid()
        self.key = mldsa.MLDSA65PrivateKey.from_seed_bytes(bytes(32))
        self.challenge = self.challenges.issue(self.svid.spiffe_id, NOW)

    def request(self, **changes: Any) -> PqLeafRequest:
        """The request that a workload sends."""
        arguments = {"audience": ISSUER, "challenge": self.challenge, "now": NOW, **changes}
        proof = Envelope.parse(make_proof(self.svid, self.key, **arguments))
        return PqLeafRequest.parse(PqLeafRequest(self.svid.chain, proof).serialize())

    def answer(self, request: PqLeafRequest, **changes: Any) -> PqLeafResponse:
        """The response of the issuer."""
        arguments = {
            "bundles": self.authority.bundles(),
            "challenges": self.challenges,
            "caller": self.svid.spiffe_id,
            "audience": ISSUER,
            "peers": [self.svid.spiffe_id],
            "now": NOW,
            "random": counting(),
            **changes,
        }
        return self.issuer.answer(request, **arguments)

    def test_whole(self) -> None:
        """The response contains a leaf that completes a hybrid signature."""
        chain = PqLeafResponse.parse(self.answer(self.request()).serialize()).chain
        leaf = PqLeaf.accept(chain, self.key, self.svid)
        payload = dumps({"iss": str(self.svid.spiffe_id), "svc": {"v": 1}})
        envelope = sign_envelope(payload, naming.TYPE_RECEIPT, [Signer.from_svid(self.svid), leaf.signer()])
        pq = BundleSet.of(X509Bundle.from_certificates(TD, [self.issuer.certificate]))
        found = verify_envelope(
            envelope.serialize(),
            typ=naming.TYPE_RECEIPT,
            profile=Profile.HYBRID,
            anchors=Anchors(self.authority.bundles(), pq),
            now=NOW,
        )
        self.assertTrue(found.post_quantum)

    def test_replayed(self) -> None:
        """The same request is answered once."""
        request = self.request()
        self.answer(request)
        assert_refused(self, "challenge_unknown", self.answer, request)

    def test_caller(self) -> None:
        """The transport's peer and the SVID must be the same workload; a refusal does not use the challenge up."""
        other = SpiffeID.parse("spiffe://example.org/other")
        for peers in ([], [other]):
            assert_refused(self, "caller_mismatch", self.answer, self.request(), peers=peers)
        self.answer(self.request(), peers=[other, self.svid.spiffe_id])

    def test_challenge_of_another_caller(self) -> None:
        """A challenge that was issued to another caller is refused and not used up."""
        assert_refused(
            self, "challenge_unknown", self.answer, self.request(), caller=SpiffeID.parse("spiffe://example.org/b")
        )
        self.answer(self.request())

    def test_audience(self) -> None:
        """A proof for another issuer is refused, and its challenge is used up."""
        other = SpiffeID.parse("spiffe://example.org/svc/other")
        assert_refused(self, "proof_mismatch", self.answer, self.request(audience=other))
        assert_refused(self, "challenge_unknown", self.answer, self.request())

    def test_untrusted(self) -> None:
        """An SVID that does not verify, or is of another trust domain, is refused before the proof is read."""
        untrusted = TestAuthority("example.org", now=NOW)
        self.assertRaises(SvidInvalid, self.answer, self.request(), bundles=untrusted.bundles())
        foreign = TestAuthority("other.example", now=NOW)
        self.svid = foreign.svid()
        request = self.request()
        assert_refused(self, "wrong_trust_domain", self.answer, request, bundles=foreign.bundles())


class CodecTests(SynchronousTestCase):
    """The JSON of request and response."""

    def test_largest(self) -> None:
        """256 KiB are read, an octet more is refused."""
        svid = TestAuthority("example.org", now=NOW).svid()
        data = PqLeafResponse(svid.chain).serialize()
        self.assertEqual(PqLeafResponse.parse(data.ljust(MAX_ENVELOPE)).chain, svid.chain)
        for parse in (PqLeafResponse.parse, PqLeafRequest.parse):
            assert_refused(self, "too_large", parse, data.ljust(MAX_ENVELOPE + 1))

    def test_malformed(self) -> None:
        """Anything but the members of the format is refused."""
        svid = TestAuthority("example.org", now=NOW).svid()
        x5c = b'"x5c":["' + Signer.from_svid(svid).x5c[0].encode() + b'"]'
        for data in (b"", b"[]", b"{}", b'{"x5c":[]}', b'{"x5c":["AA=="]}', b"{" + x5c + b"," + x5c + b"}"):
            self.assertRaises(Malformed, PqLeafResponse.parse, data)
        for data in (b"{" + x5c + b"}", b"{" + x5c + b',"proof":"x"}', b"{" + x5c + b',"proof":{}}'):
            self.assertRaises(Malformed, PqLeafRequest.parse, data)

    @given(st.binary(max_size=200) | st.dictionaries(st.sampled_from(["x5c", "proof"]), st.lists(st.text())).map(str))
    def test_any(self, data: bytes | str) -> None:
        """Any octets give a value or a typed error."""
        octets = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        for parse in (PqLeafResponse.parse, PqLeafRequest.parse):
            self.assertRaises(EnvelopeError, parse, octets)
