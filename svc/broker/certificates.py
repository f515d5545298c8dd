"""
Renewal of the certificates of listeners whose clients have no identity.

Owns when their files are checked and what is logged; what a usable pair is, the transport decides.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svc.telemetry.events import Event
from svc.telemetry.logs import emit
from svc.transport.certificates import CertificateCreator, CertificateUnusable

#: Seconds between two checks: a renewed certificate may wait for days, and a check is a few system calls.
CHECK_EVERY: Final = 5.0


class CertificateRenewal(Service):
    """Checks the files of all such listeners periodically."""

    log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._creators: dict[str, CertificateCreator] = {}
        self._logged: dict[str, str] = {}
        self._checking = LoopingCall(self._check)
        self._checking.clock = reactor

    def add(self, listener: str, creator: CertificateCreator) -> None:
        """Add a listener by its name; the creator has read the files once."""
        self._creators[listener] = creator

    def expiries(self) -> list[tuple[str, datetime]]:
        """List the listeners' names, each with the end of the certificate that it presents now."""
        return [(listener, creator.not_after) for listener, creator in self._creators.items()]

    def startService(self) -> None:
        """Start checking."""
        super().startService()
        self._checking.start(CHECK_EVERY, now=False)

    def stopService(self) -> None:
        """Stop checking."""
        super().stopService()
        self._checking.stop()

    def check_now(self) -> None:
        """Check at once because an operator requests it, and log again what still fails."""
        self._logged.clear()
        self._check()

    def _check(self) -> None:
        for listener, creator in self._creators.items():
            try:
                renewed = creator.renew()
            except CertificateUnusable as error:
                self._log_failure(listener, error)
                continue
            self._logged.pop(listener, None)
            if renewed:
                attributes = {"listener": listener, "not_after": creator.not_after.isoformat()}
                emit(self.log, Event.BROKER_CERTIFICATE_RENEWED, attributes=attributes)

    def _log_failure(self, listener: str, error: CertificateUnusable) -> None:
        """Log a failure once, however often it is found."""
        detail = str(error)
        if self._logged.get(listener) != detail:
            self._logged[listener] = detail
            emit(
                self.log,
                Event.BROKER_CERTIFICATE_REJECTED,
                detail_reason=error.reason,
                detail=f"{detail}; {error.hint}",
                attributes={"listener": listener},
            )
