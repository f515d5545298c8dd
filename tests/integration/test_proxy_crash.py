"""The proxy dies, or its disk is full: what a client saw complete stays provable, and nothing is promised in vain."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from svc.notary.ids import new_nonce, receipt_id
from svc.strictjson import b64u_decode
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.proxy import RunningProxy
from tests.peers.strangers import Credentials, RawConnection, Response
from tests.peers.waiting import eventually, short_folder

RECEIPTS = "/.well-known/svc-notary/v1/receipts/by-request/"


def _claims(envelope: bytes) -> dict[str, object]:
    payload = json.loads(envelope)["payload"]
    found: dict[str, object] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return found


class _Client(threading.Thread):
    """Asks for signed receipts until its connection breaks, and remembers what it saw complete."""

    def __init__(self, port: int, credentials: Credentials, number: int) -> None:
        super().__init__(daemon=True)
        self._port, self._credentials, self._number = port, credentials, number
        self.complete: list[tuple[str, bytes]] = []

    def run(self) -> None:
        size = 1 + self._number * 911
        try:
            with RawConnection(self._port, self._credentials) as connection:
                while True:
                    nonce = new_nonce(os.urandom(16))
                    wishes = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {nonce}\r\n"
                    framing = ("bytes", "chunked")[len(self.complete) % 2]
                    answer = connection.request(f"/{framing}/{size}", fields=wishes)
                    self.complete.append((nonce, answer.body))
        except OSError:
            return


class CrashTests(SynchronousTestCase):
    """kill -9 in the middle of signing."""

    def test_no_receipt_is_lost(self) -> None:
        """After each of four crashes under load every receipt of a response that was received whole is served."""
        with ExitStack() as stack:
            authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
            proxy = RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}")
            stack.callback(proxy.stop)
            credentials = Credentials.fetch(authority, short_folder(stack))
            total = 0
            for turn in range(4):
                proxy.start()
                clients = [_Client(proxy.port, credentials, number) for number in range(8)]
                for client in clients:
                    client.start()
                eventually(lambda: sum(len(each.complete) for each in clients) >= 60, 20, "some signed answers")  # noqa: B023
                time.sleep(0.013 * turn)
                proxy.kill()
                for client in clients:
                    client.join(20)
                proxy.start()
                complete = [pair for client in clients for pair in client.complete]
                total += len(complete)
                self._assert_served(proxy, credentials, complete)
                proxy.kill()
            self.assertGreater(total, 240)

    def _assert_served(self, proxy: RunningProxy, credentials: Credentials, complete: list[tuple[str, bytes]]) -> None:
        with RawConnection(proxy.port, credentials) as connection:
            for nonce, body in complete:
                found = connection.request(RECEIPTS + nonce)
                self.assertEqual(200, found.status, nonce)
                claims = _claims(found.body)["svc"]
                seen = claims["response"]["body"]  # type: ignore[index]
                digest = hashlib.sha256(body).digest()
                self.assertEqual(
                    (len(body), True, digest), (seen["size"], seen["complete"], b64u_decode(seen["sha-256"]))
                )
                identifier = receipt_id(b64u_decode(json.loads(found.body)["payload"]))
                again = connection.request(f"/.well-known/svc-notary/v1/receipts/{identifier}")
                self.assertEqual((200, found.body), (again.status, again.body))
            statement = claims["workloadStatementID"]  # type: ignore[index]
            self.assertEqual(200, connection.request(f"/.well-known/svc-notary/v1/statements/{statement}").status)


class FullDiskTests(SynchronousTestCase):
    """A small file system in memory holds the notary database; needs the right to mount."""

    def _mounted(self, stack: ExitStack) -> Path:
        folder = short_folder(stack) / "disk"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            raise SkipTest("this user may not mount a file system")
        stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
        return folder

    def test_full_disk(self) -> None:
        """While it is full recorded requests get 503 before they are forwarded, others go on; later all is well."""
        with ExitStack() as stack:
            disk = self._mounted(stack)
            authority = stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))
            application = webapp.start(stack)
            proxy = RunningProxy(authority, f"127.0.0.1:{application}", notary={"path": str(disk / "notary.db")})
            stack.enter_context(proxy)
            self.connection = stack.enter_context(
                RawConnection(proxy.port, Credentials.fetch(authority, short_folder(stack)))
            )
            self.assertEqual(200, self._ask("signRequest").status)
            _fill(disk / "filler")
            refused = eventually(lambda: self._refusal("signRequest"), 30, "a refusal")
            self.assertEqual(503, refused.status)
            self.assertEqual("notary_unavailable", json.loads(refused.body)["code"])
            self.assertIsNotNone(refused.get("retry-after"))
            time.sleep(0.7)  # Octets reach the counter twice a second.
            sent = proxy.metric("svc_proxy_bytes_sent_total")
            self.assertEqual(503, self._ask("logRequest").status)
            time.sleep(0.7)
            self.assertEqual(sent, proxy.metric("svc_proxy_bytes_sent_total"))
            self.assertEqual(200, self._ask("workload").status)
            self.assertFalse(proxy.is_ready())
            reasons = {each.get("reason") for each in proxy.readiness().values() if not each["ok"]}
            self.assertEqual({"notary_unavailable"}, reasons)
            self.assertTrue(proxy.records("svc.store.read_only"))
            (disk / "filler").unlink()
            eventually(proxy.is_ready, 20, "readiness")
            nonce = new_nonce(os.urandom(16))
            self.assertEqual(200, self._ask("signRequest", nonce).status)
            self.assertEqual(200, self.connection.request(RECEIPTS + nonce).status)
            self.assertTrue(proxy.records("svc.store.writable"))

    def _ask(self, level: str, nonce: str = "") -> Response:
        wishes = f"Svc-Notarization-Level: {level}\r\n" + (f"Svc-Notary-Nonce: {nonce}\r\n" if nonce else "")
        return self.connection.request("/bytes/100", fields=wishes)

    def _refusal(self, level: str) -> Response | None:
        answer = self._ask(level)
        return answer if answer.status != 200 else None


def _fill(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        for size in (1024 * 1024, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
