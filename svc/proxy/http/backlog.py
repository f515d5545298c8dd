"""
Answers that a client does not take.

A client can ask many short questions and read none of the long answers: without a bound every answer would wait in
memory. Owns when the next request has to wait for that, and hears when it need not any more. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

#: Unsent octets beyond which no further request is begun: more than pause a streaming producer, so that the transport
#: tells when they are gone.
MOST_UNSENT: Final = 128 * 1024


@implementer(IPushProducer)
class Backlog:
    """The unsent octets of one client's transport."""

    __slots__ = ("_drained", "_transport", "written")

    def __init__(self) -> None:
        self._transport: Any = None
        self._drained: Callable[[], None] | None = None
        #: Octets written since the transport was asked last; whoever writes counts them.
        self.written = 0

    def waits(self, transport: Any, drained: Callable[[], None]) -> bool:
        """
        Ask whether the next request has to wait; called while nothing else produces for the transport.

        Args:
            transport: the client's. One that does not tell what is unsent makes nobody wait.
            drained: called, once, when it need not wait any more.

        Returns:
            Whether it has to.
        """
        if self._transport is not None:
            return True
        self.written = getattr(transport, "unsent", 0)
        if self.written <= MOST_UNSENT:
            return False
        self._transport, self._drained = transport, drained
        transport.registerProducer(self, True)
        return True

    def forget(self) -> None:
        """Wait no longer, so that the transport can be closed."""
        transport, self._transport, self._drained = self._transport, None, None
        if transport is not None:
            transport.unregisterProducer()

    # The producer of the client's transport.

    def pauseProducing(self) -> None:
        """It waits already."""

    def resumeProducing(self) -> None:
        """The octets are sent."""
        drained = self._drained
        if drained is not None:
            self.forget()
            self.written = 0
            drained()

    def stopProducing(self) -> None:
        """The connection ended; its own protocol says so."""
        self._transport = self._drained = None
