"""Real applications behind the proxy: nginx, the standard library's http.server, and one with every framing."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import socket
import sqlite3
import ssl
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.nginx import RunningNginx
from tests.peers.programs import find, run
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared, eventually, free_port

MIB = 1024 * 1024
BIG = 100 * MIB
#: MiB that a body of any size may add to the proxy.
GROWTH = 48.0
ID = "spiffe://example.org/ns/shop/sa/api"


def _make(stack: ExitStack) -> Any:
    find("nginx")
    find("curl")
    folder = short_folder(stack)
    www = folder / "www"
    www.mkdir()
    (www / "page.txt").write_bytes(b"a page\n" * 1000)
    (www / "big.bin").write_bytes(webapp.octets(BIG))
    application = webapp.start(stack)
    nginx = RunningNginx(stack, application)
    nginx.put("page.txt", b"a page\n" * 1000)
    (nginx.www / "big.bin").hardlink_to(www / "big.bin")
    files = webapp.start_file_server(stack, www)
    ports = {name: free_port() for name in ("nginx", "files", "socket", "told", "bank", "unnamed")}
    inbound = {"protocol": "http", "direction": "inbound", "notarization": "workload"}
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    outbound = {
        "protocol": "http",
        "direction": "outbound",
        "peer": ID,
        "upstream": f"127.0.0.1:{ports['nginx']}",
    }
    proxy = RunningProxy(
        authority,
        f"127.0.0.1:{application}",
        listeners=[
            {
                **inbound,
                "name": "nginx",
                "listen": f"127.0.0.1:{ports['nginx']}",
                "upstream": f"127.0.0.1:{nginx.port}",
            },
            {**inbound, "name": "files", "listen": f"127.0.0.1:{ports['files']}", "upstream": f"127.0.0.1:{files}"},
            {
                **inbound,
                "name": "socket",
                "listen": f"127.0.0.1:{ports['socket']}",
                "upstream": f"unix://{nginx.socket}",
            },
            {
                **inbound,
                "name": "told",
                "listen": f"127.0.0.1:{ports['told']}",
                "upstream": f"127.0.0.1:{application}",
                "forwarded": "rfc7239",
                "proxyProtocol": "v2",
            },
            {**outbound, "name": "bank", "listen": f"127.0.0.1:{ports['bank']}", "host": "pay.bank.example:8443"},
            {**outbound, "name": "unnamed", "listen": f"127.0.0.1:{ports['unnamed']}"},
        ],
    )
    stack.enter_context(proxy)
    credentials = Credentials.fetch(authority, folder / "id")
    return SimpleNamespace(proxy=proxy, credentials=credentials, ports=ports, big=www / "big.bin", folder=folder)


SHARED = Shared(_make)


class _Case(SynchronousTestCase):
    def setUp(self) -> None:
        found = SHARED.get()
        self.proxy: RunningProxy = found.proxy
        self.credentials: Credentials = found.credentials
        self.ports: dict[str, int] = {**found.ports, "web": found.proxy.port}
        self.big: Path = found.big
        self.folder: Path = found.folder

    def connect(self, listener: str = "web") -> RawConnection:
        connection = RawConnection(self.ports[listener], self.credentials)
        self.addCleanup(connection.close)
        return connection

    def curl(self, listener: str, path: str, *options: str) -> bytes:
        """Let Debian's curl do it; it must succeed."""
        url = f"https://127.0.0.1:{self.ports[listener]}{path}"
        command = [find("curl"), "--silent", "--show-error", "--fail", *self.credentials.for_curl(), *options, url]
        ran = run(command, seconds=180)
        self.assertEqual((0, b""), (ran.returncode, ran.stderr))
        return ran.stdout


class FilesTests(_Case):
    """The same files behind nginx and behind http.server, which uses HTTP/1.0."""

    def test_methods(self) -> None:
        """GET, HEAD, conditional and missing pages arrive as the application meant them, on one connection each."""
        for listener in ("nginx", "files"):
            page = self.connect(listener).request("/page.txt")
            self.assertEqual((200, b"a page\n" * 1000), (page.status, page.body))
            self.assertEqual(43, len(page.get("svc-workload-id") or ""))
            connection = self.connect(listener)
            head = connection.request("/page.txt", method="HEAD")
            self.assertEqual((200, b"", "7000"), (head.status, head.body, head.get("content-length")))
            if head.get("connection") == "close":
                connection = self.connect(listener)
            since = f"If-Modified-Since: {page.get('last-modified')}\r\n"
            self.assertEqual(304, connection.request("/page.txt", fields=since).status)
            self.assertEqual(404, self.connect(listener).request("/no-such-page").status)

    def test_unix_socket(self) -> None:
        """An application that listens on a Unix socket is served alike."""
        connection = self.connect("socket")
        for _turn in range(2):
            self.assertEqual(b"a page\n" * 1000, connection.request("/page.txt").body)

    def test_post(self) -> None:
        """A POST that the application refuses has its status through the proxy: 501 of http.server, 405 of nginx."""
        self.assertEqual(501, self.connect("files").request("/page.txt", method="POST", body=b"x").status)
        self.assertEqual(405, self.connect("nginx").request("/page.txt", method="POST", body=b"x").status)

    def test_ranges(self) -> None:
        """A range request gives the range and nothing else."""
        found = self.connect("nginx").request("/page.txt", fields="Range: bytes=7-13\r\n")
        self.assertEqual((206, b"a page\n"), (found.status, found.body))
        self.assertEqual("bytes 7-13/7000", found.get("content-range"))
        several = self.connect("nginx").request("/page.txt", fields="Range: bytes=0-3,7-10\r\n")
        self.assertEqual((206, 2), (several.status, several.body.count(b"a pa")))
        beyond = self.connect("nginx").request("/page.txt", fields="Range: bytes=7000-\r\n")
        self.assertEqual(416, beyond.status)

    def test_compression(self) -> None:
        """A compressed body is passed on as it is: chunked from nginx, of known length from elsewhere."""
        found = self.connect("nginx").request("/page.txt", fields="Accept-Encoding: gzip\r\n")
        self.assertEqual(("gzip", "chunked"), (found.get("content-encoding"), found.get("transfer-encoding")))
        self.assertEqual(b"a page\n" * 1000, gzip.decompress(found.body))
        known = self.connect().request("/gzip/5000")
        self.assertEqual(webapp.octets(5000), gzip.decompress(known.body))

    def test_health_check(self) -> None:
        """A health check in HTTP/1.0 without Host is answered, by the real nginx too."""
        for application in ("nginx", None):
            connection = self.connect(application) if application else self.connect()
            connection.send(b"GET /%b HTTP/1.0\r\n\r\n" % (b"page.txt" if application else b"bytes/1"))
            self.assertTrue(connection.rest().startswith(b"HTTP/1.1 200 "), application)

    def test_early_answer(self) -> None:
        """
        An application that refuses an upload before it is sent: its response is forwarded, and the next request is not
        affected.
        """
        connection = self.connect("nginx")
        answer = connection.request("/refuse", method="POST", body=b"x" * 1000)
        self.assertEqual((413, b"too much for me\n"), (answer.status, answer.body))
        self.assertEqual(200, self.connect("nginx").request("/page.txt").status)

    def test_big_download(self) -> None:
        """100 MiB arrive octet for octet from nginx and from http.server, in bounded memory of the proxy."""
        wanted = webapp.digest(BIG)
        for listener in ("nginx", "files"):
            before, _ = self.proxy.memory()
            got = self.folder / f"{listener}.bin"
            self.addCleanup(got.unlink)
            self.curl(listener, "/big.bin", "--output", str(got))
            with got.open("rb") as file:
                self.assertEqual(wanted, hashlib.file_digest(file, "sha256").hexdigest())
            _, most = self.proxy.memory()
            self.assertLess(most - before, GROWTH)

    def test_slow_reader(self) -> None:
        """A client that reads nothing for a while makes the proxy stop reading too: 100 MiB do not pile up."""
        before, _ = self.proxy.memory()
        connection = self.connect()
        connection.send(f"GET /bytes/{BIG} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
        connection.exactly(1000)
        eventually(lambda: self.proxy.metric("svc_proxy_active_connections", direction="inbound") >= 1)
        for _number in range(20):
            other = self.connect()
            self.assertEqual(MIB, len(other.request(f"/bytes/{MIB}").body))
            other.close()
        self.assertLess(self.proxy.memory()[0] - before, GROWTH)


class BodiesTests(_Case):
    """Bodies towards the application."""

    def test_big_upload(self) -> None:
        """100 MiB reach the application octet for octet, with a length and in chunks, in bounded memory."""
        wanted = {"size": BIG, "sha256": webapp.digest(BIG), "trailers": []}
        for listener, path in (("web", "/digest"), ("nginx", "/app/digest")):
            for options in ([], ["--header", "Transfer-Encoding: chunked"]):
                before, _ = self.proxy.memory()
                upload = ["--header", "Expect:", "--header", "Content-Type:", "--data-binary", f"@{self.big}"]
                self.assertEqual(wanted, json.loads(self.curl(listener, path, *upload, *options)))
                _, most = self.proxy.memory()
                self.assertLess(most - before, GROWTH)

    def test_both_ways(self) -> None:
        """32 MiB are uploaded and returned at the same time through an application that echoes while it reads."""
        part = self.folder / "part.bin"
        part.write_bytes(webapp.octets(32 * MIB))
        for options in ([], ["--header", "Transfer-Encoding: chunked"]):
            back = self.curl("web", "/echo", "--header", "Expect:", "--data-binary", f"@{part}", *options)
            self.assertEqual(webapp.digest(32 * MIB), hashlib.sha256(back).hexdigest())

    def test_trailers(self) -> None:
        """Trailer fields travel both ways; those that no proxy may trust do not."""
        connection = self.connect()
        connection.send(
            b"POST /echo HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: te\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5\r\nhello\r\n0\r\nX-Checksum: abc\r\nSvc-Workload-ID: forged\r\n\r\n"
        )
        answer = connection.read()
        self.assertEqual((b"hello", [("x-checksum", "abc")]), (answer.body, answer.trailers))
        answer = connection.request("/chunked/100000")
        self.assertEqual([("x-digest", webapp.digest(100000))], answer.trailers)

    def test_expectation(self) -> None:
        """A client that waits for 100 Continue gets it, then sends its body and is answered."""
        upload = ["--header", "Expect: 100-continue", "--expect100-timeout", "30", "--data-binary", f"@{self.big}"]
        seen = self.curl("web", "/digest", "--verbose", "--stderr", "-", *upload)
        self.assertIn(b"< HTTP/1.1 100 Continue", seen)
        self.assertIn(webapp.digest(BIG).encode(), seen)

    def test_hints(self) -> None:
        """Other 1xx answers are passed on, without fields that are ours."""
        answer = self.connect().request("/interim")
        self.assertEqual([(103, [("link", "</style.css>")])], answer.interim)
        self.assertEqual((200, b"after the hints\n"), (answer.status, answer.body))


class OldClientTests(_Case):
    """Clients with HTTP/1.0."""

    def test_no_chunks(self) -> None:
        """A chunked answer reaches them without chunk lines, ended by the end of the connection."""
        connection = self.connect()
        connection.send(b"GET /chunked/100000 HTTP/1.0\r\nHost: test\r\n\r\n")
        answer = connection.read()
        self.assertIsNone(answer.get("transfer-encoding"))
        self.assertEqual(webapp.octets(100000), answer.body)

    def test_keep_alive(self) -> None:
        """One that asks for it, as ab does, keeps its connection; one that does not, does not."""
        connection = self.connect()
        for _number in range(3):
            connection.send(b"GET /bytes/10 HTTP/1.0\r\nHost: test\r\nConnection: Keep-Alive\r\n\r\n")
            answer = connection.read()
            self.assertEqual((webapp.octets(10), "keep-alive"), (answer.body, answer.get("connection")))
        connection.send(b"GET /bytes/10 HTTP/1.0\r\nHost: test\r\n\r\n")
        self.assertEqual(webapp.octets(10), connection.read().body)
        self.assertTrue(connection.ended())


class SocketTests(_Case):
    """A connection that changes its protocol."""

    def test_web_socket(self) -> None:
        """After 101 the octets pass unchanged in both directions, also those sent along with the request."""
        connection = self.connect()
        connection.send(
            b"GET /socket HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\x81\x05early"
        )
        answer = connection.read()
        self.assertEqual((101, "websocket"), (answer.status, answer.get("upgrade")))
        self.assertEqual(43, len(answer.get("svc-workload-id") or ""))
        self.assertEqual(b"\x81\x05early", connection.exactly(7))
        sent = webapp.octets(4 * MIB)
        got = connection.both_ways(sent, len(sent))
        self.assertEqual(hashlib.sha256(sent).digest(), hashlib.sha256(got).digest())

    def test_end(self) -> None:
        """When the client of a WebSocket disconnects, the application's connection is closed too."""
        closed = self.proxy.metric("svc_proxy_connections_closed_total")
        connection = self.connect()
        connection.send(b"GET /socket HTTP/1.1\r\nHost: test\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
        self.assertEqual(101, connection.read().status)
        connection.close()
        eventually(
            lambda: self.proxy.metric("svc_proxy_connections_closed_total") > closed, 60, "the end of the socket"
        )


#: What a client could write to have an application believe something else of it.
CLAIMS = (
    "X-Forwarded-Proto: http",
    "x_forwarded_proto: http",
    "X-Forwarded-For: 203.0.113.9",
    "X.Forwarded.Host: evil.example",
    "Forwarded: for=203.0.113.9;host=evil.example",
    "X_Real_IP: 203.0.113.9",
    "Client-Cert: :evil:",
)


class WhoAsksTests(_Case):
    """What an application learns of the connection of its client."""

    def fields(self, connection: RawConnection, fields: str) -> list[list[str]]:
        """Return the fields that the application gets."""
        found: list[list[str]] = json.loads(connection.request("/head", fields=fields).body)["fields"]
        return found

    def test_claims_of_clients(self) -> None:
        """What clients write of themselves does not arrive; who they are and ``https`` do, after their fields."""
        found = self.fields(self.connect(), "".join(f"{line}\r\n" for line in CLAIMS) + "X-Other: 1\r\n")
        self.assertEqual(
            ["Host", "X-Other", "X-Forwarded-Client-Cert", "X-Forwarded-Proto"], [name for name, _ in found]
        )
        own, digest, client = found[2][1].split(";")
        self.assertEqual((f"By={ID}", f"URI={self.credentials.spiffe_id}"), (own, client))
        self.assertRegex(digest, r"\AHash=[0-9a-f]{64}\Z")
        self.assertEqual("https", found[3][1])

    def test_forwarded(self) -> None:
        """``Forwarded`` has the address of the PROXY header, listener, Host and https, and replaces the client's."""
        for family, packed, shown in (
            (0x11, socket.inet_aton("192.0.2.7"), "192.0.2.7"),
            (0x21, socket.inet_pton(socket.AF_INET6, "2001:db8::7"), "[2001:db8::7]"),
        ):
            block = packed + packed + struct.pack("!HH", 4711, 8443)
            header = b"\r\n\r\n\x00\r\nQUIT\n" + struct.pack("!BBH", 0x21, family, len(block)) + block
            connection = RawConnection(self.ports["told"], self.credentials, before=header)
            self.addCleanup(connection.close)
            for host, quoted in (("api.example", "api.example"), ("api.example:8443", '"api.example:8443"')):
                request = f"GET /head HTTP/1.1\r\nHost: {host}\r\nForwarded: for=evil\r\n\r\n"
                connection.send(request.encode())
                found = json.loads(connection.read().body)["fields"]
                wanted = f'for="{shown}:4711";by=_told;host={quoted};proto=https'
                self.assertEqual([wanted], [value for name, value in found if name.lower() == "forwarded"])


class VirtualHostTests(_Case):
    """An outbound listener, the peer's proxy, and an nginx with two virtual hosts behind that."""

    def get(self, listener: str, target: str, host: str = "127.0.0.1:18443") -> bytes:
        """Ask as a local application does: plain, and for a receipt."""
        connection = RawConnection(self.ports[listener])
        self.addCleanup(connection.close)
        level = "Svc-Notarization-Level: signRequest\r\n"
        connection.send(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{level}\r\n".encode())
        answer = connection.read()
        self.assertEqual(200, answer.status)
        return answer.body

    def newest(self) -> dict[str, Any]:
        """Return the request as the newest receipt describes it."""
        with closing(sqlite3.connect(self.proxy.config["notary"]["path"], timeout=60)) as database:
            (payload,) = database.execute("SELECT payload FROM receipt ORDER BY seq DESC LIMIT 1").fetchone()
        request: dict[str, Any] = json.loads(payload)["svc"]["request"]
        return request

    def test_host(self) -> None:
        """With ``host`` the peer's application serves that virtual host, and the receipt has that authority."""
        for target, uri in (("/a?b", "/a?b"), ("http://127.0.0.1:18443/a?b", "/a?b")):
            self.assertEqual(f"pay.bank.example:8443 {uri}\n".encode(), self.get("bank", target))
            self.assertEqual("pay.bank.example:8443", self.newest()["authority"])

    def test_default(self) -> None:
        """Without it Host is what the local application sent: its own virtual host, or none, as it likes."""
        self.assertEqual(b"a page\n" * 1000, self.get("unnamed", "/page.txt"))
        self.assertEqual("127.0.0.1:18443", self.newest()["authority"])
        self.assertEqual(b"pay.bank.example /a\n", self.get("unnamed", "/a", "pay.bank.example"))
        self.assertEqual("pay.bank.example", self.newest()["authority"])


class HalfClosedTests(_Case):
    """Clients that end their stream behind the request (RFC 9112 section 9.6)."""

    def test_netcat(self) -> None:
        """``nc -N`` gets the answer of a peer that takes its time."""
        request = b"GET /app/slow/1 HTTP/1.1\r\nHost: a\r\n\r\n"
        done = run([find("nc.openbsd"), "-N", "127.0.0.1", str(self.ports["unnamed"])], data=request)
        self.assertTrue(done.stdout.startswith(b"HTTP/1.1 200 "), done.stdout)

    def test_many_octets(self) -> None:
        """A response that fills every buffer arrives whole behind FIN."""
        with socket.create_connection(("127.0.0.1", self.ports["unnamed"]), 60) as connection:
            connection.sendall(b"GET /big.bin HTTP/1.1\r\nHost: a\r\n\r\n")
            connection.shutdown(socket.SHUT_WR)
            digest, size = hashlib.sha256(), 0
            with connection.makefile("rb") as stream:
                while stream.readline() not in (b"\r\n", b""):
                    pass
                while data := stream.read(MIB):
                    digest.update(data)
                    size += len(data)
        self.assertEqual((BIG, webapp.digest(BIG)), (size, digest.hexdigest()))

    def test_close_notify(self) -> None:
        """So does one over TLS behind close_notify, with FIN or without, and behind a PROXY header."""
        head = b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x20\x00\x00\x00"
        for listener, fin, first in (("web", False, b""), ("web", True, b""), ("told", True, head)):
            with self.subTest(listener=listener, fin=fin):
                received = self.tls(self.ports[listener], b"GET /bytes/5000000 HTTP/1.1\r\nHost: a\r\n\r\n", fin, first)
                self.assertEqual(webapp.octets(5_000_000), received.partition(b"\r\n\r\n")[2])

    def tls(self, port: int, request: bytes, fin: bool, first: bytes) -> bytes:
        """Send a request, close_notify and FIN; return everything that comes back."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = self.credentials.context().wrap_bio(incoming, outgoing)
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.sendall(first)
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    connection.sendall(outgoing.read())
                    incoming.write(connection.recv(65536))
            tls.write(request)
            self.assertRaises(ssl.SSLWantReadError, tls.unwrap)
            connection.sendall(outgoing.read())
            if fin:
                connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65536):
                incoming.write(data)
        received = b""
        with contextlib.suppress(ssl.SSLZeroReturnError, ssl.SSLWantReadError):
            while data := tls.read(65536):
                received += data
        return received


class OfferedUpgradeTests(_Case):
    """Clients that offer HTTP/2 with every request without TLS."""

    def test_curl(self) -> None:
        """``curl --http2 -d`` gets its answer, whatever it sends."""
        url = f"http://127.0.0.1:{self.ports['unnamed']}/app/echo"
        for options in (["--data", "hello"], ["--data", "hello", "--header", "Transfer-Encoding: chunked"]):
            ran = run([find("curl"), "--silent", "--show-error", "--fail", "--http2", *options, url])
            self.assertEqual((0, b"hello"), (ran.returncode, ran.stdout))


class ManyClientsTests(_Case):
    """Many at once."""

    def test_keep_alive(self) -> None:
        """48 clients with 40 requests each on one connection each: every answer belongs to its request."""
        accepted = self.proxy.metric("svc_proxy_connections_total", result="success")

        def client(number: int) -> int:
            good = 0
            with RawConnection(self.ports["web"], self.credentials) as connection:
                for turn in range(40):
                    name, size = f"{number}-{turn}", (number * 131 + turn * 977) % 20000
                    answer = connection.request(f"/bytes/{size}", fields=f"X-Request-Id: {name}\r\n")
                    good += answer.get("x-request-id") == name and answer.body == webapp.octets(size)
            return good

        with ThreadPoolExecutor(16) as threads:
            self.assertEqual([40] * 48, list(threads.map(client, range(48))))
        more = self.proxy.metric("svc_proxy_connections_total", result="success") - accepted
        self.assertLessEqual(more, 48)

    def test_pipelining(self) -> None:
        """Thirty requests sent in one go are answered in their order."""
        connection = self.connect()
        sizes = [(number * 337) % 3000 for number in range(30)]
        connection.send(b"".join(b"GET /bytes/%d HTTP/1.1\r\nHost: test\r\n\r\n" % size for size in sizes))
        for size in sizes:
            self.assertEqual(webapp.octets(size), connection.read().body)

    def test_pool(self) -> None:
        """The application sees kept connections used again, not one for each request."""
        connection = self.connect("nginx")
        for _number in range(50):
            self.assertEqual(200, connection.request("/page.txt").status)
        before = self.proxy.descriptors()
        for _number in range(50):
            self.assertEqual(200, connection.request("/page.txt").status)
        self.assertLessEqual(self.proxy.descriptors(), before)

    def test_churn(self) -> None:
        """Three hundred connections that open and close leave no descriptor behind."""

        def client(_number: int) -> int:
            with RawConnection(self.ports["web"], self.credentials) as connection:
                return connection.request("/bytes/100").status

        with ThreadPoolExecutor(8) as threads:
            self.assertEqual({200}, set(threads.map(client, range(50))))
            eventually(lambda: self.proxy.metric("svc_proxy_active_connections") == 0, 60, "that all are closed")
            before = self.proxy.descriptors()
            self.assertEqual({200}, set(threads.map(client, range(250))))
        eventually(lambda: self.proxy.metric("svc_proxy_active_connections") == 0, 60, "that all are closed")
        self.assertLessEqual(self.proxy.descriptors(), before + 16)
