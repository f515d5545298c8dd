"""A whole daemon, as small as one can be: it sends a greeting to whoever connects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from twisted.application.service import IService
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory, Protocol

from svc.process.checking import Check, check_pages, check_port
from svc.process.clock import utc_now
from svc.process.daemon import Daemon, daemon_tree
from svc.process.history import Totals
from svc.process.options import ProcessOptions, config_parameters
from svc.process.settings import DaemonSettings
from svc.settings import Address, load
from svc.telemetry.health import Health


class ExampleSettings(DaemonSettings):
    listen: Address
    greeting: str = "hello"


class Options(ProcessOptions):
    optParameters = config_parameters("/etc/svc/example.yaml")

    def read(self, path: str) -> ExampleSettings:
        return load(path, ExampleSettings)

    def checks(self, settings: ExampleSettings) -> Iterable[Check]:
        yield from check_pages(settings)
        yield check_port("the greeting", "listen", settings.listen)


def makeService(options: Options) -> IService:
    return daemon_tree(options, "example", Example)


class Example(Daemon[ExampleSettings]):
    def __init__(self, settings: ExampleSettings, reactor: Any, *fatal_and_load: Callable[[], Any]) -> None:
        super().__init__(settings, reactor, Health(["listeners"], now=utc_now), *fatal_and_load)
        self._port: IListeningPort | None = None
        self.serve_pages("example", Totals, dict)

    async def open(self) -> None:
        greeting = Factory.forProtocol(lambda: Greeting(self))
        self._port = self._reactor.listenTCP(self.settings.listen.port, greeting, interface=self.settings.listen.host)
        self._health.holds("listeners")

    async def take(self, settings: ExampleSettings) -> Mapping[str, str]:
        self.settings = settings
        return {"changed": "greeting"}

    def closing(self) -> Iterable[Callable[[], object]]:
        return () if self._port is None else (self._port.stopListening,)


class Greeting(Protocol):
    def __init__(self, daemon: Example) -> None:
        self._daemon = daemon

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.write(self._daemon.settings.greeting.encode())
        self.transport.loseConnection()
