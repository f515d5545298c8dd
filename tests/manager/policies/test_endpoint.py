"""What proxies get from the endpoint, and when, without its TLS."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import NOT_DONE_YET
from twisted.web.test.requesthelper import DummyRequest

from svc.identity import SpiffeID
from svc.manager.federation.foreign import PublishedRoots
from svc.manager.policies.endpoint import PolicyPages, PolicyRequestRefused
from svc.pages.waiting import MAX_WAIT
from svc.policyfiles.published import PublishedPolicies
from tests.manager.policies.objects import policy_object, rules

WEB, OTHER = (SpiffeID.parse(f"spiffe://prod.example.org/ns/{each}/sa/web") for each in ("shop", "pay"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def listed(*names: str) -> PublishedPolicies:
    """The list of policies of these names."""
    return PublishedPolicies.of("shop", [policy_object(each, authorization=rules()) for each in names])


class PolicyPagesTests(SynchronousTestCase):
    """Callers of two namespaces, and a clock that the test moves."""

    def setUp(self) -> None:
        """Two namespaces have lists; the SVID of the callers lives for an hour."""
        self.clock = Clock()
        self.entries: dict[SpiffeID, str] = {WEB: "shop", OTHER: "pay"}
        self.lists: dict[str, PublishedPolicies] = {"shop": listed("a"), "pay": listed("b")}
        self.counted: list[str] = []
        self.refusals: list[str] = []
        self.ready = True
        self.roots: PublishedRoots | None = None
        self.expires = NOW + timedelta(hours=1)
        self.pages = PolicyPages(
            lambda: self.ready,
            self.entries.get,
            self.lists.get,
            lambda: self.roots,
            self.counted.append,
            lambda error, _who: self.refusals.append(str(error)),
            clock=self.clock,
            now=lambda: NOW,
        )

    def ask(
        self, caller: SpiffeID = WEB, tag: str = "", prefer: str = "", path: str = "/v1/policy", **more: Any
    ) -> Any:
        """Send a request; what it gets is written to it, or comes later."""
        request: Any = DummyRequest([])
        request.method, request.path = more.get("method", b"GET"), path.encode()
        request.args = {b"namespace": [each.encode() for each in more["namespace"]]} if "namespace" in more else {}
        evidence = SimpleNamespace(spiffe_id=caller, not_after=self.expires)
        connection = SimpleNamespace(caller=SimpleNamespace(evidence=SimpleNamespace(svid=evidence)))
        request.channel = SimpleNamespace(transport=connection, persistent=True)
        for name, value in (("if-none-match", tag), ("prefer", prefer)):
            if value:
                request.requestHeaders.setRawHeaders(name, [value])
        body = self.pages.render(request)
        if body is not NOT_DONE_YET:
            request.write(body)
            request.finish()
        return request

    def told(self, request: Any) -> Any:
        """Status and body; None while it waits."""
        return (request.responseCode or 200, b"".join(request.written)) if request.finished else None

    def tag(self, namespace: str = "shop") -> str:
        """The entity tag of a list."""
        return f'"{self.lists[namespace].version}"'

    def test_roots(self) -> None:
        """Every workload gets the roots of peers as soon as they change, and no policies are counted for it."""
        stranger = SpiffeID.parse("spiffe://prod.example.org/svc/agent")
        self.assertEqual(503, self.told(self.ask(stranger, path="/v1/foreign-pq-bundle"))[0])
        self.roots = first = PublishedRoots(b"first", "1")
        self.assertEqual((200, b"first"), self.told(self.ask(stranger, path="/v1/foreign-pq-bundle")))
        waiting = self.ask(stranger, '"1"', "wait=30", path="/v1/foreign-pq-bundle")
        policies = self.ask(WEB, self.tag(), "wait=30")
        self.pages.changed()
        self.assertEqual((None, None), (self.told(waiting), self.told(policies)))
        self.roots = PublishedRoots(b"second", "2")
        self.pages.changed()
        self.assertEqual(((200, b"second"), None), (self.told(waiting), self.told(policies)))
        self.roots = first
        self.ask(stranger, '"2"', "wait=30", path="/v1/foreign-pq-bundle")
        self.assertEqual(([], []), (self.counted, self.refusals))

    def test_own_list(self) -> None:
        """Each caller gets that of the namespace that its entry has, whatever the path of its SPIFFE ID says."""
        for caller, namespace in ((WEB, "shop"), (OTHER, "pay")):
            request = self.ask(caller, namespace=[namespace])
            self.assertEqual((200, self.lists[namespace].data), self.told(request))
            self.assertEqual([self.tag(namespace)], request.responseHeaders.getRawHeaders("etag"))
        self.entries[WEB] = "pay"
        self.assertEqual((200, self.lists["pay"].data), self.told(self.ask()))
        self.assertEqual(["sent"] * 3, self.counted)

    def test_refused(self) -> None:
        """Those of another namespace, a caller without an entry, and one whose SVID has ended, are refused by name."""
        self.assertEqual(403, self.told(self.ask(namespace=["pay"]))[0])
        self.assertEqual(403, self.told(self.ask(namespace=["shop", "pay"]))[0])
        self.assertEqual(403, self.told(self.ask(namespace=["\xfc\n"]))[0])
        del self.entries[WEB]
        self.assertEqual(403, self.told(self.ask())[0])
        self.expires = NOW
        self.assertIn(b"policy_caller_expired", self.told(self.ask(OTHER))[1])
        self.assertEqual((["denied"] * 5, 5), (self.counted, len(self.refusals)))
        self.assertIn("asks for the policies of pay, and is of the namespace shop", self.refusals[0])
        self.assertIsInstance(PolicyRequestRefused("policy_caller_unknown", spiffe_id=WEB).hint, str)

    def test_nothing_else(self) -> None:
        """There is one path, which can only be read, and not before everything is known."""
        self.assertEqual(404, self.told(self.ask(path="/v1/policy/"))[0])
        self.assertEqual(405, self.told(self.ask(method=b"POST"))[0])
        self.ready = False
        self.assertEqual(503, self.told(self.ask())[0])
        self.ready = True
        del self.lists["shop"]
        self.assertEqual(503, self.told(self.ask())[0])

    def test_unchanged(self) -> None:
        """Who has the list gets 304 at once, or after the time that it would wait; the bound is 50 seconds."""
        self.assertEqual((304, b""), self.told(self.ask(tag=self.tag())))
        for prefer, seconds in (("wait=5", 5.0), ("handling=lenient, wait=20; a=b", 20.0), ("wait=51", MAX_WAIT)):
            request = self.ask(tag=self.tag(), prefer=prefer)
            self.clock.advance(seconds - 0.1)
            self.assertIsNone(self.told(request), prefer)
            self.clock.advance(0.2)
            self.assertEqual((304, b""), self.told(request))
        for prefer in ("wait", "wait=", "wait=-1", "wait=x", "await=5", "wait=1234567"):
            self.assertEqual((304, b""), self.told(self.ask(tag=self.tag(), prefer=prefer)), prefer)
        self.expires = NOW + timedelta(seconds=3)
        request = self.ask(tag=self.tag(), prefer="wait=30")
        self.clock.advance(3)
        self.assertEqual((304, b""), self.told(request))
        self.assertFalse(request.channel.persistent, "the next one comes with another SVID")
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_another_list(self) -> None:
        """It is sent at once to who has another one, and to all of the namespace that wait."""
        self.assertEqual(200, self.told(self.ask(tag='"old"', prefer="wait=30"))[0])
        shop, pay = self.ask(tag=self.tag(), prefer="wait=30"), self.ask(OTHER, self.tag("pay"), "wait=30")
        self.pages.changed()
        self.assertEqual((None, None), (self.told(shop), self.told(pay)))
        self.lists["shop"] = listed("a", "c")
        self.pages.changed()
        self.assertEqual(((200, self.lists["shop"].data), None), (self.told(shop), self.told(pay)))
        del self.lists["pay"]
        self.pages.changed()
        self.assertIsNone(self.told(pay), "it is not known for the moment")
        del self.entries[OTHER]
        self.pages.changed()
        self.assertEqual(403, self.told(pay)[0])
        self.assertEqual([], self.clock.getDelayedCalls())

    def test_client_leaves(self) -> None:
        """Nothing is kept of a client that leaves while it waits."""
        request = self.ask(tag=self.tag(), prefer="wait=30")
        request.processingFailed(Failure(ConnectionDone()))
        self.lists["shop"] = listed("c")
        self.pages.changed()
        self.assertEqual(([], []), (request.written, self.clock.getDelayedCalls()))

    def test_end_of_the_replica(self) -> None:
        """Who waits is answered that nothing has changed, and asks on a new connection."""
        request = self.ask(tag=self.tag(), prefer="wait=30")
        self.pages.release()
        self.assertEqual((304, b""), self.told(request))
        self.assertEqual(["close"], request.responseHeaders.getRawHeaders("connection"))
        late = self.ask(tag=self.tag(), prefer="wait=30")
        self.assertEqual(((304, b""), False), (self.told(late), late.channel.persistent))
        self.assertFalse(request.channel.persistent)
