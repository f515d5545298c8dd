"""Policies from the object to the proxy by the endpoint of real managers, with a real API server and a real SPIRE."""

from __future__ import annotations

import json
import ssl
import time
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPException, HTTPSConnection
from typing import Any, Final
from uuid import uuid4

from svc.naming import INJECTION_ENABLED
from svc.policy.engine import PolicySet
from svc.policy.rules import ConnectionFacts, RequestFacts
from svc.policyfiles.published import read_published
from tests.integration.test_manager import RunningManager
from tests.integration.test_manager_entries import EntriesCase
from tests.integration.test_manager_policies import WEB
from tests.manager.policies.objects import policy_object, rules
from tests.peers.waiting import eventually, free_port

PATH: Final = "/v1/policy"


class Answer:
    """What a workload got, and when."""

    def __init__(self, code: int, tag: str, body: bytes) -> None:
        self.code, self.tag, self.body = code, tag, body
        self.at = time.monotonic()

    def admits(self, path: str) -> bool:
        """Whether a proxy with this list admits the client."""
        files = read_published(self.body, self.tag, "manager", lambda: {"app": "api"})
        connection = PolicySet(files.policies).connection(ConnectionFacts("http-8443", 8443, WEB))
        return connection.decide(RequestFacts("GET", path, "api", "none")).allowed


class EndpointCase(EntriesCase):
    """Two replicas, and workloads of two namespaces."""

    def setUp(self) -> None:
        """Remove the policies of another test, and start the replicas."""
        super().setUp()
        self.remove()
        self.stack.callback(self.remove)
        self.pay = self.namespace(INJECTION_ENABLED)
        self.account(self.shop, "api")
        self.account(self.pay, "api")
        self.ports = [free_port(), free_port()]
        self.replicas = [self.replica(each) for each in self.ports]
        self.pool = ThreadPoolExecutor(4)
        self.stack.callback(self.pool.shutdown)

    def remove(self) -> None:
        """Remove what would change or refuse policies, and all policies."""
        kubectl = self.server.kubectl
        kubectl("delete", "validatingwebhookconfiguration", "svc-policies", "--ignore-not-found")
        kubectl("delete", "svcclusterpolicies", "--all")
        kubectl("delete", "svcpolicies", "--all", "--all-namespaces")

    def replica(self, port: int) -> RunningManager:
        """Start a replica, whose endpoint opens when it has its SVID."""
        spire = {"server": f"127.0.0.1:{self.spire.port}", "spiffeSocketPath": self.spire.address, "every": "1s"}
        cluster = {"trustDomain": "example.org", "spire": spire}
        manager = RunningManager(self.server, cluster=cluster, controlPlaneAddr=f"127.0.0.1:{port}")
        self.stack.callback(manager.stop)
        return manager.start()

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply policies."""
        for each in objects:
            for server_side in ("uid", "generation"):
                each["metadata"].pop(server_side, None)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        self.server.kubectl("apply", "-f", "-", data=text)

    def ask(self, port: int, path: str, *, tag: str = "", wait: int = 0, query: str = "") -> Answer:
        """Ask as the workload with a SPIFFE ID, who verifies the server by SPIRE's bundle."""
        context = ssl.create_default_context(cadata=self.spire.bundle("pem"))
        context.check_hostname = False
        context.load_cert_chain(*self.spire.mint(path, self.spire.folder / uuid4().hex))
        headers = {"If-None-Match": tag, "Prefer": f"wait={wait}"} if tag else {}
        connection = HTTPSConnection("127.0.0.1", port, context=context, timeout=60)
        try:
            connection.request("GET", PATH + query, headers=headers)
            response = connection.getresponse()
            return Answer(response.status, response.getheader("ETag", ""), response.read())
        finally:
            connection.close()

    def until_answered(self, port: int, path: str, **options: Any) -> Answer:
        """Ask until there is a list."""

        def answered() -> Answer | None:
            try:
                found = self.ask(port, path, **options)
            except (OSError, HTTPException):
                return None
            return found if found.code == 200 else None

        return eventually(answered, what=f"a list for {path}")

    def waiting(self, port: int, path: str, tag: str) -> Future[Answer]:
        """Ask for another list than that with a tag, in another thread."""
        waiting = self.pool.submit(self.ask, port, path, tag=tag, wait=30)
        time.sleep(1)
        self.assertFalse(waiting.done())
        return waiting


class EndpointTests(EndpointCase):
    """What workloads get."""

    def test_denied_then_admitted(self) -> None:
        """Each change is at all workloads of the namespace within a second, by both replicas with equal tags."""
        api = f"/ns/{self.shop}/sa/api"
        self.apply(policy_object("all", authorization=rules("/a")))
        first = self.until_answered(self.ports[0], api)
        eventually(lambda: self.ask(self.ports[0], api).admits("/a"))
        for change, admitted in (
            (policy_object("no", authorization=rules("/a", action="Deny")), False),
            (policy_object("no", authorization=rules("/b", action="Deny")), True),
            (policy_object("own", self.shop, authorization=rules("/c")), False),
        ):
            tag = self.ask(self.ports[0], api).tag
            eventually(lambda: self.until_answered(self.ports[1], api).tag == tag)  # noqa: B023
            waiting = [self.waiting(each, api, tag) for each in self.ports]
            self.apply(change)
            applied = time.monotonic()
            answers = [each.result(40) for each in waiting]
            self.assertEqual([(200, admitted)] * 2, [(each.code, each.admits("/a")) for each in answers])
            self.assertLess(max(each.at for each in answers) - applied, 1.0)
            self.assertEqual(1, len({each.tag for each in answers}))
            self.assertEqual(1, len({each.body for each in answers}))
        self.assertNotEqual(first.tag, answers[0].tag)
        for manager in self.replicas:
            self.assertLess(0.0, manager.value("policy_requests_total", result="sent"))

    def test_namespaces(self) -> None:
        """By the entry of the identity, and not by its path; who has none, or asks for another, is refused."""
        self.apply(policy_object("own", self.shop, authorization=rules("/a")))
        shop, pay = f"/ns/{self.shop}/sa/api", f"/ns/{self.pay}/sa/api"
        port = self.ports[1]
        eventually(lambda: b"own" in self.until_answered(port, shop).body)
        self.assertNotIn(b"own", self.until_answered(port, pay).body)
        self.assertEqual(200, self.ask(port, shop, query=f"?namespace={self.shop}").code)
        self.assertEqual(403, self.ask(port, shop, query=f"?namespace={self.pay}").code)
        # SPIRE gives such an identity, and the namespace has no such service account.
        refused = self.ask(port, f"/ns/{self.shop}/sa/other")
        self.assertEqual((403, "policy_caller_unknown"), (refused.code, json.loads(refused.body)["code"]))
        self.assertEqual(403, self.ask(port, "/svc/agent").code)
        manager = self.replicas[1]
        self.assertEqual(3.0, manager.value("policy_requests_total", result="denied"))
        denied = eventually(lambda: len(found := manager.records("svc.manager.policies.denied")) == 3 and found)
        self.assertEqual(("security", f"spiffe://example.org{shop}"), _who(denied[0]))
        # The label goes: its workloads are no longer served, and who waits is told.
        waiting = self.waiting(port, shop, self.ask(port, shop).tag)
        self.label(self.shop, "")
        self.assertEqual(403, waiting.result(40).code)

    def test_replica_ends(self) -> None:
        """Who waits is answered when a replica ends in order, and the other one goes on with the same list."""
        api = f"/ns/{self.shop}/sa/api"
        self.apply(policy_object("all", authorization=rules("/a")))
        eventually(lambda: self.until_answered(self.ports[0], api).admits("/a"))
        eventually(lambda: self.until_answered(self.ports[1], api).admits("/a"))
        tag = self.ask(self.ports[0], api).tag
        waiting = self.waiting(self.ports[0], api, tag)
        self.replicas[0].stop()
        self.assertEqual(304, waiting.result(40).code)
        self.assertEqual(tag, self.ask(self.ports[1], api).tag)
        self.apply(policy_object("no", authorization=rules("/a", action="Deny")))
        answer = eventually(lambda: (found := self.ask(self.ports[1], api)).tag != tag and found)
        self.assertFalse(answer.admits("/a"))


def _who(record: dict[str, Any]) -> tuple[str, str]:
    return record["event"]["category"], record["peer_spiffe_id"]
