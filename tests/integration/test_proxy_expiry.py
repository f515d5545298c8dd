"""Credentials expire because they are not renewed: the proxy reports it, stops in order, and recovers."""

from __future__ import annotations

import base64
import json
import os
import time
from contextlib import ExitStack
from datetime import datetime

from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.ids import new_nonce
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, Ended, RawConnection
from tests.peers.programs import other_python
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

RECEIPTS = "/.well-known/svc-notary/v1/receipts/by-request/"
LIFE = 24.0


class ExpiryTests(SynchronousTestCase):
    """The proxy's SVID is valid for 24 seconds, its clients' for an hour, and the authority is gone after the start."""

    def test_expiry_and_recovery(self) -> None:
        """Asked to renew, cut, refused, not ready; and with new credentials everything as before."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            python = other_python(folder / "python")
            entries = [
                entry("/ns/shop/sa/api", executable=str(python), ttl=f"{LIFE:g}s"),
                entry("/ns/shop/sa/web", ttl="1h"),
            ]
            authority = stack.enter_context(RunningAuthority(entries=entries))
            proxy = RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}", python=python)
            stack.enter_context(proxy)
            credentials = Credentials.fetch(authority, folder / "id")
            authority.kill()
            self._outlive(proxy, credentials)
            self._expired(proxy, credentials)
            authority.start()
            eventually(proxy.is_ready, 60, "readiness")
            renewed = Credentials.fetch(authority, folder / "new")
            with RawConnection(proxy.port, renewed) as connection:
                answer = connection.request("/bytes/10")
                self.assertEqual((200, None), (answer.status, answer.get("connection")))
                found = connection.request(RECEIPTS + self.nonce)
            payload = json.loads(found.body)["payload"]
            claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["svc"]
            self.assertEqual("credentials_expired", claims["outcome"])
            self.assertFalse(claims["response"]["body"]["complete"])

    def _outlive(self, proxy: RunningProxy, credentials: Credentials) -> None:
        """From 80 % of the life on connections are asked to end; at 90 % a running exchange is cut."""
        [*_, issued] = eventually(lambda: proxy.records("svc.notary.generation.issued"))
        end = datetime.fromisoformat(issued["attributes"]["not_after"]).timestamp()
        self.nonce = new_nonce(os.urandom(16))
        notary_fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {self.nonce}\r\n"
        with RawConnection(proxy.port, credentials) as kept, RawConnection(proxy.port, credentials) as running:
            running.send(f"GET /drip/900/0.1 HTTP/1.1\r\nHost: test\r\n{notary_fields}\r\n".encode())
            self.assertIsNone(kept.request("/bytes/10").get("connection"))
            while kept.request("/bytes/10").get("connection") != "close":
                self.assertLess(time.time(), end)
                time.sleep(0.05)
            self.assertGreater(time.time(), end - LIFE * 0.2 - 0.1)
            self.assertTrue(kept.ended())
            with self.assertRaises(Ended):
                running.read()
            self.assertLess(time.time(), end)
        cut = "svc_proxy_connections_closed_total"
        eventually(lambda: proxy.metric(cut, cause="credentials_expired") == 1, what="a connection that was cut")

    def _expired(self, proxy: RunningProxy, credentials: Credentials) -> None:
        """Nothing is signed or named any more, and the reason is logged."""
        eventually(lambda: not proxy.is_ready(), 60, "that it is not ready")
        reasons = {each.get("reason") for each in proxy.readiness().values() if not each["ok"]}
        self.assertTrue(reasons and all(reasons), proxy.readiness())
        careless = credentials.context()
        careless.verify_mode = 0  # type: ignore[assignment]
        with RawConnection(proxy.port, careless) as connection:
            answer = connection.request("/bytes/10")
        self.assertEqual((503, "notary_unavailable"), (answer.status, json.loads(answer.body)["code"]))
