"""Why the proxy itself ends a request; each class is one answer with one constant reason."""

from __future__ import annotations

from typing import ClassVar

from svc.errors import SvcError


class ProxyError(SvcError):
    """the proxy could not serve the request"""

    #: Whether the same request may succeed a moment later.
    retryable: ClassVar[bool] = False


class IdentityGone(ProxyError):
    """the identity under which the proxy would call was withdrawn"""

    reason = "identity_withdrawn"
    http_status = 503
    retryable = True


class UpstreamUnreachable(ProxyError):
    """the application at {upstream} cannot be reached: {what}"""

    reason = "upstream_unreachable"
    http_status = 502
    retryable = True


class UpstreamIdentityRefused(ProxyError):
    """the peer at {upstream} is not who it must be: {what}"""

    reason = "upstream_identity_refused"
    http_status = 502


class UpstreamClosed(ProxyError):
    """the application closed the connection before it answered"""

    reason = "upstream_closed"
    http_status = 502
    retryable = True


class UpstreamMalformed(ProxyError):
    """the answer of the application is malformed: {what}"""

    reason = "upstream_malformed"
    http_status = 502


class UpstreamTimeout(ProxyError):
    """the application did not answer within {seconds} s"""

    reason = "upstream_timeout"
    http_status = 504
    retryable = True


class ConnectTimeout(ProxyError):
    """the application at {upstream} did not accept a connection within {seconds} s"""

    reason = "upstream_timeout"
    http_status = 504
    retryable = True


class RequestNotTaken(ProxyError):
    """the application took nothing of the request for {seconds} s"""

    reason = "upstream_timeout"
    http_status = 504
    retryable = True


class AnswerNotTaken(ProxyError):
    """the client took nothing of the answer for {seconds} s"""

    reason = "answer_not_taken"
    http_status = 408


class RequestTimeout(ProxyError):
    """the request did not arrive in time"""

    reason = "request_timeout"
    http_status = 408
    retryable = True


class BodyTooLarge(ProxyError):
    """the body is larger than {limit} octets"""

    reason = "body_too_large"
    http_status = 413


class LevelInvalid(ProxyError):
    """the header Svc-Notarization-Level is not workload, logRequest or signRequest"""

    reason = "level_invalid"
    http_status = 400


class NonceInvalid(ProxyError):
    """the header Svc-Notary-Nonce is not 22 characters of canonical base64url"""

    reason = "nonce_malformed"
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


class NotaryRate(ProxyError):
    """this identity asks for more signed receipts than it may"""

    reason = "notary_rate"
    http_status = 429
    retryable = True


class NotaryNotHere(ProxyError):
    """there is no notary behind this listener"""

    reason = "not_found"
    http_status = 404
