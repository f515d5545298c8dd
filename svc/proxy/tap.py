"""
``twistd svc-proxy``: options, configuration, log.

Owns what an operator sees of a bad configuration: one line a problem, exit status 1.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from twisted.application.service import IService
from twisted.python.usage import Options as TwistedOptions
from twisted.python.usage import UsageError

from svc import __version__
from svc.proxy.config import ProxySettings
from svc.settings import load
from svc.transport.reactor import install
from svc.workload.process import end_in_order, settings_or_exit

if TYPE_CHECKING:
    from svc.proxy.service import ProxyService


class Options(TwistedOptions):
    """What ``twistd svc-proxy`` takes."""

    synopsis = "[--config FILE] [--check-config]"
    longdesc = "Terminates SPIFFE mTLS in front of an application, authorizes by identity and notarizes requests."
    optParameters = [
        ["config", "c", "/etc/svc/proxy.yaml", "The configuration, a YAML file."],
        ["log-format", None, "json", "json (schema svc.log/1) or text."],
    ]
    optFlags = [["check-config", None, "Judge the configuration and exit: status 0, or 1 with every problem."]]

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"svc {__version__}")
        sys.exit(0)

    def postOptions(self) -> None:
        """Judge the options, and the configuration where that is all that is asked."""
        if self["log-format"] not in ("json", "text"):
            raise UsageError(f"--log-format {self['log-format']!r}: expected json or text")
        self["settings"] = settings_or_exit(lambda path: load(path, ProxySettings), self["config"])
        if self["check-config"]:
            print(f"{self['config']} is valid")
            sys.exit(0)
        # twistd parses the options of a plugin before anything imports a reactor; with --reactor it has chosen one.
        if "twisted.internet.reactor" not in sys.modules:
            install()


def makeService(options: Options) -> IService:
    """
    Build the proxy for ``twistd``.

    Args:
        options: the parsed options.

    Returns:
        The service; nothing runs yet.
    """
    from twisted.internet import reactor

    from svc.proxy.assembly import Assembly
    from svc.telemetry.logs import LoggedService, log_observer, log_stream
    from svc.telemetry.records import Origin

    parent = getattr(options, "parent", None) or {}
    observer = log_observer(Origin("proxy", __version__), log_format=options["log-format"], stream=log_stream(parent))
    root = LoggedService(observer)
    path = options["config"]
    assembly = Assembly(options["settings"], reactor, lambda: _fail(reactor), lambda: load(path, ProxySettings))
    proxy = assembly.build()
    proxy.setServiceParent(root)
    reactor.callWhenRunning(_on_signals, reactor, proxy)
    return root


def _on_signals(reactor: Any, proxy: ProxyService) -> None:
    """Reload on SIGHUP; end on SIGTERM in order and with status 0, where twistd would die of the signal at last."""
    signal.signal(signal.SIGHUP, lambda _number, _frame: reactor.callFromThread(proxy.reload))
    end_in_order(reactor)


def _fail(reactor: Any) -> None:
    """End the process with status 1 once everything that was started is stopped."""
    reactor.addSystemEventTrigger("after", "shutdown", os._exit, 1)
    if reactor.running:
        reactor.stop()
    else:
        reactor.callWhenRunning(reactor.stop)
