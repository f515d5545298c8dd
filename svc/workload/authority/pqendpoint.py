"""
The PQ issuer over HTTP: ``GET /v1/challenge`` and ``POST /v1/pq-leaf``.

Owns paths, sizes, status codes and the question who asks, at the Unix socket and over mutual TLS. What a leaf says
and what proves a request is decided in ``svc.notary.pqissuer``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from io import BytesIO
from typing import Any, Final, Protocol

from cryptography import x509
from twisted.protocols.policies import WrappingFactory
from twisted.web.http import Request as BareRequest
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from svc import naming
from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.certificate import CertificateFacts
from svc.identity.rules import check_leaf
from svc.identity.spiffeid import SpiffeID
from svc.notary.access import problem
from svc.notary.errors import ChallengesExhausted
from svc.notary.pqissuer import Challenges, PqIssuer, PqLeafRequest
from svc.strictjson import dumps
from svc.transport.evidence import peer_evidence
from svc.workload.authority.attestation import CallingProcess
from svc.workload.authority.registration import Registry

#: An RSA chain with two ML-DSA parts stays far below it.
MAX_REQUEST: Final = 64 * 1024
#: A sender that does not stop after so many octets is cut off; before that it gets its answer.
CUT_OFF: Final = 1024 * 1024
IDLE_SECONDS: Final = 15.0
#: Each is over within milliseconds; one that idles costs a descriptor for fifteen seconds.
MAX_CONNECTIONS: Final = 256
#: Refusals that the caller's own doing can cure at the next attempt.
_RETRYABLE: Final = frozenset({"challenge_unknown", "notary_rate", "time_skew", "credentials_missing"})


class CallerRefused(SvcError):
    """the caller may not ask for a post-quantum leaf: {defect}"""

    reason = "caller_refused"
    http_status = 403


class Vouch(Protocol):
    """Says which identities the transport vouches for."""

    def __call__(self, transport: Any, request: PqLeafRequest) -> Collection[SpiffeID]:
        """The identities of who sent the request; raises :class:`~svc.errors.SvcError` where there is none."""


class PqObserver(Protocol):
    """Hears what the PQ issuer grants and refuses."""

    def leaf_issued(self, leaf: x509.Certificate) -> None:
        """A leaf was given out."""

    def leaf_refused(self, error: SvcError) -> None:
        """A request was refused."""


class RegisteredProcess:
    """
    At a Unix socket: the identities that the entries give to the calling process.

    Args:
        registry: the entries.
    """

    def __init__(self, registry: Callable[[], Registry]) -> None:
        self._registry = registry

    def __call__(self, transport: Any, request: PqLeafRequest) -> Collection[SpiffeID]:
        """
        Attest the caller.

        Args:
            transport: the connection of the request.
            request: not looked at.

        Returns:
            The identities it is entitled to.

        Raises:
            CallerUnknown: the process has gone.
        """
        process = CallingProcess(transport.getHandle())
        try:
            entries = self._registry().match(process.observe(), process.digest)
        finally:
            process.close()
        return frozenset(entry.spiffe_id for entry in entries)


class TrustedUser:
    """
    At a Unix socket without entries: whoever holds an SVID and runs as one of the listed users.

    Args:
        uids: the users.
    """

    def __init__(self, uids: Collection[int]) -> None:
        self._uids = frozenset(uids)

    def __call__(self, transport: Any, request: PqLeafRequest) -> Collection[SpiffeID]:
        """
        Attest the caller.

        Args:
            transport: the connection of the request.
            request: whose SVID names the identity; its proof is checked afterwards.

        Returns:
            The identity of the SVID.

        Raises:
            CallerUnknown: the process has gone.
            CallerRefused: it runs as another user.
            SvidInvalid: the SVID has no SPIFFE ID.
        """
        process = CallingProcess(transport.getHandle())
        try:
            uid = process.observe().uid
        finally:
            process.close()
        if uid not in self._uids:
            raise CallerRefused(defect=f"user {uid} is none of those allowed")
        return frozenset({check_leaf(CertificateFacts.read(request.chain[0]))})


def tls_peer(transport: Any, request: PqLeafRequest) -> Collection[SpiffeID]:
    """
    Over mutual TLS: the peer.

    Args:
        transport: the connection of the request.
        request: not looked at.

    Returns:
        The peer's identity.

    Raises:
        PeerNotVerified: there is no verified peer.
    """
    return frozenset({peer_evidence(transport).svid.spiffe_id})


class PqService:
    """
    What both paths share.

    Args:
        issuer: gives the root that signs at a time.
        bundles: the SPIFFE bundles that judge an SVID.
        audience: the SPIFFE ID of the issuer.
        now: tells the time.
        random: gives unpredictable octets.
        observer: hears of grants and refusals.
    """

    def __init__(
        self,
        issuer: Callable[[datetime], PqIssuer],
        bundles: Callable[[], BundleSet],
        audience: Callable[[], SpiffeID],
        now: Callable[[], datetime],
        random: Callable[[int], bytes],
        observer: PqObserver,
    ) -> None:
        self._issuer = issuer
        self._bundles = bundles
        self._audience = audience
        self._now = now
        self._random = random
        self._observer = observer
        self._challenges = Challenges(random)

    def challenge(self) -> bytes:
        """
        Give out a challenge.

        Returns:
            The JSON answer.

        Raises:
            ChallengesExhausted: too many are outstanding.
        """
        return dumps({"challenge": self._challenges.issue(self._now()), "issuer": str(self._audience())})

    def leaf(self, data: bytes, transport: Any, vouch: Vouch) -> bytes:
        """
        Answer a request for a leaf.

        Args:
            data: the body.
            transport: its connection.
            vouch: says who is at the other end.

        Returns:
            The JSON answer.

        Raises:
            SvcError: the first check that failed.
        """
        request = PqLeafRequest.parse(data, max_bytes=MAX_REQUEST)
        peers = vouch(transport, request)
        if not peers:
            raise CallerRefused(defect="no entry gives it an identity")
        now = self._now()
        answer = self._issuer(now).answer(
            request,
            bundles=self._bundles(),
            challenges=self._challenges,
            audience=self._audience(),
            peers=peers,
            now=now,
            random=self._random,
        )
        self._observer.leaf_issued(answer.chain[0])
        return answer.serialize()

    def refused(self, error: SvcError) -> None:
        """
        Report a refusal.

        Args:
            error: why.
        """
        self._observer.leaf_refused(error)


class BoundedRequest(Request):
    """A request whose body is never kept beyond the limit."""

    too_large = False
    received = 0

    def gotLength(self, length: int | None) -> None:
        """
        Hear the announced length; twisted.web would put a large body into a file.

        Args:
            length: octets, None for a chunked body.
        """
        self.content = self.body = BytesIO()
        self.too_large = length is not None and length > MAX_REQUEST

    def handleContentChunk(self, data: bytes) -> None:
        """
        Keep a piece of the body, or nothing of it once it is too large.

        Args:
            data: the piece.
        """
        self.received += len(data)
        self.too_large = self.too_large or self.received > MAX_REQUEST
        if not self.too_large:
            self.body.write(data)
        elif self.received > CUT_OFF:
            self.channel.forceAbortClient()


class _Folder(Resource):
    """A path that only leads further."""

    def render(self, request: BareRequest) -> bytes:
        """Say that nothing stands here."""
        return _problem(request, 404, "not_found")


class _Leaf(Resource):
    """``/v1/pq-leaf``."""

    isLeaf = True

    def __init__(self, service: PqService, vouch: Vouch) -> None:
        super().__init__()
        self._service = service
        self._vouch = vouch

    def render_POST(self, request: BoundedRequest) -> bytes:
        """Issue a leaf."""
        if request.too_large:
            request.setHeader(b"connection", b"close")
            return _problem(request, 413, "too_large")
        try:
            answer = self._service.leaf(request.body.getvalue(), request.channel.transport, self._vouch)
        except SvcError as error:
            self._service.refused(error)
            return _problem(request, _status(error), error.reason)
        return _json(request, 200, answer)


class _Challenge(Resource):
    """``/v1/challenge``."""

    isLeaf = True

    def __init__(self, service: PqService) -> None:
        super().__init__()
        self._service = service

    def render_GET(self, request: BareRequest) -> bytes:
        """Give out a challenge."""
        try:
            return _json(request, 200, self._service.challenge())
        except ChallengesExhausted as error:
            return _problem(request, 503, error.reason)


class _QuietSite(Site):
    """twisted.web without its access lines, which are no records of ours."""

    noisy = False

    def log(self, request: BareRequest) -> None:
        """Say nothing; grants and refusals go to the observer."""


class _Bounded(WrappingFactory):
    """Closes connections beyond a limit at once."""

    noisy = False

    def __init__(self, wrapped: Any, limit: int) -> None:
        super().__init__(wrapped)
        self._limit = limit

    def buildProtocol(self, addr: Any) -> Any:
        """Build a protocol, or none where it would be one too many."""
        return super().buildProtocol(addr) if len(self.protocols) < self._limit else None


def pq_site(service: PqService, vouch: Vouch, reactor: Any, *, connections: int = MAX_CONNECTIONS) -> WrappingFactory:
    """
    Make the HTTP side.

    Args:
        service: what answers.
        vouch: says who asks.
        reactor: the reactor that times idle connections.
        connections: how many may be open at once.

    Returns:
        The factory for a listening port.
    """
    root, version = _Folder(), _Folder()
    root.putChild(b"v1", version)
    version.putChild(b"challenge", _Challenge(service))
    version.putChild(b"pq-leaf", _Leaf(service, vouch))
    site = _QuietSite(root, requestFactory=BoundedRequest, timeout=IDLE_SECONDS, reactor=reactor)
    site.displayTracebacks = False
    return _Bounded(site, connections)


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
