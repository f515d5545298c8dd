"""Tests of :mod:`svc.notary.access`."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote_from_bytes

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import IdMalformed, NonceMalformed, statement_id
from svc.envelope.profile import Profile
from svc.identity import parse_matcher
from svc.notary.access import (
    NotaryNotFound,
    NotaryRequest,
    NotaryResponse,
    Resource,
    artifact_response,
    authorize_receipt_access,
    check_method,
    is_notary_path,
    iso_duration,
    parse_notary_path,
    pending_response,
    problem,
    problem_response,
    receipt_location,
    receipt_path,
    receipts_path,
    root_response,
    statement_path,
)
from svc.strictjson import loads_object
from tests.notary.artifacts import NONCE, spiffe_id
from tests.refusals import assert_refused

ROOT = b"/.well-known/svc-notary"
ID = statement_id(b"{}")


class ReservedTests(SynchronousTestCase):
    """The prefix is reserved in every spelling."""

    def test_reserved(self) -> None:
        """Dots, slashes, percent-encoding, parameters and backslashes do not lead around it."""
        for path in (
            ROOT, ROOT + b"/", ROOT + b"/v1/x", b"//.well-known//svc-notary", b"/./.well-known/./svc-notary/x",
            b"/a/../.well-known/svc-notary", b"/.well-known/a/../svc-notary", b"/../.well-known/svc-notary",
            b"/%2ewell-known/svc-notary", b"/.well-known%2fsvc-notary", b"/.well-known%5Csvc-notary",
            b"/.well-known\\svc-notary", b"/%252ewell-known/svc-notary", b"/%2e%2e/.well-known/svc%2Dnotary/v1",
            b"/.well-known;a=b/svc-notary;c", b"/x/..;/.well-known/svc-notary", b"/.well-known/svc-notary/../x",
            b"/a/%2e%2e/.well-known/svc-notary", b".well-known/svc-notary",
        ):  # fmt: skip
            self.assertTrue(is_notary_path(path), path)

    def test_not_reserved(self) -> None:
        """Other paths are the application's, also those that only look alike."""
        for path in (
            b"/", b"", b"*", b"/.well-known", b"/.well-known/svc-notary2", b"/.well-known/x/svc-notary", b"/svc-notary",
            b"/a/.well-known/svc-notary", b"/.Well-Known/svc-notary", b"/.well-known/%73vc", b"/%zz", b"/%",
            b"/.well-known/svc-notary%00",
        ):  # fmt: skip
            self.assertFalse(is_notary_path(path), path)

    def test_long_paths_are_cheap(self) -> None:
        """A path that could be decoded thousands of times is decoded a few times only."""
        self.assertFalse(is_notary_path(b"/" + b"%25" * 20000 + b"2e"))

    @given(st.binary(max_size=30))
    def test_below(self, rest: bytes) -> None:
        """Whatever follows the prefix and a slash is reserved, encoded or not."""
        self.assertTrue(is_notary_path(ROOT + b"/" + rest))
        encoded = quote_from_bytes(ROOT + b"/" + rest, safe="").encode()
        self.assertTrue(is_notary_path(b"/" + encoded))

    @given(st.binary(max_size=60), st.lists(st.integers(1, 20), max_size=4))
    def test_any_encoding(self, tail: bytes, positions: list[int]) -> None:
        """Encoding any octets of the prefix changes nothing."""
        octets = [bytes([octet]) for octet in ROOT]
        for position in positions:
            octets[position] = f"%{ROOT[position]:02x}".encode()
        self.assertTrue(is_notary_path(b"".join(octets) + b"/" + tail))

    @given(st.binary(max_size=60))
    def test_any_octets(self, path: bytes) -> None:
        """Any octets are classified, and every path that is served is reserved."""
        found = is_notary_path(path)
        try:
            parse_notary_path(path)
        except EnvelopeError:
            return
        self.assertTrue(found)


class PathTests(SynchronousTestCase):
    """The grammar below the prefix."""

    def test_round_trip(self) -> None:
        """Each path that the notary writes is read back."""
        for path, resource, key in (
            (ROOT.decode(), Resource.ROOT, ""),
            (statement_path("current"), Resource.CURRENT_STATEMENT, ""),
            (statement_path(ID), Resource.STATEMENT, ID),
            (receipt_path(ID), Resource.RECEIPT, ID),
            (receipt_location(NONCE), Resource.RECEIPT_BY_REQUEST, NONCE),
            (receipts_path(), Resource.RECEIPTS, ""),
        ):
            self.assertEqual(NotaryRequest(resource, key), parse_notary_path(path.encode()))

    def test_unknown(self) -> None:
        """Only the canonical spelling is served; all other paths are not found."""
        for path in (
            ROOT + b"/", b"/" + ROOT, ROOT + b"/v1", ROOT + b"/v1/", ROOT + b"/v2/statements/current", b"/",
            ROOT + b"/v1/statements", ROOT + b"/v1/statements/", ROOT + b"/v1/other/x", b"/.well-known/svc%2dnotary",
            b"receipts", ROOT + b"/v1/receipts/", ROOT + b"/receipts",
        ):  # fmt: skip
            self.assertRaises(NotaryNotFound, parse_notary_path, path)

    def test_malformed_keys(self) -> None:
        """Identifiers and nonces must be canonical."""
        for key in (ID + "=", ID[:-1], "current/", "%2e", "Current"):
            self.assertRaises(IdMalformed, parse_notary_path, statement_path(key).encode())
        self.assertRaises(IdMalformed, parse_notary_path, receipt_path("current").encode())
        self.assertRaises(NonceMalformed, parse_notary_path, receipt_location("x").encode())

    def test_methods(self) -> None:
        """GET carries a body, HEAD none; the others are refused with Allow."""
        self.assertTrue(check_method("GET"))
        self.assertFalse(check_method("HEAD"))
        error = assert_refused(self, "method_not_allowed", check_method, "POST")
        answer = problem_response(error)
        self.assertEqual(405, answer.status)
        self.assertIn((b"Allow", b"GET, HEAD"), answer.headers)


class AdmissionTests(SynchronousTestCase):
    """Who may have a receipt."""

    def test_parties(self) -> None:
        """The client and the workload itself get the receipt with its salts."""
        client, server = spiffe_id("/client"), spiffe_id("/server")
        for requester in (client, server):
            access = authorize_receipt_access(requester, client=client, server=server)
            self.assertEqual({"request": {}}, access.permitted({"request": {}}))

    def test_readers(self) -> None:
        """A holder of notary.read gets the receipt without its salts."""
        readers = parse_matcher("spiffe://prod.example.org/audit/*")
        access = authorize_receipt_access(
            spiffe_id("/audit/a"), client=spiffe_id("/client"), server=spiffe_id("/server"), readers=readers
        )
        self.assertIsNone(access.permitted({"request": {}}))

    def test_not_a_reader(self) -> None:
        """Without the grant a third workload of the same trust domain gets nothing."""
        arguments = {"client": spiffe_id("/client"), "server": spiffe_id("/server"), "readers": None}
        self.assertRaises(NotaryNotFound, authorize_receipt_access, spiffe_id("/audit/a"), **arguments)

    def test_others(self) -> None:
        """Everyone else gets the response of a receipt that does not exist."""
        readers = parse_matcher("spiffe://prod.example.org/audit/*")
        for client in (spiffe_id("/client"), None, spiffe_id("/other", "bank.example")):
            error = self.assertRaises(
                NotaryNotFound,
                authorize_receipt_access,
                spiffe_id("/other"),
                client=client,
                server=spiffe_id("/server"),
                readers=readers,
            )
            missing = NotaryNotFound(requester=spiffe_id("/else"))
            self.assertEqual(problem_response(missing), problem_response(error))


class AnswerTests(SynchronousTestCase):
    """The documents of the notary."""

    def document(self, answer: NotaryResponse) -> dict[str, object]:
        return loads_object(answer.body)

    def test_problem(self) -> None:
        """Errors are problem documents with type, code and retryable."""
        status, body = problem("notary_unavailable", detail="the store is full")
        expected = {
            "type": "urn:svc:notary:notary_unavailable",
            "title": "Notary unavailable",
            "status": 503,
            "code": "notary_unavailable",
            "retryable": True,
            "detail": "the store is full",
        }
        self.assertEqual((503, expected), (status, loads_object(body)))

    def test_other_code(self) -> None:
        """Codes of others take their status from the caller and are not retryable by default."""
        status, body = problem("policy_deny", status=403)
        self.assertEqual((403, False), (status, loads_object(body)["retryable"]))

    def test_problem_of_an_error(self) -> None:
        """The response to an error has its reason and sentence; one that must not reveal anything has only its code."""
        answer = problem_response(NonceMalformed(defect="/c"), retry_after=3)
        self.assertEqual(400, answer.status)
        self.assertIn((b"Content-Type", b"application/problem+json"), answer.headers)
        self.assertIn((b"Retry-After", b"3"), answer.headers)
        self.assertIn("/c", str(self.document(answer)["detail"]))
        self.assertNotIn("detail", self.document(problem_response(NotaryNotFound(requester="spiffe://x/y"))))

    def test_pending(self) -> None:
        """A receipt whose exchange runs is 202 with Retry-After."""
        answer = pending_response()
        self.assertEqual((202, "receipt_pending"), (answer.status, self.document(answer)["code"]))
        self.assertIn((b"Retry-After", b"1"), answer.headers)

    def test_artifact(self) -> None:
        """Artifacts are immutable under their identifier, and the current statement is not."""
        answer = artifact_response(ID, b"{}")
        self.assertEqual(
            (
                (b"Content-Type", b"application/jose+json"),
                (b"ETag", f'"{ID}"'.encode()),
                (b"Cache-Control", b"private, immutable"),
            ),
            answer.headers,
        )
        self.assertIn((b"Cache-Control", b"private, no-cache"), artifact_response(ID, b"{}", immutable=False).headers)
        batched = artifact_response(ID, b"{}", media_type=naming.MEDIA_TYPE_BATCHED_RECEIPT)
        self.assertEqual((b"Content-Type", b"application/vnd.svc.receipt+json"), batched.headers[0])

    def test_root(self) -> None:
        """The root document names the issuer, the algorithms and the endpoints that are served, and no others."""
        arguments = {
            "issuer": spiffe_id("/w"),
            "profile": Profile.HYBRID,
            "algorithms": ["ES256", "ML-DSA-65"],
            "limits": {"maxHead": 65536},
        }
        served = self.document(root_response(receipts=True, retention=timedelta(days=90), **arguments))  # type: ignore[arg-type]
        members = ["v", "issuer", "profiles", "algs", "endpoints", "limits", "receiptForms", "retention"]
        self.assertEqual(members, list(served))
        self.assertEqual(["application/jose+json", "application/vnd.svc.receipt+json"], served["receiptForms"])
        self.assertEqual((1, ["hybrid"], "P90D"), (served["v"], served["profiles"], served["retention"]))
        self.assertEqual(5, len(dict(served["endpoints"])))  # type: ignore[call-overload]
        fewer = self.document(root_response(receipts=False, retention=None, **arguments))  # type: ignore[arg-type]
        self.assertNotIn("retention", fewer)
        self.assertNotIn("receipt", str(fewer))

    def test_durations(self) -> None:
        """Durations are ISO 8601 in days and time."""
        for duration, text in (
            (timedelta(days=90), "P90D"),
            (timedelta(hours=12), "PT12H"),
            (timedelta(days=1, minutes=30, seconds=5), "P1DT30M5S"),
            (timedelta(0), "P0D"),
        ):
            self.assertEqual(text, iso_duration(duration))
