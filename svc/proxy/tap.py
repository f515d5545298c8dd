"""
``twistd svc-proxy``: options, configuration, log.

Owns what an operator sees of a bad configuration: one line a problem, exit status 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService

from svc import __version__
from svc.naming import DEFAULT_PROXY_CONFIG
from svc.process.checking import Check
from svc.process.clock import use_monotonic_clock
from svc.process.lifecycle import install_signal_handlers, stop_with_failure
from svc.process.options import ProcessOptions, config_parameters, settings_or_exit
from svc.proxy.config import ProxySettings
from svc.proxy.stores import check_driver
from svc.settings import load

if TYPE_CHECKING:
    from svc.proxy.assembly import Assembly


class Options(ProcessOptions):
    """What ``twistd svc-proxy`` takes."""

    longdesc = "Terminates SPIFFE mTLS in front of an application, authorizes by identity and notarizes requests."
    optParameters = config_parameters(DEFAULT_PROXY_CONFIG)

    def read(self, path: str) -> ProxySettings:
        """Validate the file, and check that the database driver it needs is installed."""
        return _read(path)

    def checks(self, settings: ProxySettings) -> Iterable[Check]:
        """What is opened at the start."""
        from svc.proxy.startup_checks import opened

        return opened(settings)


def _read(path: str) -> ProxySettings:
    """Validate the file, and check that the database driver it needs is installed."""
    settings = load(path, ProxySettings)
    if settings.stores:
        check_driver(settings.notary)
    return settings


def makeService(options: Options) -> IService:
    """Build the proxy for ``twistd``."""
    return service_tree(options, _assembly)


def _assembly(*given: Any) -> Assembly:
    # Imported when the log has standard output for itself: what libraries print while they are loaded is no record.
    from svc.proxy.assembly import Assembly

    return Assembly(*given)


def service_tree(options: Options, assemble: Callable[..., Assembly]) -> IService:
    """Build the proxy and what is around it."""
    from twisted.internet import reactor

    from svc.process.log import LoggedService, process_log
    from svc.telemetry.records import Origin

    parent = getattr(options, "parent", None) or {}
    observer, outlet = process_log(Origin("proxy", __version__), parent, options["log-format"])
    use_monotonic_clock(reactor)
    root = LoggedService(observer, outlet)
    # Reads the policy files.
    assembly = settings_or_exit(
        lambda path: assemble(
            options["settings"], reactor, lambda: stop_with_failure(reactor, outlet), lambda: _read(path)
        ),
        options["config"],
    )
    proxy = assembly.build()
    observer.describe(assembly.origin())
    proxy.setServiceParent(root)
    reactor.callWhenRunning(install_signal_handlers, reactor, proxy.reload)
    return root
