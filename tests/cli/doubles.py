"""
A server with a notary and the network of an exchange, both in memory, for the tests of ``svc curl``.

The server is correct by default; a test changes one property of it.
"""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from typing import Any, NoReturn

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone, ConnectionLost
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from svc.cli.globals import Invocation
from svc.cli.main import main
from svc.cli.output import Console
from svc.client.connection import HttpChannel, OpenConnection
from svc.client.verification import Trust
from svc.envelope.profile import Profile
from svc.identity import BundleSet, certificate_sha256, verify_svid
from svc.notary.access import artifact_response, pending_response, receipt_location
from svc.notary.batch import batch_artifact, sign_batch
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import BodySummary, Peer, RecordedExchange, TlsFacts, split_target
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.pqleaf import PqLeaf
from svc.notary.receipt import PayloadWriter, Redaction, sign_receipt, with_disclosures
from svc.notary.verification import Anchors
from svc.strictjson import b64u_encode
from svc.testing.ca import TestAuthority
from svc.transport.evidence import PeerEvidence
from svc.wire.fields import Field, encode_fields
from svc.wire.http1 import End, RequestHead, RequestParser

NOW = datetime(2026, 11, 21, 9, 0, 0, tzinfo=UTC)
SERVER_ID = "spiffe://example.org/ns/pay/sa/api"
CLIENT_ID = "spiffe://example.org/ns/web/sa/fe"
URL = "https://api.test:8443/v1/pay?x=1"
BODY = b'{"ok":true}'


def counted(size: int) -> bytes:
    """Octets that are anything but random."""
    return bytes(range(size))


class World:
    """
    One trust domain with a server and a client.

    Args:
        server_path: the path of the server's identity.
        profile: what the server signs with.
        domain: the trust domain of the server.
    """

    def __init__(
        self, server_path: str = "/ns/pay/sa/api", profile: Profile = Profile.HYBRID, domain: str = "example.org"
    ) -> None:
        self.profile = profile
        self.authority = TestAuthority(domain, now=NOW)
        self.pq_authority = TestAuthority(domain, now=NOW, algorithm="ML-DSA-65")
        self.own_authority = self.authority if domain == "example.org" else TestAuthority("example.org", now=NOW)
        self.server = self.authority.svid(server_path)
        self.client = self.own_authority.svid("/ns/web/sa/fe")

    def generation_of(self, svid: Any, facts: WorkloadFacts | None = None) -> CredentialSet:
        """Issue the credentials of a workload."""
        chain, key = self.pq_authority.pq_leaf(svid)
        leaf = PqLeaf(chain, key, svid.not_after)  # type: ignore[arg-type]
        stated = facts or WorkloadFacts.explicit(namespace="pay", service_account="api", pod_name="api-7c")
        return CredentialSet.issue(svid, leaf, stated, self.profile, NOW, counted)

    @cached_property
    def generation(self) -> CredentialSet:
        """The credentials of the server."""
        return self.generation_of(self.server)

    @property
    def bundles(self) -> BundleSet:
        """The SPIFFE bundles of the client."""
        return BundleSet.of(self.authority.bundle(), self.own_authority.bundle())

    @property
    def anchors(self) -> Anchors:
        """The trust of the client."""
        return Anchors(self.bundles, self.pq_authority.bundles())

    @cached_property
    def peer(self) -> PeerEvidence:
        """The server as the client verified it."""
        evidence = verify_svid(self.server.chain, self.bundles, NOW)
        return PeerEvidence(evidence, "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", "1.3", True, self.client)


@cache
def default_world() -> World:
    """The world of most tests, made once: keys take time."""
    return World()


@dataclass
class NotaryServer:
    """
    An application behind a proxy, in memory.

    Args:
        world: whose credentials it has.
        status: of the application's answer.
        body: of the application's answer.
        fields: further fields of the application's answer.
        edit_head: changes the fields of the answer.
        edit_exchange: changes what the receipt says.
        edit_statement: changes the statement that is served.
        edit_receipt: changes the receipt that is served.
        statement_status: the status of the statement's answer.
        receipt_status: the status of the receipt's answer.
        together: how many receipts are signed together; 1 signs each alone.
        pending: how often the receipt is not ready; its answer's Retry-After is ``retry_after``.
        trailers: behind the answer's body, which is chunked then.
        closes: whether each answer ends its connection.
        generation: signs; the world's by default.
    """

    world: World
    status: int = 200
    body: bytes = BODY
    fields: list[Field] = field(default_factory=list)
    edit_head: Callable[[list[Field]], list[Field]] = list
    edit_exchange: Callable[[RecordedExchange], RecordedExchange] = lambda exchange: exchange
    edit_statement: Callable[[bytes], bytes] = lambda envelope: envelope
    edit_receipt: Callable[[bytes], bytes] = lambda envelope: envelope
    statement_status: int = 200
    receipt_status: int = 200
    together: int = 1
    pending: int = 0
    retry_after: bytes | None = b"1"
    trailers: list[Field] = field(default_factory=list)
    closes: bool = False
    generation: CredentialSet | None = None
    truncate: bool = False
    seen: list[RequestHead] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self.receipts: dict[str, bytes] = {}

    @property
    def signing(self) -> CredentialSet:
        """The credentials that sign."""
        return self.generation or self.world.generation

    def answer(self, head: RequestHead, body: bytes) -> bytes:
        """Response a request."""
        self.seen.append(head)
        self.bodies.append(body)
        path = head.target.partition(b"?")[0].decode()
        if path.startswith("/.well-known/svc-notary/v1/statements/"):
            envelope = self.edit_statement(self.signing.statement.envelope.serialize())
            answer = artifact_response(self.signing.statement.id, envelope)
            return self._written(self.statement_status, list(answer.headers), envelope)
        if path.startswith("/.well-known/svc-notary/"):
            return self._receipt(path)
        return self._application(head, body)

    def _receipt(self, path: str) -> bytes:
        if self.pending:
            self.pending -= 1
            answer = pending_response()
            fields = [pair for pair in answer.headers if pair[0] != b"Retry-After"]
            if self.retry_after is not None:
                fields.append((b"Retry-After", self.retry_after))
            return self._written(202, fields, answer.body)
        receipt = self.receipts.get(path)
        status = self.receipt_status if receipt is not None else 404
        return self._written(status, [], self.edit_receipt(receipt or b"{}"))

    def _application(self, head: RequestHead, body: bytes) -> bytes:
        asked = head.values(b"svc-notarization-level")[0].decode()
        nonce = head.values(b"svc-notary-nonce")[0].decode()
        fields = [(b"Content-Type", b"application/json"), *self.fields]
        if not self.trailers:
            fields.append((b"Content-Length", b"%d" % len(self.body)))
        fields += [
            (b"Svc-Workload-ID", self.signing.statement.id.encode()),
            (b"Svc-Notarization-Level", asked.encode()),
        ]
        if asked == "signRequest":
            fields.append((b"Svc-Receipt-Location", receipt_location(nonce).encode()))
            self.receipts[receipt_location(nonce)] = self._signed(head, body, nonce, fields)
        fields = self.edit_head(fields)
        if self.trailers:
            start = self._start(self.status, [*fields, (b"Transfer-Encoding", b"chunked")])
            return start + b"%x\r\n%b\r\n0\r\n%b\r\n" % (len(self.body), self.body, encode_fields(self.trailers))
        sent = b"" if head.method == b"HEAD" or self.status in (204, 304) else self.body
        if self.truncate:
            sent = sent[:-1]
        return self._start(self.status, fields) + sent

    def _signed(self, head: RequestHead, body: bytes, nonce: str, fields: list[Field]) -> bytes:
        world = self.world
        path, query = split_target(head.target)
        exchange = RecordedExchange(
            level=Level.SIGN_REQUEST,
            nonce=nonce,
            jti="Dw4NDAsKCQgHBgUEAwIBAA",
            client=Peer(world.client.spiffe_id, b64u_encode(certificate_sha256(world.client.leaf))),
            server=self.signing.server,
            tls=TlsFacts("1.3", "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", True),
            method=head.method.decode(),
            scheme="https",
            authority=head.host.decode(),
            path=path,
            query=query,
            version="1.1",
            request_headers=head.fields,
            request_body=BodySummary.of(body),
            request_trailers=(),
            status=self.status,
            response_headers=fields,
            response_body=BodySummary.of(b"" if head.method == b"HEAD" else self.body),
            response_trailers=self.trailers,
            received=NOW,
            completed=NOW + timedelta(milliseconds=3),
        )
        exchange = self.edit_exchange(exchange)
        draft = PayloadWriter(Redaction.of(), lambda size: b"s" * size).write(
            exchange, self.signing.statement.id, self.signing.spiffe_id
        )
        signing = self.signing
        if self.together == 1:
            return with_disclosures(sign_receipt(draft, signing.signers), draft.disclosures).serialize()
        others = [dataclasses.replace(draft, payload=b"%d" % number) for number in range(1, self.together)]
        batch = sign_batch(
            [draft, *others], signing.spiffe_id, signing.signers, draft.issued_at, lambda size: b"b" * size
        )
        return batch_artifact(draft.payload, batch.inclusions[0], batch.envelope, draft.disclosures)

    def _written(self, status: int, fields: list[Field], body: bytes) -> bytes:
        return self._start(status, [*fields, (b"Content-Length", b"%d" % len(body))]) + body

    def _start(self, status: int, fields: list[Field]) -> bytes:
        closing = [(b"Connection", b"close")] if self.closes else []
        return b"HTTP/1.1 %d Any Phrase\r\n" % status + encode_fields([*fields, *closing]) + b"\r\n"


class LoopTransport:
    """
    The client's transport: what is written is answered at once.

    Args:
        answer: a whole request in, a whole answer out.
        channel: the client's protocol.
        slow: how many octets come at once; 0 for all.
    """

    disconnecting = False

    def __init__(
        self, answer: Callable[[RequestHead, bytes], bytes], channel: HttpChannel, *, slow: int = 0, ends: bool = False
    ) -> None:
        self._parser = RequestParser()
        self._answer = answer
        self._channel = channel
        self._slow = slow
        self._ends = ends
        self._head: RequestHead | None = None
        self._body = b""
        self.lost = False
        self.aborted = False

    def write(self, data: bytes) -> None:
        """Parse, and answer what is whole."""
        for event in self._parser.feed(data):
            if isinstance(event, RequestHead):
                self._head, self._body = event, b""
            elif isinstance(event, bytes):
                self._body += event
            elif isinstance(event, End) and self._head is not None:
                self._deliver(self._answer(self._head, self._body))

    def _deliver(self, answer: bytes) -> None:
        step = self._slow or len(answer) or 1
        for start in range(0, len(answer), step):
            if not self.lost:
                self._channel.dataReceived(answer[start : start + step])
        if self._ends and not self.lost:
            self.drop(ConnectionDone())

    def drop(self, reason: Exception | None = None) -> None:
        """Let the connection be lost."""
        if not self.lost:
            self.lost = True
            self._channel.connectionLost(Failure(reason or ConnectionLost()))

    def loseConnection(self) -> None:
        """End in order."""
        self.drop(ConnectionDone())

    def abortConnection(self) -> None:
        """End at once."""
        self.aborted = True
        self.drop(ConnectionAborted())

    def getPeer(self) -> IPv4Address:
        """Where the server is."""
        return IPv4Address("TCP", "192.0.2.7", 8443)


class MemoryDialer:
    """
    Connects to a :class:`NotaryServer`.

    Args:
        server: answers.
        peer: its identity as the client verified it; None for plain http.
        ends: whether the server ends each connection after its answer.
    """

    def __init__(self, server: NotaryServer, peer: PeerEvidence | None, *, ends: bool = False, slow: int = 0) -> None:
        self.server = server
        self.peer = peer
        self.ends = ends
        self.slow = slow
        self.errors: list[Exception] = []
        self.previous: list[OpenConnection | None] = []
        self.transports: list[LoopTransport] = []

    async def dial(self, previous: OpenConnection | None) -> OpenConnection:
        """See :class:`svc.client.exchange.ExchangeContext`."""
        self.previous.append(previous)
        if self.errors:
            raise self.errors.pop(0)
        channel = HttpChannel("api.test:8443")
        transport = LoopTransport(self.server.answer, channel, slow=self.slow, ends=self.ends)
        self.transports.append(transport)
        channel.makeConnection(transport)
        self.server.connections += 1
        return OpenConnection(channel, self.peer)


class MemoryContext:
    """
    The outside world of an exchange, in memory.

    Args:
        server: answers.
        secure: whether there is mutual TLS.
    """

    def __init__(self, server: NotaryServer, *, secure: bool = True, ends: bool = False) -> None:
        self.clock = Clock()
        self.server = server
        self.memory_dialer = MemoryDialer(server, server.world.peer if secure else None, ends=ends)
        self.offset = timedelta()
        self.anchors = server.world.anchors
        self.stale_since: datetime | None = None
        self.pq_file: str | None = None
        self.trust_errors: list[Exception] = []
        self.trusted = 0

    def now(self) -> datetime:
        """The time: it goes with the clock."""
        return NOW + timedelta(seconds=self.clock.seconds()) + self.offset

    async def trust(self) -> Trust:
        """See :class:`svc.client.exchange.ExchangeContext`."""
        self.trusted += 1
        if self.trust_errors:
            raise self.trust_errors.pop(0)
        return Trust(self.anchors, self.stale_since, self.pq_file)

    async def dial(self, previous: OpenConnection | None) -> OpenConnection:
        """See :class:`svc.client.exchange.ExchangeContext`."""
        return await self.memory_dialer.dial(previous)

    def release(self, connection: OpenConnection) -> None:
        """See :class:`svc.client.exchange.ExchangeContext`."""
        connection.channel.close()

    def run(self, work: Any) -> Any:
        """Run the work of an exchange without a reactor."""
        return settled(Deferred.fromCoroutine(work(self)), self.clock)


def settled(deferred: Deferred[Any], clock: Clock | None = None) -> Any:
    """Give the result of a Deferred, moving the clock as long as something waits for it."""
    results: list[Any] = []
    deferred.addBoth(results.append)
    while not results and clock is not None and clock.getDelayedCalls():
        clock.advance(0.25)
    if not results:
        raise AssertionError("nothing happened")
    if isinstance(results[0], Failure):
        results[0].raiseException()
    return results[0]


@dataclass
class Ran:
    """What a run of the command line came to."""

    status: int
    stdout: bytes
    stderr: str


def no_program(program: str, _words: list[str], _environ: dict[str, str], _supervised: bool) -> NoReturn:
    """No program can be started."""
    raise FileNotFoundError(2, "No such file or directory", program)


def run_svc(
    *words: str,
    environ: Mapping[str, str] | None = None,
    context: MemoryContext | None = None,
    stdin: bytes | None = None,
    now: datetime = NOW,
    execute: Callable[[str, list[str], dict[str, str], bool], NoReturn] = no_program,
) -> Ran:
    """Run the command line in memory; without octets for it, standard input is closed."""
    stdout, stderr = io.BytesIO(), io.BytesIO()
    variables = {} if environ is None else environ
    invocation = Invocation(
        Console(stdout, stderr, variables),
        variables,
        None if stdin is None else io.BytesIO(stdin),
        None if context is None else context.run,
        lambda: now,
        execute,
    )
    status = main(list(words), invocation=invocation)
    return Ran(status, stdout.getvalue(), stderr.getvalue().decode())


def replaced(**changes: Any) -> Callable[[RecordedExchange], RecordedExchange]:
    """Make what changes an exchange before it is signed."""
    return lambda exchange: dataclasses.replace(exchange, **changes)
