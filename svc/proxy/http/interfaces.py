"""
What the parts of one connection ask of each other, so that none needs to know the whole of another.

Types only. ``ClientConnection`` is the :class:`ExchangeClient`, ``Exchange`` is the :class:`AnsweredExchange`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from svc.policy import Denied
from svc.proxy.http.caller import Caller
from svc.wire.fields import Field
from svc.wire.http1 import RequestHead

if TYPE_CHECKING:
    from svc.proxy.http.context import ListenerContext
    from svc.proxy.http.upstream import UpstreamConnection
    from svc.telemetry.labels import Cause


class AnsweredExchange(Protocol):
    """An exchange as the notary's endpoint sees it."""

    head: RequestHead
    finished: bool

    def answer(self, status: int, fields: list[Field], body: bytes) -> None:
        """Answer in place of the application."""


class WaitingClient(Protocol):
    """A client connection as something that answers later sees it."""

    caller: Caller
    gone: bool

    def pause_for_exchange(self) -> None:
        """Read no more until the exchange can take it."""

    def resume_for_exchange(self) -> None:
        """The exchange can take more."""


class ExchangeClient(WaitingClient, Protocol):
    """The client connection as its exchange sees it; it is a push producer too, for the upstream's transport."""

    context: ListenerContext
    random: Callable[[int], bytes]
    pumping: bool
    must_close: bool

    def denied(self, denied: Denied, request: RequestHead | None = None) -> None:
        """Count and report a denial."""

    def serve_notary(self, exchange: AnsweredExchange) -> None:
        """Answer a request for the reserved path."""

    def rest_at_hand(self) -> bool:
        """Tell whether the rest of the current request is already here."""

    def write(self, data: bytes) -> None:
        """Send octets to the client."""

    def sent_upstream(self, count: int) -> None:
        """Count octets sent to the application."""

    def stream_from(self, upstream: UpstreamConnection) -> None:
        """Let the client's speed govern a response that does not fit one read."""

    def stop_stream(self) -> None:
        """The response is read to its end."""

    @property
    def held(self) -> bool:
        """Whether it may read no more, because the application takes nothing of the request."""

    def resumeProducing(self) -> None:
        """The application takes octets again."""

    def abort(self, cause: Cause) -> None:
        """Drop the connection, so that the client sees that something is missing."""

    def exchange_finished(self, exchange: FinishedExchange, tunnelled: UpstreamConnection | None) -> None:
        """Go on after a released response."""


class FinishedExchange(Protocol):
    """An exchange as its connection sees it when it is over."""

    head: RequestHead
    close: bool
    overdue: bool
    request_ended: bool

    def tunnel_ended(self, from_client: int, from_upstream: int) -> None:
        """Report an exchange whose connections were joined after an upgrade."""
