"""
The server of the admission webhook: HTTPS with a certificate of the webhook's own authority, on every replica.

Owns the size of bodies, what is kept in memory of them, and the age of connections. What becomes of a pod is decided
by :mod:`svc.injection`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from io import BytesIO
from typing import Any, Final, cast

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint, wrapClientTLS
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.internet.ssl import Certificate, optionsForClientTLS, trustRootFromCertificates
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import Request
from zope.interface import implementer

from svc.errors import SvcError, printable
from svc.injection import ReviewOutcome
from svc.kube.cache import Cache
from svc.kube.client import Client, Object
from svc.kube.kinds import CLUSTER_POLICIES, POLICIES, SECRETS
from svc.manager.admission.authorities import Authorities, CertificateAuthority, renewal
from svc.manager.admission.configuration import server_names
from svc.manager.config import WebhookSettings
from svc.manager.metrics import ManagerMetrics
from svc.naming import WEBHOOK_SECRET
from svc.pages.site import ConnectionTimes, HttpService, PageRequest, QuietSite
from svc.process.admin import finish_later
from svc.settings import HostPort
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.log_limits import RecordLimiter
from svc.telemetry.logs import emit
from svc.transport.endpoints import TransportReactor
from svc.transport.heldtls import HeldTls, HeldTlsCreator

#: Octets of a review: an object has at most 1.5 MiB in etcd, and a review of its creation has it once.
MAX_REVIEW: Final = 3 * 1024 * 1024
#: Octets of all reviews that are being received.
MAX_RECEIVED: Final = 32 * 1024 * 1024
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
#: Seconds within which a server answers.
_ANSWERS: Final = 5.0
_POLICIES: Final = (CLUSTER_POLICIES.plural, POLICIES.plural)
_DENIALS_EVERY: Final = 10.0
_DENIALS: Final = 256
#: Seconds after which an API server closes an idle connection.
_CLIENT_IDLE: Final = 90.0


#: Gives the body of a response, and what to count and log of a review.
Answer = Callable[[object], Coroutine[Any, Any, tuple[dict[str, object], ReviewOutcome]]]


class WebhookNotServed(SvcError):
    """the server of the webhook does not answer at {address}: {detail}"""

    reason = "webhook_not_served"
    hint = "the configuration of the webhook is written when it answers: look at /readyz of adminAddr"


def _times(life: float) -> ConnectionTimes:
    """
    Return how long connections are kept: a new certificate is presented to new ones alone.

    Clients close idle ones first, after 90 s: a request that meets a connection's end would fail.
    """
    age = min(60.0, life / 10)
    kept = age + _CLIENT_IDLE + 30.0
    return ConnectionTimes(kept, kept, age)


class WebhookServer:
    """
    One server of the webhook.

    Args:
        settings: of the webhook.
        namespace: of the manager.
        answers: give the response to a review, by the path that it comes to.
        reactor: the asyncio reactor.
        now: the time, aware.
        report: receives why it does not serve, None where it does.
    """

    log = Logger()

    def __init__(
        self,
        settings: WebhookSettings,
        namespace: str,
        answers: Mapping[str, Answer],
        metrics: ManagerMetrics,
        reactor: Any,
        now: Callable[[], datetime],
        report: Callable[[SvcError | None], object],
    ) -> None:
        self._settings = settings
        self._namespace = namespace
        self._report = report
        self._answers = answers
        self._metrics = metrics
        self._reactor = reactor
        self._now = now
        self._tls: HeldTls | None = None
        #: The Secret that was read last, and the authority in it that signs.
        self._read: Object | None = None
        self._issuer: CertificateAuthority | None = None
        self._certified_by: CertificateAuthority | None = None
        self._due: datetime | None = None
        self._secrets: Cache | None = None
        self._service: HttpService | None = None
        self._limiter = RecordLimiter(_DENIALS_EVERY, _DENIALS)

    def follow(self, client: Client, failed: Callable[[SvcError], object]) -> Cache:
        """Return the cache of the authorities, which the caller runs."""
        self._secrets = Cache(
            client,
            SECRETS,
            self.check,
            failed,
            namespace=self._namespace,
            fields=f"metadata.name={WEBHOOK_SECRET}",
        )
        return self._secrets

    def check(self) -> None:
        """Take another certificate where the authority is another one or the certificate is due; open the port."""
        found = None if self._secrets is None else self._secrets.objects.get((self._namespace, WEBHOOK_SECRET))
        if found is None:
            return
        try:
            if self._issuer is None or found is not self._read:
                self._issuer = Authorities.from_data(found.get("data") or {}).current
                self._read = found
            self._certify(self._issuer)
            if self._service is None:
                self._open()
        except SvcError as error:
            self._report(error)
        else:
            self._report(None)

    def _certify(self, issuer: CertificateAuthority) -> None:
        now = self._now()
        if self._certified_by == issuer and self._due is not None and now < self._due:
            return
        life = timedelta(seconds=self._settings.certificateLife)
        self._tls = issuer.issue(server_names(self._settings, self._namespace), now, life)
        self._certified_by, self._due = issuer, renewal(self._tls, now, life)
        (certificate,) = self._tls.chain
        emit(
            self.log,
            ManagerEvent.WEBHOOK_CERTIFICATE,
            attributes={
                "serial": f"{certificate.serial_number:x}",
                "authority_serial": f"{issuer.certificate.serial_number:x}",
                "not_after": certificate.not_valid_after_utc.isoformat(),
            },
        )

    def _open(self) -> None:
        root = Resource()
        for path, answer in self._answers.items():
            root.putChild(path.strip("/").encode(), _Reviews(answer, self._done))
        service = HttpService(
            self._settings.listen,
            root,
            reactor=TransportReactor(self._reactor),
            key="webhook.listen",
            creator=HeldTlsCreator(self._current),
            request=_ReviewRequest,
            times=_times(self._settings.certificateLife),
        )
        service.startService()
        self._service = service

    def stop(self) -> Deferred[None] | None:
        """Close the port."""
        service, self._service = self._service, None
        return None if service is None else service.stopService()

    def _done(self, outcome: ReviewOutcome, seconds: float) -> None:
        self._metrics.reviewed(outcome, seconds)
        # A dry run leaves no trace but the metrics.
        if not outcome.dry_run:
            self._record(outcome)

    def _record(self, outcome: ReviewOutcome) -> None:
        error = outcome.error
        if outcome.resource in _POLICIES:
            self._record_policy(outcome)
            return
        if error is None:
            return
        kind = (error.reason, outcome.namespace, outcome.user)
        omitted = self._limiter.admit(kind, self._reactor.seconds())
        if omitted is None:
            return
        emit(
            self.log,
            ManagerEvent.CONNECTION_DENIED if outcome.operation == "CONNECT" else ManagerEvent.INJECTION_DENIED,
            detail_reason=error.reason,
            detail=str(error),
            namespace=outcome.namespace or None,
            user=outcome.user or None,
            attributes={"pod": outcome.name, "operation": outcome.operation, "omitted": omitted},
        )

    def _record_policy(self, outcome: ReviewOutcome) -> None:
        """Record each: who may change policies is known to the API server, and each change matters."""
        error = outcome.error
        emit(
            self.log,
            ManagerEvent.POLICY_CHANGED if error is None else ManagerEvent.POLICY_REFUSED,
            detail_reason=None if error is None else error.reason,
            detail=None if error is None else str(error),
            namespace=outcome.namespace or None,
            user=outcome.user or None,
            attributes={"operation": outcome.operation, "resource": outcome.resource, "policy": outcome.name},
        )

    def _current(self) -> HeldTls:
        if self._tls is None:
            raise WebhookNotServed(address=self._settings.listen, detail="there is no certificate yet")
        return self._tls


class _Reviews(Resource):
    """
    ``POST`` of a review.

    Args:
        answer: answers it, in asyncio's loop.
        done: receives what became of it, and the seconds that it took.
    """

    isLeaf = True
    log = Logger()

    def __init__(self, answer: Answer, done: Callable[[ReviewOutcome, float], object]) -> None:
        super().__init__()
        self._answer = answer
        self._done = done

    def render_POST(self, request: Request) -> int:
        """Answer a review."""
        request.setHeader(b"content-type", b"application/json")
        body = cast(BytesIO, request.content).read()
        return finish_later(request, self._answered(body), self.log)

    async def _answered(self, body: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            document: object = json.loads(body)
        except (ValueError, RecursionError):
            document = None
        answered, outcome = await Deferred.fromFuture(asyncio.ensure_future(self._answer(document)))
        self._done(outcome, loop.time() - began)
        return json.dumps(answered).encode()


class _ReviewRequest(PageRequest):
    """A request with a review; all that are received at the same time share a limit."""

    max_body = MAX_REVIEW
    _received = 0

    def handleContentChunk(self, data: bytes) -> None:
        site = self.quiet_site
        if not self._received:
            # The channel is gone when a client has left.
            self.notifyFinish().addBoth(lambda _result: self._released(site))
        self._received += len(data)
        site.received += len(data)
        if site.received > MAX_RECEIVED:
            self.refuse(_BUSY)
        super().handleContentChunk(data)

    def _released(self, site: QuietSite) -> None:
        site.received -= self._received


async def answers(reactor: Any, settings: WebhookSettings, namespace: str, trusted: Sequence[x509.Certificate]) -> None:
    """
    Wait for a handshake with the server of this replica, as the API server makes it; runs in asyncio's loop.

    Args:
        trusted: the authorities.

    Raises:
        WebhookNotServed: nobody answers, or with another certificate.
    """
    name = server_names(settings, namespace)[0]
    address = HostPort(settings.listen.host or "127.0.0.1", settings.listen.port)
    roots = trustRootFromCertificates([Certificate.load(each.public_bytes(Encoding.DER)) for each in trusted])
    endpoint = HostnameEndpoint(reactor, address.host, address.port, timeout=_ANSWERS)
    secured = wrapClientTLS(optionsForClientTLS(name, trustRoot=roots), endpoint)
    shaken: Deferred[None] = Deferred()
    try:
        async with asyncio.timeout(2 * _ANSWERS):
            loop = asyncio.get_running_loop()
            await secured.connect(Factory.forProtocol(lambda: _Handshake(shaken))).asFuture(loop)
            await shaken.asFuture(loop)
    except TimeoutError as error:
        raise WebhookNotServed(address=address, detail="nothing came in time") from error
    except Exception as error:
        raise WebhookNotServed(address=address, detail=printable(error) or type(error).__name__) from error


@implementer(IHandshakeListener)
class _Handshake(Protocol):
    """Closes when the handshake is complete."""

    def __init__(self, shaken: Deferred[None]) -> None:
        self._shaken = shaken

    def handshakeCompleted(self) -> None:
        """The certificate of the server was verified."""
        self._shaken.callback(None)
        if self.transport is not None:
            self.transport.loseConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if not self._shaken.called:
            self._shaken.errback(reason)
