"""
Unchanged programs behind an outbound listener that verifies: what they get is verified, and nothing else reaches them.

Two real proxies of two identities; a program in Python with requests, one in Go, and curl. The peers that are refused
are a TLS server with a valid SVID and no notary, a workload that lies, and a proxy that is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

from twisted.internet import reactor
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svc.envelope.ids import new_nonce, receipt_id
from svc.identity import SpiffeID
from svc.strictjson import b64u_decode
from svc.workload.source import WorkloadSource
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.impersonator import BODY, Impersonator, Request
from tests.peers.independent_clients import Credentials
from tests.peers.nginx import RunningNginx
from tests.peers.programs import find, other_python, run, svc
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

SERVER = "spiffe://example.org/ns/shop/sa/api"
CLIENT = "spiffe://example.org/ns/shop/sa/web"
LIAR = SpiffeID.parse("spiffe://example.org/ns/shop/sa/liar")

SCRIPT = """
import sys, requests
answer = requests.post(sys.argv[1] + "/echo", data=b"from requests", timeout=60)
answer.raise_for_status()
sys.stdout.write(answer.text)
"""
GO = """
package main

import ("fmt"; "io"; "net/http"; "os"; "strings")

func main() {
	answer, err := http.Post(os.Args[1]+"/echo", "text/plain", strings.NewReader("from Go"))
	if err != nil { fmt.Fprintln(os.Stderr, err); os.Exit(1) }
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != 200 { fmt.Fprintln(os.Stderr, answer.Status, err); os.Exit(1) }
	os.Stdout.Write(body)
}
"""


def outbound(name: str, peer: int, **keys: Any) -> dict[str, Any]:
    """An outbound listener on a free port."""
    return {
        "name": name,
        "protocol": "http",
        "direction": "outbound",
        "listen": f"127.0.0.1:{free_port()}",
        "upstream": f"127.0.0.1:{peer}",
        "peer": "spiffe://example.org/ns/shop/*",
        **keys,
    }


def client_proxy(
    authority: RunningAuthority, python: Path | None, *listeners: Mapping[str, Any], **settings: Any
) -> RunningProxy:
    """A proxy with outbound listeners alone: it signs nothing, and is given no post-quantum issuer."""
    proxy = RunningProxy(authority, "127.0.0.1:1", python=python, notary={"pqIssuer": None}, settings=settings)
    proxy.config["listeners"] = list(listeners)
    return proxy


def curl(url: str, *options: str) -> tuple[int, bytes, bytes]:
    """Exit status of curl, head and body of the response."""
    ran = run([find("curl"), "--silent", "--include", "--max-time", "120", *options, url])
    head, _, body = ran.stdout.partition(b"\r\n\r\n")
    return ran.returncode, head, body


def refusal(url: str) -> dict[str, Any]:
    """The problem document with which a request is refused."""
    status, head, body = curl(url)
    assert (status, head.split(b" ")[1]) == (0, b"502"), (status, head, body)
    found: dict[str, Any] = json.loads(body)
    return found


def _make(stack: ExitStack) -> Any:
    folder = short_folder(stack)
    python = other_python(folder / "python")
    authority = stack.enter_context(
        RunningAuthority(
            entries=[
                entry("/ns/shop/sa/api", executable=str(python)),
                entry("/ns/shop/sa/web"),
            ]
        )
    )
    server = stack.enter_context(RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}", python=python))
    credentials = Credentials.fetch(authority, folder / "id")
    names = {
        "workload": {"require": ["workload"]},
        "receipt": {"require": ["receipt"]},
        "kept": {"require": ["receipt"], "collectReceipts": True},
        "asked": {"collectReceipts": True},
    }
    listeners = {name: outbound(name, server.port, **keys) for name, keys in names.items()}  # type: ignore[arg-type]
    client = stack.enter_context(client_proxy(authority, None, *listeners.values(), accessLog="path", auditLog="all"))
    urls = {name: f"http://{each['listen']}" for name, each in listeners.items()}
    return SimpleNamespace(
        authority=authority,
        server=server,
        client=client,
        urls=urls,
        folder=folder,
        credentials=credentials,
        python=python,
    )


SHARED = Shared(_make)


class ProgramsTests(SynchronousTestCase):
    """Programs that know nothing of SPIFFE."""

    def setUp(self) -> None:
        self.scene = SHARED.get()
        self.database = str(self.scene.client.folder / "notary.db")

    def listed(self, *words: str) -> list[dict[str, Any]]:
        """The receipts in the database of the client's proxy."""
        ran = svc("receipts", "list", "-o", "json", "--notary", self.database, *words)
        self.assertEqual(0, ran.returncode, ran.stderr)
        return [json.loads(line) for line in ran.stdout.splitlines()]

    def test_requests(self) -> None:
        """A script with requests gets its answer, and the receipt of it is kept."""
        self.runs([sys.executable, "-c", SCRIPT], b"from requests")

    def test_go(self) -> None:
        """A program in Go gets its answer, and the receipt of it is kept."""
        go, program = find("go"), self.scene.folder / "caller"
        source = self.scene.folder / "caller.go"
        source.write_text(GO)
        home = str(self.scene.folder)
        built = run([go, "build", "-o", program, source], HOME=home, GOCACHE=f"{home}/go", GOFLAGS="-mod=mod")
        self.assertEqual(0, built.returncode, built.stderr)
        self.runs([program], b"from Go")

    def test_curl(self) -> None:
        """curl gets its answer, and the receipt of it is kept."""
        url = self.scene.urls["kept"]
        status, head, body = curl(f"{url}/echo", "--data-binary", "from curl")
        self.assertEqual((0, b"200", b"from curl"), (status, head.split(b" ")[1], body))
        for name in (b"Svc-Workload-ID: ", b"Svc-Notarization-Level: signRequest", b"Svc-Receipt-Location: /"):
            self.assertIn(name, head)

    def runs(self, command: list[Any], expected: bytes) -> None:
        """A program, through every listener that verifies."""
        before = len(self.listed("--path", "/echo"))
        for name in ("workload", "receipt", "kept"):
            ran = run([*command, self.scene.urls[name]])
            self.assertEqual((0, expected), (ran.returncode, ran.stdout), ran.stderr)
        newest, *others = self.listed("--path", "/echo")
        self.assertEqual(before, len(others))
        self.assertEqual((CLIENT, "complete", 200), (newest["client"], newest["outcome"], newest["status"]))

    def test_early_refusal_of_an_upload(self) -> None:
        """An upload that the real nginx refuses early gets its answer, wherever the peer stopped reading."""
        upload = self.scene.folder / "upload"
        with ExitStack() as stack:
            nginx = RunningNginx(stack, 1)
            server = RunningProxy(self.scene.authority, f"127.0.0.1:{nginx.port}", python=self.scene.python)
            stack.enter_context(server)
            listener = outbound("upload", server.port, require=["receipt"])
            stack.enter_context(client_proxy(self.scene.authority, None, listener))
            for size in (100_000, 1_000_000, 50_000_000) * 4:
                upload.write_bytes(os.urandom(100) * (size // 100))
                url = f"http://{listener['listen']}/refuse"
                status, head, body = curl(url, "--header", "Expect:", "--data-binary", f"@{upload}")
                self.assertEqual((0, b"413", b"too much for me\n"), (status, head.split(b" ")[1], body), (size, head))

    def test_many_at_once(self) -> None:
        """Receipts that the peer signed together are verified and kept like others."""
        url = self.scene.urls["kept"]

        def call(number: int) -> tuple[int, str]:
            with urlopen(f"{url}/bytes/{number % 9}", timeout=60) as answer:
                return len(answer.read()), str(answer.headers["Svc-Receipt-Location"])

        for _round in range(20):
            with ThreadPoolExecutor(16) as pool:
                answers = list(pool.map(call, range(64)))
            self.assertEqual([number % 9 for number in range(64)], [size for size, _path in answers])
            receipts = [curl(url + path)[2] for _size, path in answers[:16]]
            batched = [receipt for receipt in receipts if b'"inclusion"' in receipt]
            if batched:
                break
        else:
            self.fail("the peer signed no receipts together")
        evidence = self.scene.folder / "batched.json"
        shown = svc("receipts", "list", "-o", "json", "--notary", self.database, "--limit", "64")
        self.assertEqual((0, 64), (shown.returncode, len(shown.stdout.splitlines())), shown.stderr)
        identifier = receipt_id(b64u_decode(json.loads(batched[0])["payload"]))
        exported = svc("receipts", "export", identifier, "--notary", self.database, "--output", str(evidence))
        self.assertEqual(0, exported.returncode, exported.stderr)
        roots = ("--trust-bundle", str(self.scene.authority.archive_path))
        verified = svc("verify", *roots, "--expect-id", SERVER, str(evidence))
        self.assertEqual(0, verified.returncode, verified.stderr)

    def test_streams(self) -> None:
        """Large bodies in both directions are verified while they stream."""
        size = 20_000_000
        status, head, body = curl(self.scene.urls["kept"] + f"/bytes/{size}")
        self.assertEqual((0, size), (status, len(body)), head)
        sent = self.scene.folder / "sent"
        sent.write_bytes(webapp.octets(size))
        status, head, body = curl(self.scene.urls["kept"] + "/digest", "-H", "Expect:", "--data-binary", f"@{sent}")
        self.assertEqual((0, b"200"), (status, head.split(b" ")[1]), body)
        self.assertIn(webapp.digest(size).encode(), body)

    def test_evidence(self) -> None:
        """What was collected is listed, shown, exported and verified offline by the roots alone; and logged."""
        url = self.scene.urls["asked"]
        self.assertNotIn(b"Svc-", curl(f"{url}/bytes/7")[1])
        status, head, _body = curl(f"{url}/bytes/8", "-H", "Svc-Notarization-Level: signRequest", "-u", "user:secret")
        self.assertEqual(0, status)
        self.assertEqual([], self.listed("--path", "/bytes/7"))
        [found] = self.listed("--path", "/bytes/8")
        location = next(line for line in head.decode().split("\r\n") if line.startswith("Svc-Receipt-Location: "))
        receipt = curl(url + location.partition(": ")[2])[2]
        self.assertIn(b'"disclosures"', receipt)
        self.assertIn(
            b"application/jose+json", curl(f"{url}/.well-known/svc-notary/v1/receipts/{found['id']}")[1].lower()
        )
        roots = ("--trust-bundle", str(self.scene.authority.archive_path))
        ran = svc("receipts", "show", "--notary", self.database, *roots, found["id"])
        self.assertEqual(0, ran.returncode, ran.stderr)
        self.assertIn(b"ES256 valid, ML-DSA-65 valid", ran.stdout)
        output = self.scene.folder / "exported"
        ran = svc("receipts", "export", "--notary", self.database, "--path", "/bytes/8", "--output", str(output))
        self.assertEqual(0, ran.returncode, ran.stderr)
        [file] = output.iterdir()
        ran = svc("verify", *roots, "--expect-id", SERVER, str(file))
        self.assertEqual(0, ran.returncode, ran.stderr)
        records = lambda event: [  # noqa: E731
            each for each in self.scene.client.records(event) if each["attributes"].get("receipt_id") == found["id"]
        ]
        eventually(lambda: records("svc.proxy.access.recorded"))
        for event in ("svc.proxy.request.served", "svc.proxy.access.recorded"):
            [logged] = eventually(lambda event=event: records(event))
            self.assertEqual((SERVER, None), (logged["peer_spiffe_id"], logged.get("user")))
            self.assertEqual(43, len(logged["attributes"]["statement_id"]))
        status, document = self.scene.client.page("/status")
        self.assertEqual((200, True), (status, document["store"]["writable"]))
        self.assertNotIn("pqIssuer", self.scene.client.readiness())
        _status, head, page = curl(f"http://127.0.0.1:{self.scene.client.admin_port}/receipts/{found['id']}")
        self.assertIn(b" 200 ", head)
        self.assertIn(b"All checks that the profile hybrid demands succeeded", page)


class PlainServer:
    """A TLS server with a valid SVID that answers every request alike."""

    def __init__(self, stack: ExitStack, credentials: Credentials, answer: bytes) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(credentials.certificate, credentials.key)
        context.load_verify_locations(credentials.roots)
        context.verify_mode = ssl.CERT_REQUIRED
        self._listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._answer, self._context = answer, context
        self.port = self._listening.getsockname()[1]
        self.requests: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                plain, _address = self._listening.accept()
                with contextlib.suppress(OSError), self._context.wrap_socket(plain, server_side=True) as secure:
                    while data := secure.recv(65536):
                        self.requests.append(data)
                        secure.sendall(self._answer)


class RefusedTests(SynchronousTestCase):
    """Peers with valid SVIDs that prove nothing."""

    def test_no_notary(self) -> None:
        """A peer without a notary is refused with 502 and the reason; no request reaches it."""
        scene = SHARED.get()
        with ExitStack() as stack:
            for answer, detail in (
                (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "fetch_failed{404}"),
                (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "malformed"),
            ):
                server = PlainServer(stack, scene.credentials, answer)
                listener = outbound("plain", server.port, require=["workload"])
                with client_proxy(scene.authority, None, listener) as proxy:
                    found = refusal(f"http://{listener['listen']}/accounts")
                    self.assertEqual(("upstream_unverified", detail), (found["code"], found["detail_reason"]), found)
                    [logged] = eventually(lambda proxy=proxy: proxy.records("svc.proxy.upstream.failed"))
                    self.assertEqual(detail, logged["detail_reason"])
                self.assertTrue(server.requests)
                self.assertNotIn(b"/accounts", b"".join(server.requests))

    def test_deny_list(self) -> None:
        """A statement that is put on a deny list is refused as soon as the file is read."""
        scene = SHARED.get()
        policy = scene.folder / "deny.yaml"
        head = "{apiVersion: svc.internal/v1alpha1, kind: SvcDenyList, metadata: {name: stolen}, spec: "
        policy.write_text(head + "{}}")
        listener = outbound("denied", scene.server.port, collectReceipts=True)
        url = f"http://{listener['listen']}/bytes/3"
        files = {"default": "allow", "files": [str(policy)]}
        with client_proxy(scene.authority, None, listener, policy=files) as proxy:
            _status, answer, _body = curl(url, "-H", "Svc-Notarization-Level: signRequest")
            [named] = [line for line in answer.decode().split("\r\n") if line.startswith("Svc-Workload-ID: ")]
            changed = scene.folder / "changed"
            changed.write_text(head + f"{{workloadStatements: ['{named[-43:]}']}}}}")
            changed.rename(policy)
            eventually(lambda: b" 502 " in curl(url)[1])
            found = refusal(url)
            self.assertEqual(("upstream_identity_refused", "policy_deny"), (found["code"], found["detail_reason"]))
            self.assertTrue(proxy.records("svc.proxy.policy.loaded"))

    def test_no_roots(self) -> None:
        """Without post-quantum roots under the profile hybrid the answer and the log say which file is missing."""
        scene = SHARED.get()
        listener = outbound("rootless", scene.server.port, require=["workload"])
        proxy = client_proxy(scene.authority, None, listener)
        proxy.config["notary"]["pqBundle"] = str(scene.folder / "absent.json")
        with proxy:
            found = refusal(f"http://{listener['listen']}/")
            self.assertEqual("upstream_unverified", found["code"])
            self.assertIn("absent.json", found["detail"])


class CrashTests(SynchronousTestCase):
    """Either side is killed."""

    def test_peer(self) -> None:
        """A peer that is killed between response and receipt leaves a response without its end."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            python = other_python(folder / "python")
            entries = [entry("/ns/shop/sa/web", executable=str(python)), entry("/ns/shop/sa/api")]
            authority = stack.enter_context(RunningAuthority(entries=entries))
            server = RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}")
            stack.callback(server.kill)
            listener = outbound("kept", server.port, require=["receipt"], collectReceipts=True)
            stack.enter_context(client_proxy(authority, python, listener))
            url = f"http://{listener['listen']}/bytes/1000"
            server.launch(("last-byte.written", 2))
            eventually(server.is_ready)
            self.assertEqual(1000, len(curl(url)[2]))
            with ThreadPoolExecutor() as pool:
                answered = pool.submit(curl, url)
                process = server.process
                assert process is not None
                stat = Path(f"/proc/{process.pid}/stat")
                eventually(lambda: stat.read_text().rpartition(") ")[2].startswith("T"))
                server.kill()
                status, head, body = answered.result()
            # 18: the transfer was closed with outstanding data; 56: the connection was reset.
            self.assertIn(status, (18, 56), (head, body))
            self.assertLess(len(body), 1000)

    def test_collected(self) -> None:
        """What a response was released for is there after the collecting proxy is killed and started again."""
        scene = SHARED.get()
        with ExitStack() as stack:
            listener = outbound("kept", scene.server.port, require=["receipt"], collectReceipts=True)
            proxy = client_proxy(scene.authority, None, listener)
            stack.callback(proxy.kill)
            proxy.start()
            url, locations = f"http://{listener['listen']}", []
            for number in range(5):
                status, head, _body = curl(f"{url}/bytes/{number}")
                self.assertEqual(0, status)
                lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
                locations.append(lines["Svc-Receipt-Location"])
            proxy.kill()
            proxy.start()
            for location in locations:
                self.assertIn(b" 200 ", curl(url + location)[1])
            self.assertIn(b" 404 ", curl(url + locations[0][:-22] + new_nonce(bytes(16)))[1])


class LiarTests(TestCase):
    """A workload with a valid SVID and a notary of its own."""

    timeout = 900

    async def test_lies(self) -> None:
        """Its own word is accepted; a receipt that differs from what happened cuts the response."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        folder = short_folder(stack)
        python = other_python(folder / "python")
        entries = [entry("/ns/shop/sa/web", executable=str(python)), entry(LIAR.path)]
        authority = stack.enter_context(RunningAuthority(entries=entries))
        source = WorkloadSource(authority.address, reactor=reactor)
        source.startService()
        self.addCleanup(source.stopService)
        await source.when_ready()
        svid = next(each for each in source.svids if each.spiffe_id == LIAR)
        liar = await Impersonator.make(reactor, source, svid, authority.pq_address)
        port = await liar.listen()
        self.addCleanup(port.stopListening)
        listener = outbound("liar", port.getHost().port, require=["receipt"], collectReceipts=True)
        proxy = client_proxy(authority, python, listener)
        await deferToThread(proxy.start)
        self.addCleanup(proxy.kill)
        url = f"http://{listener['listen']}/page?x=1"
        status, _head, body = await deferToThread(curl, url)
        self.assertEqual((0, BODY), (status, body))
        lies = ({"body": b"something else\n"}, {"target": "/other?x=1"}, {"nonce": new_nonce(bytes(16))})
        for lie in lies:
            liar.receipt = _lying(liar, lie)
            status, head, body = await deferToThread(curl, url)
            self.assertIn(status, (18, 56), head)
            self.assertEqual(BODY[:-1], body)
        # Further failures within a second are counted, not logged.
        [logged] = proxy.records("svc.proxy.upstream.failed")
        self.assertEqual(("response_mismatch{body}", str(LIAR)), (logged["detail_reason"], logged["peer_spiffe_id"]))
        liar.statement_id = "A" * 43
        found = await deferToThread(refusal, url)
        self.assertEqual("id_mismatch", found["detail_reason"])


def _lying(liar: Impersonator, lie: dict[str, Any]) -> Callable[[Request], Any]:
    return lambda request: deferToThread(liar.signed_receipt, request, **lie)
