"""
GET over HTTPS, with the response's workload statement fetched over the same connection and verified.

Does not depend on receipts; ``svc curl`` verifies those.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer

from svc.embedding.errors import EmbeddingError
from svc.errors import SvcError, printable
from svc.naming import HEADER_WORKLOAD_ID
from svc.notary.access import statement_path
from svc.notary.errors import StatementMissing
from svc.notary.ids import parse_artifact_id
from svc.notary.statement import StatementEvidence
from svc.transport.evidence import PeerEvidence, peer_evidence

#: Octets of a response's body.
MAX_BODY: Final = 16 * 1024 * 1024
#: Octets of a statement, as the notary bounds its envelopes.
MAX_STATEMENT: Final = 256 * 1024
#: Seconds for the whole exchange.
MAX_SECONDS: Final = 60.0

#: Makes the endpoint of an address, ``host:port``.
Connect = Callable[[str], IStreamClientEndpoint]
#: Verifies the statement with the given identifier that the peer of a connection served.
Verify = Callable[[bytes, PeerEvidence, str], StatementEvidence]


@dataclass(frozen=True)
class VerifiedResponse:
    """
    A response whose workload is proved.

    Attributes:
        status: the HTTP status.
        headers: the header fields.
        body: the body.
        statement: what the statement proves of the workload that responded.
    """

    status: int
    headers: Headers
    body: bytes
    statement: StatementEvidence


async def fetch(reactor: Any, url: str, *, connect: Connect, verify: Verify, max_body: int) -> VerifiedResponse:
    """
    GET ``https://host:port/path`` once.

    Raises:
        EmbeddingError: ``url_unsupported``, ``connection_ended``, ``answer_too_large``, ``answer_late`` or
            ``answer_broken``.
        StatementMissing: the response names no statement, or more than one.
        TransportError: there is no connection with the expected peer, or the peer refused this workload.
        NotaryError: the statement is refused.
    """
    fetching = Deferred.fromCoroutine(_fetch(reactor, url, connect, verify, max_body))
    timeout = reactor.callLater(MAX_SECONDS, fetching.cancel)
    try:
        return await fetching
    except SvcError:
        raise
    except Exception as error:
        if not timeout.active():
            raise EmbeddingError("answer_late", url=url, seconds=MAX_SECONDS) from error
        raise _typed_error(error, url) from error
    finally:
        if timeout.active():
            timeout.cancel()


def _typed_error(error: Exception, url: str) -> SvcError:
    """Find the typed error among those that twisted.web collected: in TLS 1.3 a refusal may end the connection."""
    reasons = [each.value for each in getattr(error, "reasons", ())]
    typed = next((each for each in reasons if isinstance(each, SvcError)), None)
    what = str(reasons[0]) if reasons else str(error)
    return typed or EmbeddingError("answer_broken", url=url, what=printable(what) or type(error).__name__)


async def _fetch(reactor: Any, url: str, connect: Connect, verify: Verify, max_body: int) -> VerifiedResponse:
    if not url.startswith("https://") or not url.isascii():
        raise EmbeddingError("url_unsupported", url=printable(url))
    uri = URI.fromBytes(url.encode("ascii"))
    host = f"[{uri.host.decode('ascii')}]" if b":" in uri.host else uri.host.decode("ascii")
    endpoint = _OneConnection(connect(f"{host}:{uri.port}"))
    pool = HTTPConnectionPool(reactor)
    agent = Agent.usingEndpointFactory(reactor, endpoint, pool=pool)
    # The scheme is http for twisted.web: the endpoint does TLS.
    base = b"http://" + uri.netloc
    try:
        response = await agent.request(b"GET", base + uri.originForm)
        body = await _body(response, max_body)
        named = response.headers.getRawHeaders(HEADER_WORKLOAD_ID, [])
        if len(named) != 1:
            raise StatementMissing
        identifier = parse_artifact_id(named[0])
        found = await agent.request(b"GET", base + statement_path(identifier).encode("ascii"))
        envelope = await _body(found, MAX_STATEMENT)
        evidence = verify(envelope, endpoint.peer, identifier)
    except BaseException:
        # Otherwise the response of a server that goes on sending would be read to its end.
        endpoint.abort()
        raise
    finally:
        await pool.closeCachedConnections()
    return VerifiedResponse(response.code, response.headers, body, evidence)


@implementer(IStreamClientEndpoint, IAgentEndpointFactory)
class _OneConnection:
    """Connects once, and keeps the peer's evidence: the connection may end before the statement is verified."""

    def __init__(self, endpoint: IStreamClientEndpoint) -> None:
        self._endpoint = endpoint
        self._used = False
        self._transport: Any = None
        self.peer: PeerEvidence

    def endpointForURI(self, uri: URI) -> _OneConnection:
        return self

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        return Deferred.fromCoroutine(self._connect(protocolFactory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        if self._used:
            raise EmbeddingError("connection_ended")
        self._used = True
        protocol = await self._endpoint.connect(factory)
        self._transport = getattr(protocol, "transport", None)
        self.peer = peer_evidence(self._transport)
        return protocol

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abortConnection()


class _BodyReader(Protocol):
    """Collects a bounded body."""

    def __init__(self, limit: int) -> None:
        self.whole: Deferred[bytes] = Deferred()
        self._data = bytearray()
        self._limit = limit

    def dataReceived(self, data: bytes) -> None:
        if self.whole.called:
            return
        self._data += data
        if len(self._data) > self._limit:
            self.whole.errback(EmbeddingError("answer_too_large", limit=self._limit))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        # A body that ends with its connection (PotentialDataLoss) may be truncated.
        if reason.check(ResponseDone):
            self.whole.callback(bytes(self._data))
        else:
            self.whole.errback(reason)


def _body(response: IResponse, limit: int) -> Deferred[bytes]:
    reader = _BodyReader(limit)
    response.deliverBody(reader)
    return reader.whole
