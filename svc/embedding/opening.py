"""Starts a service that runs until the reactor shuts down."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Protocol, TypeVar

from twisted.internet.defer import Deferred


class ReadyService(Protocol):
    """A service that reports when it is ready."""

    def startService(self) -> None: ...

    def when_ready(self) -> Awaitable[None]: ...

    def stopService(self) -> Deferred[None]: ...


_Service = TypeVar("_Service", bound=ReadyService)


async def open_service(service: _Service, reactor: Any) -> _Service:
    """Start a service, wait until it is ready, and stop it at the shutdown of the reactor or if the start fails."""
    service.startService()
    try:
        await service.when_ready()
    except BaseException:
        await service.stopService()
        raise
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    return service
