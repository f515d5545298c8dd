"""Why the proxy itself ends a request: each reason is one constant answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from twisted.internet import error as twisted_errors

from svc.errors import Reason, SvcError
from svc.identity.errors import NotValidAtTime, SvidInvalid
from svc.notary.exchange import ExchangeOutcome
from svc.policy.engine import Denied
from svc.transport.errors import (
    ConnectTimeout,
    HandshakeTimeout,
    OwnCredentialsEnded,
    OwnCredentialsMissing,
    OwnIdentityWithdrawn,
    OwnSvidExpired,
    OwnSvidRefused,
    PeerCredentialsEnded,
    PeerDenied,
    PeerIdentityUnexpected,
    PeerSvidInvalid,
)
from svc.wire.mqtt import ReasonCode
from svc.workload.errors import CredentialsMissing, IdentityWithdrawn


class ProxyError(SvcError):
    """the proxy could not serve the request"""

    #: Whether the same request may succeed a moment later.
    retryable: ClassVar[bool] = False
    #: Whether the answer carries the sentence: for callers of outbound listeners, who are of this machine.
    shows_detail: ClassVar[bool] = False
    #: How an exchange ends that this error aborts.
    outcome: ClassVar[ExchangeOutcome] = ExchangeOutcome.SERVER_ABORTED
    #: The code in PUBACK or PUBREC of a message that this error refuses (MQTT 5.0).
    mqtt_reason: ClassVar[ReasonCode] = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
    #: The precise reason below ``reason``; empty where there is none.
    detail_reason: str = ""


class IdentityGone(ProxyError):
    """the identity under which the proxy would call was withdrawn"""

    reason = "identity_withdrawn"
    http_status = 503
    retryable = True


class OwnIdentityEnded(ProxyError):
    """the credentials under which the proxy would call have ended: {what}"""

    reason = "credentials_expired"
    http_status = 503
    retryable = True
    shows_detail = True
    what: str


class OwnIdentityRefused(ProxyError):
    """{what}"""

    reason = "own_svid_refused"
    http_status = 502
    shows_detail = True
    hint = OwnSvidRefused.hint
    what: str


class UpstreamUnreachable(ProxyError):
    """{upstream} cannot be reached: {what}"""

    reason = "upstream_unreachable"
    http_status = 502
    retryable = True


class UpstreamIdentityRefused(ProxyError):
    """{upstream} is not who it must be: {what}"""

    reason = "upstream_identity_refused"
    http_status = 502
    shows_detail = True


class UpstreamSvidInvalid(UpstreamIdentityRefused):
    """the SVID of {upstream} is not valid: {what}"""


class UpstreamSvidNotCurrent(UpstreamSvidInvalid):
    """the SVID of {upstream} is not valid at this time: {what}"""

    retryable = True


class UpstreamUnverified(ProxyError):
    """{upstream} gave no proof that this listener accepts: {what}"""

    reason = "upstream_unverified"
    http_status = 502
    shows_detail = True
    hint = (
        "the peer must be behind svc-proxy with a maxNotarization that suffices, and its roots must be known here"
        " (notary.profile, notary.pqBundle)"
    )


class UpstreamClosed(ProxyError):
    """{upstream} closed the connection before it answered"""

    reason = "upstream_closed"
    http_status = 502
    retryable = True


class UpstreamMalformed(ProxyError):
    """the answer of {upstream} is malformed: {what}"""

    reason = "upstream_malformed"
    http_status = 502


class UpstreamTimeout(ProxyError):
    """{upstream} did not answer within {seconds} s"""

    reason = "upstream_timeout"
    http_status = 504
    outcome = ExchangeOutcome.TIMEOUT
    retryable = True


class UpstreamConnectTimeout(ProxyError):
    """{upstream} did not accept a connection within {seconds} s"""

    reason = "upstream_timeout"
    http_status = 504
    outcome = ExchangeOutcome.TIMEOUT
    retryable = True


class RequestNotTaken(ProxyError):
    """{upstream} took nothing of the request for {seconds} s"""

    reason = "upstream_timeout"
    http_status = 504
    outcome = ExchangeOutcome.TIMEOUT
    retryable = True


class AnswerNotTaken(ProxyError):
    """the client took nothing of the answer for {seconds} s"""

    reason = "answer_not_taken"
    http_status = 408
    outcome = ExchangeOutcome.TIMEOUT


class RequestTimeout(ProxyError):
    """the request did not arrive in time"""

    reason = "request_timeout"
    http_status = 408
    outcome = ExchangeOutcome.TIMEOUT
    retryable = True


class RequestRefused(ProxyError):
    """the proxy does not accept this request"""

    http_status = 400
    reasons: ClassVar[Mapping[str, Reason]] = {
        "body_too_large": Reason("the body is larger than {limit} octets", http_status=413),
        "nonce_malformed": Reason("the header Svc-Notary-Nonce is not 22 characters of canonical base64url"),
        "not_found": Reason("there is no notary behind this listener", http_status=404),
        "record_too_large": Reason(
            "the record of a request with a head of {size} octets might exceed the {limit} octets of a receipt",
            hint="send a smaller head; or shorten the certificate chains of the workload, which take {signatures}"
            " octets of it",
            http_status=431,
        ),
        "trace_ended": Reason(
            "TRACE with Max-Forwards 0 ends at the proxy, which returns no request to its sender",
            hint="send a higher Max-Forwards, or OPTIONS",
            http_status=405,
        ),
    }


class PublishRefused(ProxyError):
    """the proxy does not accept this message"""

    http_status = 400
    reasons: ClassVar[Mapping[str, Reason]] = {
        "nonce_malformed": Reason(
            "the user property svc-nonce is not, or not once, 22 characters of canonical base64url"
        ),
    }


class RecordTooLarge(ProxyError):
    """the record of a message with {size} octets of topic and properties might exceed {limit} octets"""

    reason = "record_too_large"
    http_status = 413
    hint = (
        "send a shorter topic, or fewer and shorter properties; or shorten the certificate chains of the workload,"
        " which take {signatures} octets of a receipt"
    )
    mqtt_reason = ReasonCode.QUOTA_EXCEEDED


class LevelInvalid(ProxyError):
    """the header Svc-Notarization-Level is not workload, logRequest or signRequest"""

    reason = "level_invalid"
    http_status = 400


class NonceReplayed(ProxyError):
    """the nonce was used before by the same identity"""

    reason = "replayed"
    http_status = 409


class NotaryUnavailable(ProxyError):
    """the notary cannot record or sign right now"""

    reason = "notary_unavailable"
    http_status = 503
    retryable = True


class NotaryStoreUnavailable(NotaryUnavailable):
    """the notary database {database} takes no record right now: {what}"""

    database: str
    what: object


class NotaryRate(ProxyError):
    """no further record is admitted for {retry_after} s: {what}"""

    reason = "notary_rate"
    http_status = 429
    mqtt_reason = ReasonCode.QUOTA_EXCEEDED
    retryable = True
    retry_after: int


class FormerSvidRefused(ProxyError):
    """the SVID under which this side made the connection would now be refused: {cause}"""

    reason = "own_svid_refused"
    http_status = 503
    hint = "connect again: new connections are made under the current SVID"
    cause: SvcError


def upstream_error(error: BaseException | None, upstream: str, connect_timeout: float) -> ProxyError:
    """Return what an error of a connection to the upstream, failed or lost, means for a request."""
    if isinstance(error, ProxyError):
        return error
    if isinstance(error, OwnCredentialsMissing | OwnIdentityWithdrawn | CredentialsMissing | IdentityWithdrawn):
        return IdentityGone()
    if isinstance(error, OwnCredentialsEnded | OwnSvidExpired):
        return OwnIdentityEnded(what=str(error))
    if isinstance(error, OwnSvidRefused | FormerSvidRefused):
        return OwnIdentityRefused(what=str(error))
    if isinstance(error, ConnectTimeout | HandshakeTimeout | twisted_errors.TimeoutError):
        return UpstreamConnectTimeout(upstream=upstream, seconds=connect_timeout)
    if isinstance(error, PeerIdentityUnexpected):
        what = f"it is {error.spiffe_id}; expected {error.expected}"
        return UpstreamIdentityRefused(upstream=upstream, what=what, detail_reason=error.reason)
    if isinstance(error, PeerDenied | Denied):
        return UpstreamIdentityRefused(upstream=upstream, what=str(error), detail_reason=error.reason)
    cause = error.cause if isinstance(error, PeerSvidInvalid) else error
    if isinstance(cause, NotValidAtTime | PeerCredentialsEnded):
        return UpstreamSvidNotCurrent(upstream=upstream, what=str(cause), detail_reason=cause.reason)
    if isinstance(error, PeerSvidInvalid):
        return UpstreamSvidInvalid(upstream=upstream, what=str(cause), detail_reason=error.detail)
    if isinstance(cause, SvidInvalid):
        return UpstreamSvidInvalid(upstream=upstream, what=str(cause), detail_reason=cause.reason)
    return UpstreamUnreachable(upstream=upstream, what=getattr(error, "osError", None) or str(error))
