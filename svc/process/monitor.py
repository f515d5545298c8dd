"""
What a process remembers of its own past for ``adminAddr``: its start, its last errors, and its last hour.

All of it is bounded and in memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from twisted.application.service import Service
from twisted.internet.task import LoopingCall
from twisted.logger import ILogObserver, LogEvent, Logger, LogPublisher, globalLogPublisher
from zope.interface import implementer

from svc import __version__
from svc.process.history import SAMPLE_EVERY, History, Totals
from svc.process.status import MAX_ERRORS, LastError, Status
from svc.telemetry.events.base import Severity
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.health import Health
from svc.telemetry.log_limits import without_port
from svc.telemetry.records import KEY_EVENT, Origin, RecordBuilder

#: Logged for the audit trail, beside an operational or security event that says the same.
_TWICE: Final = (ProxyEvent.ACCESS_DENIED, ProxyEvent.ACCESS_SUPPRESSED, DaemonEvent.CONFIG_REJECTED)


@implementer(ILogObserver)
class LastErrors:
    """
    The last kinds of log events of severity WARN or above; denials are among them.

    They are kept as a record of the log has them, so nothing is shown that is not logged. Of events with one name,
    reason and source the last is kept: a client that is refused all the time does not displace the others.
    """

    def __init__(self) -> None:
        self._builder = RecordBuilder(Origin("", ""), random=bytes)
        self._kept: dict[tuple[str, str, str], LastError] = {}

    @property
    def newest_first(self) -> tuple[LastError, ...]:
        # Threads log too; the values are copied in one step.
        return tuple(self._kept.values())[::-1]

    def __call__(self, event: LogEvent) -> None:
        if self._builder.severity(event) < Severity.WARN or event.get(KEY_EVENT) in _TWICE:
            return
        record: dict[str, Any] = self._builder.build(event)
        attributes = record.get("attributes", {})
        details = (record["message"], record.get("detail") or attributes.get("exception.message"))
        peer, address = record.get("peer_spiffe_id"), str(attributes.get("source.address") or "")
        name = record["event"]["name"]
        reason = record.get("detail_reason") or record.get("reason") or attributes.get("exception.type") or ""
        kind = (name, reason, peer or without_port(address))
        before = self._kept.pop(kind, None)
        self._kept[kind] = LastError(
            at=datetime.strptime(record["timestamp"], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC),
            event=name,
            reason=reason,
            detail=": ".join(dict.fromkeys(str(each) for each in details if each)),
            source=peer or address or None,
            count=1 if before is None else before.count + 1,
        )
        if len(self._kept) > MAX_ERRORS:
            self._kept.pop(next(iter(self._kept)), None)


class Monitor(Service):
    """
    Collects while it runs.

    Args:
        process: ``proxy``, ``broker`` or ``authority``.
        clock: the reactor.
        now: the wall clock.
        read: returns the counters; called every ten seconds.
    """

    log = Logger()

    def __init__(
        self,
        process: str,
        health: Health,
        *,
        clock: Any,
        now: Callable[[], datetime],
        read: Callable[[], Totals],
        publisher: LogPublisher = globalLogPublisher,
    ) -> None:
        self._process = process
        self._health = health
        self._clock = clock
        self._now = now
        self._read = read
        self._publisher = publisher
        self._started = now()
        self._errors = LastErrors()
        self.history = History()
        self._sampling = LoopingCall(self._sample)
        self._sampling.clock = clock

    def startService(self) -> None:
        super().startService()
        self._publisher.addObserver(self._errors)
        self._sampling.start(SAMPLE_EVERY)

    def stopService(self) -> None:
        super().stopService()
        self._sampling.stop()
        self._publisher.removeObserver(self._errors)

    def status(self, **members: Any) -> Status:
        """The document, with the members of :class:`Status` that only this kind of process has."""
        health = self._health
        return Status(
            process=self._process,
            version=__version__,
            pid=os.getpid(),
            started=self._started,
            now=self._now(),
            ready=health.ready,
            draining=health.draining,
            conditions=health.conditions,
            rates=self.history.rates,
            denials=self.history.denials(self._read().denials),
            last_errors=self._errors.newest_first,
            **members,
        )

    def _sample(self) -> None:
        try:
            self.history.add(self._now(), self._clock.seconds(), self._read())
        except Exception:  # noqa: BLE001 (one failure must not stop the LoopingCall)
            self.log.failure("the counters could not be read for the history")
