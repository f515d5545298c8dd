"""
A real registry of container images (docker-registry), with TLS and passwords where wanted, and what cuts its answers.
"""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt

from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import free_port
from tests.peers.webapp import serve

USERNAME, PASSWORD = "customer", "correct horse"
IDENTITY_TOKEN = "identity-token"


class RunningRegistry:
    """
    One docker-registry.

    Args:
        stack: ends it.
        host: the address on which it listens.
        certificate: the files of certificate and key; None for HTTP.
        password: whether it asks for :data:`USERNAME` and :data:`PASSWORD`.
        token: the configuration of token authentication; None for none.

    Attributes:
        port: where it listens.
    """

    def __init__(
        self,
        stack: ExitStack,
        *,
        host: str = "127.0.0.1",
        certificate: tuple[Path, Path] | None = None,
        password: bool = False,
        token: dict[str, str] | None = None,
    ) -> None:
        folder = short_folder(stack, "svc-registry-")
        self.port = free_port()
        http_part: dict[str, Any] = {"addr": f"{host}:{self.port}", "relativeurls": True, "secret": "shared"}
        if certificate is not None:
            http_part["tls"] = {"certificate": str(certificate[0]), "key": str(certificate[1])}
        config: dict[str, Any] = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
            "http": http_part,
        }
        if password:
            made = run([find("htpasswd"), "-Bbn", USERNAME, PASSWORD])
            (folder / "htpasswd").write_bytes(made.stdout.strip() + b"\n")
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(folder / "htpasswd")}}
        elif token is not None:
            config["auth"] = {"token": token}
        path = folder / "registry.json"
        path.write_text(json.dumps(config))
        serve(stack, [find("docker-registry"), "serve", str(path)], self.port, host)


class Interference:
    """
    A server between a client and a registry, which can do to any request what networks and registries do.

    Args:
        stack: ends it.
        port: of the registry, with HTTP.
        certificate: the files of certificate and key for its own side; None for HTTP.

    Attributes:
        port: where it listens.
        requests: method, path and fields of each request.
        meddle: gets a request before it is passed on, and gives whether it has answered it.
        cut: how many octets of the next bodies of content are passed on, one number each; then the connection ends.
    """

    def __init__(self, stack: ExitStack, port: int, *, certificate: tuple[Path, Path] | None = None) -> None:
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.meddle: Callable[[Passing], bool] = lambda _request: False
        self.cut: list[int] = []
        owner = self

        class Handler(Passing):
            interference, upstream = owner, port

        context = None
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
        self.port = _serving(stack, Handler, context)

    def asked(self, method: str, part: str) -> list[dict[str, str]]:
        """Return the fields of the requests with a method whose path has a part."""
        return [fields for each, path, fields in self.requests if each == method and part in path]


class Passing(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    interference: Interference
    upstream: int
    #: Whether the request reaches the registry, and its answer does not come back.
    answer_is_lost = False

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""

    def do_GET(self) -> None:
        """Pass a request on, unless it is meddled with."""
        self.fields = {name.lower(): value for name, value in self.headers.items()}
        self.interference.requests.append((self.command, self.path, self.fields))
        if self.interference.meddle(self):
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        if self.answer_is_lost:
            self.end()
            return
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "date"):
                self.send_header(name, value)
        self.end_headers()
        if self.command == "GET" and "/blobs/sha" in self.path and self.interference.cut:
            self.wfile.write(data[: self.interference.cut.pop(0)])
            self.end()
            return
        self.wfile.write(data)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def answer(self, status: int, fields: dict[str, str], data: bytes = b"") -> bool:
        """Answer in place of the registry."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **fields}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        return True

    def end(self) -> bool:
        """End the connection."""
        self.wfile.flush()
        self.close_connection = True
        return True


def sha256(data: bytes) -> str:
    """Return the digest of octets."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _ordered(scope: str) -> str:
    name, _colon, actions = scope.rpartition(":")
    return f"{name}:{','.join(sorted(actions.split(',')))}"


class TokenServer:
    """
    The token service of a registry: gives tokens to :data:`USERNAME`, and to who has :data:`IDENTITY_TOKEN`.

    Args:
        stack: ends it.
        certificate: the files of the certificate and key that sign tokens.

    Attributes:
        config: what the registry needs to know of it.
        asked: the scopes of each request, with the actions in one order: registries name them in any.
    """

    def __init__(self, stack: ExitStack, certificate: tuple[Path, Path]) -> None:
        self.asked: list[list[str]] = []
        owner = self
        chain = base64.b64encode(ssl.PEM_cert_to_DER_cert(certificate[0].read_text())).decode()
        key = certificate[1].read_text()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments: object) -> None:
                pass

            def do_GET(self) -> None:
                asked = parse_qs(self.path.partition("?")[2])
                basic = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
                self._answer(asked, self.headers.get("Authorization") == f"Basic {basic}")

            def do_POST(self) -> None:
                asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer(asked, asked.get("refresh_token") == [IDENTITY_TOKEN])

            def _answer(self, asked: dict[str, list[str]], known: bool) -> None:
                scopes = [each for words in asked.get("scope", []) for each in words.split()]
                owner.asked.append([_ordered(each) for each in scopes])
                now = int(time.time())
                access = []
                for each in scopes:
                    kind, name, actions = each.split(":")
                    access.append({"type": kind, "name": name, "actions": actions.split(",")})
                claims = {"iss": "issuer", "sub": USERNAME, "aud": "registry", "exp": now + 600, "nbf": now - 60}
                claims |= {"iat": now, "jti": str(len(owner.asked)), "access": access}
                token = jwt.encode(claims, key, algorithm="ES256", headers={"x5c": [chain]})
                data = json.dumps({"token": token} if known else {"errors": []}).encode()
                self.send_response(200 if known else 401)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self.port = _serving(stack, Handler)
        self.config = {
            "realm": f"http://127.0.0.1:{self.port}/token",
            "service": "registry",
            "issuer": "issuer",
            "rootcertbundle": str(certificate[0]),
        }


class ForwardProxy:
    """
    An HTTP proxy that knows where ``registry.test`` is, and one user.

    Args:
        stack: ends it.

    Attributes:
        url: of it, with user and password.
        asked: the first line of each request.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.asked: list[str] = []
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments: object) -> None:
                pass

            def do_CONNECT(self) -> None:
                if not self._admitted():
                    return
                with socket.create_connection(("127.0.0.1", int(self.path.rpartition(":")[2]))) as upstream:
                    self.send_response(200, "Connected")
                    self.end_headers()
                    self.wfile.flush()
                    _relay(self.connection, upstream)
                self.close_connection = True

            def do_GET(self) -> None:
                if not self._admitted():
                    return
                parts = urlsplit(self.path)
                connection = http.client.HTTPConnection("127.0.0.1", parts.port or 80)
                connection.request(self.command, parts.path, headers=dict(self.headers))
                answer = connection.getresponse()
                data = answer.read()
                self.send_response(answer.status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _admitted(self) -> bool:
                owner.asked.append(self.requestline)
                pair = base64.b64encode(b"user:p@ss").decode()
                admitted = self.headers.get("Proxy-Authorization") == f"Basic {pair}"
                if not admitted:
                    self.send_response(407, "Proxy Authentication Required")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                return admitted

        self.port = _serving(stack, Handler)
        self.url = f"http://user:p%40ss@127.0.0.1:{self.port}"


class _QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_arguments: object) -> None:
        """Say nothing of clients that end a connection."""


def _relay(one: socket.socket, other: socket.socket) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _events in selector.select():
                data = key.fileobj.recv(65536)
                if not data:
                    return
                key.data.sendall(data)


def _serving(stack: ExitStack, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None) -> int:
    """Serve in a thread until the stack ends; gives the port."""
    server = _QuietServer(("127.0.0.1", free_port()), handler)
    server.daemon_threads = True
    server.block_on_close = False
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    stack.callback(thread.join)
    stack.callback(server.server_close)
    stack.callback(server.shutdown)
    return int(server.server_address[1])
