"""A GiB up and a GiB down at the same time, octet for octet, in memory that does not grow."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.programs import find
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import Shared

GIB = 1 << 30
WARM = 64 << 20
RECEIPTS = "/.well-known/svc-notary/v1/receipts/by-request/"
#: What an upload and a download hold at once at the most are a few reads and unsent writes of 128 KiB each, and the
#: buffers of the C library around them. A leak of one octet in a hundred would be 20 MiB.
MOST_GROWTH = 12.0


def _make(stack: ExitStack) -> Any:
    find("curl")
    authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
    proxy = RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}", listener={"notarization": "none"})
    stack.enter_context(proxy)
    return SimpleNamespace(proxy=proxy, credentials=Credentials.fetch(authority, short_folder(stack)))


SHARED = Shared(_make)


class GigabyteTests(SynchronousTestCase):
    """Debian's curl through the proxy to an application that hashes what it gets."""

    def setUp(self) -> None:
        found = SHARED.get()
        self.proxy: RunningProxy = found.proxy
        self.credentials: Credentials = found.credentials

    def curl(self, path: str, nonce: str | None, *options: str) -> list[str]:
        """The command that asks for something."""
        fields = [] if nonce is None else ["Svc-Notarization-Level: signRequest", f"Svc-Notary-Nonce: {nonce}"]
        named = [part for each in ("Expect:", *fields) for part in ("--header", each)]
        tls = self.credentials.for_curl()
        return [find("curl"), "--silent", "--show-error", "--fail", *tls, *named, *options, f"{self.proxy.url}{path}"]

    def both_ways(self, size: int, nonces: tuple[str | None, str | None]) -> None:
        """Send and get so many octets at the same time, and compare what arrives at both ends."""
        up = subprocess.Popen(
            self.curl("/digest", nonces[0], "--request", "POST", "--upload-file", "-"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        down = subprocess.Popen(self.curl(f"/bytes/{size}", nonces[1]), stdout=subprocess.PIPE)
        hashing = subprocess.Popen([find("sha256sum")], stdin=down.stdout, stdout=subprocess.PIPE)
        assert down.stdout is not None
        down.stdout.close()
        feeding = threading.Thread(target=_feed, args=(up.stdin, size))
        feeding.start()
        assert up.stdout is not None
        with up.stdout:
            answer = up.stdout.read()
        feeding.join(600)
        found, _ = hashing.communicate(timeout=600)
        expected = webapp.digest(size)
        self.assertEqual((0, 0), (up.wait(60), down.wait(60)))
        arrived = json.loads(answer)
        self.assertEqual((size, expected), (arrived["size"], arrived["sha256"]))
        self.assertEqual(expected, found.split()[0].decode())

    def grown(self, level: str | None) -> float:
        """
        Transfer a GiB each way; returns by how many MiB the most that was ever used has grown over a warm process.
        """
        nonces = [None if level is None else new_nonce(os.urandom(16)) for _ in range(4)]
        self.both_ways(WARM, (nonces[0], nonces[1]))
        _now, warm = self.proxy.memory()
        self.both_ways(GIB, (nonces[2], nonces[3]))
        if level is not None:
            self._assert_receipts(nonces[2] or "", nonces[3] or "")
        return self.proxy.memory()[1] - warm

    def _assert_receipts(self, up: str, down: str) -> None:
        expected = {"size": GIB, "sha256": webapp.digest(GIB)}
        with RawConnection(self.proxy.port, self.credentials) as connection:
            for nonce, side in ((up, "request"), (down, "response")):
                payload = json.loads(connection.request(RECEIPTS + nonce).body)["payload"]
                body = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["svc"][side]["body"]
                digest = base64.urlsafe_b64decode(body["sha-256"] + "=").hex()
                self.assertEqual((expected["size"], expected["sha256"], True), (body["size"], digest, body["complete"]))

    def test_plain(self) -> None:
        """Without a record."""
        self.assertLess(self.grown(None), MOST_GROWTH)

    def test_signed(self) -> None:
        """With a signed receipt of each, whose digests are those of the octets."""
        self.assertLess(self.grown("signRequest"), MOST_GROWTH)


def _feed(pipe: Any, size: int) -> None:
    with pipe:
        for piece in webapp.pieces(size):
            pipe.write(piece)
