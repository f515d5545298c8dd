"""``twistd svc-registrar``: options, configuration, and the asyncio reactor, which gRPC needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.application.service import IService

from svc.naming import DEFAULT_REGISTRAR_CONFIG
from svc.process.checking import Check, check_pages, check_service
from svc.process.on_asyncio import AsyncioOptions, require_asyncio
from svc.process.options import config_parameters
from svc.registrar.config import RegistrarSettings, load_settings


class Options(AsyncioOptions):
    """The options of ``twistd svc-registrar``."""

    longdesc = "Keeps the registration entries of a SPIRE server as its configuration says; see docs/spire.md."
    optParameters = config_parameters(DEFAULT_REGISTRAR_CONFIG)

    def read(self, path: str) -> RegistrarSettings:
        return load_settings(path)

    def checks(self, settings: RegistrarSettings) -> Iterable[Check]:
        """What is opened at the start."""
        yield from check_pages(settings)
        yield check_service("SPIRE server", "serverSocket", settings.serverSocket)


def makeService(options: Options) -> IService:
    """Build the registrar for ``twistd``; nothing is opened yet."""
    from svc.process.daemon import daemon_tree

    return daemon_tree(options, "registrar", _registrar)


def _registrar(settings: RegistrarSettings, reactor: Any, *given: Any) -> Any:
    require_asyncio(reactor, "svc-registrar")
    from svc.registrar.service import Registrar

    return Registrar(settings, reactor, *given)
