"""A real proxy with many open connections whose policies change while requests flow."""

from __future__ import annotations

import json
import os
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually

#: Connections of each of two clients.
EACH = 100
THREADS = 4
LONGEST = 120.0


def allowing(*paths: str) -> str:
    """A policy that admits identities to everything; JSON is YAML."""
    rule = {"name": "all", "from": [{"spiffeIDs": [f"spiffe://example.org{path}" for path in paths]}]}
    policy = {
        "apiVersion": "svc.internal/v1alpha1",
        "kind": "SvcClusterPolicy",
        "metadata": {"name": "shop"},
        "spec": {"authorization": {"action": "Allow", "rules": [rule]}},
    }
    return json.dumps(policy)


class Traffic:
    """Requests on many connections in turn, in a thread, until one of the connections fails or the test ends it."""

    def __init__(self, connections: list[RawConnection]) -> None:
        self._connections = connections
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.served = 0
        self.failures: list[BaseException] = []
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.is_set():
            for connection in self._connections:
                try:
                    assert connection.request("/bytes/1").status == 200
                    self.served += 1
                except Exception as error:  # noqa: BLE001 (compared by the test)
                    self.failures.append(error)
                    return

    def end(self) -> None:
        """Finish the round under way."""
        self._ending.set()
        self._thread.join(LONGEST)


class ManyConnectionsTests(SynchronousTestCase):
    """Two clients with a hundred connections each."""

    def setUp(self) -> None:
        """Start a proxy whose policy admits both."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder = short_folder(stack)
        self.write(allowing("/ns/shop/sa/api", "/ns/shop/sa/web"))
        entries = [entry("/ns/shop/sa/api"), entry("/ns/shop/sa/web")]
        authority = stack.enter_context(RunningAuthority(entries=entries))
        settings = {"policy": {"files": [f"{self.folder}/*.yaml"]}}
        application = f"127.0.0.1:{webapp.start(stack)}"
        self.proxy = stack.enter_context(RunningProxy(authority, application, settings=settings))
        self.staying, self.leaving = (
            [stack.enter_context(RawConnection(self.proxy.port, credentials)) for _number in range(EACH)]
            for credentials in (
                Credentials.fetch(authority, short_folder(stack), f"/ns/shop/sa/{name}") for name in ("api", "web")
            )
        )

    def write(self, text: str) -> None:
        """Replace the policy as editors and Kubernetes do."""
        new = Path(self.folder, "new")
        new.write_text(text)
        os.rename(new, Path(self.folder, "a.yaml"))

    def walks(self) -> list[dict[str, Any]]:
        """The attributes of finished walks with all connections."""
        found = [each["attributes"] for each in self.proxy.records("svc.proxy.connections.reauthorized")]
        return [each for each in found if each["connections"] >= EACH]

    def test_a_client_is_no_longer_admitted(self) -> None:
        """Exactly its connections are closed, counted and reported; the other client loses no request."""
        for connection in (*self.staying, *self.leaving):
            self.assertEqual(200, connection.request("/bytes/1").status)
        traffic = [Traffic(self.staying[number::THREADS]) for number in range(THREADS)]
        for each in traffic:
            self.addCleanup(each.end)
        before = len(self.walks())
        self.write(allowing("/ns/shop/sa/api"))
        [walk, *_] = eventually(lambda: self.walks()[before:], LONGEST, "the end of the walk")
        self.assertEqual((2 * EACH, EACH), (walk["connections"], walk["refused"]))
        served = [each.served for each in traffic]
        eventually(
            lambda: (
                all(now.served >= then + EACH // THREADS for now, then in zip(traffic, served, strict=True))
                or any(each.failures for each in traffic)
            ),
            LONGEST,
            "a request on each connection after the walk",
        )
        for each in traffic:
            each.end()
        self.assertEqual([], [each.failures for each in traffic if each.failures])
        for connection in self.leaving:
            self.assertTrue(connection.ended())
        closed = {"protocol": "http", "cause": "reauthorization"}
        self.assertEqual(EACH, self.proxy.metric("svc_proxy_connections_closed_total", **closed))
        denied = {"protocol": "http", "role": "server", "result": "denied", "reason": "policy_deny"}
        self.assertEqual(EACH, self.proxy.metric("svc_proxy_auth_decisions_total", **denied))
