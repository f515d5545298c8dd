"""
How what is embedded begins and ends with the program around it.

Knows of a service only that it starts, becomes ready and stops.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred


class Opening(Protocol):
    """What can be opened."""

    def startService(self) -> None:
        """Begin."""

    def when_ready(self) -> Awaitable[None]:
        """Wait until it serves, or raise what keeps it from that."""

    def stopService(self) -> Deferred[None]:
        """End."""


_Opening = TypeVar("_Opening", bound=Opening)


async def opened(service: _Opening, reactor: Any) -> _Opening:
    """
    Start a service, wait until it is ready, and let it end with the reactor.

    Args:
        service: what is opened; it is stopped where it does not become ready.
        reactor: the reactor.

    Returns:
        The service.
    """
    service.startService()
    try:
        await service.when_ready()
    except BaseException:
        await service.stopService()
        raise
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    return service
