"""The registrar as a daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svc.errors import SvcError
from svc.process.clock import utc_now
from svc.process.daemon import Daemon
from svc.process.history import Totals
from svc.registrar.config import OWNER, RegistrarSettings
from svc.spire.entries import EntryChanges, changes
from svc.spire.errors import EntryRefused
from svc.spire.server import EntryFailure, SpireServer
from svc.telemetry.events.registrar import RegistrarEvent
from svc.telemetry.health import Health
from svc.telemetry.logs import emit

#: The server has the entries of the configuration.
ENTRIES: Final = "entries"
#: Seconds between attempts until the first success.
EAGER_SECONDS: Final = 1.0


class Server(Protocol):
    """What is used of :class:`~svc.spire.server.SpireServer`."""

    async def entries(self) -> list[Any]:
        """All entries."""

    async def apply(self, changes: EntryChanges) -> list[EntryFailure]:
        """Make changes; returns those that were not accepted."""

    def close(self) -> None:
        """Close the connection."""


class Registrar(Daemon[RegistrarSettings]):
    """
    Keeps the entries of one server equal to those of the configuration.

    Args:
        settings: the configuration.
        reactor: the asyncio reactor.
        fatal: see :class:`~svc.process.daemon.Daemon`.
        load: see :class:`~svc.process.daemon.Daemon`.
        server: connects to the server.
    """

    log = Logger()

    def __init__(
        self,
        settings: RegistrarSettings,
        reactor: Any,
        fatal: Callable[[], None],
        load: Callable[[], RegistrarSettings],
        *,
        server: Callable[[str], Server] = SpireServer.at_socket,
    ) -> None:
        super().__init__(settings, reactor, Health([ENTRIES], now=utc_now), fatal, load)
        self._server = server(settings.serverSocket.removeprefix("unix://"))
        self._said = ""
        self._loop = LoopingCall(self.keep)
        self._loop.clock = reactor
        self.serve_pages("registrar", Totals, dict)

    async def open(self) -> None:
        """Begin; the server may come later."""
        self._loop.start(EAGER_SECONDS)

    def closing(self) -> Iterable[Callable[[], object]]:
        return (self._stop_loop, self._server.close)

    async def finish(self) -> None:
        """Nothing that was begun lasts."""

    async def take(self, settings: RegistrarSettings) -> Mapping[str, str | int | bool]:
        """Put other entries in force at once; ``serverSocket`` and the addresses are read at the start alone."""
        former, self.settings = self.settings, settings
        await self.keep()
        listed = {each.id for each in former.wanted} ^ {each.id for each in settings.wanted}
        return {"entries": len(settings.wanted), "entries_changed": len(listed)}

    def keep(self) -> Deferred[None]:
        """Make the entries equal once; a failure is a condition, and the next attempt follows."""
        return Deferred.fromFuture(asyncio.ensure_future(self.kept()))

    async def kept(self) -> None:
        """See :meth:`keep`; in asyncio's loop."""
        try:
            todo = changes(await self._server.entries(), self.settings.wanted, owner=OWNER)
            failures = await self._server.apply(todo) if todo else []
        except SvcError as error:
            self._failed(error)
            return
        if todo and len(failures) < len(todo.create) + len(todo.update) + len(todo.delete):
            counts = {"created": len(todo.create), "updated": len(todo.update), "deleted": len(todo.delete)}
            emit(self.log, RegistrarEvent.CHANGED, attributes={**counts, "refused": len(failures)})
        if failures:
            first = failures[0]
            self._failed(EntryRefused(action=first.action, entry=first.id, detail=first.detail))
            return
        self._said = ""
        self._health.holds(ENTRIES)
        self._loop.interval = self.settings.every

    def _failed(self, error: SvcError) -> None:
        self._health.fails_with(ENTRIES, error)
        if str(error) != self._said:
            self._said = str(error)
            emit(self.log, RegistrarEvent.FAILED, detail_reason=error.reason, detail=str(error))

    def _stop_loop(self) -> None:
        if self._loop.running:
            self._loop.stop()
