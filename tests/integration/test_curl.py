"""``svc curl`` and ``svc verify`` from the command line against a real proxy: what is printed, and the exit status."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.strictjson import b64u_encode
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.programs import svc
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, answers, free_port

ID = "spiffe://example.org/ns/shop/sa/api"
OTHER_ID = "spiffe://example.org/ns/shop/sa/other"


def _make(stack: ExitStack) -> Any:
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    application = webapp.start(stack)
    plain = free_port()
    proxy = RunningProxy(
        authority,
        f"127.0.0.1:{application}",
        listeners=[
            {
                "name": "bare",
                "protocol": "http",
                "direction": "inbound",
                "listen": f"127.0.0.1:{plain}",
                "upstream": f"127.0.0.1:{application}",
                "maxNotarization": "logRequest",
            }
        ],
    )
    stack.enter_context(proxy)
    return SimpleNamespace(
        authority=authority, application=application, proxy=proxy, bare=plain, folder=short_folder(stack)
    )


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        found = SHARED.get()
        self.authority: RunningAuthority = found.authority
        self.proxy: RunningProxy = found.proxy
        self.folder: Path = found.folder
        self.plain_url = f"http://127.0.0.1:{found.application}"
        self.bare_url = f"https://127.0.0.1:{found.bare}"

    def curl(self, *arguments: str, status: int = 0, **settings: Any) -> CompletedProcess[bytes]:
        """Run ``svc curl`` with the socket of the authority; it must end with the status."""
        ran = svc("curl", "--spiffe-socket-path", self.authority.address, *arguments, **settings)
        self.assertEqual(status, ran.returncode, ran.stderr.decode())
        return ran

    def refused(self, reason: str, *arguments: str, status: int = 1, **settings: str) -> bytes:
        """Run a command that must be refused with this reason, without output of the response; return its messages."""
        ran = self.curl(*arguments, status=status, **settings)
        self.assertEqual(b"", ran.stdout)
        self.assertIn(f"({reason})\n", ran.stderr.decode())
        return ran.stderr

    def at_once(self, *calls: Callable[[], object]) -> None:
        """Make calls that do not depend on each other; most of each is waiting for a process."""
        with ThreadPoolExecutor(4) as threads:
            for done in [threads.submit(call) for call in calls]:
                done.result()

    def json(self, *arguments: str, status: int = 0) -> Any:
        """Run with ``-o json``; returns the object."""
        return json.loads(self.curl("-o", "json", *arguments, status=status).stdout)


class LevelTests(_Case):
    """Each level, and what is shown of it."""

    def test_workload(self) -> None:
        """By default the statement is verified, its level is the weakest, and the body is all of standard output."""
        ran = self.curl(f"{self.proxy.url}/bytes/1000")
        self.assertEqual(webapp.octets(1000), ran.stdout)
        self.assertEqual(f"svc: server identity not pinned: {ID}\n", ran.stderr.decode())
        pinned = self.curl("--expect-id", OTHER_ID, "--expect-id", ID, f"{self.proxy.url}/bytes/0")
        self.assertEqual((b"", b""), (pinned.stdout, pinned.stderr))

    def test_headers(self) -> None:
        """``-i`` prints the head unchanged; ``-s`` removes only the body."""
        ran = self.curl("-i", "-s", "-n", "logRequest", f"{self.proxy.url}/bytes/10")
        lines = ran.stdout.decode().split("\r\n")
        self.assertEqual(("HTTP/1.1 200 OK", ["", ""]), (lines[0], lines[-2:]))
        self.assertIn("Svc-Notarization-Level: logRequest", lines)
        self.assertNotIn("Svc-Receipt-Location", ran.stdout.decode())
        self.assertIn(f"verified server identity: {ID}\n", ran.stderr.decode())

    def test_sign_request(self) -> None:
        """A signed request prints both reports on standard error and the body alone on standard output."""
        before = self.proxy.metric("svc_proxy_notary_records_total", result="success")
        ran = self.curl(
            *("-n", "signRequest", "--print-workload", "--print-receipt", "--expect-id", ID, "-X", "PUT"),
            *("-d", '{"amount": 5}', "-H", "X-Order: 7", "-H", "Authorization: Bearer secret"),
            f"{self.proxy.url}/echo?x=1",
        )
        self.assertEqual(b'{"amount": 5}', ran.stdout)
        messages = ran.stderr.decode()
        [statement] = re.findall(r"Workload Identity Statement (\S{44})\n", messages)
        for line in (
            f"  SPIFFE ID: {ID}\n",
            "  Signatures: ES256 valid, ML-DSA-65 valid\n",
            "  Bound To Connection: yes\n",
            f"  Workload Statement ID: {statement}\n",
            "    Method: PUT\n",
            "    Path: /echo?x=1\n",
            "    Status Code: 200\n",
            "      x-order: 7\n",
            "      authorization: [redacted",
        ):
            self.assertIn(line, messages)
        self.assertNotIn("secret", messages)
        self.assertEqual(before + 1, self.proxy.metric("svc_proxy_notary_records_total", result="success"))

    def test_json(self) -> None:
        """``-o json`` is one object with the answer, both claims and the verdict."""
        found = self.json("-n", "signRequest", "-d", '{"a": 1}', f"{self.proxy.url}/digest")
        self.assertEqual(200, found["response"]["status"])
        self.assertEqual(8, json.loads(found["response"]["body"]["text"])["size"])
        self.assertEqual((ID, True), (found["workload"]["spiffeID"], found["workload"]["selfIssued"]))
        claims = found["receipt"]["claims"]
        self.assertEqual(found["workload"]["id"], claims["svc"]["workloadStatementID"])
        self.assertEqual("POST", claims["svc"]["request"]["method"])
        self.assertIn(["content-type", "application/json"], claims["svc"]["request"]["headers"])
        self.assertEqual(found["response"]["body"]["sha-256"], claims["svc"]["response"]["body"]["sha-256"])
        verdict = found["verification"]
        self.assertEqual((True, None, True, True), tuple(verdict[each] for each in _VERDICT))
        self.assertEqual("X25519MLKEM768", verdict["tls"]["group"])

    def test_big_body(self) -> None:
        """A body larger than the spool's memory is digested, verified and then printed whole."""
        size = 24 * 1024 * 1024
        ran = self.curl("-n", "signRequest", f"{self.proxy.url}/chunked/{size}")
        self.assertEqual(webapp.octets(size), ran.stdout)
        self.refused("body_too_large", "--max-body", "1MiB", f"{self.proxy.url}/bytes/{size}")

    def test_bodiless(self) -> None:
        """Receipts hold for answers without a body too."""

        def check(*arguments: str) -> None:
            found = self.json("-n", "signRequest", *arguments[:-1], self.proxy.url + arguments[-1])
            self.assertEqual(0, found["receipt"]["claims"]["svc"]["response"]["body"]["size"], arguments)
            self.assertTrue(found["verification"]["ok"])

        cases = (["-X", "HEAD", "/bytes/500"], ["/status/204"], ["/status/304"], ["/bytes/0"])
        self.at_once(*(partial(check, *each) for each in cases))

    def test_development_logging(self) -> None:
        """Debug records name address, chains and requests, without secrets; a refused connection has no stack trace."""
        ran = self.curl(
            *("--log-devel", "-d", "secret-1", "-H", "Authorization: secret-2"), f"{self.proxy.url}/digest?a=secret-3"
        )
        messages = ran.stderr.decode()
        address = self.proxy.url.removeprefix("https://")
        for text in (
            "SPIFFE roots of example.org from unix://",
            f"connecting to {address} with mutual TLS, expecting spiffe://example.org/*",
            f"connected to {address}: TLS 1.3, X25519MLKEM768",
            f"certificate chain of the server, 1 of 2: {ID}, SHA-256 ",
            f"sent to {address}: POST /digest?[left out] HTTP/1.1; fields: Host, User-Agent, Accept, Authorization, ",
            "certificate chain of the ML-DSA-65 signature of the statement, 2 of 2: root of example.org",
        ):
            self.assertIn(text, messages)
        self.assertNotIn("secret", messages)
        refused = self.curl("--log-devel", f"https://127.0.0.1:{free_port()}/", status=1).stderr.decode()
        self.assertIn("(connection_refused)\n", refused)
        self.assertNotIn("Traceback", refused)

    def test_own_answer(self) -> None:
        """A refusal of the proxy that passes is named on standard error; URLs take identifiers as they are printed."""
        path = f"{self.proxy.url}/.well-known/svc-notary/v1"
        ran = self.curl("--expect-id", ID, f"{path}/receipts/nonsense")
        self.assertIn(b"svc: the proxy answered 404 Not Found (id_malformed)\n", ran.stderr)
        report = self.curl("-s", "-n", "signRequest", "--print-receipt", f"{self.proxy.url}/bytes/1").stderr.decode()
        [receipt] = re.findall(r"Signed Request Receipt (\S{44})\n", report)
        [statement] = re.findall(r"Workload Statement ID: (\S{44})\n", report)
        for suffix in (f"/receipts/{receipt}", f"/statements/{statement}"):
            self.assertIn("signatures", json.loads(self.curl(f"{path}{suffix}").stdout), suffix)

    def test_level_not_given(self) -> None:
        """A listener that applies a lower level than requested is refused."""
        self.refused("level_mismatch", "-n", "signRequest", f"{self.bare_url}/bytes/1")
        self.curl("-n", "logRequest", f"{self.bare_url}/bytes/1")


_VERDICT = ("ok", "detail_reason", "postQuantum", "bound")


class EvidenceTests(_Case):
    """Saved artifacts can be verified without the service."""

    def test_saved_and_verified(self) -> None:
        """Evidence verifies offline against the archive and against the Workload API; without anchors it does not."""
        path = self.folder / "evidence.json"
        self.curl("-n", "signRequest", "-s", "--save-evidence", str(path), "-d", "hello", f"{self.proxy.url}/echo")
        self.assertEqual(0o600, path.stat().st_mode & 0o777)
        archive = str(self.authority.archive_path)
        offline = ["--trust-bundle", archive, "--pq-bundle", archive]
        ran = svc("verify", *offline, "--expect-id", ID, path)
        self.assertEqual(0, ran.returncode, ran.stderr)
        self.assertIn(b"verified, complete", ran.stdout)
        self.assertIn(b"time asserted", ran.stderr)
        self.assertEqual(0, svc("verify", "--spiffe-socket-path", self.authority.address, path).returncode)
        self._fails("identity_unexpected", *offline, "--expect-id", OTHER_ID, path)
        self._fails("time_unproven", *offline, "--require-trusted-time", path)
        self._fails("workload_api_unavailable", "--spiffe-socket-path", "unix:///no/such.sock", path)

    def test_tampered(self) -> None:
        """A changed body or a changed claim in the file is found."""
        path = self.folder / "tampered.json"
        self.curl("-n", "signRequest", "-s", "--save-evidence", str(path), "-d", "hello", f"{self.proxy.url}/echo")
        archive = str(self.authority.archive_path)
        whole = json.loads(path.read_text())
        other_body = self._file("body.json", {**whole, "response": {"body": "aGVscCE="}})
        self._fails("response_mismatch{body}", "--trust-bundle", archive, "--pq-bundle", archive, other_body)
        forged = {**whole["statement"], "payload": b64u_encode(b'{"v":1}')}
        other_claim = self._file("claim.json", {**whole, "statement": forged})
        ran = svc("verify", "--trust-bundle", archive, "--pq-bundle", archive, other_claim)
        self.assertEqual(1, ran.returncode)

    def test_never_overwritten(self) -> None:
        """A file that exists is left alone, and nothing is sent."""
        path = self.folder / "taken.json"
        path.write_text("mine")
        before = self.proxy.metric("svc_proxy_request_duration_seconds_count")
        self.refused("file_exists", "--save-evidence", str(path), f"{self.proxy.url}/bytes/1")
        self.assertEqual("mine", path.read_text())
        self.assertEqual(before, self.proxy.metric("svc_proxy_request_duration_seconds_count"))

    def _file(self, name: str, content: object) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path

    def _fails(self, reason: str, *arguments: str | Path) -> None:
        ran = svc("verify", *arguments)
        self.assertEqual(1, ran.returncode)
        self.assertIn(f"({reason})", ran.stderr.decode())


class RefusalTests(_Case):
    """Refusals, with the reason and the exit status."""

    def test_faults(self) -> None:
        """An injected fault gives exactly its reason at every level; the response is not shown."""
        reasons = {"no-workload-statement": "statement_missing", "bad-workload-statement": "signature_invalid{ES256}"}
        self.at_once(
            *(
                partial(self.refused, reason, "-n", level, f"{self.proxy.url}/bytes/9", "--inject-faults", fault)
                for level in ("workload", "signRequest")
                for fault, reason in reasons.items()
            )
        )
        found = self.json(f"{self.proxy.url}/bytes/9", "--inject-faults", "bad-workload-statement", status=1)
        self.assertEqual((None, None), (found["response"], found["workload"]))
        self.assertEqual((False, "signature_invalid{ES256}"), _verdict(found))
        self.assertIn(b"--inject-faults", self.curl("--inject-faults", "x", self.proxy.url, status=1).stderr)

    def test_bad_statement_without_validation(self) -> None:
        """``--validate=false`` lets a missing statement pass, and not a bad one."""
        arguments = ["--validate=false", f"{self.bare_url}/bytes/9"]
        self.assertEqual(webapp.octets(9), self.curl(*arguments, "--inject-faults", "no-workload-statement").stdout)
        faulty = ["--validate=false", f"{self.proxy.url}/bytes/9", "--inject-faults", "bad-workload-statement"]
        ran = self.curl(*faulty, status=1)
        self.assertIn("(signature_invalid{ES256})", ran.stderr.decode())

    def test_pinning(self) -> None:
        """Another identity than the expected one is refused before anything is sent."""
        time.sleep(2.0)  # Octets reach the counter twice a second, those of the test before too.
        before = self.proxy.metric("svc_proxy_bytes_received_total")
        url = f"{self.proxy.url}/bytes/1"
        self.at_once(
            partial(self.refused, "identity_unexpected", "--expect-id", OTHER_ID, url),
            partial(self.refused, "identity_unexpected", url, SVC_EXPECT_ID=OTHER_ID),
            partial(self.refused, "identity_not_pinned", "--require-pinned-id", url),
        )
        self.assertEqual(before, self.proxy.metric("svc_proxy_bytes_received_total"))
        self.curl("--require-pinned-id", "--expect-id", ID, f"{self.proxy.url}/bytes/1")

    def test_plain(self) -> None:
        """A plain connection can bind nothing: refused with validation, allowed without."""
        self.refused("transport_unbound", f"{self.plain_url}/bytes/9")
        ran = self.curl("--validate=false", f"{self.plain_url}/bytes/9")
        self.assertEqual(webapp.octets(9), ran.stdout)

    def test_network(self) -> None:
        """Refused ports, wrong protocols and wrong sockets are distinguished."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            messages = self.refused("connection_refused", f"https://127.0.0.1:{taken.getsockname()[1]}/")
        self.assertIn(b"is the service running", messages)
        self.refused("handshake_failed", self.plain_url.replace("http:", "https:"))
        self.refused("connection_closed", "--validate=false", self.proxy.url.replace("https:", "http:"))
        dead = self.folder / "dead.sock"
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(str(dead))
        for path, said_of_it in (("/no/such.sock", b"does not exist"), (str(dead), b"no process listens")):
            ran = svc("curl", "--spiffe-socket-path", f"unix://{path}", f"{self.proxy.url}/bytes/1")
            self.assertEqual((1, b""), (ran.returncode, ran.stdout))
            self.assertIn(said_of_it, ran.stderr)
            self.assertIn(b"(workload_api_unavailable)", ran.stderr)

    def test_max_time(self) -> None:
        """A slow response ends the exchange at the user's time limit."""
        self.refused("max_time", "--max-time", "500ms", f"{self.proxy.url}/slow/5")

    def test_exit_codes(self) -> None:
        """The detailed exit status names network, statement, receipt or HTTP error; without the flag it is 0 or 1."""
        url, detailed, faulty = self.proxy.url, "--detailed-exit-codes", ["--inject-faults", "no-workload-statement"]
        port = free_port()
        self.assertFalse(answers(port))
        self.at_once(
            partial(self.curl, f"{url}/status/503"),
            partial(self.curl, detailed, f"{url}/status/204"),
            partial(self.curl, detailed, f"{url}/status/404", status=4),
            partial(self.curl, f"{url}/status/500", status=4, SVC_DETAILED_EXIT_CODES="true"),
            partial(self.refused, "connection_refused", detailed, f"https://127.0.0.1:{port}/", status=1),
            partial(self.refused, "statement_missing", detailed, *faulty, f"{url}/status/404", status=2),
            partial(
                self.refused, "level_mismatch", detailed, "-n", "signRequest", f"{self.bare_url}/bytes/1", status=3
            ),
        )


def _verdict(found: Any) -> tuple[Any, Any]:
    return found["verification"]["ok"], found["verification"]["detail_reason"]
