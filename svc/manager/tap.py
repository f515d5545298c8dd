"""``twistd svc-manager``: options, configuration, and the asyncio reactor, which the client of Kubernetes needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.application.service import IService
from twisted.python.usage import UsageError

from svc.manager.config import ManagerSettings
from svc.naming import DEFAULT_MANAGER_CONFIG
from svc.process.checking import Check, check_pages
from svc.process.on_asyncio import AsyncioOptions, require_asyncio
from svc.process.options import config_parameters
from svc.process.values import parse_optional_address
from svc.settings import load

_BOOLEANS = {"true": True, "false": False}


class Options(AsyncioOptions):
    """The options of ``twistd svc-manager``."""

    longdesc = "The manager of a cluster: keeps what SVC has on Kubernetes as it is configured; see docs/manager.md."
    optParameters = [
        *config_parameters(DEFAULT_MANAGER_CONFIG),
        ["metrics-bind-address", None, None, 'Where /metrics is, instead of metricsAddr; "0" or "" disables it.'],
        ["metrics-secure", None, None, "true: HTTPS for /metrics, false: plain HTTP; instead of metricsSecure."],
    ]

    def read(self, path: str) -> ManagerSettings:
        settings = load(path, ManagerSettings)
        address, secure = self["metrics-bind-address"], self["metrics-secure"]
        if address is not None:
            try:
                settings = settings.model_copy(update={"metricsAddr": parse_optional_address(address)})
            except ValueError as error:
                raise UsageError(f"--metrics-bind-address {address}: expected {error}") from error
        if secure is not None:
            if secure not in _BOOLEANS:
                raise UsageError(f"--metrics-secure {secure}: expected true or false")
            settings = settings.model_copy(update={"metricsSecure": _BOOLEANS[secure]})
        return settings

    def checks(self, settings: ManagerSettings) -> Iterable[Check]:
        """What is opened at the start."""
        yield from check_pages(settings)


def makeService(options: Options) -> IService:
    """Build the manager for ``twistd``; nothing is opened yet."""
    from svc.process.daemon import daemon_tree

    return daemon_tree(options, "manager", _manager)


def _manager(settings: ManagerSettings, reactor: Any, *given: Any) -> Any:
    require_asyncio(reactor, "svc-manager")
    from svc.manager.service import Manager

    return Manager(settings, reactor, *given)
