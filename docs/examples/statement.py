"""
Ask a service behind svc-proxy, and believe its answer only when its workload statement verifies.

    python docs/examples/statement.py unix:///run/svc/agent.sock pq-bundle.json https://127.0.0.1:8443/
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import react
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool, ResponseDone
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer

from svc.errors import SvcError
from svc.identity import MemberOf
from svc.naming import HEADER_WORKLOAD_ID
from svc.notary.access import statement_path
from svc.notary.profile import Profile
from svc.notary.refusals import StatementMissing
from svc.notary.statement import StatementEvidence, parse_artifact_id, verify_statement
from svc.notary.verification import Anchors
from svc.transport.addresses import TcpAddress
from svc.transport.creators import client_creator
from svc.transport.endpoints import MutualTlsClientEndpoint
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.workload.interface import CredentialSource
from svc.workload.pqfile import PqBundleSource
from svc.workload.source import WorkloadSource


class ConnectionEnded(SvcError):
    """the server ended the connection between its answer and the statement; ask again"""

    reason = "connection_ended"


@implementer(IStreamClientEndpoint, IAgentEndpointFactory)
class OneConnection:
    """Connects once and remembers to whom: the statement must be bound to the connection of the answer."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint
        self._used = False
        self.peer: PeerEvidence

    def endpointForURI(self, uri: URI) -> OneConnection:
        """Every address of this exchange is reached over the one connection."""
        return self

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        if self._used:
            raise ConnectionEnded
        self._used = True
        protocol = await self._endpoint.connect(factory)
        self.peer = peer_evidence(protocol.transport)  # type: ignore[attr-defined]
        return protocol

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Connect, the first time."""
        return Deferred.fromCoroutine(self._connect(protocolFactory))


class Body(Protocol):
    """Gathers a body."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._whole: Deferred[bytes] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        """Here is a piece."""
        self._pieces.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """The body is whole, or was cut."""
        if reason.check(ResponseDone):
            self._whole.callback(b"".join(self._pieces))
        else:
            self._whole.errback(reason)

    @classmethod
    def of(cls, response: IResponse) -> Deferred[bytes]:
        """Wait for the body of a response."""
        body = cls()
        response.deliverBody(body)
        return body._whole


def utc_now() -> datetime:
    """Tell the time at which everything is judged."""
    return datetime.now(UTC)


async def ask(
    reactor: Any, source: CredentialSource, pq_roots: PqBundleSource, url: str, now: Any = utc_now
) -> tuple[bytes, StatementEvidence]:
    """Get a page and the verified statement of the workload that gave it."""
    uri = URI.fromBytes(url.encode("ascii"))
    address = TcpAddress(uri.host.decode("ascii"), uri.port)
    own_domain = MemberOf(source.svid.spiffe_id.trust_domain)
    creator = client_creator(source, clock=now, expected=own_domain, server_name=address.server_name)
    connection = OneConnection(MutualTlsClientEndpoint(reactor, address, creator))
    pool = HTTPConnectionPool(reactor)
    agent = Agent.usingEndpointFactory(reactor, connection, pool=pool)
    # The scheme is http for twisted.web; TLS is the endpoint's business.
    base = b"http://" + uri.netloc

    response = await agent.request(b"GET", base + uri.originForm)
    page = await Body.of(response)
    named = response.headers.getRawHeaders(HEADER_WORKLOAD_ID, [])
    if len(named) != 1:
        raise StatementMissing
    identifier = parse_artifact_id(named[0])
    envelope = await Body.of(await agent.request(b"GET", base + statement_path(identifier).encode("ascii")))
    await pool.closeCachedConnections()

    evidence = verify_statement(
        envelope,
        expected_id=identifier,
        profile=Profile.HYBRID,
        anchors=Anchors(spiffe=source.bundles, pq=pq_roots.bundles),
        now=now(),
        peer=connection.peer.svid,
    )
    return page, evidence


async def main(reactor: Any, socket: str, pq_bundle: str, url: str) -> None:
    """Get an identity, ask, show who answered."""
    source = WorkloadSource(socket, reactor=reactor)
    pq_roots = PqBundleSource(pq_bundle, reactor=reactor)
    source.startService()
    pq_roots.startService()
    await source.when_ready()
    try:
        page, evidence = await ask(reactor, source, pq_roots, url)
    except SvcError as error:
        raise SystemExit(f"{error} ({error.reason})") from error
    finally:
        pq_roots.stopService()
        await source.stopService()
    print(f"{len(page)} octets from {evidence.subject}, statement {evidence.id}")
    print(f"post-quantum signature: {'yes' if evidence.post_quantum else 'no'}")


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(main(reactor, *sys.argv[1:])))
