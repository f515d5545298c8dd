"""
When an exchange has taken too long.

Pure: told the times, it names the error; the exchange ends itself.
"""

from __future__ import annotations

from svc.proxy.config import TimeoutSettings
from svc.proxy.errors import AnswerNotTaken, ProxyError, RequestNotTaken, RequestTimeout, UpstreamTimeout


def overdue(
    timeouts: TimeoutSettings,
    upstream: str,
    *,
    now: float,
    started: float,
    activity: float,
    request_ended_at: float | None,
    answer_begun: bool,
    client_slow: bool,
    upstream_slow: bool,
) -> ProxyError | None:
    """
    Judge an exchange whose response is not read to its end.

    Args:
        timeouts: the listener's limits in seconds.
        upstream: what errors call the upstream.
        now: the monotonic time.
        started: when the exchange began.
        activity: when octets last moved on the client's connection.
        request_ended_at: when the request was whole, None while it is not.
        answer_begun: whether the head of the response is here.
        client_slow: whether octets of the response wait for the client to take them.
        upstream_slow: whether octets of the request wait for the application to take them.

    Returns:
        Why it has to end, or None.
    """
    if now - started >= timeouts.exchange:
        return UpstreamTimeout(upstream=upstream, seconds=timeouts.exchange)
    if not answer_begun and request_ended_at is not None:
        late = now - request_ended_at >= timeouts.response
        return UpstreamTimeout(upstream=upstream, seconds=timeouts.response) if late else None
    if now - activity < timeouts.stream:
        return None
    if client_slow:
        return AnswerNotTaken(seconds=timeouts.stream)
    if upstream_slow:
        return RequestNotTaken(upstream=upstream, seconds=timeouts.stream)
    return UpstreamTimeout(upstream=upstream, seconds=timeouts.stream) if answer_begun else RequestTimeout()
