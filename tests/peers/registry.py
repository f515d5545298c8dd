"""
A real registry of container images (docker-registry), with TLS and passwords where wanted, and what cuts its answers.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import free_port
from tests.peers.webapp import serve

USERNAME, PASSWORD = "customer", "correct horse"


class RunningRegistry:
    """
    One docker-registry on a loopback port.

    Args:
        stack: ends it.
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
        certificate: tuple[Path, Path] | None = None,
        password: bool = False,
        token: dict[str, str] | None = None,
    ) -> None:
        folder = short_folder(stack, "svc-registry-")
        self.port = free_port()
        http_part: dict[str, Any] = {"addr": f"127.0.0.1:{self.port}", "relativeurls": True, "secret": "shared"}
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
        serve(stack, [find("docker-registry"), "serve", str(path)], self.port)


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

        server = ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
        server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        self.port = int(server.server_address[1])
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)

    def asked(self, method: str, part: str) -> list[dict[str, str]]:
        """Return the fields of the requests with a method whose path has a part."""
        return [fields for each, path, fields in self.requests if each == method and part in path]


class Passing(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    interference: Interference
    upstream: int

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
