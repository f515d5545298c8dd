"""
Ask over HTTP and believe the answer only with the verified statement of the workload that gave it.

Owns one exchange over one connection: the statement must be bound to the connection that brought the answer. Knows no
receipts; ``svc curl`` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import URI, Agent, HTTPConnectionPool, ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory, IResponse
from zope.interface import implementer

from svc.errors import SvcError, printable
from svc.identity import Matcher
from svc.naming import HEADER_WORKLOAD_ID
from svc.notary.access import statement_path
from svc.notary.refusals import StatementMissing
from svc.notary.statement import StatementEvidence, parse_artifact_id
from svc.transport.evidence import PeerEvidence, peer_evidence

if TYPE_CHECKING:
    from svc.embedding.workload import Workload

#: Octets of an answer's body.
MAX_BODY: Final = 16 * 1024 * 1024
#: Octets of a statement, as the notary bounds its envelopes.
MAX_STATEMENT: Final = 256 * 1024
#: Seconds for the whole exchange.
MAX_SECONDS: Final = 60.0
_HTTP: Final = (b"http/1.1",)


class ConnectionEnded(SvcError):
    """the server ended the connection between its answer and the statement"""

    reason = "connection_ended"
    hint = "ask again"


class AnswerLate(SvcError):
    """{url} did not answer within {seconds} s"""

    reason = "answer_late"


class AnswerBroken(SvcError):
    """the connection to {url} ended before the answer did: {what}"""

    reason = "answer_broken"


class AnswerTooLarge(SvcError):
    """the answer is larger than {limit} octets"""

    reason = "answer_too_large"


class UrlUnsupported(SvcError):
    """{url} is no https:// address in ASCII"""

    reason = "url_unsupported"


@dataclass(frozen=True)
class VerifiedAnswer:
    """
    An answer whose workload is proved.

    Attributes:
        status: the HTTP status.
        headers: the header fields.
        body: the body.
        statement: what the statement proves of the workload that answered.
    """

    status: int
    headers: Headers
    body: bytes
    statement: StatementEvidence


async def fetch(workload: Workload, reactor: Any, url: str, *, expect: Matcher, max_body: int) -> VerifiedAnswer:
    """
    Ask once.

    Args:
        workload: who asks, and whom it believes.
        reactor: the reactor.
        url: ``https://host:port/path``.
        expect: who must answer.
        max_body: the most octets of the body.

    Returns:
        The answer.

    Raises:
        UrlUnsupported: ``url`` is no ``https://`` address.
        StatementMissing: the answer names no statement, or more than one.
        ConnectionEnded: the statement could not be fetched over the same connection.
        AnswerTooLarge: the body or the statement is larger than it may be.
        AnswerLate: the time is over.
        AnswerBroken: the connection ended too soon.
        TransportError: there is no connection with the expected peer, or the peer refused this workload.
        NotaryError: the statement is refused.
    """
    asking = Deferred.fromCoroutine(_fetch(workload, reactor, url, expect, max_body))
    late = reactor.callLater(MAX_SECONDS, asking.cancel)
    try:
        return await asking
    except SvcError:
        raise
    except Exception as error:
        if not late.active():
            raise AnswerLate(url=url, seconds=MAX_SECONDS) from error
        raise _explained(error, url) from error
    finally:
        if late.active():
            late.cancel()


def _explained(error: Exception, url: str) -> SvcError:
    """Find the typed reason in what twisted.web gathered: TLS 1.3 tells a refused client late."""
    reasons = [each.value for each in getattr(error, "reasons", ())]
    typed = next((each for each in reasons if isinstance(each, SvcError)), None)
    what = str(reasons[0]) if reasons else str(error)
    return typed or AnswerBroken(url=url, what=printable(what) or type(error).__name__)


async def _fetch(workload: Workload, reactor: Any, url: str, expect: Matcher, max_body: int) -> VerifiedAnswer:
    if not url.startswith("https://") or not url.isascii():
        raise UrlUnsupported(url=printable(url))
    uri = URI.fromBytes(url.encode("ascii"))
    host = f"[{uri.host.decode('ascii')}]" if b":" in uri.host else uri.host.decode("ascii")
    endpoint = _OneConnection(workload.client_endpoint(f"{host}:{uri.port}", expect=expect, alpn=_HTTP))
    pool = HTTPConnectionPool(reactor)
    agent = Agent.usingEndpointFactory(reactor, endpoint, pool=pool)
    # The scheme is http for twisted.web; TLS is the endpoint's business.
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
        evidence = workload.verify_statement(envelope, endpoint.peer, expected_id=identifier)
    except BaseException:
        # A server that goes on sending would otherwise be listened to for as long as it likes.
        endpoint.drop()
        raise
    finally:
        await pool.closeCachedConnections()
    return VerifiedAnswer(response.code, response.headers, body, evidence)


@implementer(IStreamClientEndpoint, IAgentEndpointFactory)
class _OneConnection:
    """Connects once, and remembers to whom: the connection may be gone when the statement is judged."""

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
            raise ConnectionEnded
        self._used = True
        protocol = await self._endpoint.connect(factory)
        self._transport = getattr(protocol, "transport", None)
        self.peer = peer_evidence(self._transport)
        return protocol

    def drop(self) -> None:
        """End the connection at once, where there is one."""
        if self._transport is not None:
            self._transport.abortConnection()


class _Reader(Protocol):
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
            self.whole.errback(AnswerTooLarge(limit=self._limit))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        # Not a body that ends with its connection (PotentialDataLoss): it may have been cut.
        if reason.check(ResponseDone):
            self.whole.callback(bytes(self._data))
        else:
            self.whole.errback(reason)


def _body(response: IResponse, limit: int) -> Deferred[bytes]:
    reader = _Reader(limit)
    response.deliverBody(reader)
    return reader.whole
