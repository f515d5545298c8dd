"""Tests of :mod:`svc.notary.statement`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.envelope import Envelope
from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import statement_id
from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.identity import BundleSet, certificate_sha256, spki_sha256, verify_svid
from svc.notary.errors import IdentityUnexpected
from svc.notary.facts import WorkloadFacts
from svc.notary.statement import SelfIssued, Statement, issue_statement
from svc.notary.verification import Anchors
from svc.strictjson import b64u_encode, dumps, loads_object
from tests.notary.artifacts import FACTS, NOW, Fixture, counting_random, resigned, spiffe_id
from tests.refusals import assert_refused

FIXTURE = Fixture()
MANAGER = spiffe_id("/svc/manager")
#: The last second of the year 9999.
LAST_SECOND = 253_402_300_799
#: Times around the ends of calendars, the present, and everything between.
TIMES = st.one_of(
    *(st.integers(max(0, end - 120), end + 120) for end in (0, int(NOW.timestamp()), LAST_SECOND, 2**53 - 121)),
    st.integers(0, 2**53 - 1),
    st.sampled_from([0, int(NOW.timestamp()), LAST_SECOND]),
)


def refusal(envelope: Envelope | bytes, **changes: object) -> str:
    """The precise reason for which a statement is refused."""
    try:
        FIXTURE.verified_statement(envelope, **changes)  # type: ignore[arg-type]
    except EnvelopeError as error:
        return error.detail_reason
    return "ok"


def changed(**claims: object) -> Envelope:
    """The server's statement with other claims, signed by the server itself."""
    credentials = FIXTURE.credentials
    return resigned(credentials.statement.envelope, naming.TYPE_STATEMENT, credentials.signers, **claims)


def central(path: str = "/svc/manager", **claims: object) -> Envelope:
    """A statement about the server, signed by another identity."""
    svid = FIXTURE.authority.svid(path)
    signers = (Signer.from_svid(svid), FIXTURE.pq_leaf(svid).signer())
    issued = issue_statement(FIXTURE.svid, FACTS, signers, NOW, counting_random(), issuer=svid.spiffe_id)
    return resigned(issued.envelope, naming.TYPE_STATEMENT, signers, **claims) if claims else issued.envelope


class IssueTests(SynchronousTestCase):
    """The payload of a statement, member by member."""

    def issued(self) -> Statement:
        return FIXTURE.credentials.statement

    def test_payload(self) -> None:
        """The payload has exactly the members of the format, in its order."""
        leaf = FIXTURE.svid.leaf
        end = "2026-11-21T01:25:31Z"
        claims: dict[str, object] = {
            "iss": "spiffe://prod.example.org/ns/pay/sa/api",
            "sub": "spiffe://prod.example.org/ns/pay/sa/api",
            "aud": "https://svc.internal/workload-statement",
            "iat": 1795220731,
            "nbf": 1795220701,
            "exp": 1795224331,
            "jti": b64u_encode(counting_random()(16)),
            "svc": {
                "v": 1,
                "trustDomain": "prod.example.org",
                "namespace": "pay",
                "serviceAccount": "api",
                "podName": "api-7c",
                "podUID": "0a1b",
                "node": "n1",
                "containers": [
                    {"name": "api", "image": "reg/pay/api:1.4", "imageDigest": "sha256:" + "ab" * 32, "init": False}
                ],
                "labels": {"svc.internal/compartment": "DE-S-ALPHA"},
                "annotations": {"mls.svc.internal/compartment": "de:alpha", "mls.svc.internal/level": "de:s"},
                "svid": {
                    "x5t#S256": b64u_encode(certificate_sha256(leaf)),
                    "spki-sha256": b64u_encode(spki_sha256(leaf)),
                    "notAfter": end,
                },
                "truncated": ["labels/app"],
            },
        }
        self.assertEqual(dumps(claims), self.issued().payload)
        self.assertEqual(statement_id(self.issued().payload), self.issued().id)

    def test_expires_with_the_first_leaf(self) -> None:
        """The end is the earliest among the SVID and all signing leaves."""
        svid = FIXTURE.authority.svid("/w", ttl=timedelta(hours=2))
        chain, key = FIXTURE.pq_authority.pq_leaf(svid, not_after=NOW + timedelta(minutes=20))
        signers = (Signer.from_svid(svid), Signer.from_chain(key, chain))
        statement = issue_statement(svid, FACTS, signers, NOW, counting_random())
        self.assertEqual(NOW + timedelta(minutes=20), statement.expires)

    def test_not_before_the_leaves(self) -> None:
        """A statement is not valid before its certificates, and never from after its issue on."""
        svid = FIXTURE.authority.svid("/w", not_before=NOW - timedelta(seconds=10))
        statement = issue_statement(svid, FACTS, (Signer.from_svid(svid),), NOW, counting_random())
        self.assertEqual(int((NOW - timedelta(seconds=10)).timestamp()), loads_object(statement.payload)["nbf"])

    def test_fractions_are_cut(self) -> None:
        """The time of issue is the floor of the second."""
        late = NOW + timedelta(microseconds=999999)
        statement = issue_statement(FIXTURE.svid, FACTS, FIXTURE.credentials.signers, late, counting_random())
        self.assertEqual(NOW, statement.issued)


class VerifyTests(SynchronousTestCase):
    """Each step of the verification refuses for its own reason."""

    def test_good(self) -> None:
        """A valid statement gives the evidence."""
        statement = FIXTURE.credentials.statement
        evidence = FIXTURE.verified_statement(statement.envelope, expected_id=statement.id)
        self.assertEqual((statement.id, FIXTURE.svid.spiffe_id), (evidence.id, evidence.subject))
        self.assertTrue(evidence.self_issued and evidence.bound and evidence.post_quantum)
        self.assertEqual(b64u_encode(spki_sha256(FIXTURE.svid.leaf)), evidence.spki_sha256)

    def test_other_id(self) -> None:
        """(2) What is fetched by an identifier must hash to it, before anything else is looked at."""
        self.assertEqual("id_mismatch", refusal(changed(iss="x"), expected_id=statement_id(b"")))

    def test_flipped_bit(self) -> None:
        """(3) One flipped bit of a signature is signature_invalid."""
        data = FIXTURE.credentials.statement.envelope.serialize()
        at = data.index(b'"signature":"') + len(b'"signature":"')
        flipped = data[:at] + (b"B" if data[at : at + 1] == b"A" else b"A") + data[at + 1 :]
        self.assertEqual("signature_invalid{ES256}", refusal(flipped))

    def test_receipt_type(self) -> None:
        """(3) A receipt is no statement."""
        credentials = FIXTURE.credentials
        wrong = resigned(credentials.statement.envelope, naming.TYPE_RECEIPT, credentials.signers)
        self.assertEqual("wrong_type", refusal(wrong))

    def test_unknown_root(self) -> None:
        """(4) A chain that leads elsewhere is chain_untrusted, or bundle_stale where the bundle is not current."""
        other = Fixture()
        anchors = Anchors(spiffe=other.authority.bundles(), pq=other.pq_authority.bundles())
        envelope = FIXTURE.credentials.statement.envelope
        self.assertEqual("chain_untrusted{classical}", refusal(envelope, anchors=anchors))
        self.assertEqual("bundle_stale", refusal(envelope, anchors=anchors, stale_since=NOW))
        self.assertEqual("ok", refusal(envelope, stale_since=NOW))

    def test_self_issued(self) -> None:
        """(5) With a central issuer named, or by local choice, a self-issued statement is not authorised."""
        envelope = FIXTURE.credentials.statement.envelope
        self.assertEqual("ok", refusal(envelope))
        self.assertEqual("issuer_not_authorised", refusal(envelope, issuers=[MANAGER]))
        self.assertEqual("issuer_not_authorised", refusal(envelope, self_issued=SelfIssued.REFUSE))
        self.assertEqual("ok", refusal(envelope, issuers=[MANAGER], self_issued=SelfIssued.ACCEPT))

    def test_central(self) -> None:
        """(5) The manager of the trust domain may issue by default; its statements are not self-asserted."""
        evidence = FIXTURE.verified_statement(central())
        self.assertFalse(evidence.self_issued)
        self.assertEqual(MANAGER, evidence.issuer)
        self.assertEqual("ok", refusal(central(), issuers=[MANAGER]))
        self.assertEqual("issuer_not_authorised", refusal(central(), issuers=[spiffe_id("/svc/other")]))

    def test_another_workload(self) -> None:
        """Another workload cannot sign a statement about the server, in its own name or in the server's."""
        other_workload = "/ns/web/sa/fe"
        self.assertEqual("issuer_not_authorised", refusal(central(other_workload)))
        self.assertEqual("issuer_mismatch", refusal(central(other_workload, iss=str(FIXTURE.svid.spiffe_id))))
        own = FIXTURE.credentials_of(FIXTURE.client_svid).statement.envelope
        self.assertEqual("subject_mismatch", refusal(own))

    def test_trust_domain(self) -> None:
        """(5) Issuer, subject and claim have the same trust domain."""
        self.assertEqual("trust_domain_mismatch", refusal(changed(svc__trustDomain="other.example.org")))
        foreign = central(sub="spiffe://other.example.org/w", svc__trustDomain="other.example.org")
        self.assertEqual("trust_domain_mismatch", refusal(foreign, issuers=[MANAGER]))

    def test_audience(self) -> None:
        """(6) The audience is exactly the one text."""
        self.assertEqual("audience_mismatch", refusal(changed(aud=naming.AUDIENCE_RECEIPT)))
        self.assertEqual("malformed", refusal(changed(aud=[naming.AUDIENCE_STATEMENT])))

    def test_time(self) -> None:
        """(7) Sixty seconds of leeway on both sides, and not one more."""
        now = int(NOW.timestamp())
        for claims, reason in (
            ({"nbf": now + 60}, "ok"),
            ({"nbf": now + 61}, "not_yet_valid"),
            ({"iat": now + 60}, "ok"),
            ({"iat": now + 61}, "not_yet_valid"),
            ({"iat": now - 900, "exp": now - 60}, "ok"),
            ({"iat": now - 900, "exp": now - 61}, "expired"),
            ({"exp": now}, "ok"),
            ({"exp": now - 1}, "malformed"),
            ({"exp": LAST_SECOND}, "ok"),
            ({"exp": LAST_SECOND + 1}, "malformed"),
            ({"nbf": LAST_SECOND, "exp": LAST_SECOND}, "not_yet_valid"),
            ({"iat": LAST_SECOND, "exp": LAST_SECOND}, "not_yet_valid"),
        ):
            self.assertEqual(reason, refusal(changed(**claims)), claims)

    def test_issued_in_future(self) -> None:
        """The refusal of a time of issue in the future names that time and the present, live and as evidence."""
        ahead = changed(iat=int(NOW.timestamp()) + 61)
        for changes in ({}, {"peer": None, "unbound_ok": True, "at_iat": True}):
            error = assert_refused(self, "not_yet_valid", FIXTURE.verified_statement, ahead, **changes)
            self.assertEqual(
                "the statement was issued at 2026-11-21T00:26:32Z, and it is 2026-11-21T00:25:31Z", str(error)
            )

    def test_binding(self) -> None:
        """(8) The statement is tied to the identity and the key of the connection."""
        envelope = FIXTURE.credentials.statement.envelope
        replica = FIXTURE.authority.svid(FIXTURE.svid.spiffe_id.path)
        self.assertEqual("key_mismatch", refusal(envelope, peer=FIXTURE.peer(replica)))
        self.assertEqual("subject_mismatch", refusal(envelope, peer=FIXTURE.peer(FIXTURE.client_svid)))
        self.assertEqual("transport_unbound", refusal(envelope, peer=None))
        self.assertFalse(FIXTURE.verified_statement(envelope, peer=None, unbound_ok=True).bound)

    def test_self_issued_for_another_key(self) -> None:
        """(8) A workload cannot sign for the key of its own replica."""
        replica = FIXTURE.authority.svid(FIXTURE.svid.spiffe_id.path)
        forged = changed(svc__svid={**self.svid_claims(), "spki-sha256": b64u_encode(spki_sha256(replica.leaf))})
        self.assertEqual("key_mismatch", refusal(forged, peer=FIXTURE.peer(replica)))
        self.assertEqual("key_mismatch", refusal(forged, peer=None, unbound_ok=True))

    def svid_claims(self) -> dict[str, object]:
        svc = FIXTURE.credentials.statement.claims["svc"]
        assert isinstance(svc, dict)
        return dict(svc["svid"])

    def test_expectations(self) -> None:
        """(9) The identity is among those expected, if any are named."""
        envelope = FIXTURE.credentials.statement.envelope
        self.assertEqual("ok", refusal(envelope, expectations=[MANAGER, FIXTURE.svid.spiffe_id]))
        self.assertEqual("identity_unexpected", refusal(envelope, expectations=[MANAGER]))
        others = [MANAGER, spiffe_id("/else")]
        error = self.assertRaises(IdentityUnexpected, FIXTURE.verified_statement, envelope, expectations=others)
        self.assertIn(f"is {FIXTURE.svid.spiffe_id}; expected {MANAGER} or {others[1]}", str(error))

    def test_shape(self) -> None:
        """Every claim of another type is malformed."""
        for claims in (
            {"sub": 1}, {"sub": "spiffe://UPPER/x"}, {"iat": "1"}, {"iat": True}, {"exp": 2**52}, {"nbf": -1},
            {"jti": "short"}, {"svc__svid": None}, {"svc__containers": {}}, {"svc__containers": [1]},
            {"svc__containers": [{"name": "a", "image": "b", "imageDigest": 1, "init": False}]},
            {"svc__labels": {"a": 1}}, {"svc__truncated": "x"}, {"svc__namespace": 5}, {"svc__trustDomain": "A"},
            {"svc__svid": {"x5t#S256": "x"}}, {"exp": ...},
        ):  # fmt: skip
            self.assertEqual("malformed", refusal(changed(**claims)), claims)

    def test_version(self) -> None:
        """Another version is refused; additional members are not."""
        self.assertEqual("unsupported_version", refusal(changed(svc__v=2)))
        self.assertEqual("ok", refusal(changed(svc__later="x", later=[1])))

    def test_at_iat(self) -> None:
        """Evidence is verified at its own time: valid long after its certificates expired, refused live."""
        envelope = FIXTURE.credentials.statement.envelope
        later = NOW + timedelta(days=300)
        changes = {"peer": None, "unbound_ok": True, "now": later}
        self.assertEqual("certificate_not_valid_at_time", refusal(envelope, **changes))
        self.assertEqual("ok", refusal(envelope, at_iat=True, **changes))

    def test_from_the_future(self) -> None:
        """A time of issue after the present does not move the time of the verification."""
        future = {"nbf": int(NOW.timestamp()) + 600, "iat": int(NOW.timestamp()) + 600}
        envelope = changed(**future)
        self.assertEqual("not_yet_valid", refusal(envelope, peer=None, unbound_ok=True, at_iat=True))

    def test_pq_svid(self) -> None:
        """An ML-DSA SVID signs alone and satisfies the profile pq."""
        authority = FIXTURE.pq_authority
        svid = authority.svid("/pq", algorithm="ML-DSA-65")
        statement = issue_statement(svid, WorkloadFacts(), (Signer.from_svid(svid),), NOW, counting_random())
        view = {
            "anchors": Anchors(spiffe=authority.bundles(), pq=BundleSet.of()),
            "peer": verify_svid(svid.chain, authority.bundles(), NOW),
        }
        self.assertTrue(FIXTURE.verified_statement(statement.envelope, profile=Profile.PQ, **view).post_quantum)
        self.assertEqual("hybrid_incomplete", refusal(statement.envelope, **view))


class AnyPayloadTests(SynchronousTestCase):
    """A valid signature does not make a payload valid."""

    @given(
        st.dictionaries(
            st.sampled_from(["iss", "sub", "aud", "iat", "nbf", "exp", "jti", "svc"]),
            st.recursive(
                st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text("ab:/", max_size=8),
                lambda inner: (
                    st.lists(inner, max_size=2)
                    | st.dictionaries(st.sampled_from(["v", "svid", "labels", "trustDomain", "x"]), inner, max_size=3)
                ),
                max_leaves=4,
            ),
            max_size=4,
        )
    )
    def test_any_claims(self, claims: dict[str, object]) -> None:
        """Any claims give evidence or a typed error."""
        self.assertRegex(refusal(changed(**claims)), r"\A[a-z_]+(\{.*\})?\Z")

    @given(st.fixed_dictionaries({}, optional=dict.fromkeys(("iat", "nbf", "exp"), TIMES)), TIMES, st.booleans())
    @settings(deadline=None)
    def test_any_times(self, claims: dict[str, object], now: int, at_iat: bool) -> None:
        """Any times, verified at any time, give evidence or a typed error."""
        moment = datetime.fromtimestamp(min(now, LAST_SECOND - 60), UTC)
        found = refusal(changed(**claims), now=moment, peer=None, unbound_ok=True, at_iat=at_iat)
        allowed = {"ok", "malformed", "not_yet_valid", "expired", "certificate_not_valid_at_time"}
        self.assertIn(found.partition("{")[0], allowed)

    @given(st.binary(max_size=60))
    def test_any_octets(self, octets: bytes) -> None:
        """Any octets instead of an envelope are a typed error."""
        self.assertNotEqual("ok", refusal(octets))
