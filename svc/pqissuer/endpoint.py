"""
The PQ issuer over HTTP: ``GET /v1/challenge``, ``POST /v1/pq-leaf`` and ``GET /v1/pq-bundle``.

The parameters ``node`` and ``sequence`` of the last one report what a node serves.

Paths, and who may ask for which leaf; ``svc.notary.pqissuer`` verifies requests and makes leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from cryptography import x509
from twisted.protocols.policies import WrappingFactory
from twisted.web.http import Request as BareRequest
from twisted.web.resource import Resource

from svc.errors import SvcError
from svc.identity.bundle import BundleSet
from svc.identity.certificate import CertificateFacts
from svc.identity.pqbundle import PqBundles
from svc.identity.rules import check_leaf
from svc.identity.spiffeid import SpiffeID
from svc.notary.pqissuer import Challenges, PqIssuer
from svc.notary.pqleaf import PqLeafRequest
from svc.pages.callers import (
    MAX_CONNECTIONS,
    MAX_REQUEST,
    BodyRequest,
    Caller,
    Folder,
    caller_of,
    caller_site,
    error_status,
    send_json,
    send_problem,
)
from svc.pqissuer.nodes import NodeReport
from svc.strictjson import dumps


class CallerRefused(SvcError):
    """the caller may not ask for a post-quantum leaf: {defect}"""

    reason = "caller_refused"
    http_status = 403


class PqCaller(Caller, Protocol):
    """A caller that may ask for leaves."""

    def identities(self) -> Collection[SpiffeID] | None:
        """
        Attest the caller now and return the identities it may get leaves for.

        None is that of any SVID whose key it proves to have. Raises ``SvcError`` if it may get none.
        """


#: Makes the caller of a connection from its transport; raises ``SvcError`` if it cannot be attested.
Identify = Callable[[Any], PqCaller]


#: Receives what a node serves, and the identities of the caller that says so.
Reported = Callable[[NodeReport, Collection[SpiffeID]], None]


class PqObserver(Protocol):
    """Receives what was issued and refused."""

    def leaf_issued(self, leaf: x509.Certificate) -> None:
        """A leaf was issued."""

    def leaf_refused(self, error: SvcError, caller: SpiffeID | int | None) -> None:
        """A request was refused; ``caller`` is the identity over TLS, the user on a Unix socket, or None."""


class PqService:
    """
    Answers the requests of attested callers.

    ``issuer`` returns the signing root for a time, ``bundles`` the SPIFFE bundles that verify SVIDs, ``audience`` the
    SPIFFE ID of the issuer, ``roots`` the PQ bundle with the roots of the issuer. ``reported`` gets the reports of
    callers whose identities are attested.
    """

    def __init__(
        self,
        issuer: Callable[[datetime], PqIssuer],
        bundles: Callable[[], BundleSet],
        audience: Callable[[], SpiffeID],
        now: Callable[[], datetime],
        random: Callable[[int], bytes],
        observer: PqObserver,
        roots: Callable[[], PqBundles],
        reported: Reported,
    ) -> None:
        self._issuer = issuer
        self._roots = roots
        self._reported = reported
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

    def pq_bundle(self, caller: PqCaller, query: Mapping[bytes, Sequence[bytes]]) -> bytes:
        """The PQ bundle, for an attested caller; ``query`` are its parameters."""
        identities = caller.identities()
        report = NodeReport.parse(query)
        if report is not None:
            self._reported(report, identities or ())
        return self._roots().serialize()

    def refused(self, error: SvcError, caller: Caller | None) -> None:
        """Report a refusal to the observer."""
        self._observer.leaf_refused(error, None if caller is None else caller.share)


class _Endpoint(Resource):
    """A path that answers attested callers."""

    isLeaf = True

    def __init__(self, service: PqService) -> None:
        super().__init__()
        self._service = service

    def _answer(self, request: BareRequest, answer: Callable[[PqCaller], bytes]) -> bytes:
        caller: PqCaller = caller_of(request)
        try:
            body = answer(caller)
        except SvcError as error:
            self._service.refused(error, caller)
            return send_problem(request, error_status(error), error.reason)
        return send_json(request, 200, body)


class _Leaf(_Endpoint):
    """``/v1/pq-leaf``."""

    def render_POST(self, request: BodyRequest) -> bytes:
        if request.too_large:
            request.setHeader(b"connection", b"close")
            return send_problem(request, 413, "too_large")
        return self._answer(request, lambda caller: self._service.leaf(request.body.getvalue(), caller))


class _Challenge(_Endpoint):
    """``/v1/challenge``."""

    def render_GET(self, request: BareRequest) -> bytes:
        return self._answer(request, self._service.challenge)


class _Bundle(_Endpoint):
    """``/v1/pq-bundle``."""

    def render_GET(self, request: BareRequest) -> bytes:
        return self._answer(request, lambda caller: self._service.pq_bundle(caller, request.args or {}))


def pq_resources(service: PqService, version: Resource) -> None:
    """Add the resources of the PQ issuer below ``/v1``."""
    version.putChild(b"challenge", _Challenge(service))
    version.putChild(b"pq-leaf", _Leaf(service))
    version.putChild(b"pq-bundle", _Bundle(service))


def pq_site(
    service: PqService, identify: Identify, reactor: Any, *, connections: int = MAX_CONNECTIONS
) -> WrappingFactory:
    """The HTTP site of a PQ issuer alone; see :func:`svc.pages.callers.caller_site`."""
    root, version = Folder(), Folder()
    root.putChild(b"v1", version)
    pq_resources(service, version)
    return caller_site(root, service.refused, identify, reactor, connections=connections)
