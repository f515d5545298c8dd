"""
A record on its way to the store.

Owns what is counted and told of it, the same for a response that waits for it and for an exchange that broke off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.notary.exchange import ExchangeOutcome
from svc.proxy.http.recorder import Recorder

if TYPE_CHECKING:
    from svc.proxy.http.context import ListenerContext
    from svc.proxy.notarizer import Reservation


def put_record(
    context: ListenerContext, peer: str, reservation: Reservation, recorder: Recorder, outcome: ExchangeOutcome
) -> Deferred[None]:
    """
    Sum an exchange up and make its record durable.

    Args:
        context: the listener's notary, counters and log.
        peer: the client's identity, for the log.
        reservation: the admission of the exchange.
        recorder: what was seen of it.
        outcome: how it ended.

    Returns:
        Fires when the record is on disk; fails as :meth:`svc.proxy.notarizer.Notarizer.commit`, told and counted.
    """

    def written(_result: None) -> None:
        context.notary_metrics.records_written.inc()

    def failed(failure: Failure) -> Failure:
        context.notary_metrics.records_failed.inc()
        error = failure.value
        reason, what = type(error).__name__, "the record could not be committed"
        if isinstance(error, SvcError):
            reason, what = error.reason, f"{what}: {error}"
        context.reporter.exchange_failed(reason, peer, what)
        return failure

    done = context.notarizer.commit(reservation, recorder.exchange(reservation.jti, outcome, context.wall()))
    return done.addCallbacks(written, failed)
