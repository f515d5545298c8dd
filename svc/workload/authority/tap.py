"""
``twistd svc-authority``: options, configuration, and the reactor that the authority needs.

Owns the process around the service. ``twistd`` parses the options of a plugin before anything imports a reactor, so the
asyncio reactor is installed there and ``twistd svc-authority --config FILE`` needs no ``--reactor``.
"""

from __future__ import annotations

import asyncio
import sys

from twisted.application.service import IService
from twisted.internet import asyncioreactor
from twisted.logger import Logger
from twisted.python import usage

import svc
from svc.errors import SvcError
from svc.telemetry.events import Event
from svc.telemetry.logs import LoggedService, emit
from svc.telemetry.outlet import open_standard_descriptors
from svc.telemetry.processlog import process_log
from svc.telemetry.records import Origin
from svc.transport.reactor import run_timers_evenly
from svc.workload.authority.config import load_settings
from svc.workload.process import die, end_in_order, settings_or_exit


class WrongReactor(SvcError):
    """svc-authority needs the asyncio reactor, and {found} is installed"""

    reason = "wrong_reactor"
    hint = "leave --reactor away, or pass --reactor=asyncio"


class Options(usage.Options):
    """The options behind ``twistd svc-authority``."""

    synopsis = "[options]"
    longdesc = "Serves an ephemeral SPIFFE trust domain and issues post-quantum leaves; see docs/authority.md."
    optParameters = [
        ["config", "c", None, "The configuration file (YAML)."],
        ["log-format", None, "json", "json or text."],
    ]
    optFlags = [["check-config", None, "Judge the configuration and exit: 0 when it is good, 1 with every defect."]]

    def opt_version(self) -> None:
        """Print the version and exit."""
        print(f"svc {svc.__version__}")
        sys.exit(0)

    def postOptions(self) -> None:
        """
        Judge the options and install the asyncio reactor if there is none yet.

        Raises:
            UsageError: an option is missing or unknown.
        """
        open_standard_descriptors()
        if self["config"] is None:
            raise usage.UsageError("--config FILE is required")
        if self["log-format"] not in ("json", "text"):
            raise usage.UsageError("--log-format is json or text")
        if self["check-config"]:
            settings_or_exit(load_settings, self["config"])
            print(f"{self['config']} is valid")
            sys.exit(0)
        install_reactor()


def install_reactor() -> None:
    """Install the asyncio reactor, unless this process already has a reactor."""
    if "twisted.internet.reactor" in sys.modules:
        return
    # An event loop of our own, known to asyncio: library code asks for the current one.
    loop = asyncio.SelectorEventLoop()
    asyncio.set_event_loop(loop)
    asyncioreactor.install(loop)


class _Process(LoggedService):
    """The application: a service that cannot start ends the process with one clear line."""

    log = Logger()

    def startService(self) -> None:
        try:
            super().startService()
        except SvcError as error:
            emit(
                self.log,
                Event.PROCESS_START_FAILED,
                detail_reason=error.reason,
                message=f"could not start: {error}",
                detail=error.advice(),
            )
            die(error)


def makeService(options: Options) -> IService:
    """
    Build the service tree.

    Args:
        options: the parsed options.

    Returns:
        The service; nothing has been opened yet.

    Raises:
        SystemExit: the configuration is not good, or another reactor is installed.
    """
    settings = settings_or_exit(load_settings, options["config"])
    log = process_log(Origin("authority", svc.__version__), options.parent or {}, options["log-format"])
    # Imported here: it needs the reactor that the options have installed.
    from twisted.internet import reactor

    from svc.workload.authority.service import Authority

    if not isinstance(reactor, asyncioreactor.AsyncioSelectorReactor):
        die(WrongReactor(found=type(reactor).__name__))
    run_timers_evenly(reactor)
    process = _Process(*log)
    Authority(settings, reactor, config_path=options["config"]).setServiceParent(process)
    reactor.callWhenRunning(end_in_order, reactor)
    return process
