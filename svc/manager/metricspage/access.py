"""
Who may read ``/metrics`` over HTTPS: a client with a certificate, or a token that the API server lets read it.

Tokens are asked about each time, so that one that is withdrawn does not go on. Nothing of a token is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import ISSLTransport
from twisted.logger import Logger
from twisted.web.server import Request

from svc.errors import Reason, SvcError
from svc.kube.client import Client
from svc.kube.kinds import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from svc.manager.metricspage.tls import GivenTls, own_tls
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.log_limits import RecordLimiter
from svc.telemetry.logs import emit
from svc.transport.heldtls import HeldTls, HeldTlsCreator

#: Tokens that are asked about at the same time; further ones wait.
MAX_REVIEWS: Final = 4
#: Octets of a token.
MAX_TOKEN: Final = 16 * 1024
_PATH: Final = "/metrics"
_DENIALS_EVERY: Final = 60.0
_DENIALS: Final = 64


class MetricsDenied(SvcError):
    """/metrics is not shown to this client"""

    reason = "metrics_denied"
    http_status = 401
    hint = "send Authorization: Bearer with the token of a service account, or a client certificate"
    reasons = {
        "metrics_token_missing": Reason(
            "the client sent no token and no certificate",
            "send Authorization: Bearer with the token of a service account, or a client certificate",
        ),
        "metrics_token_refused": Reason(
            "the API server does not accept the token", "it has expired, or is of another cluster: take a new one"
        ),
    }


class MetricsForbidden(MetricsDenied):
    """{user} may not read /metrics"""

    reason = "metrics_forbidden"
    http_status = 403
    hint = "a ClusterRole must grant it: nonResourceURLs /metrics, verb get"
    user: str


class MetricsUndecided(MetricsDenied):
    """whether a client may read /metrics is not known: {detail}"""

    reason = "metrics_undecided"
    http_status = 503
    hint = "the API server decides on tokens: is it reachable, and may the manager make TokenReviews?"


class MetricsAccess:
    """
    Decides on clients, and holds the TLS that is in force.

    Args:
        client: returns the client of the API server; None as long as there is none.
        now: the time, aware.
        seconds: monotonic.

    Attributes:
        creator: of TLS for new connections.
    """

    log = Logger()

    def __init__(
        self, client: Callable[[], Client | None], now: Callable[[], datetime], seconds: Callable[[], float]
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._own = own_tls(now())
        self._tls = self._own
        self._reviews = asyncio.Semaphore(MAX_REVIEWS)
        self._limiter = RecordLimiter(_DENIALS_EVERY, _DENIALS)
        self.creator = HeldTlsCreator(lambda: self._tls)

    def use(self, given: GivenTls) -> None:
        """Put the TLS of the configuration in force; without a certificate in it the manager's own stays."""
        self._tls = given.server or HeldTls(self._own.chain, self._own.key, given.clients)

    def admit(self, request: Request) -> Deferred[int]:
        """Fires with the status of the answer to a request: 200 where the client may read."""
        return Deferred.fromFuture(asyncio.ensure_future(self._admitted(request)))

    async def _admitted(self, request: Request) -> int:
        try:
            # Only one that the authorities of clients have issued passes the handshake.
            if cast(ISSLTransport, request.channel.transport).getPeerCertificate() is None:
                await self.check(request.getHeader(b"authorization") or b"")
        except MetricsDenied as error:
            self._denied(error, request)
            return error.http_status
        return 200

    async def check(self, authorization: bytes) -> None:
        """
        Ask the API server about a client.

        Args:
            authorization: the value of the header.

        Raises:
            MetricsDenied: it may not read, or that is not known.
        """
        scheme, _blank, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip() or len(token) > MAX_TOKEN:
            raise MetricsDenied("metrics_token_missing")
        client = self._client()
        if client is None:
            raise MetricsUndecided(detail="there is no connection to the API server yet")
        try:
            async with self._reviews:
                user = await _authenticated(client, token.strip().decode("latin-1"))
                if user is None:
                    raise MetricsDenied("metrics_token_refused")
                if not await _allowed(client, user):
                    raise MetricsForbidden(user=user.get("username", ""))
        except MetricsDenied:
            raise
        except SvcError as error:
            raise MetricsUndecided(detail=str(error)) from error

    def _denied(self, error: MetricsDenied, request: Request) -> None:
        if error.http_status == 401:
            request.setHeader(b"www-authenticate", b"Bearer")
        address = request.getClientAddress()
        host = getattr(address, "host", "")
        omitted = self._limiter.admit((error.reason, host), self._seconds())
        if omitted is not None:
            emit(
                self.log,
                ManagerEvent.METRICS_DENIED,
                detail_reason=error.reason,
                detail=str(error),
                user=error.user if isinstance(error, MetricsForbidden) else None,
                attributes={"client_address": host, "omitted": omitted},
            )


async def _authenticated(client: Client, token: str) -> dict[str, Any] | None:
    review = await client.create(TOKEN_REVIEWS, {"metadata": {}, "spec": {"token": token}})
    status = review.get("status") or {}
    return status.get("user") or {} if status.get("authenticated") else None


async def _allowed(client: Client, user: dict[str, Any]) -> bool:
    spec = {
        "user": user.get("username", ""),
        "uid": user.get("uid", ""),
        "groups": user.get("groups") or [],
        "extra": user.get("extra") or {},
        "nonResourceAttributes": {"path": _PATH, "verb": "get"},
    }
    review = await client.create(SUBJECT_ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
    return bool((review.get("status") or {}).get("allowed"))
