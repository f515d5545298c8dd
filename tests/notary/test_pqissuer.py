"""
The post-quantum issuer: challenges, the root, the leaf, and the whole request.
"""

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
from svc.identity import (
    BundleSet,
    SpiffeID,
    SvidInvalid,
    TrustDomain,
    X509Bundle,
    binding_of,
    verify_svid,
)
from svc.notary.envelope import MAX_ENVELOPE, Envelope, sign_envelope
from svc.notary.errors import (
    CallerMismatch,
    CertificateNotValidAtTime,
    ChallengesExhausted,
    ChallengeUnknown,
    Malformed,
    NotaryError,
    ProofMismatch,
    SignersUnsuitable,
    TooLarge,
    WrongTrustDomain,
)
from svc.notary.keys import Signer
from svc.notary.pqissuer import Challenges, PqIssuer, PqLeafRequest, PqLeafResponse
from svc.notary.pqproof import PqLeaf, make_proof
from svc.notary.profile import Profile
from svc.notary.verification import Anchors, verify_envelope
from svc.strictjson import b64u_decode, dumps
from svc.testing.ca import TestAuthority

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
        """A challenge is 32 octets and counts once."""
        challenge = self.challenges.issue(NOW)
        self.assertEqual(len(b64u_decode(challenge)), 32)
        self.challenges.consume(challenge, NOW)
        self.assertRaises(ChallengeUnknown, self.challenges.consume, challenge, NOW)

    def test_unknown(self) -> None:
        """What was never issued is refused and takes nothing out of the list."""
        self.challenges.issue(NOW)
        self.assertRaises(ChallengeUnknown, self.challenges.consume, "x", NOW)
        self.assertEqual(len(self.challenges), 1)

    def test_time(self) -> None:
        """It counts for 60 seconds, and not an instant longer."""
        for after, counts in ((60 * SECOND, True), (60 * SECOND + timedelta(microseconds=1), False)):
            challenge = self.challenges.issue(NOW)
            if counts:
                self.challenges.consume(challenge, NOW + after)
            else:
                self.assertRaises(ChallengeUnknown, self.challenges.consume, challenge, NOW + after)

    def test_clock_set_back(self) -> None:
        """A clock that is set back does not prolong a challenge, also behind one that still counts."""
        first = self.challenges.issue(NOW)
        second = self.challenges.issue(NOW + 30 * SECOND)
        self.challenges.consume(first, NOW)
        self.assertRaises(ChallengeUnknown, self.challenges.consume, second, NOW)

    def test_limit(self) -> None:
        """As many as the limit may be outstanding; old ones make room by themselves."""
        challenges = Challenges(counting(), limit=3)
        for _ in range(3):
            challenges.issue(NOW)
        error = self.assertRaises(ChallengesExhausted, challenges.issue, NOW)
        self.assertEqual((error.reason, error.http_status), ("notary_rate", 429))
        challenges.issue(NOW + 61 * SECOND)
        self.assertEqual(len(challenges), 1)

    @given(st.lists(st.tuples(st.booleans(), st.integers(-90, 90), st.integers(0, 9)), max_size=40))
    def test_any_history(self, steps: list[tuple[bool, int, int]]) -> None:
        """Whatever the clock does, no challenge counts twice and the list stays within its limit."""
        challenges = Challenges(counting(), limit=5)
        issued: list[str] = []
        used: set[str] = set()
        now = NOW
        for issue, seconds, pick in steps:
            now += seconds * SECOND
            try:
                if issue:
                    issued.append(challenges.issue(now))
                elif issued:
                    challenge = issued[pick % len(issued)]
                    challenges.consume(challenge, now)
                    self.assertNotIn(challenge, used)
                    used.add(challenge)
            except (ChallengeUnknown, ChallengesExhausted):
                continue
            self.assertLessEqual(len(challenges), 5)


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
            self.assertRaises(SignersUnsuitable, PqIssuer.create, TD, NOW, DAY, counting(), algorithm=algorithm)


class IssueTests(SynchronousTestCase):
    """The leaf."""

    def setUp(self) -> None:
        """A SPIFFE authority beside a post-quantum issuer."""
        self.authority = TestAuthority("example.org", now=NOW)
        self.issuer = PqIssuer.create(TD, NOW, 30 * DAY, counting())
        self.key = mldsa.MLDSA65PrivateKey.from_seed_bytes(bytes(32))
        self.anchors = BundleSet.of(X509Bundle.from_certificates(TD, [self.issuer.certificate]))

    def issue(self, at: datetime = NOW, **knobs: Any) -> x509.Certificate:
        """Issue a leaf for an SVID with these properties."""
        svid = self.authority.svid(**knobs)
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
        self.assertRaises(CertificateNotValidAtTime, self.issuer.issue, found, self.key.public_key(), late, counting())

    def test_foreign(self) -> None:
        """An SVID of a federated trust domain gets no leaf."""
        foreign = TestAuthority("other.example", now=NOW)
        found = verify_svid(foreign.svid().chain, foreign.bundles(), NOW)
        self.assertRaises(WrongTrustDomain, self.issuer.issue, found, self.key.public_key(), NOW, counting())


class AnswerTests(SynchronousTestCase):
    """A whole request."""

    def setUp(self) -> None:
        """An issuer with one workload that has asked for a challenge."""
        self.authority = TestAuthority("example.org", now=NOW)
        self.issuer = PqIssuer.create(TD, NOW, 30 * DAY, counting())
        self.challenges = Challenges(counting())
        self.svid = self.authority.svid()
        self.key = mldsa.MLDSA65PrivateKey.from_seed_bytes(bytes(32))
        self.challenge = self.challenges.issue(NOW)

    def request(self, **changes: Any) -> PqLeafRequest:
        """The request that a workload sends."""
        arguments = {"audience": ISSUER, "challenge": self.challenge, "now": NOW, **changes}
        proof = Envelope.parse(make_proof(self.svid, self.key, **arguments))
        return PqLeafRequest.parse(PqLeafRequest(self.svid.chain, proof).serialize())

    def answer(self, request: PqLeafRequest, **changes: Any) -> PqLeafResponse:
        """What the issuer answers."""
        arguments = {
            "bundles": self.authority.bundles(),
            "challenges": self.challenges,
            "audience": ISSUER,
            "peers": [self.svid.spiffe_id],
            "now": NOW,
            "random": counting(),
            **changes,
        }
        return self.issuer.answer(request, **arguments)

    def test_whole(self) -> None:
        """The answer is a leaf that completes a hybrid signature."""
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
        self.assertRaises(ChallengeUnknown, self.answer, request)

    def test_caller(self) -> None:
        """The transport's peer and the SVID must agree, and a refusal leaves the challenge in place."""
        other = SpiffeID.parse("spiffe://example.org/other")
        for peers in ([], [other]):
            self.assertRaises(CallerMismatch, self.answer, self.request(), peers=peers)
        self.answer(self.request(), peers=[other, self.svid.spiffe_id])

    def test_audience(self) -> None:
        """A proof for another issuer is refused, and its challenge is used up."""
        other = SpiffeID.parse("spiffe://example.org/svc/other")
        self.assertRaises(ProofMismatch, self.answer, self.request(audience=other))
        self.assertRaises(ChallengeUnknown, self.answer, self.request())

    def test_untrusted(self) -> None:
        """An SVID that does not verify, or is of another trust domain, is refused before the proof is read."""
        stranger = TestAuthority("example.org", now=NOW)
        self.assertRaises(SvidInvalid, self.answer, self.request(), bundles=stranger.bundles())
        foreign = TestAuthority("other.example", now=NOW)
        self.svid = foreign.svid()
        request = self.request()
        self.assertRaises(WrongTrustDomain, self.answer, request, bundles=foreign.bundles())


class CodecTests(SynchronousTestCase):
    """The JSON of request and answer."""

    def test_largest(self) -> None:
        """256 KiB are read, an octet more is refused."""
        svid = TestAuthority("example.org", now=NOW).svid()
        data = PqLeafResponse(svid.chain).serialize()
        self.assertEqual(PqLeafResponse.parse(data.ljust(MAX_ENVELOPE)).chain, svid.chain)
        for parse in (PqLeafResponse.parse, PqLeafRequest.parse):
            self.assertRaises(TooLarge, parse, data.ljust(MAX_ENVELOPE + 1))

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
            self.assertRaises(NotaryError, parse, octets)
