"""
The PQ issuer over HTTP: ``GET /v1/challenge`` and ``POST /v1/pq-leaf``.

Paths, sizes, status codes, the attestation of callers on the Unix socket and over mutual TLS, and the limits on their
connections. ``svc.notary.pqissuer`` verifies requests and makes leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from io import BytesIO
from typing import Any, Final, Protocol

from twisted.internet.protocol import connectionDone
from twisted.protocols.policies import ProtocolWrapper, WrappingFactory
from twisted.python.failure import Failure
from twisted.web.http import Request as BareRequest
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from svc import naming
from svc.authority.attestation import CallerNotAttested, CallingProcess
from svc.authority.registration import Registry
from svc.authority.report import AuthorityLog
from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.certificate import CertificateFacts
from svc.identity.rules import check_leaf
from svc.identity.spiffeid import SpiffeID
from svc.notary.access import problem
from svc.notary.pqissuer import Challenges, PqIssuer
from svc.notary.pqleaf import PqLeafRequest
from svc.process.pages import QuietSite
from svc.strictjson import dumps
from svc.transport.errors import ConnectionLimitReached, TransportError
from svc.transport.evidence import peer_evidence
from svc.transport.fair_limiter import FairLimiter

#: An RSA chain with two ML-DSA parts is far smaller.
MAX_REQUEST: Final = 64 * 1024
#: A connection is aborted after so many octets of one body; up to then the request is answered.
CUT_OFF: Final = 1024 * 1024
IDLE_SECONDS: Final = 15.0
#: Each is served within milliseconds; an idle one costs a descriptor for fifteen seconds.
MAX_CONNECTIONS: Final = 256
#: Refusals after which the same caller may succeed with its next attempt.
_RETRYABLE: Final = frozenset({"challenge_unknown", "time_skew", "credentials_missing"})


class CallerRefused(SvcError):
    """the caller may not ask for a post-quantum leaf: {defect}"""

    reason = "caller_refused"
    http_status = 403


class PqCaller(Protocol):
    """The peer of one connection; made when it is accepted, closed when it ends."""

    @property
    def share(self) -> SpiffeID | int:
        """
        The key under which its connections and challenges are counted: its identity over TLS, its user on a Unix
        socket.
        """

    def identities(self) -> Collection[SpiffeID] | None:
        """
        Attest the caller now and return the identities it may get leaves for.

        None is that of any SVID whose key it proves to have. Raises ``SvcError`` if it may get none.
        """

    def close(self) -> None:
        """Release what attests it."""


#: Makes the caller of a connection from its transport; raises ``SvcError`` if it cannot be attested.
Identify = Callable[[Any], PqCaller]
#: The identities of a process, see :meth:`PqCaller.identities`.
Attest = Callable[[CallingProcess], Collection[SpiffeID] | None]


class TlsCaller:
    """The peer of mutual TLS, verified in the handshake; raises ``PeerNotVerified`` if there is none."""

    def __init__(self, transport: Any) -> None:
        self.share = peer_evidence(transport).svid.spiffe_id

    def identities(self) -> Collection[SpiffeID]:
        return (self.share,)

    def close(self) -> None:
        pass


class UnixCaller:
    """
    The process at the other end of a Unix socket, held from the moment it was accepted.

    Raises :class:`CallerNotAttested` if it has exited or the kernel does not identify it.
    """

    def __init__(self, transport: Any, attest: Attest) -> None:
        try:
            self._process = CallingProcess(transport.getHandle())
        except OSError as error:
            raise CallerNotAttested(defect=error.strerror or "it cannot be read") from error
        self._attest = attest
        self.share = self._process.uid

    def identities(self) -> Collection[SpiffeID] | None:
        return self._attest(self._process)

    def close(self) -> None:
        self._process.close()


def registered(registry: Callable[[], Registry]) -> Attest:
    """Attest by registration entries; a process that no entry matches is refused."""

    def attest(process: CallingProcess) -> Collection[SpiffeID]:
        entries = registry().match(process.observe(), process.digest)
        if not entries:
            raise CallerRefused(defect="no entry gives it an identity")
        return tuple(entry.spiffe_id for entry in entries)

    return attest


def listed(uids: Collection[int]) -> Attest:
    """Attest without entries: any process with an SVID that runs as one of these users."""
    allowed = frozenset(uids)

    def attest(process: CallingProcess) -> None:
        uid = process.observe().uid
        if uid not in allowed:
            raise CallerRefused(defect=f"user {uid} is none of those allowed")

    return attest


class PqService:
    """
    Answers the requests of attested callers.

    ``issuer`` returns the signing root for a time, ``bundles`` the SPIFFE bundles that verify SVIDs, ``audience`` the
    SPIFFE ID of the issuer.
    """

    def __init__(
        self,
        issuer: Callable[[datetime], PqIssuer],
        bundles: Callable[[], BundleSet],
        audience: Callable[[], SpiffeID],
        now: Callable[[], datetime],
        random: Callable[[int], bytes],
        observer: AuthorityLog,
    ) -> None:
        self._issuer = issuer
        self._bundles = bundles
        self._audience = audience
        self._now = now
        self._random = random
        self._observer = observer
        self._challenges = Challenges(random)

    def challenge(self, caller: PqCaller) -> bytes:
        """Issue a challenge to an attested caller; the JSON answer."""
        caller.identities()
        challenge = self._challenges.issue(caller.share, self._now())
        return dumps({"challenge": challenge, "issuer": str(self._audience())})

    def leaf(self, data: bytes, caller: PqCaller) -> bytes:
        """Answer a request for a leaf; raises the ``SvcError`` of the first failed check."""
        peers = caller.identities()
        request = PqLeafRequest.parse(data, max_bytes=MAX_REQUEST)
        if peers is None:
            peers = (check_leaf(CertificateFacts.read(request.chain[0])),)
        now = self._now()
        answer = self._issuer(now).answer(
            request,
            bundles=self._bundles(),
            challenges=self._challenges,
            caller=caller.share,
            audience=self._audience(),
            peers=peers,
            now=now,
            random=self._random,
        )
        self._observer.leaf_issued(answer.chain[0])
        return answer.serialize()

    def refused(self, error: SvcError, caller: PqCaller | None) -> None:
        """Report a refusal to the observer."""
        self._observer.leaf_refused(error, None if caller is None else caller.share)


class PqHttpRequest(Request):
    """A request whose body is kept in memory, and only up to the limit."""

    too_large = False
    received = 0

    def gotLength(self, length: int | None) -> None:
        """Overridden since twisted.web would put a large body into a file."""
        self.content = self.body = BytesIO()
        self.too_large = length is not None and length > MAX_REQUEST

    def handleContentChunk(self, data: bytes) -> None:
        self.received += len(data)
        self.too_large = self.too_large or self.received > MAX_REQUEST
        if not self.too_large:
            self.body.write(data)
        elif self.received > CUT_OFF:
            self.channel.forceAbortClient()


class _Folder(Resource):
    """A path without a resource of its own."""

    def render(self, request: BareRequest) -> bytes:
        return _problem(request, 404, "not_found")


class _Endpoint(Resource):
    """A path that answers attested callers."""

    isLeaf = True

    def __init__(self, service: PqService) -> None:
        super().__init__()
        self._service = service

    def _answer(self, request: BareRequest, answer: Callable[[PqCaller], bytes]) -> bytes:
        connection: Any = request.channel.transport
        caller = connection.caller
        try:
            body = answer(caller)
        except SvcError as error:
            self._service.refused(error, caller)
            return _problem(request, _status(error), error.reason)
        return _json(request, 200, body)


class _Leaf(_Endpoint):
    """``/v1/pq-leaf``."""

    def render_POST(self, request: PqHttpRequest) -> bytes:
        if request.too_large:
            request.setHeader(b"connection", b"close")
            return _problem(request, 413, "too_large")
        return self._answer(request, lambda caller: self._service.leaf(request.body.getvalue(), caller))


class _Challenge(_Endpoint):
    """``/v1/challenge``."""

    def render_GET(self, request: BareRequest) -> bytes:
        return self._answer(request, self._service.challenge)


class _Connection(ProtocolWrapper):
    """A connection that counts for its caller, and is evicted when another caller has a right to its slot."""

    caller: PqCaller | None = None

    def makeConnection(self, transport: Any) -> None:
        """Attest the caller; a connection whose caller is unknown is closed."""
        super().makeConnection(transport)
        try:
            self.caller = self.factory.identify(transport)
        except SvcError as error:
            self.factory.service.refused(error, None)
            transport.abortConnection()
        else:
            self.factory.limiter.acquire(self, str(self.caller.share), self.factory.seconds())

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

    def __init__(self, site: Site, service: PqService, identify: Identify, reactor: Any, limit: int) -> None:
        super().__init__(site)
        self.service = service
        self.identify = identify
        self.seconds = reactor.seconds
        self.limiter = FairLimiter(limit, ConnectionLimitReached)


def pq_site(
    service: PqService, identify: Identify, reactor: Any, *, connections: int = MAX_CONNECTIONS
) -> WrappingFactory:
    """
    The HTTP site of the PQ issuer.

    At most ``connections`` are open; for one more, the oldest of the caller that has most is closed.
    """
    root, version = _Folder(), _Folder()
    root.putChild(b"v1", version)
    version.putChild(b"challenge", _Challenge(service))
    version.putChild(b"pq-leaf", _Leaf(service))
    site = QuietSite(root, requestFactory=PqHttpRequest, timeout=IDLE_SECONDS, reactor=reactor)
    return _Connections(site, service, identify, reactor, connections)


def _status(error: SvcError) -> int:
    return error.http_status if 400 <= error.http_status < 600 and error.http_status != 500 else 403


def _problem(request: BareRequest, status: int, code: str) -> bytes:
    _status_code, document = problem(code, status=status, retryable=code in _RETRYABLE)
    request.setHeader(b"content-type", naming.MEDIA_TYPE_PROBLEM.encode("ascii"))
    request.setResponseCode(status)
    return document


def _json(request: BareRequest, status: int, body: bytes) -> bytes:
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    request.setResponseCode(status)
    return body
