"""What the endpoint for statements answers and when, with an API server that the test plays."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.server import NOT_DONE_YET
from twisted.web.test.requesthelper import DummyRequest

from svc.envelope.envelope import Envelope
from svc.errors import SvcError
from svc.identity import SpiffeID, X509Svid
from svc.kube.cache import Cache
from svc.kube.errors import KubernetesError, NotFound
from svc.kube.kinds import PODS, TOKEN_REVIEWS, Kind
from svc.manager.statements.decision import Account
from svc.manager.statements.endpoint import MAX_TOKEN, StatementPages
from svc.manager.statements.issuing import StatementIssuer
from svc.manager.statements.signing import LIFE, ManagerKeys, SigningKeysMissing
from svc.notary.pqleaf import PqLeaf
from svc.notary.statement import SelfIssued
from tests.manager.statements.objects import DIGEST, POD, changed, review
from tests.notary.artifacts import NOW, Fixture

FIXTURE = Fixture()
MANAGER = FIXTURE.authority.svid("/svc/manager")
CALLER = FIXTURE.svid
ACCOUNT = Account("pay", "api")


class FakeServer:
    """The client of an API server with one pod and one token."""

    def __init__(self) -> None:
        self.pod: dict[str, Any] | None = POD
        self.review = review()
        self.fails: KubernetesError | None = None
        self.asked: list[Any] = []

    async def create(self, kind: Kind, body: Any) -> Any:
        """Review a token."""
        assert kind is TOKEN_REVIEWS
        self.asked.append(body["spec"])
        if self.fails is not None:
            raise self.fails
        return self.review

    async def get(self, kind: Kind, name: str, namespace: str) -> Any:
        """Read the pod."""
        assert (kind, name, namespace) == (PODS, "api-1", "pay")
        if self.pod is None:
            raise NotFound(action="read pods", detail="")
        return self.pod


class PagesCase(SynchronousTestCase):
    """The pages, in a loop of asyncio that each test runs."""

    def setUp(self) -> None:
        """One pod, whose caller has an entry."""
        self.server = FakeServer()
        self.counted: list[str] = []
        self.refusals: list[str] = []
        self.ready = True
        self.now = NOW
        self.accounts: dict[SpiffeID, Account] = {CALLER.spiffe_id: ACCOUNT}
        self.svid = MANAGER
        self.leaves = 0
        self.issuer_fails: SvcError | None = None

    async def leaf_of(self, svid: X509Svid) -> PqLeaf:
        """The post-quantum issuer."""
        self.leaves += 1
        if self.issuer_fails is not None:
            raise self.issuer_fails
        return FIXTURE.pq_leaf(svid)

    def play(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run a scenario with the pages."""

        async def run() -> None:
            context: Any = SimpleNamespace(client=self.server, now=lambda: self.now, cache=self.cache)
            identity: Any = SimpleNamespace(svid=self.svid)
            self.identity = identity
            keys = ManagerKeys(identity, self.leaf_of, lambda: self.now)
            self.pages = StatementPages(
                StatementIssuer(context, keys.current, os.urandom),
                lambda: self.ready,
                self.accounts.get,
                self.counted.append,
                lambda error, _who: self.refusals.append(error.reason),
                lambda: self.now,
            )
            await scenario()

        asyncio.run(asyncio.wait_for(run(), 30))

    def cache(self, kind: Kind, change: Callable[[], None], **_selectors: str) -> Cache:
        """The cache of the pods, which the test changes."""
        self.pods = Cache(self.server, kind, change, self.fail)  # type: ignore[arg-type]
        self.show(POD)
        self.change = change
        return self.pods

    def show(self, pod: dict[str, Any] | None) -> None:
        """Have the pod in the cache."""
        self.pods.objects = {} if pod is None else {("pay", "api-1"): pod}

    def becomes(self, pod: dict[str, Any] | None) -> None:
        """Change the pod, of which the watch tells."""
        self.server.pod = pod
        self.show(pod)
        self.change()

    def send(self, *, tag: str = "", wait: int = 0, body: bytes | None = None, **channel: Any) -> Any:
        """Send a request."""
        request: Any = DummyRequest([])
        request.method = b"POST"
        request.body = SimpleNamespace(getvalue=lambda: b'{"token": "t"}' if body is None else body)
        request.too_large = channel.pop("too_large", False)
        caller = SimpleNamespace(evidence=SimpleNamespace(svid=FIXTURE.peer(channel.pop("svid", CALLER))))
        request.channel = SimpleNamespace(transport=SimpleNamespace(caller=caller), persistent=True)
        for name, value in (("if-none-match", f'"{tag}"' if tag else ""), ("prefer", f"wait={wait}" if wait else "")):
            if value:
                request.requestHeaders.setRawHeaders(name, [value])
        request.ended = Deferred()
        request.notifyFinish().addBoth(lambda _gone: request.ended.callback(None))
        answer = self.pages.render(request)
        if answer is not NOT_DONE_YET:
            request.write(answer)
            request.finish()
        return request

    async def ask(self, **options: Any) -> tuple[int, bytes, str]:
        """Send a request, and wait for its answer: status, body and tag."""
        return await self.answered(self.send(**options))

    async def answered(self, request: Any) -> tuple[int, bytes, str]:
        """Wait for an answer."""
        while not request.finished:
            await asyncio.sleep(0.01)
        tags = request.responseHeaders.getRawHeaders("etag") or [""]
        return request.responseCode or 200, b"".join(request.written), tags[0].strip('"')

    async def code(self, **options: Any) -> tuple[int, str]:
        """The status and the code of a refusal."""
        status, body, _tag = await self.ask(**options)
        return status, json.loads(body)["code"]


class AnswerTests(PagesCase):
    """What is answered at once."""

    def test_statement(self) -> None:
        """It is the manager's, bound to the key of the caller, verifies as central, and lives for ten minutes."""

        async def scenario() -> None:
            status, body, tag = await self.ask()
            self.assertEqual((200, 32), (status, len(tag)))
            evidence = FIXTURE.verified_statement(Envelope.parse(body), self_issued=SelfIssued.REFUSE)
            self.assertEqual((MANAGER.spiffe_id, False), (evidence.issuer, evidence.self_issued))
            self.assertEqual((CALLER.spiffe_id, True), (evidence.subject, evidence.post_quantum))
            self.assertEqual((NOW, NOW + timedelta(minutes=10)), (evidence.issued, evidence.expires))
            facts: Any = evidence.claims["svc"]
            self.assertEqual(("n1", "api"), (facts["node"], facts["serviceAccount"]))
            self.assertEqual([DIGEST, DIGEST], [each["imageDigest"] for each in facts["containers"]])
            self.assertEqual([{"token": "t", "audiences": ["svc-manager"]}], self.server.asked)
            again = await self.ask()
            self.assertEqual((200, tag, 1), (again[0], again[2], self.leaves))
            self.assertEqual((304, b"", tag), await self.ask(tag=tag))
            # Bound to another key.
            self.assertEqual(200, (await self.ask(tag=tag, svid=FIXTURE.authority.svid("/ns/pay/sa/api")))[0])
            self.assertEqual(["sent", "sent", "unchanged", "sent"], self.counted)

        self.play(scenario)

    def test_refused(self) -> None:
        """Each refusal is 403 with its reason, counted and reported."""

        async def scenario() -> None:
            self.server.review = review(audiences=["other"])
            self.assertEqual((403, "statement_token_refused"), await self.code())
            self.server.review = review()
            self.server.pod = changed(POD, metadata__uid="u-2")
            self.assertEqual((403, "statement_pod_unknown"), await self.code())
            self.server.pod = None
            self.assertEqual((403, "statement_pod_unknown"), await self.code())
            self.accounts[CALLER.spiffe_id] = Account("shop", "api")
            self.assertEqual((403, "statement_token_account"), await self.code())
            self.accounts.clear()
            self.assertEqual((403, "statement_caller_unknown"), await self.code())
            self.now = CALLER.not_after
            self.assertEqual((403, "statement_caller_expired"), await self.code())
            self.assertEqual((["denied"] * 6, 6), (self.counted, len(self.refusals)))
            self.assertEqual(4, len(self.server.asked), "nothing is asked for a caller without an entry")

        self.play(scenario)

    def test_malformed(self) -> None:
        """A body of another form is 400, one that is too large 413; no token is asked about."""

        async def scenario() -> None:
            for body in (b"", b"[]", b"{}", b'{"token": 1}', b'{"token": ""}', '{"token": "ü"}'.encode()):
                self.assertEqual((400, "statement_request_malformed"), await self.code(body=body))
            for size, status in ((MAX_TOKEN, 200), (MAX_TOKEN + 1, 400)):
                body = b'{"token": "%b"}' % (b"t" * size)
                self.assertEqual(status, (await self.ask(body=body))[0])
            self.assertEqual((413, "too_large"), await self.code(too_large=True))
            self.assertEqual(1, len(self.server.asked))

        self.play(scenario)

    def test_not_ready(self) -> None:
        """Until all is known, while the API server is away, and without keys, it is 503, to be tried again."""

        async def scenario() -> None:
            self.ready = False
            self.assertEqual((503, "not_ready"), await self.code())
            self.ready = True
            self.server.fails = KubernetesError("kubernetes_unreachable", server="s", detail="d")
            self.assertEqual((503, "statement_undecided"), await self.code())
            self.server.fails = None
            self.issuer_fails = SigningKeysMissing(what="away")
            self.assertEqual((503, "statement_unsigned"), await self.code())
            self.issuer_fails = None
            self.assertEqual(200, (await self.ask())[0])
            self.assertEqual(["not_ready"] * 3 + ["sent"], self.counted)

        self.play(scenario)

    def test_next_svid_of_the_manager(self) -> None:
        """It signs with each SVID; while there is no leaf for a new one, the former signs as long as it can."""

        async def scenario() -> None:
            await self.ask()
            other = FIXTURE.authority.svid("/svc/manager")
            self.identity.svid, self.issuer_fails = other, SigningKeysMissing(what="away")
            _status, body, _tag = await self.ask()
            self.assertEqual(MANAGER.leaf, FIXTURE.verified_statement(Envelope.parse(body)).envelope_evidence.leaf)
            self.issuer_fails = None
            _status, body, _tag = await self.ask()
            self.assertEqual(other.leaf, FIXTURE.verified_statement(Envelope.parse(body)).envelope_evidence.leaf)
            self.identity.svid, self.issuer_fails = MANAGER, SigningKeysMissing(what="away")
            self.now = other.not_after - LIFE + timedelta(seconds=1)
            self.assertEqual((503, "statement_unsigned"), await self.code())

        self.play(scenario)


class WaitingTests(PagesCase):
    """Who has the statement, and waits for another one."""

    def test_pod_changes(self) -> None:
        """A new label of those that statements have, and digests, are answered at once; others are not."""

        async def scenario() -> None:
            _status, _body, tag = await self.ask()
            waiting = self.send(tag=tag, wait=20)
            await asyncio.sleep(0.1)
            self.becomes(changed(POD, metadata__resourceVersion="2", metadata__labels={**POD["metadata"]["labels"]}))
            await asyncio.sleep(0.2)
            self.assertFalse(waiting.finished, "the facts are the same")
            self.becomes(changed(POD, metadata__resourceVersion="3", status=None))
            status, body, other = await self.answered(waiting)
            self.assertEqual((200, True), (status, other != tag))
            facts: Any = FIXTURE.verified_statement(Envelope.parse(body)).claims["svc"]
            self.assertEqual([None, None], [each["imageDigest"] for each in facts["containers"]])

        self.play(scenario)

    def test_pod_is_deleted(self) -> None:
        """Who waits is refused."""

        async def scenario() -> None:
            _status, _body, tag = await self.ask()
            waiting = self.send(tag=tag, wait=20)
            await asyncio.sleep(0.1)
            self.becomes(None)
            self.assertEqual(403, (await self.answered(waiting))[0])

        self.play(scenario)

    def test_nothing_changes(self) -> None:
        """After the time it is 304; when the replica ends, at once, and the connection closes."""

        async def scenario() -> None:
            _status, _body, tag = await self.ask()
            self.assertEqual((304, b"", tag), await self.ask(tag=tag, wait=1))
            waiting = self.send(tag=tag, wait=20)
            await asyncio.sleep(0.1)
            self.pages.release()
            self.assertEqual((304, b"", tag), await self.answered(waiting))
            self.assertFalse(waiting.channel.persistent)
            self.assertEqual((304, b"", tag), await self.ask(tag=tag, wait=20))

        self.play(scenario)

    def test_client_leaves(self) -> None:
        """Nothing is written to it, and nothing kept."""

        async def scenario() -> None:
            _status, _body, tag = await self.ask()
            waiting = self.send(tag=tag, wait=20)
            await asyncio.sleep(0.1)
            waiting.processingFailed(Failure(ConnectionDone()))
            await asyncio.sleep(0.1)
            self.assertEqual([], waiting.written)
            self.assertEqual({}, self.pages._issuer._waiting)

        self.play(scenario)
