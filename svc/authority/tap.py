"""
``twistd svc-authority``: options, configuration, and the reactor that the authority needs.

``twistd`` parses the options of a plugin before anything imports a reactor, so the asyncio reactor is installed there
and ``--reactor`` is not needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from twisted.application.service import IService
from twisted.internet import asyncioreactor
from twisted.logger import Logger

from svc import __version__
from svc.authority.config import AuthoritySettings, load_settings
from svc.errors import SvcError
from svc.process.checking import Check
from svc.process.clock import use_monotonic_clock
from svc.process.lifecycle import install_signal_handlers
from svc.process.log import LoggedService, process_log
from svc.process.options import ProcessOptions, config_parameters, exit_with
from svc.telemetry.events import Event
from svc.telemetry.logs import emit
from svc.telemetry.records import Origin


class WrongReactor(SvcError):
    """svc-authority needs the asyncio reactor, and {found} is installed"""

    reason = "wrong_reactor"
    hint = "leave --reactor away, or pass --reactor=asyncio"


class Options(ProcessOptions):
    """The options of ``twistd svc-authority``."""

    longdesc = "Serves an ephemeral SPIFFE trust domain and issues post-quantum leaves; see docs/authority.md."
    optParameters = config_parameters("/etc/svc/authority.yaml")

    def read(self, path: str) -> AuthoritySettings:
        return load_settings(path)

    def checks(self, settings: AuthoritySettings) -> Iterable[Check]:
        from svc.authority.opened import opened

        return opened(settings)

    def install_reactor(self) -> None:
        """Install the asyncio reactor, with its event loop as the current one, which libraries use."""
        loop = asyncio.SelectorEventLoop()
        asyncio.set_event_loop(loop)
        asyncioreactor.install(loop)


class _Process(LoggedService):
    """The top service: if a service cannot start, the process exits with its error."""

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
                detail=error.hint,
            )
            exit_with(error)


def makeService(options: Options) -> IService:
    """Build the service tree; nothing is opened yet."""
    log = process_log(Origin("authority", __version__), options.parent or {}, options["log-format"])
    # Imported here: it needs the reactor that the options have installed.
    from twisted.internet import reactor

    from svc.authority.service import Authority

    if not isinstance(reactor, asyncioreactor.AsyncioSelectorReactor):
        exit_with(WrongReactor(found=type(reactor).__name__))
    use_monotonic_clock(reactor)
    process = _Process(*log)
    Authority(options["settings"], reactor, config_path=options["config"]).setServiceParent(process)
    reactor.callWhenRunning(install_signal_handlers, reactor)
    return process
