"""Tests of svc curl as a person or a program sees it: streams, exit status, the JSON object, saved evidence."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import os
import re
import stat
from typing import Any

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.cli.curl.command import CURL_FLAGS
from svc.cli.globals import Invocation
from svc.cli.main import main
from svc.cli.output import Console
from svc.envelope.envelope import Envelope
from svc.envelope.ids import parse_artifact_id, printed_id
from svc.identity.archive import BundleArchive
from svc.identity.pqbundle import PqBundles
from svc.notary.access import receipt_path, statement_path
from svc.notary.exchange import BodySummary
from svc.reports.account import Verdict
from svc.strictjson import b64u_encode, dumps, loads_object
from svc.testing.ca import TestAuthority
from svc.wire.fields import Field
from tests.cli.doubles import (
    BODY,
    CLIENT_ID,
    NOW,
    SERVER_ID,
    URL,
    MemoryContext,
    NotaryServer,
    Ran,
    default_world,
    run_svc,
)
from tests.notary.artifacts import resigned

UNPINNED = f"svc: server identity not pinned: {SERVER_ID}\n"
PINNED = ("--expect-id", SERVER_ID)


def curl(*words: str, server: NotaryServer | None = None, secure: bool = True, **environ: str) -> Ran:
    """Run svc curl against a server in memory."""
    context = MemoryContext(server or NotaryServer(default_world()), secure=secure)
    url = () if any("://" in word and word.startswith("http") for word in words) else (URL,)
    return run_svc("curl", *words, *url, environ=environ, context=context)


class StreamTests(SynchronousTestCase):
    """What goes to which stream."""

    def test_body_alone(self) -> None:
        """The body goes to standard output unchanged, and the warning on the identity to standard error."""
        server = NotaryServer(default_world(), body=b"\x00\xff\x1b[31m")
        ran = curl(server=server)
        self.assertEqual((ran.status, ran.stdout, ran.stderr), (0, b"\x00\xff\x1b[31m", UNPINNED))

    def test_pinned(self) -> None:
        """A pinned identity gives no warning, by flag or variable."""
        self.assertEqual(curl(*PINNED).stderr, "")
        self.assertEqual(curl(SVC_EXPECT_ID=SERVER_ID).stderr, "")
        self.assertEqual(curl("--require-pinned-id", *PINNED).status, 0)

    def test_no_warnings(self) -> None:
        """SVC_NO_WARNINGS silences warnings."""
        self.assertEqual(curl(SVC_NO_WARNINGS="1").stderr, "")

    def test_headers(self) -> None:
        """-i prints status line and headers before the body, and names the verified identity on standard error."""
        ran = curl("-i", *PINNED)
        head, _empty, body = ran.stdout.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 200 Any Phrase\r\nContent-Type: application/json\r\n"))
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
        """Headers cannot move the cursor of a terminal; into a file they go unchanged."""

        class Terminal(io.BytesIO):
            def isatty(self) -> bool:
                return True

        server = NotaryServer(default_world(), fields=[(b"X-Evil", b"a\xc2\x9b2Jb\xff")])
        for stdout, expected in ((Terminal(), b"X-Evil: a\\x9b2Jb\\xff"), (io.BytesIO(), b"X-Evil: a\xc2\x9b2Jb\xff")):
            console = Console(stdout, io.BytesIO(), {})
            invocation = Invocation(console, {}, run_exchange=MemoryContext(server).run)
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

    def test_printed_identifiers_are_accepted(self) -> None:
        """Each identifier of the reports can be pasted where one is taken."""
        server = NotaryServer(default_world())
        words = ("-n", "signRequest", "--print-workload", "--print-receipt")
        report = curl(*words, *PINNED, server=server).stderr

        def printed(label: str) -> str:
            found = re.search(rf"^ *{label}:? (\S+)", report, re.MULTILINE)
            assert found is not None, label
            return found[1]

        for label in ("SPIFFE ID", "Issuer", "Server"):
            self.assertEqual(curl("--expect-id", printed(label)).status, 0)
        self.assertEqual(curl("--issuer", printed("Issuer")).status, 0)
        for label, path_of in (
            ("Workload Identity Statement", statement_path),
            ("Workload Statement ID", statement_path),
            ("Signed Request Receipt", receipt_path),
        ):
            curl(f"https://api.test{path_of(printed(label))}", *PINNED, server=server)
            asked = [head.target.decode() for head in server.seen if head.target.startswith(path_of("").encode())][-1]
            self.assertEqual(asked, path_of(parse_artifact_id(asked.removeprefix(path_of("")))))
            self.assertEqual(printed_id(asked.removeprefix(path_of(""))), printed(label))

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
    """The output of a failed verification."""

    def test_nothing_is_shown(self) -> None:
        """Nothing of a response that fails the verification reaches standard output, headers included."""
        ran = curl("-i", "--inject-faults", "bad-workload-statement", *PINNED)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        lines = ran.stderr.splitlines()
        self.assertEqual(lines[0], f"svc: verified server identity: {SERVER_ID}")
        self.assertEqual(lines[1], "svc: the ES256 signature does not verify (signature_invalid{ES256})")
        self.assertEqual(lines[3], "     the answer, 200 Any Phrase, is not shown because it was not verified")

    def test_missing(self) -> None:
        """The sentence, the reason and the hint are printed in this order."""
        ran = curl("--inject-faults=no-workload-statement", *PINNED)
        self.assertEqual(
            ran.stderr,
            "svc: the response carries no workload statement (statement_missing)\n"
            "     is the service behind svc-proxy with notarization workload or higher?\n"
            "     the answer, 200 Any Phrase, is not shown because it was not verified\n",
        )

    def test_streams_without_validation(self) -> None:
        """Without validation the body streams, and a bad statement still fails afterwards."""
        ran = curl("-i", "--validate=false", "--inject-faults=bad-workload-statement", *PINNED)
        self.assertEqual(ran.status, 1)
        self.assertTrue(ran.stdout.endswith(b"\r\n\r\n" + BODY))
        self.assertNotIn("not shown", ran.stderr)

    def test_plain_statuses(self) -> None:
        """Any error is status 1, an HTTP error alone is none."""
        self.assertEqual(curl(server=NotaryServer(default_world(), status=500)).status, 0)
        self.assertEqual(curl(server=NotaryServer(default_world(), statement_status=404)).status, 1)

    def test_detailed_statuses(self) -> None:
        """Detailed exit codes distinguish network, statement, receipt and HTTP errors."""
        cases: list[tuple[tuple[str, ...], dict[str, Any]]] = [
            (("--detailed-exit-codes",), {}),
            ((), {"SVC_DETAILED_EXIT_CODES": "true"}),
        ]
        for flags, environ in cases:
            signed = ("-n", "signRequest", *flags)
            self.assertEqual(curl(*signed, **environ).status, 0)
            self.assertEqual(curl(*signed, server=NotaryServer(default_world(), truncate=True), **environ).status, 1)
            self.assertEqual(curl("--inject-faults=no-workload-statement", *signed, **environ).status, 2)
            missing = NotaryServer(default_world(), receipt_status=404)
            self.assertEqual(curl(*signed, server=missing, **environ).status, 3)
            self.assertEqual(curl(*signed, server=NotaryServer(default_world(), status=404), **environ).status, 4)
            both = NotaryServer(default_world(), statement_status=500, receipt_status=404, status=500)
            self.assertEqual(curl(*signed, server=both, **environ).status, 2)

    def test_flag_over_variable(self) -> None:
        """--detailed-exit-codes=false wins over the variable."""
        ran = curl(
            "--detailed-exit-codes=false", "--inject-faults=no-workload-statement", SVC_DETAILED_EXIT_CODES="true"
        )
        self.assertEqual(ran.status, 1)

    def test_max_body(self) -> None:
        """--max-body limits the body that is kept back."""
        ran = curl("--max-body", "4B")
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("larger than 4 octets (body_too_large)", ran.stderr)

    def test_max_time(self) -> None:
        """--max-time ends an exchange that takes longer."""
        ran = curl("-n", "signRequest", "--max-time", "2s", server=NotaryServer(default_world(), pending=100))
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("not complete within 2 s: the receipt had not come (max_time)", ran.stderr)

    def test_max_time_cancels(self) -> None:
        """At the limit the exchange is cancelled and its connection closed; no timer is left, reached or not."""
        for pending, seconds in ((0, 0.0), (100, 2.0)):
            context = MemoryContext(NotaryServer(default_world(), pending=pending))
            run_svc("curl", "-n", "signRequest", "--max-time", "2s", URL, context=context)
            self.assertEqual((context.clock.seconds(), context.clock.getDelayedCalls()), (seconds, []))
            self.assertTrue(all(transport.lost for transport in context.memory_dialer.transports))

    def test_max_time_in_seconds(self) -> None:
        """A number without a unit means seconds, as with curl; 0 means no limit."""
        for words in (("--max-time", "2"), ("-m2",), ("-m", "2.0"), ("--max-time=2000ms",)):
            ran = curl("-n", "signRequest", *words, server=NotaryServer(default_world(), pending=100))
            self.assertIn("not complete within 2 s", ran.stderr, words)
        for text in ("0", "0s"):
            self.assertEqual(curl("--max-time", text, server=NotaryServer(default_world(), pending=3)).status, 0)

    def test_http_sends_nothing(self) -> None:
        """Plain http with validation fails before anything is sent."""
        server = NotaryServer(default_world())
        ran = curl("http://api.test/", server=server, secure=False)
        self.assertEqual((ran.status, server.seen), (1, []))
        self.assertIn("(transport_unbound)", ran.stderr)


class CurlFlagTests(SynchronousTestCase):
    """Flags that curl has and this command has not."""

    def test_hints(self) -> None:
        """Each of them is refused with a hint of its own and is no flag of this command."""
        for names, hint in CURL_FLAGS.items():
            for name in names.split():
                ran = curl(name)
                self.assertEqual((ran.status, ran.stdout), (1, b""))
                self.assertEqual(ran.stderr, f"svc: unknown flag {name}\n     {hint}\n")

    def test_others(self) -> None:
        """Any other flag gets the nearest name, and other commands have no hints for flags of curl."""
        self.assertIn("did you mean --max-time", curl("--max-tme").stderr)
        self.assertIn('"svc verify --help" shows', run_svc("verify", "-k").stderr)


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

    return NotaryServer(default_world(), status=status, body=json.dumps(document).encode(), edit_head=own)


class ProxyAnswerTests(SynchronousTestCase):
    """A proxy's own answer names the cause of a failure, and decides nothing."""

    def test_policy(self) -> None:
        """Sentence, hint and the remark that the claim is unverified, in place of a hint about the listener's level."""
        for level in ("logRequest", "signRequest"):
            ran = curl("-n", level, *PINNED, server=proxy_answer())
            self.assertEqual((ran.status, ran.stdout), (1, b""))
            self.assertEqual(
                ran.stderr,
                f"svc: the level {level} was asked for, but the proxy answered 403 Any Phrase: policy_deny"
                " (level_mismatch)\n"
                f"     its policy does not admit {CLIENT_ID}: admit it in the section policy"
                f" of the proxy of {SERVER_ID}\n"
                f"     that cause is an unverified claim of {SERVER_ID}, the peer that TLS verified\n",
            )

    def test_retryable(self) -> None:
        """A retryable refusal says so, whether the response names a weaker level or none."""
        for level in ("", "workload"):
            ran = curl("-n", "signRequest", *PINNED, server=proxy_answer(503, "notary_unavailable", level))
            self.assertIn("answered 503 Any Phrase: notary_unavailable (level_mismatch)\n", ran.stderr)
            self.assertIn("/readyz at its adminAddr says which, and why", ran.stderr)
            self.assertIn("this may pass: ask again in a moment\n", ran.stderr)
            self.assertNotIn("maxNotarization", ran.stderr)

    def test_exit_status(self) -> None:
        """The exit status is that of a level mismatch."""
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
        """A response at the level asked for passes with its body, and standard error names the cause."""
        server = proxy_answer(502, "upstream_unreachable", "workload")
        for words in ((), ("--validate=false",), ("-s",)):
            ran = curl(*words, *PINNED, server=server)
            self.assertEqual((ran.status, ran.stdout), (0, b"" if words == ("-s",) else server.body))
            self.assertEqual(
                ran.stderr,
                "svc: the proxy answered 502 Any Phrase (upstream_unreachable)\n"
                "     the application behind the proxy is down, or its upstream names the wrong address\n"
                f"     that cause is an unverified claim of {SERVER_ID}, the peer that TLS verified\n",
            )
        self.assertEqual(curl("--detailed-exit-codes", *PINNED, server=server).status, 4)
        found = json.loads(curl("-o", "json", *PINNED, server=server).stdout)
        self.assertNotIn("problem", found)
        self.assertEqual(found["response"]["status"], 502)

    def test_plain_http(self) -> None:
        """Over plain http the cause is marked as a claim of an unknown peer."""
        server = proxy_answer(502, "upstream_unreachable", "workload")
        ran = curl("--validate=false", "http://api.test/", server=server, secure=False)
        self.assertEqual((ran.status, ran.stdout), (0, server.body))
        self.assertIn("svc: the proxy answered 502 Any Phrase (upstream_unreachable)\n", ran.stderr)
        self.assertIn("an unverified claim received over plain http\n", ran.stderr)

    def test_passed_document_that_is_none(self) -> None:
        """A response that is not exactly a problem document of a proxy passes without a notice."""
        for each in (
            proxy_answer(level="workload", changes={"type": "about:blank"}),
            proxy_answer(level="workload", changes={"title": "x" * 65536}),
        ):
            for words in ((), ("--validate=false",)):
                ran = curl(*words, *PINNED, server=each)
                self.assertEqual((ran.status, ran.stdout, ran.stderr), (0, each.body, ""))

    def test_no_statement(self) -> None:
        """A proxy without credentials sends no statement, and the error names the cause."""
        server = proxy_answer(503, "notary_unavailable")
        server.edit_head = lambda _fields: [
            (b"Content-Type", b"application/problem+json"),
            (b"Content-Length", b"%d" % len(server.body)),
        ]
        ran = curl(*PINNED, server=server)
        self.assertIn("no workload statement: the proxy answered 503 Any Phrase: notary_unavailable", ran.stderr)
        self.assertIn("(statement_missing)\n", ran.stderr)

    def test_not_for_injected_faults(self) -> None:
        """With an injected fault no problem document is named as the cause."""
        ran = curl("--inject-faults=no-workload-statement", *PINNED, server=proxy_answer())
        self.assertIn("the response carries no workload statement (statement_missing)\n", ran.stderr)

    def test_no_document(self) -> None:
        """A response that is not exactly a problem document gives no cause, and nothing of its text is shown."""
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
        """A code without advice of its own is named, with a hint to the log."""
        ran = curl("-n", "signRequest", *PINNED, server=proxy_answer(418, "tea_pot"))
        self.assertIn("answered 418 Any Phrase: tea_pot (level_mismatch)\n", ran.stderr)
        self.assertIn(f"look for tea_pot in the log of the proxy of {SERVER_ID}\n", ran.stderr)


class JsonTests(SynchronousTestCase):
    """The one object of -o json."""

    def test_success(self) -> None:
        """Response, workload, receipt and verification are members of one object."""
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
        """For a response that fails the verification the object has the reason and nothing of the response."""
        ran = curl("-o", "json", "--inject-faults=bad-workload-statement", server=NotaryServer(default_world()))
        found = json.loads(ran.stdout)
        self.assertEqual(ran.status, 1)
        self.assertEqual((found["response"], found["workload"], found["receipt"]), (None, None, None))
        verification = found["verification"]
        self.assertEqual((verification["ok"], verification["detail_reason"]), (False, "signature_invalid{ES256}"))
        self.assertNotIn(BODY, ran.stdout)

    def test_network_failure(self) -> None:
        """The object is printed also without any response."""
        ran = curl(
            "-o", "json", "--max-time", "1s", "-n", "signRequest", server=NotaryServer(default_world(), pending=9)
        )
        self.assertEqual(json.loads(ran.stdout)["verification"]["detail_reason"], "max_time")

    def test_nothing_verified(self) -> None:
        """Where nothing was verified ok is neither true nor false."""
        ran = curl("-o", "json", "--validate=false", "--inject-faults=no-workload-statement")
        found = json.loads(ran.stdout)
        self.assertEqual((ran.status, found["verification"]["ok"]), (0, None))
        self.assertEqual(found["response"]["body"]["text"], BODY.decode())

    def test_binary(self) -> None:
        """A body that is not UTF-8 is base64, in one piece or many; with -s it is left out."""
        for size in (1, 3 * 64 * 1024, 700_000, 1_100_000):
            body = bytes(range(256)) * (size // 256) + b"\xff" * (size % 256)
            found = json.loads(curl("-o", "json", server=NotaryServer(default_world(), body=body)).stdout)
            self.assertEqual(base64.b64decode(found["response"]["body"]["base64"], validate=True), body)
        found = json.loads(curl("-so", "json").stdout)
        self.assertEqual(set(found["response"]["body"]), {"size", "sha-256"})

    def test_body_that_looks_like_the_location(self) -> None:
        """A body, header or claim cannot imitate the placeholder of the body."""
        server = NotaryServer(default_world(), body=b'\x00body\x00","x":"', fields=[(b"X-Place", b"u0000body")])
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
        world = default_world()
        roots = self.write("roots.pem", world.authority.certificate.public_bytes(Encoding.PEM))
        pq = self.write("pq.json", PqBundles().with_bundle(world.pq_authority.bundle()).serialize())
        return ("--trust-bundle", roots, "--trust-domain", "example.org", "--pq-bundle", pq)

    def test_saved_and_verified(self) -> None:
        """Saved evidence is verified offline, with the warning on its time."""
        ran = curl("-n", "signRequest", "--save-evidence", self.path, "-d", "hello", *PINNED)
        self.assertEqual((ran.status, ran.stdout, ran.stderr), (0, BODY, ""))
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)
        self.assertEqual(os.listdir(self.folder), ["evidence.json"])
        ran = run_svc("verify", *self.anchors(), self.path)
        self.assertEqual(
            ran.stderr, "svc: time asserted; any holder of the keys, even after expiry, could have made this\n"
        )
        identifier = printed_id(default_world().generation.statement.id)
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

    def test_page(self) -> None:
        """--html writes one page, verified or not; the warning, the error and the exit status are those without it."""
        curl("-n", "signRequest", "--save-evidence", self.path, "-d", "hello")
        for words, verdict in (
            ((), Verdict.VERIFIED),
            (("--require-trusted-time",), Verdict.REFUSED),
            (("--expect-id", "spiffe://example.org/other"), Verdict.REFUSED),
        ):
            plain = run_svc("verify", *self.anchors(), *words, self.path)
            ran = run_svc("verify", "--html", *self.anchors(), *words, self.path)
            self.assertEqual((plain.status, plain.stderr), (ran.status, ran.stderr))
            page = ran.stdout.decode()
            self.assertEqual(1, page.count("<!DOCTYPE html>"))
            self.assertIn(f"<strong>{verdict.value}</strong>", page)
            self.assertNotIn(": verified,", page)
            self.assertIn(f"<li>post-quantum roots from {self.anchors()[-1]}</li>", page)

    def test_no_page(self) -> None:
        """A bundle file that cannot be used is the usual error; a file that is no evidence is a page that says so."""
        path = self.write("other.json", b"<script>")
        ran = run_svc("verify", "--html", "--trust-bundle", path, "--trust-domain", "example.org", self.path)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        curl("-n", "signRequest", "--save-evidence", self.path, "-d", "hello")
        ran = run_svc("verify", "--html", "--trust-bundle", path, "--trust-domain", "example.org", self.path)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        ran = run_svc("verify", "--html", *self.anchors(), path)
        self.assertEqual(1, ran.status)
        self.assertIn("malformed", ran.stdout.decode())
        self.assertNotIn("<script", ran.stdout.decode())

    def early(self) -> NotaryServer:
        """A server that read two octets of the request body and answered."""
        prefix = BodySummary.of(b"he", complete=False)
        return NotaryServer(
            default_world(), edit_exchange=lambda exchange: dataclasses.replace(exchange, request_body=prefix)
        )

    def test_signed_together(self) -> None:
        """A receipt of a batch is verified and kept; svc verify reads it, and names an altered place in its reason."""
        server = NotaryServer(default_world(), together=3)
        words = ("-n", "signRequest", "--print-receipt", "--save-evidence", self.path)
        live = curl(*words, server=server)
        offline = run_svc("verify", *self.anchors(), "--print-receipt", self.path)
        for ran in (live, offline):
            self.assertEqual(ran.status, 0, ran.stderr)
            self.assertIn("  Signed Together: receipt 1 of 3 in a batch issued at ", ran.stderr)
        with open(self.path, "rb") as file:
            found = loads_object(file.read())
        receipt: dict[str, Any] = found["receipt"]  # type: ignore[assignment]
        moved = {**receipt, "inclusion": {**receipt["inclusion"], "index": 1}}
        forged = self.write("forged.json", dumps({**found, "receipt": moved}))
        ran = run_svc("verify", *self.anchors(), forged)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("(inclusion_invalid)", ran.stderr)
        server.edit_receipt = lambda data: data.replace(b'"index":0', b'"index":1')
        ran = curl("-n", "signRequest", "--detailed-exit-codes", server=server)
        self.assertEqual(3, ran.status)
        self.assertIn("(inclusion_invalid)", ran.stderr)

    def test_attested_octets_alone(self) -> None:
        """Reports show nothing of the request body beyond the octets that the receipt attests, live and offline."""
        words = ("-n", "signRequest", "--print-receipt", "-d", "hello")
        live = curl(*words, "--save-evidence", self.path, server=self.early())
        offline = run_svc("verify", *self.anchors(), "--print-receipt", self.path)
        for ran in (live, offline):
            self.assertEqual(ran.status, 0, ran.stderr)
            self.assertIn("    Body: 2 bytes (incomplete)\n      he\n  HTTP Response", ran.stderr)
            self.assertNotIn("hello", ran.stderr)

    def test_octets_behind_the_attested(self) -> None:
        """A response body in the file is refused where the receipt says that the response was cut; none is printed."""
        curl("-n", "signRequest", "--save-evidence", self.path)
        with open(self.path, "rb") as file:
            found = loads_object(file.read())
        body = BodySummary.of(BODY[:2], complete=False)
        claim = {"size": body.size, "sha-256": b64u_encode(body.sha256), "complete": body.complete}
        cut = resigned(
            Envelope.parse(dumps(found["receipt"])),
            naming.TYPE_RECEIPT,
            default_world().generation.signers,
            svc__response__body=claim,
        )
        forged = self.write("forged.json", dumps({**found, "receipt": cut.to_object()}))
        ran = run_svc("verify", *self.anchors(), "--print-receipt", forged)
        self.assertEqual((ran.status, ran.stdout), (1, b""))
        self.assertIn("(response_mismatch{body})", ran.stderr)
        self.assertNotIn(BODY[2:].decode(), ran.stderr)

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
        """Without anchors nothing is verified; none are taken from the file, nor from post-quantum roots alone."""
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
        self.assertIn(f"     checked against the SPIFFE roots from {path}; post-quantum roots from ", ran.stderr)

    def test_bundle_file_wrong(self) -> None:
        """A missing file, and one that does not say whose roots it holds, have reasons of their own."""
        curl("--save-evidence", self.path)
        ran = run_svc("verify", "--trust-bundle", "/tmp/no/such.pem", *self.anchors()[2:], self.path)
        self.assertIn("/tmp/no/such.pem cannot be read: no such file or directory (file_unreadable)", ran.stderr)
        ran = run_svc("verify", *self.anchors()[:2], self.path)
        self.assertIn("does not say whose roots it holds (bundle_needs_trust_domain)", ran.stderr)
        self.assertIn("--trust-domain", ran.stderr)

    def test_archive(self) -> None:
        """A bundle archive gives SPIFFE and post-quantum roots at once."""
        curl("-n", "signRequest", "--save-evidence", self.path)
        world = default_world()
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
        server = NotaryServer(default_world())
        ran = curl("--save-evidence", self.path, server=server)
        self.assertEqual((ran.status, server.seen), (1, []))
        self.assertIn("(file_exists)", ran.stderr)
        with open(self.path) as file:
            self.assertEqual(file.read(), "precious")

    def test_nothing_saved_on_failure(self) -> None:
        """Nothing is saved of an exchange that failed."""
        curl("--save-evidence", self.path, "--inject-faults=bad-workload-statement")
        self.assertEqual(os.listdir(self.folder), [])

    def test_large_body_is_left_out(self) -> None:
        """A body beyond the limit of the format is left out of the file, which still verifies."""
        server = NotaryServer(default_world(), body=b"x" * (1024 * 1024 + 1))
        curl("-n", "signRequest", "--save-evidence", self.path, server=server)
        with open(self.path) as file:
            self.assertNotIn("response", json.load(file))
        self.assertEqual(run_svc("verify", *self.anchors(), self.path).status, 0)

    def test_malformed_file(self) -> None:
        """A file that is no evidence is refused as malformed."""
        ran = run_svc("verify", *self.anchors(), self.write("x.json", b"{}"))
        self.assertEqual((ran.status, ran.stderr.count("malformed")), (1, 2))
