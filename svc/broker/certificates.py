"""
Renewal of the certificates of listeners that read them from files, and of the authorities of their clients.

Owns when the files are checked and what is logged; what can be used, the transport decides.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from svc.telemetry.events.broker import BrokerEvent
from svc.telemetry.logs import emit
from svc.transport.certificates import CertificateCreator, CertificateUnusable
from svc.transport.client_certificates import ClientAuthoritiesUnusable
from svc.transport.errors import TransportError

#: Seconds between two checks: a renewed certificate may wait for days, and a check is a few system calls.
CHECK_EVERY: Final = 5.0


class CertificateRenewal(Service):
    """
    Checks the files of all such listeners periodically.

    Args:
        renewed: called when a listener whose clients present certificates uses other files, to decide on them again.

    Attributes:
        creators: by the listeners' names.
    """

    log = Logger()

    def __init__(self, reactor: Any, renewed: Callable[[], None] = lambda: None) -> None:
        self.creators: dict[str, CertificateCreator] = {}
        self._on_renewed = renewed
        self._logged: dict[str, str] = {}
        self._checking = LoopingCall(self._check)
        self._checking.clock = reactor

    def add(self, listener: str, creator: CertificateCreator) -> None:
        """Add a listener by its name; the creator has read the files once."""
        self.creators[listener] = creator

    def expiries(self) -> list[tuple[str, datetime]]:
        """List the listeners' names, each with the end of the certificate that it presents now."""
        ends = ((listener, creator.not_after) for listener, creator in self.creators.items())
        return [(listener, not_after) for listener, not_after in ends if not_after is not None]

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
        for listener, creator in self.creators.items():
            try:
                renewed = creator.renew()
            except (CertificateUnusable, ClientAuthoritiesUnusable) as error:
                self._log_failure(listener, error)
                continue
            self._logged.pop(listener, None)
            if renewed:
                not_after = creator.not_after
                attributes = {"listener": listener} | ({"not_after": not_after.isoformat()} if not_after else {})
                emit(self.log, BrokerEvent.CERTIFICATE_RENEWED, attributes=attributes)
                if creator.verifies_clients:
                    self._on_renewed()

    def _log_failure(self, listener: str, error: TransportError) -> None:
        """Log a failure once, however often it is found."""
        detail = str(error)
        if self._logged.get(listener) != detail:
            self._logged[listener] = detail
            emit(
                self.log,
                BrokerEvent.CERTIFICATE_REJECTED,
                detail_reason=error.reason,
                detail=f"{detail}; {error.hint}",
                attributes={"listener": listener},
            )
