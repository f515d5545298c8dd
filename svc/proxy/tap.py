"""
``twistd svc-proxy``: options, configuration, log.

Owns what an operator sees of a bad configuration: one line a problem, exit status 1.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService

from svc import __version__
from svc.proxy.config import ProxySettings
from svc.proxy.stores import check_driver
from svc.settings import load
from svc.transport.reactor import run_timers_evenly
from svc.workload.process import ProcessOptions, config_parameters, end_in_order, end_with_failure

if TYPE_CHECKING:
    from svc.proxy.assembly import Assembly
    from svc.proxy.service import ProxyService


class Options(ProcessOptions):
    """What ``twistd svc-proxy`` takes."""

    longdesc = "Terminates SPIFFE mTLS in front of an application, authorizes by identity and notarizes requests."
    optParameters = config_parameters("/etc/svc/proxy.yaml")

    def read(self, path: str) -> ProxySettings:
        """Judge the file, and whether what it asks for can be loaded here."""
        return _read(path)


def _read(path: str) -> ProxySettings:
    """Judge the file, and whether what it asks for can be loaded here."""
    settings = load(path, ProxySettings)
    check_driver(settings.notary)
    return settings


def makeService(options: Options) -> IService:
    """
    Build the proxy for ``twistd``.

    Args:
        options: the parsed options.

    Returns:
        The service; nothing runs yet.
    """
    return service_tree(options, _assembly)


def _assembly(*given: Any) -> Assembly:
    # Imported when the log has standard output for itself: what libraries print while they are loaded is no record.
    from svc.proxy.assembly import Assembly

    return Assembly(*given)


def service_tree(options: Options, assemble: Callable[..., Assembly]) -> IService:
    """
    Build the proxy and what is around it.

    Args:
        options: the parsed options.
        assemble: takes settings, reactor, what to call when the start fails, and what reads the configuration anew.

    Returns:
        The service; nothing runs yet.
    """
    from twisted.internet import reactor

    from svc.telemetry.logs import LoggedService
    from svc.telemetry.processlog import process_log
    from svc.telemetry.records import Origin

    parent = getattr(options, "parent", None) or {}
    observer, outlet = process_log(Origin("proxy", __version__), parent, options["log-format"])
    run_timers_evenly(reactor)
    root = LoggedService(observer, outlet)
    path = options["config"]
    assembly = assemble(options["settings"], reactor, lambda: end_with_failure(reactor, outlet), lambda: _read(path))
    proxy = assembly.build()
    observer.describe(assembly.origin())
    proxy.setServiceParent(root)
    reactor.callWhenRunning(_on_signals, reactor, proxy)
    return root


def _on_signals(reactor: Any, proxy: ProxyService) -> None:
    """Reload on SIGHUP; end on SIGTERM in order and with status 0, where twistd would die of the signal at last."""
    signal.signal(signal.SIGHUP, lambda _number, _frame: reactor.callFromThread(proxy.reload))
    end_in_order(reactor)
