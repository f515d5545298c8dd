"""
All listeners of a proxy: those that accept connections, and those that drain.

A listener that a reload removes stops accepting at once, and is removed when its last connection is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from twisted.internet.error import CannotListenError
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.errors import SvcError
from svc.pages.listening import ListenFailed
from svc.policyfiles.settings import Policies
from svc.process.reauthorization import Reauthorization
from svc.proxy.config import ListenerSettings, ProxySettings
from svc.proxy.context import AuthorizedConnection
from svc.proxy.listener import Listener
from svc.proxy.reload import ReloadPlan
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.logs import emit


class ProxyEnding(SvcError):
    """the proxy is ending and opens no listener"""

    reason = "draining"


class ListenerGroup:
    """The listeners."""

    log = Logger()

    def __init__(
        self,
        make: Callable[[ProxySettings, ListenerSettings], Listener],
        reauthorization: Reauthorization[AuthorizedConnection],
    ) -> None:
        self._make = make
        self._reauthorization = reauthorization
        self._accepting: dict[str, Listener] = {}
        self._settings: dict[str, ListenerSettings] = {}
        self._leaving: list[Listener] = []
        self._ending = False

    @property
    def open_connections(self) -> int:
        """Open connections of clients, of all listeners."""
        return sum(listener.open_connections for listener in self._all())

    def named(self, name: str) -> Listener:
        """Find a listener that accepts."""
        return self._accepting[name]

    def all_named(self, name: str) -> list[Listener]:
        """Find the listener that accepts and those that drain; the former first."""
        return [listener for listener in self._all() if listener.name == name]

    def absent(self, wanted: Iterable[ListenerSettings]) -> list[str]:
        """Find listeners that should accept and do not."""
        return [each.name for each in wanted if each.name not in self._accepting]

    async def open(self, whole: ProxySettings, settings: Iterable[ListenerSettings]) -> None:
        """Open listeners in order; those before one whose address cannot be had stay open."""
        for each in settings:
            self._check_not_ending()
            listener = self._make(whole, each)
            try:
                await listener.open()
            except CannotListenError as error:
                name = f"the listener {each.name}"
                raise ListenFailed.from_error(
                    error, what=name, address=each.listen, key="listeners[].listen"
                ) from error
            try:
                self._check_not_ending()
            except ProxyEnding:
                await listener.stop_accepting()
                raise
            self._accepting[each.name] = listener
            self._settings[each.name] = each
            attributes = {"listener": each.name, "address": listener.address_text}
            emit(self.log, ProxyEvent.LISTENER_OPENED, attributes=attributes)

    async def apply(self, plan: ReloadPlan, old: ProxySettings, new: ProxySettings) -> None:
        """Close and open listeners by a plan; if an address cannot be had, those that ran before run again."""
        before = [self._settings[name] for name in plan.close if name in self._settings]
        for each in before:
            await self._leave(each.name)
        # What an earlier reload could not bring back is tried again.
        absent = [each for each in new.listeners if each.name in plan.keep and each.name not in self._accepting]
        try:
            await self.open(new, (*absent, *plan.open))
        except Exception:
            for each in plan.open:
                if each.name in self._accepting:
                    await self._leave(each.name)
            await self._bring_back(old, before)
            raise

    async def _bring_back(self, old: ProxySettings, before: Iterable[ListenerSettings]) -> None:
        for each in before:
            try:
                await self.open(old, (each,))
            except ProxyEnding:
                return
            except ListenFailed as error:
                emit(self.log, ProxyEvent.LISTENER_FAILED, detail_reason=error.reason, detail=str(error))
            except Exception:  # noqa: BLE001 (the others come back whatever happened to this one)
                emit(self.log, ProxyEvent.LISTENER_FAILED, failure=Failure(), attributes={"listener": each.name})

    def announce_end(self) -> None:
        """Go on accepting; each response ends its connection, so that clients look for another proxy."""
        for listener in self._all():
            listener.announce_end()

    async def close_announced_ports(self) -> bool:
        """Close the ports of listeners whose end was announced, and nothing else; returns whether there is one."""
        announced = [each for each in self._all() if each.context.leaving]
        for listener in announced:
            await listener.close_port()
        return bool(announced)

    async def stop_accepting(self) -> None:
        """Close all ports for good; open connections go on and are asked to end."""
        self._ending = True
        for name in list(self._accepting):
            await self._leave(name)

    def close(self) -> None:
        """Cut what is still open."""
        self._reauthorization.stop()
        for listener in self._all():
            listener.close()

    def sweep(self, now: float, wall: datetime) -> None:
        """Check all time limits, and remove closed listeners without connections."""
        for listener in self._all():
            listener.sweep(now, wall)
        drained = [listener for listener in self._leaving if not listener.open_connections]
        for listener in drained:
            listener.close()
            self._leaving.remove(listener)

    def take_policies(self, policies: Policies) -> None:
        """Decide by other policies from now on, also on open connections and for listeners that are leaving."""
        for listener in self._all():
            listener.take_policies(policies)
        self.reauthorize()

    def take_credentials(self) -> None:
        """Let new exchanges use new credentials, and decide on all open connections again."""
        for listener in self._all():
            listener.credentials_changed()
        self.reauthorize()

    def reauthorize(self) -> None:
        """Decide on all open connections again: credentials, bundles or policies have changed."""
        self._reauthorization.begin()

    def _check_not_ending(self) -> None:
        if self._ending:
            raise ProxyEnding()

    async def _leave(self, name: str) -> None:
        listener = self._accepting.pop(name, None)
        if listener is None:
            # The proxy ended during a reload.
            return
        del self._settings[name]
        self._leaving.append(listener)
        await listener.stop_accepting()
        emit(self.log, ProxyEvent.LISTENER_CLOSED, attributes={"listener": name})

    def _all(self) -> list[Listener]:
        return [*self._accepting.values(), *self._leaving]
