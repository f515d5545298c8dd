"""
HTTP for callers that are attested when their connection is accepted.

Owns the size of bodies, the answers to refusals, and the limit on connections, which callers share fairly. What is
served is for others.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IHalfCloseableProtocol
from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import Request as BareRequest
from twisted.web.resource import IResource, Resource
from twisted.web.server import Request, Site
from zope.interface import implementer

from svc import naming
from svc.errors import SvcError
from svc.identity.spiffeid import SpiffeID
from svc.notary.access import problem
from svc.pages.site import QuietSite
from svc.transport.errors import ConnectionLimitReached, TransportError
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.transport.fair_limiter import FairLimiter

#: An RSA chain with two ML-DSA parts is far smaller.
MAX_REQUEST: Final = 64 * 1024
#: A connection is aborted after so many octets of one body; up to then the request is answered.
CUT_OFF: Final = 1024 * 1024
IDLE_SECONDS: Final = 15.0
#: Each is served within milliseconds; an idle one costs a descriptor for fifteen seconds.
MAX_CONNECTIONS: Final = 256
#: Refusals after which the same caller may succeed with its next attempt.
_RETRYABLE: Final = frozenset({"challenge_unknown", "time_skew", "credentials_missing", "not_ready"})


class Caller(Protocol):
    """The peer of one connection; made when it is accepted, closed when it ends."""

    @property
    def share(self) -> SpiffeID | int:
        """
        The key under which its connections and challenges are counted: its identity over TLS, its user on a Unix
        socket.
        """

    def close(self) -> None:
        """Release what attests it."""


#: Makes the caller of a connection from its transport; raises ``SvcError`` if it cannot be attested.
Identify = Callable[[Any], Caller]


class TlsCaller:
    """
    The peer of mutual TLS, verified in the handshake; raises ``PeerNotVerified`` if there is none.

    Attributes:
        evidence: the evidence of its connection.
    """

    def __init__(self, transport: Any) -> None:
        self.evidence: PeerEvidence = peer_evidence(transport)
        self.share = self.evidence.svid.spiffe_id

    def identities(self) -> tuple[SpiffeID]:
        """See :class:`svc.pqissuer.endpoint.PqCaller`."""
        return (self.share,)

    def close(self) -> None:
        pass


#: Receives what was refused to a caller, None where it is not attested.
Refused = Callable[[SvcError, "Caller | None"], None]


class BodyRequest(Request):
    """A request whose body is kept in memory, and only up to the limit."""

    #: Octets of the largest body.
    limit = MAX_REQUEST
    too_large = False
    received = 0

    def gotLength(self, length: int | None) -> None:
        """Overridden since twisted.web would put a large body into a file."""
        self.content = self.body = BytesIO()
        self.too_large = length is not None and length > self.limit

    def handleContentChunk(self, data: bytes) -> None:
        self.received += len(data)
        self.too_large = self.too_large or self.received > self.limit
        if not self.too_large:
            self.body.write(data)
        elif self.received > CUT_OFF:
            self.channel.forceAbortClient()


class Folder(Resource):
    """A path without a resource of its own."""

    def render(self, request: BareRequest) -> bytes:
        return send_problem(request, 404, "not_found")


@implementer(IHalfCloseableProtocol)
class _Connection(ProtocolWrapper):
    """A connection that counts for its caller, and is evicted when another caller has a right to its slot."""

    caller: Caller | None = None

    def makeConnection(self, transport: Any) -> None:
        """Attest the caller; a connection whose caller is unknown is closed."""
        super().makeConnection(transport)
        try:
            self.caller = self.factory.identify(transport)
        except SvcError as error:
            self.factory.refused(error, None)
            transport.abortConnection()
        else:
            self.factory.limiter.acquire(self, str(self.caller.share), self.factory.seconds())

    def readConnectionLost(self) -> None:
        """The caller sends no more; otherwise the transport's own method would be found, which closes nothing."""
        IHalfCloseableProtocol(self.wrappedProtocol).readConnectionLost()

    def writeConnectionLost(self) -> None:
        """The connection is never closed in one direction from here."""

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        caller, self.caller = self.caller, None
        self.factory.limiter.release(self)
        if caller is not None:
            caller.close()
        super().connectionLost(reason)

    def evicted(self, error: TransportError) -> None:
        """Close at once; see :class:`~svc.transport.fair_limiter.LimitedConnection`."""
        self.abortConnection()


class _Connections(WrappingFactory):
    """The connections of one listener, shared fairly between callers."""

    noisy = False
    protocol = _Connection

    def __init__(self, site: Site, refused: Refused, identify: Identify, reactor: Any, limit: int) -> None:
        super().__init__(site)
        self.refused = refused
        self.identify = identify
        self.seconds = reactor.seconds
        self.limiter = FairLimiter(limit, ConnectionLimitReached)


def caller_of(request: BareRequest) -> Any:
    """The caller on whose connection a request came."""
    connection: Any = request.channel.transport
    return connection.caller


def caller_site(
    root: IResource,
    refused: Refused,
    identify: Identify,
    reactor: Any,
    *,
    connections: int = MAX_CONNECTIONS,
    age: float | None = None,
    request: type[BodyRequest] = BodyRequest,
) -> WrappingFactory:
    """
    An HTTP site for attested callers.

    At most ``connections`` are open; for one more, the oldest of the caller that has most is closed. A connection ends
    with its first answer after ``age`` seconds. ``request`` says how large a body may be.
    """
    site = QuietSite(root, requestFactory=request, timeout=IDLE_SECONDS, reactor=reactor)
    site.age = age
    return _Connections(site, refused, identify, reactor, connections)


def error_status(error: SvcError) -> int:
    return error.http_status if 400 <= error.http_status < 600 and error.http_status != 500 else 403


def send_problem(request: BareRequest, status: int, code: str) -> bytes:
    _status_code, document = problem(code, status=status, retryable=code in _RETRYABLE)
    request.setHeader(b"content-type", naming.MEDIA_TYPE_PROBLEM.encode("ascii"))
    request.setResponseCode(status)
    return document


def send_json(request: BareRequest, status: int, body: bytes) -> bytes:
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    request.setResponseCode(status)
    return body
