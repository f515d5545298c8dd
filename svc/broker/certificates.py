"""
The certificates of listeners whose clients have no identity, which are renewed while the broker runs.

Owns when their files are looked at and what is told of it; what a usable pair is, the transport knows.
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

#: Seconds between two looks: a renewed certificate has days, and a look is a few calls to the system.
LOOK_EVERY: Final = 5.0


class Certificates(Service):
    """
    Looks at the files of all such listeners, again and again.

    Args:
        reactor: keeps the time.
    """

    log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._creators: dict[str, CertificateCreator] = {}
        self._told: dict[str, str] = {}
        self._looking = LoopingCall(self._look)
        self._looking.clock = reactor

    def add(self, listener: str, creator: CertificateCreator) -> None:
        """
        Look after a listener's certificate.

        Args:
            listener: its name.
            creator: has read the files once.
        """
        self._creators[listener] = creator

    def ends(self) -> list[tuple[str, datetime]]:
        """
        Say when the certificates end.

        Returns:
            The listeners' names, each with the end of the certificate that it shows now.
        """
        return [(listener, creator.not_after) for listener, creator in self._creators.items()]

    def startService(self) -> None:
        """Begin to look."""
        super().startService()
        self._looking.start(LOOK_EVERY, now=False)

    def stopService(self) -> None:
        """Look no more."""
        super().stopService()
        self._looking.stop()

    def renew(self) -> None:
        """Look at once, because somebody asks for it, and tell of what still fails."""
        self._told.clear()
        self._look()

    def _look(self) -> None:
        for listener, creator in self._creators.items():
            try:
                renewed = creator.renew()
            except CertificateUnusable as error:
                self._failed(listener, error)
                continue
            self._told.pop(listener, None)
            if renewed:
                attributes = {"listener": listener, "not_after": creator.not_after.isoformat()}
                emit(self.log, Event.BROKER_CERTIFICATE_RENEWED, attributes=attributes)

    def _failed(self, listener: str, error: CertificateUnusable) -> None:
        """Tell of a defect once, however often it is met."""
        detail = str(error)
        if self._told.get(listener) != detail:
            self._told[listener] = detail
            emit(
                self.log,
                Event.BROKER_CERTIFICATE_REJECTED,
                detail_reason=error.reason,
                detail=f"{detail}; {error.advice()}",
                attributes={"listener": listener},
            )
