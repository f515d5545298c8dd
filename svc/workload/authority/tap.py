"""
``twistd svc-authority``: options, configuration, and the reactor that the authority needs.

Owns the process around the service. ``twistd`` parses the options of a plugin before anything imports a reactor, so the
asyncio reactor is installed there and ``twistd svc-authority --config FILE`` needs no ``--reactor``.
"""

from __future__ import annotations

import asyncio

from twisted.application.service import IService
from twisted.internet import asyncioreactor
from twisted.logger import Logger

from svc import __version__
from svc.errors import SvcError
from svc.telemetry.events import Event
from svc.telemetry.logs import LoggedService, emit
from svc.telemetry.processlog import process_log
from svc.telemetry.records import Origin
from svc.transport.reactor import run_timers_evenly
from svc.workload.authority.config import AuthoritySettings, load_settings
from svc.workload.process import ProcessOptions, config_parameters, die, end_in_order


class WrongReactor(SvcError):
    """svc-authority needs the asyncio reactor, and {found} is installed"""

    reason = "wrong_reactor"
    hint = "leave --reactor away, or pass --reactor=asyncio"


class Options(ProcessOptions):
    """What ``twistd svc-authority`` takes."""

    longdesc = "Serves an ephemeral SPIFFE trust domain and issues post-quantum leaves; see docs/authority.md."
    optParameters = config_parameters("/etc/svc/authority.yaml")

    def read(self, path: str) -> AuthoritySettings:
        """Judge the file."""
        return load_settings(path)

    def install_reactor(self) -> None:
        """Install the asyncio reactor, with an event loop known to asyncio: library code asks for the current one."""
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
        SystemExit: another reactor is installed.
    """
    log = process_log(Origin("authority", __version__), options.parent or {}, options["log-format"])
    # Imported here: it needs the reactor that the options have installed.
    from twisted.internet import reactor

    from svc.workload.authority.service import Authority

    if not isinstance(reactor, asyncioreactor.AsyncioSelectorReactor):
        die(WrongReactor(found=type(reactor).__name__))
    run_timers_evenly(reactor)
    process = _Process(*log)
    Authority(options["settings"], reactor, config_path=options["config"]).setServiceParent(process)
    reactor.callWhenRunning(end_in_order, reactor)
    return process
