"""Tests of svc curl as a person or a program sees it: streams, exit status, the JSON object, saved evidence."""

from __future__ import annotations

import base64
import io
import json
import os
import stat

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.globals import Invocation
from svc.cli.main import main
from svc.cli.output import Console
from svc.identity.archive import BundleArchive
from svc.identity.pqbundle import PqBundles
from svc.notary.ids import printed_id
from svc.testing.ca import TestAuthority
from svc.wire.fields import Field
from tests.cli.doubles import (
    BODY,
    CLIENT_ID,
    NOW,
    SERVER_ID,
    URL,
    MemoryEngine,
    MemoryMeans,
    NotaryServer,
    Ran,
    right_world,
    run_svc,
)

UNPINNED = f"svc: server identity not pinned: {SERVER_ID}\n"
PINNED = ("--expect-id", SERVER_ID)


def curl(*words: str, server: NotaryServer | None = None, secure: bool = True, **environ: str) -> Ran:
    """Run svc curl against a server in memory."""
    means = MemoryMeans(server or NotaryServer(right_world()), secure=secure)
    url = () if any("://" in word and word.startswith("http") for word in words) else (URL,)
    return run_svc("curl", *words, *url, environ=environ, means=means)


class StreamTests(SynchronousTestCase):
    """What goes to which stream."""

    def test_body_alone(self) -> None:
        """The body goes to standard output, octet for octet, and the remark on the identity to standard error."""
        server = NotaryServer(right_world(), body=b"\x00\xff\x1b[31m")
        ran = curl(server=server)
        self.assertEqual((ran.status, ran.stdout, ran.stderr), (0, b"\x00\xff\x1b[31m", UNPINNED))

    def test_pinned(self) -> None:
        """A pinned identity needs no remark, by flag or variable."""
        self.assertEqual(curl(*PINNED).stderr, "")
        self.assertEqual(curl(SVC_EXPECT_ID=SERVER_ID).stderr, "")
        self.assertEqual(curl("--require-pinned-id", *PINNED).status, 0)

    def test_no_warnings(self) -> None:
        """SVC_NO_WARNINGS silences remarks."""
        self.assertEqual(curl(SVC_NO_WARNINGS="1").stderr, "")

    def test_headers(self) -> None:
        """-i prints status line and headers before the body, and names the verified identity on standard error."""
        ran = curl("-i", *PINNED)
        head, _empty, body = ran.stdout.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 Told So\r\nContent-Type: application/json\r\n"))
        self.assertIn(b"Svc-Workload-ID: ", head)
        self.assertEqual(body, BODY)
        self.assertEqual(ran.stderr, f"svc: verified server identity: {SERVER_ID}\n")

    def test_verbose(self) -> None:
        """-v 0 names the verified identity, too."""
        self.assertEqual(curl("-v", "0", *PINNED).stderr, f"svc: verified server identity: {SERVER_ID}\n")

    def test_silent(self) -> None:
        """-s suppresses the body only."""
        ran = curl("-is", *PINNED)
        self.assertTrue(ran.stdout.startswith(b"HTTP/1.1 200"))
        self.assertTrue(ran.stdout.endswith(b"\r\n\r\n"))
        self.assertEqual(curl("-s").stdout, b"")
        self.assertIn("Workload Identity Statement", curl("-s", "--print-workload").stderr)

    def test_escaped_on_a_terminal(self) -> None:
        """Headers cannot move the cursor of a terminal; into a file they go as they came."""

        class Terminal(io.BytesIO):
            def isatty(self) -> bool:
                return True

        server = NotaryServer(right_world(), fields=[(b"X-Evil", b"a\xc2\x9b2Jb\xff")])
        for stdout, expected in ((Terminal(), b"X-Evil: a\\x9b2Jb\\xff"), (io.BytesIO(), b"X-Evil: a\xc2\x9b2Jb\xff")):
            console = Console(stdout, io.BytesIO(), {})
            invocation = Invocation(console, {}, MemoryEngine(MemoryMeans(server)))
            self.assertEqual(main(["curl", "-i", URL], invocation=invocation), 0)
            self.assertIn(expected, stdout.getvalue())

    def test_reports(self) -> None:
        """Reports of statement and receipt go to standard error, with the fields of the specification."""
        ran = curl("-n", "signRequest", "--print-workload", "--print-receipt", "-d", '{"a": 1}', *PINNED)
        self.assertEqual((ran.status, ran.stdout), (0, BODY))
        for label in ("Trust Domain:", "SPIFFE ID:", "Namespace:", "Pod Name:", "Raw Claims (JSON)", "self-asserted"):
            self.assertIn(label, ran.stderr)
        for label in (
            "Signed Request Receipt",
            "Audience",
            "Method: POST",
            "Status Code: 200",
            '{"a": 1}',
            '{"ok":true}',
        ):
            self.assertIn(label, ran.stderr)

    def test_plain_http(self) -> None:
        """Over plain http the statement is marked as not bound."""
        ran = curl("--validate=false", "--print-workload", "http://api.test/", secure=False)
        self.assertEqual((ran.status, ran.stdout), (0, BODY))
        self.assertIn("svc: the statement is not bound to the connection, which is plain http\n", ran.stderr)
        self.assertIn("Bound To Connection: no", ran.stderr)

    def test_classical_warns(self) -> None:
        """The profile classical warns that nothing is quantum-safe."""
        ran = curl("--profile", "classical", *PINNED)
        self.assertEqual(ran.status, 0)
        self.assertEqual(len(ran.stderr.splitlines()), 1)
        self.assertIn("not quantum-safe", ran.stderr)


class FailureTests(SynchronousTestCase):
    """What a failed verification leaves behind."""

    def test_nothing_is_shown(self) -> None:
        """Of an answer that did not pass no octet reaches standard output, headers neither."""
        ran = curl("-i", "--inject-faults", "bad-workload-statement", *PINNED)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        lines = ran.stderr.splitlines()
        self.assertEqual(lines[0], f"svc: verified server identity: {SERVER_ID}")
        self.assertEqual(lines[1], "svc: the ES256 signature does not verify (signature_invalid{ES256})")
        self.assertEqual(lines[3], "     the answer, 200 Told So, is not shown because it was not verified")

    def test_missing(self) -> None:
        """The sentence, the reason and the hint stand in this order."""
        ran = curl("--inject-faults=no-workload-statement", *PINNED)
        self.assertEqual(
            ran.stderr,
            "svc: the response carries no workload statement (statement_missing)\n"
            "     is the service behind svc-proxy with notarization workload or higher?\n"
            "     the answer, 200 Told So, is not shown because it was not verified\n",
        )

    def test_streams_without_validation(self) -> None:
        """Without validation the body streams, and a bad statement still fails afterwards."""
        ran = curl("-i", "--validate=false", "--inject-faults=bad-workload-statement", *PINNED)
        self.assertEqual(ran.status, 1)
        self.assertTrue(ran.stdout.endswith(b"\r\n\r\n" + BODY))
        self.assertNotIn("not shown", ran.stderr)

    def test_plain_statuses(self) -> None:
        """Any error is status 1, an HTTP error alone is none."""
        self.assertEqual(curl(server=NotaryServer(right_world(), status=500)).status, 0)
        self.assertEqual(curl(server=NotaryServer(right_world(), statement_status=404)).status, 1)

    def test_detailed_statuses(self) -> None:
        """Detailed exit codes tell network, statement, receipt and HTTP errors apart."""
        for flags, environ in ((("--detailed-exit-codes",), {}), ((), {"SVC_DETAILED_EXIT_CODES": "true"})):
            signed = ("-n", "signRequest", *flags)
            self.assertEqual(curl(*signed, **environ).status, 0)
            self.assertEqual(curl(*signed, server=NotaryServer(right_world(), truncate=True), **environ).status, 1)
            self.assertEqual(curl("--inject-faults=no-workload-statement", *signed, **environ).status, 2)
            missing = NotaryServer(right_world(), receipt_status=404)
            self.assertEqual(curl(*signed, server=missing, **environ).status, 3)
            self.assertEqual(curl(*signed, server=NotaryServer(right_world(), status=404), **environ).status, 4)
            both = NotaryServer(right_world(), statement_status=500, receipt_status=404, status=500)
            self.assertEqual(curl(*signed, server=both, **environ).status, 2)

    def test_flag_over_variable(self) -> None:
        """--detailed-exit-codes=false wins over the variable."""
        ran = curl(
            "--detailed-exit-codes=false", "--inject-faults=no-workload-statement", SVC_DETAILED_EXIT_CODES="true"
        )
        self.assertEqual(ran.status, 1)

    def test_max_body(self) -> None:
        """--max-body bounds what is kept back."""
        ran = curl("--max-body", "4B")
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("larger than 4 octets (body_too_large)", ran.stderr)

    def test_max_time(self) -> None:
        """--max-time ends an exchange that takes longer."""
        ran = curl("-n", "signRequest", "--max-time", "2s", server=NotaryServer(right_world(), pending=100))
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("not complete within 2 s: the receipt had not come (max_time)", ran.stderr)

    def test_http_sends_nothing(self) -> None:
        """Plain http with validation fails before anything is sent."""
        server = NotaryServer(right_world())
        ran = curl("http://api.test/", server=server, secure=False)
        self.assertEqual((ran.status, server.seen), (1, []))
        self.assertIn("(transport_unbound)", ran.stderr)


def proxy_answer(
    status: int = 403, code: str = "policy_deny", level: str = "", changes: dict[str, object] | None = None
) -> NotaryServer:
    """A proxy that answers in place of its application; its body is a problem document with members changed."""
    document = {
        "type": f"urn:svc:notary:{code}",
        "title": "Request refused",
        "status": status,
        "code": code,
        "retryable": status == 503,
        **(changes or {}),
    }

    def own(fields: list[Field]) -> list[Field]:
        kept = [pair for pair in fields if pair[0] in (b"Svc-Workload-ID", b"Content-Length")]
        named = [(b"Svc-Notarization-Level", level.encode())] if level else []
        return [(b"Content-Type", b"application/problem+json"), *kept, *named]

    return NotaryServer(right_world(), status=status, body=json.dumps(document).encode(), edit_head=own)


class ProxyAnswerTests(SynchronousTestCase):
    """A proxy's own answer names the cause of a failure, and decides nothing."""

    def test_policy(self) -> None:
        """Sentence, hint and the mark that nothing backs it, in place of a hint about the listener's level."""
        for level in ("logRequest", "signRequest"):
            ran = curl("-n", level, *PINNED, server=proxy_answer())
            self.assertEqual((ran.status, ran.stdout), (1, b""))
            self.assertEqual(
                ran.stderr,
                f"svc: the level {level} was asked for, but the proxy answered 403 Told So: policy_deny"
                " (level_mismatch)\n"
                f"     its policy does not admit {CLIENT_ID}: admit it in the section policy"
                f" of the proxy of {SERVER_ID}\n"
                f"     that cause is an unverified claim of {SERVER_ID}, the peer that TLS verified\n",
            )

    def test_retryable(self) -> None:
        """What may pass says so, whether the answer names a weaker level or none."""
        for level in ("", "workload"):
            ran = curl("-n", "signRequest", *PINNED, server=proxy_answer(503, "notary_unavailable", level))
            self.assertIn("answered 503 Told So: notary_unavailable (level_mismatch)\n", ran.stderr)
            self.assertIn("is its disk full?", ran.stderr)
            self.assertIn("this may pass: ask again in a moment\n", ran.stderr)
            self.assertNotIn("maxNotarization", ran.stderr)

    def test_exit_status(self) -> None:
        """The exit status is that of the level that was not given."""
        ran = curl("-n", "signRequest", "--detailed-exit-codes", *PINNED, server=proxy_answer())
        self.assertEqual(ran.status, 3)

    def test_json(self) -> None:
        """The object holds the claim, marked as not verified, beside a response that is null."""
        ran = curl(
            "-n",
            "signRequest",
            "-o",
            "json",
            *PINNED,
            server=proxy_answer(429, "notary_rate", changes={"retryable": True}),
        )
        found = json.loads(ran.stdout)
        self.assertEqual(list(found), ["response", "workload", "receipt", "verification", "problem"])
        self.assertEqual((found["response"], found["verification"]["detail_reason"]), (None, "level_mismatch"))
        expected = {"status": 429, "code": "notary_rate", "retryable": True, "verified": False}
        self.assertEqual(found["problem"], expected)

    def test_level_given(self) -> None:
        """Where the level is given the answer passes with its body, whoever wrote it."""
        server = proxy_answer(502, "upstream_unreachable", "workload")
        ran = curl(*PINNED, server=server)
        self.assertEqual((ran.status, ran.stdout, ran.stderr), (0, server.body, ""))
        found = json.loads(curl("-o", "json", *PINNED, server=server).stdout)
        self.assertNotIn("problem", found)
        self.assertEqual(found["response"]["status"], 502)

    def test_no_statement(self) -> None:
        """A proxy without credentials gives no statement, and says why."""
        server = proxy_answer(503, "notary_unavailable")
        server.edit_head = lambda _fields: [
            (b"Content-Type", b"application/problem+json"),
            (b"Content-Length", b"%d" % len(server.body)),
        ]
        ran = curl(*PINNED, server=server)
        self.assertIn("no workload statement: the proxy answered 503 Told So: notary_unavailable", ran.stderr)
        self.assertIn("(statement_missing)\n", ran.stderr)

    def test_not_for_injected_faults(self) -> None:
        """A fault that was injected is its own cause."""
        ran = curl("--inject-faults=no-workload-statement", *PINNED, server=proxy_answer())
        self.assertIn("the response carries no workload statement (statement_missing)\n", ran.stderr)

    def test_no_document(self) -> None:
        """What is not exactly a problem document names no cause; of its text nothing is shown."""
        refused = (
            proxy_answer(code="x" * 65),
            proxy_answer(code="Policy\x1b[2J"),
            proxy_answer(changes={"status": 503}),
            proxy_answer(changes={"status": True}),
            proxy_answer(changes={"type": "about:blank"}),
            proxy_answer(changes={"code": 7}),
            proxy_answer(changes={"title": "x" * 65536}),
            proxy_answer(status=200),
        )
        for server in refused:
            ran = curl("-n", "signRequest", *PINNED, server=server)
            self.assertIn("the answer names no notarization level (level_mismatch)\n", ran.stderr)
            self.assertNotIn("unverified claim", ran.stderr)
            self.assertEqual((ran.status, ran.stdout), (1, b""))

    def test_unknown_code(self) -> None:
        """A code that nobody knows is named, and points to the log."""
        ran = curl("-n", "signRequest", *PINNED, server=proxy_answer(418, "tea_pot"))
        self.assertIn("answered 418 Told So: tea_pot (level_mismatch)\n", ran.stderr)
        self.assertIn(f"look for tea_pot in the log of the proxy of {SERVER_ID}\n", ran.stderr)


class JsonTests(SynchronousTestCase):
    """The one object of -o json."""

    def test_success(self) -> None:
        """Response, workload, receipt and verification stand in one object."""
        ran = curl("-n", "signRequest", "-o", "json", *PINNED)
        found = json.loads(ran.stdout)
        self.assertEqual(list(found), ["response", "workload", "receipt", "verification"])
        self.assertEqual((found["response"]["status"], found["response"]["body"]["text"]), (200, BODY.decode()))
        self.assertEqual(found["workload"]["spiffeID"], SERVER_ID)
        self.assertEqual(found["workload"]["claims"]["sub"], SERVER_ID)
        self.assertEqual(found["receipt"]["claims"]["svc"]["request"]["method"], "GET")
        expected = {"ok": True, "detail_reason": None, "postQuantum": True, "identityPinned": True, "bound": True}
        self.assertEqual({name: found["verification"][name] for name in expected}, expected)
        self.assertEqual(found["verification"]["serverIdentity"], SERVER_ID)
        self.assertEqual(ran.stdout.count(b"\n"), 1)

    def test_not_pinned(self) -> None:
        """An identity that was not pinned is marked so."""
        self.assertIs(json.loads(curl("-o", "json").stdout)["verification"]["identityPinned"], False)

    def test_failure(self) -> None:
        """Of an answer that did not pass the object holds the reason and nothing of the answer."""
        ran = curl("-o", "json", "--inject-faults=bad-workload-statement", server=NotaryServer(right_world()))
        found = json.loads(ran.stdout)
        self.assertEqual(ran.status, 1)
        self.assertEqual((found["response"], found["workload"], found["receipt"]), (None, None, None))
        verification = found["verification"]
        self.assertEqual((verification["ok"], verification["detail_reason"]), (False, "signature_invalid{ES256}"))
        self.assertNotIn(BODY, ran.stdout)

    def test_network_failure(self) -> None:
        """The object is printed where there was no answer at all."""
        ran = curl("-o", "json", "--max-time", "1s", "-n", "signRequest", server=NotaryServer(right_world(), pending=9))
        self.assertEqual(json.loads(ran.stdout)["verification"]["detail_reason"], "max_time")

    def test_nothing_verified(self) -> None:
        """Where nothing was verified ok is neither true nor false."""
        ran = curl("-o", "json", "--validate=false", "--inject-faults=no-workload-statement")
        found = json.loads(ran.stdout)
        self.assertEqual((ran.status, found["verification"]["ok"]), (0, None))
        self.assertEqual(found["response"]["body"]["text"], BODY.decode())

    def test_binary(self) -> None:
        """A body that is no text is base64, in one piece or many; a silent one is left out."""
        for size in (1, 3 * 64 * 1024, 700_000, 1_100_000):
            body = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
            found = json.loads(curl("-o", "json", server=NotaryServer(right_world(), body=body)).stdout)
            self.assertEqual(base64.b64decode(found["response"]["body"]["base64"], validate=True), body)
        found = json.loads(curl("-so", "json").stdout)
        self.assertEqual(set(found["response"]["body"]), {"size", "sha-256"})

    def test_body_that_looks_like_the_place(self) -> None:
        """A body, header or claim cannot take the place that the body is written to."""
        server = NotaryServer(right_world(), body=b'\x00body\x00","x":"', fields=[(b"X-Place", b"u0000body")])
        found = json.loads(curl("-o", "json", server=server).stdout)
        self.assertEqual(found["response"]["body"]["text"], '\x00body\x00","x":"')


class EvidenceTests(SynchronousTestCase):
    """--save-evidence and svc verify."""

    def setUp(self) -> None:
        self.folder = self.mktemp()
        os.makedirs(self.folder, mode=0o700)
        os.chmod(self.folder, 0o700)
        self.path = os.path.join(self.folder, "evidence.json")

    def write(self, name: str, data: bytes) -> str:
        path = os.path.join(self.folder, name)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0o600)
        return path

    def anchors(self) -> tuple[str, ...]:
        world = right_world()
        roots = self.write("roots.pem", world.authority.certificate.public_bytes(Encoding.PEM))
        pq = self.write("pq.json", PqBundles().with_bundle(world.pq_authority.bundle()).serialize())
        return ("--trust-bundle", roots, "--trust-domain", "example.org", "--pq-bundle", pq)

    def test_saved_and_verified(self) -> None:
        """What was saved is verified offline, with the remark on its time."""
        ran = curl("-n", "signRequest", "--save-evidence", self.path, "-d", "hello", *PINNED)
        self.assertEqual((ran.status, ran.stdout, ran.stderr), (0, BODY, ""))
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(os.listdir(self.folder), ["evidence.json"])
        ran = run_svc("verify", *self.anchors(), self.path)
        self.assertEqual(
            ran.stderr, "svc: time asserted; any holder of the keys, even after expiry, could have made this\n"
        )
        identifier = printed_id(right_world().generation.statement.id)
        self.assertEqual(ran.status, 0)
        self.assertTrue(ran.stdout.decode().startswith(f"statement {identifier}: verified, {SERVER_ID}\nreceipt "))

    def test_verify_json_and_reports(self) -> None:
        """svc verify prints one object with its time marked as asserted, and the reports on demand."""
        curl("-n", "signRequest", "--save-evidence", self.path, "-d", "hello")
        words = ("verify", *self.anchors(), "-o", "json", "--print-workload", "--print-receipt", self.path)
        ran = run_svc(*words)
        found = json.loads(ran.stdout)
        expected = {"ok": True, "detail_reason": None, "postQuantum": True, "time": "asserted", "profile": "hybrid"}
        self.assertEqual(found["verification"], expected)
        self.assertIn("Workload Identity Statement", ran.stderr)
        self.assertIn("hello", ran.stderr)

    def test_statement_alone(self) -> None:
        """At level workload the evidence is the statement."""
        curl("--save-evidence", self.path)
        ran = run_svc("verify", *self.anchors(), self.path)
        self.assertEqual((ran.status, ran.stdout.decode().splitlines()[1]), (0, "receipt: none in this file"))

    def test_refused(self) -> None:
        """Evidence that does not hold fails with its reason, in JSON too."""
        curl("-n", "signRequest", "--save-evidence", self.path)
        for words, reason in (
            (("--require-trusted-time",), "time_unproven"),
            (("--expect-id", "spiffe://example.org/other"), "identity_unexpected"),
            (("--issuer", "spiffe://example.org/svc/manager"), "issuer_not_authorised"),
        ):
            ran = run_svc("verify", *self.anchors(), *words, "-o", "json", self.path)
            self.assertEqual((ran.status, json.loads(ran.stdout)["verification"]["detail_reason"]), (1, reason))
            self.assertIn(f"({reason})", ran.stderr)

    def test_no_anchor(self) -> None:
        """Without anchors nothing is judged; none are taken from the file, nor from post-quantum roots alone."""
        curl("-n", "signRequest", "--save-evidence", self.path)
        for words in ((), self.anchors()[4:]):
            ran = run_svc("verify", *words, self.path)
            self.assertEqual((ran.status, ran.stdout), (1, b""))
            self.assertIn("(no_anchor)", ran.stderr)
            self.assertIn("--trust-bundle", ran.stderr)

    def test_pq_anchor_missing(self) -> None:
        """With SPIFFE roots alone the profile hybrid is not satisfied, and classical is, with a warning."""
        curl("-n", "signRequest", "--save-evidence", self.path)
        ran = run_svc("verify", *self.anchors()[:4], self.path)
        self.assertIn("(trust_domain_unknown)", ran.stderr)
        ran = run_svc("verify", *self.anchors()[:4], "--profile", "classical", self.path)
        self.assertEqual(ran.status, 0)
        self.assertIn("not quantum-safe", ran.stderr)

    def test_foreign_anchor(self) -> None:
        """Roots of another authority do not verify it."""
        curl("--save-evidence", self.path)
        other = TestAuthority("example.org", now=NOW)
        path = self.write("other.pem", other.certificate.public_bytes(Encoding.PEM))
        ran = run_svc("verify", "--trust-bundle", path, *self.anchors()[2:], self.path)
        self.assertIn("(chain_untrusted{classical})", ran.stderr)
        self.assertIn(f"     judged with the SPIFFE roots from {path}; post-quantum roots from ", ran.stderr)

    def test_bundle_file_wrong(self) -> None:
        """A file that is missing, and one that does not say whose roots it holds, are told apart from one refused."""
        curl("--save-evidence", self.path)
        ran = run_svc("verify", "--trust-bundle", "/tmp/no/such.pem", *self.anchors()[2:], self.path)
        self.assertIn("/tmp/no/such.pem cannot be read: no such file or directory (file_unreadable)", ran.stderr)
        ran = run_svc("verify", *self.anchors()[:2], self.path)
        self.assertIn("does not say whose roots it holds (bundle_needs_trust_domain)", ran.stderr)
        self.assertIn("--trust-domain", ran.stderr)

    def test_archive(self) -> None:
        """A bundle archive gives SPIFFE and post-quantum roots at once."""
        curl("-n", "signRequest", "--save-evidence", self.path)
        world = right_world()
        observed = BundleArchive().observe(world.authority.bundles(), NOW, pq=world.pq_authority.bundles())
        archive = self.write("archive.json", observed.serialize())
        self.assertEqual(run_svc("verify", "--trust-bundle", archive, self.path).status, 0)
        twice = run_svc("verify", "--trust-bundle", archive, "--trust-bundle", archive, self.path)
        self.assertIn("another file holds the roots of example.org", twice.stderr)

    def test_bundle_writable_by_others(self) -> None:
        """A bundle that others may write is not used."""
        curl("--save-evidence", self.path)
        words = self.anchors()
        os.chmod(words[1], 0o666)
        ran = run_svc("verify", *words, self.path)
        self.assertIn("writable by others (file_refused)", ran.stderr)

    def test_never_overwritten(self) -> None:
        """A file that exists is refused before anything is sent."""
        with open(self.path, "w") as file:
            file.write("precious")
        server = NotaryServer(right_world())
        ran = curl("--save-evidence", self.path, server=server)
        self.assertEqual((ran.status, server.seen), (1, []))
        self.assertIn("(file_exists)", ran.stderr)
        with open(self.path) as file:
            self.assertEqual(file.read(), "precious")

    def test_nothing_saved_on_failure(self) -> None:
        """What did not pass is no evidence."""
        curl("--save-evidence", self.path, "--inject-faults=bad-workload-statement")
        self.assertEqual(os.listdir(self.folder), [])

    def test_large_body_is_left_out(self) -> None:
        """A body beyond the limit of the format is left out of the file, which still verifies."""
        server = NotaryServer(right_world(), body=b"x" * (1024 * 1024 + 1))
        curl("-n", "signRequest", "--save-evidence", self.path, server=server)
        with open(self.path) as file:
            self.assertNotIn("response", json.load(file))
        self.assertEqual(run_svc("verify", *self.anchors(), self.path).status, 0)

    def test_malformed_file(self) -> None:
        """What is no evidence file is refused by name."""
        ran = run_svc("verify", *self.anchors(), self.write("x.json", b"{}"))
        self.assertEqual((ran.status, ran.stderr.count("malformed")), (1, 2))
