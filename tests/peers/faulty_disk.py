"""
What a test needs to break the disk under a proxy: the proxy itself, an application that counts, disks that fill up.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest

from svc.envelope.ids import new_nonce
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection, Response
from tests.peers.proxy import RunningProxy
from tests.peers.receipt_verifier import ReceiptVerifier, says
from tests.peers.waiting import Shared, eventually

BODY = b"from the application\n"


class Application:
    """Answers every GET with :data:`BODY`, ``/held`` only when the gate is open, and counts what it was asked."""

    def __init__(self, stack: ExitStack) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()
        application = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_arguments: object) -> None:
                """Log nothing."""

            def do_GET(self) -> None:
                application.asked.append(self.path)
                if self.path == "/held":
                    application.gate.wait(60)
                self.send_response(200)
                self.send_header("Content-Length", str(len(BODY)))
                self.end_headers()
                self.wfile.write(BODY)

        class Server(ThreadingHTTPServer):
            request_queue_size = 256

            def handle_error(self, request: object, client_address: object) -> None:
                """Say nothing: the proxy is killed, its connections end anyhow."""

        server = Server(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        self.port: int = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        stack.callback(self.gate.set)


class Ground:
    """What does not break: the authority, its roots, a client and another one."""

    def __init__(self, stack: ExitStack) -> None:
        self.authority = stack.enter_context(
            RunningAuthority(entries=[entry("/ns/shop/sa/api"), entry("/ns/shop/sa/other")])
        )
        self.tls = Credentials.fetch(self.authority, short_folder(stack), "/ns/shop/sa/api").context()
        self.other = Credentials.fetch(self.authority, short_folder(stack), "/ns/shop/sa/other").context()
        self.verifier = ReceiptVerifier(self.authority)


GROUND = Shared(Ground)


class Breakable(RunningProxy):
    """
    A proxy with its application.

    Args:
        stack: ends both.
        folder: the folder of its database.
        listener: further keys of its listener.
        notary: further keys of the notary.
    """

    def __init__(
        self,
        stack: ExitStack,
        folder: Path | None = None,
        *,
        listener: Mapping[str, Any] | None = None,
        notary: Mapping[str, Any] | None = None,
    ) -> None:
        self.ground: Ground = GROUND.get()
        self.application = Application(stack)
        database = {} if folder is None else {"path": str(folder / "notary.db")}
        upstream = f"127.0.0.1:{self.application.port}"
        super().__init__(self.ground.authority, upstream, notary={**database, **(notary or {})}, listener=listener)
        stack.callback(self.stop)
        self.database = Path(self.config["notary"]["path"])
        self.acknowledged: list[str] = []

    def serve(self) -> None:
        """Start it and wait until it serves, whatever its database does."""
        self.launch()
        eventually(lambda: self.readiness().get("listeners", {}).get("ok"), 60, "an open listener")

    def connect(self) -> RawConnection:
        """Connect as a client."""
        return RawConnection(self.port, self.ground.tls)

    def ask(self, level: str, target: str = "/") -> Response:
        """Ask on a new connection; an answer at ``signRequest`` counts as acknowledged."""
        nonce = new_nonce(os.urandom(16))
        with self.connect() as connection:
            notary_fields = f"Svc-Notarization-Level: {level}\r\n"
            if level != "workload":
                notary_fields += f"Svc-Notary-Nonce: {nonce}\r\n"
            answer = connection.request(target, fields=notary_fields)
        if level == "signRequest" and answer.status == 200:
            self.acknowledged.append(nonce)
        return answer

    def lost(self) -> list[str]:
        """Name every acknowledged receipt that is not served, or does not match the application's response."""
        with self.connect() as connection:
            found = [(nonce, self.ground.verifier.receipt(connection, nonce)) for nonce in self.acknowledged]
        return [nonce for nonce, claims in found if claims is None or not says(claims, 200, BODY)]

    def errors_counted(self) -> float:
        """Read the counter of the database's errors."""
        return self.metric("svc_proxy_notary_db_errors_total")


def mounted(stack: ExitStack, *options: str, source: str = "tmpfs") -> Path:
    """
    Mount a file system that may break.

    Args:
        stack: unmounts it.
        options: of ``mount``.
        source: what is mounted.

    Returns:
        The folder.

    Raises:
        SkipTest: this user may not.
    """
    folder = short_folder(stack) / "disk"
    folder.mkdir()
    ran = subprocess.run(["mount", *options, source, str(folder)], capture_output=True, check=False)
    if ran.returncode:
        raise SkipTest(f"this user may not mount a file system: {ran.stderr.decode().strip()}")
    stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
    return folder


def memory_disk(stack: ExitStack, size: str = "24m") -> Path:
    """
    Mount a small disk in memory.

    Args:
        stack: unmounts it.
        size: its size.

    Returns:
        The folder.
    """
    return mounted(stack, "-t", "tmpfs", "-o", f"size={size},mode=700")


def fill(folder: Path) -> Path:
    """
    Fill a disk to the last block.

    Args:
        folder: on the disk.

    Returns:
        The file to delete.
    """
    path = folder / "filler"
    with path.open("ab", buffering=0) as file:
        for size in (1024 * 1024, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return path


def later(call: Any, *arguments: object) -> threading.Thread:
    """
    Call in a thread that somebody joins.

    Args:
        call: what to call.
        arguments: with what.

    Returns:
        The thread, started.
    """
    thread = threading.Thread(target=call, args=arguments, daemon=True)
    thread.start()
    return thread


def seconds_of(call: Any) -> float:
    """
    Measure a call.

    Args:
        call: what to call.

    Returns:
        How long it took.
    """
    began = time.monotonic()
    call()
    return time.monotonic() - began
