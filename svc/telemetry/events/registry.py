"""
The registry of event names.

Every log record has one of these names in ``event.name``. Operators filter and alert on them, so a name is never reused
for another event.
"""

from __future__ import annotations

from typing import Final

from svc.telemetry.events.agent import AgentEvent
from svc.telemetry.events.authority import AuthorityEvent
from svc.telemetry.events.base import Event
from svc.telemetry.events.broker import BrokerEvent
from svc.telemetry.events.cli import CliEvent
from svc.telemetry.events.daemon import DaemonEvent
from svc.telemetry.events.manager import ManagerEvent
from svc.telemetry.events.notary import NotaryEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.telemetry.events.registrar import RegistrarEvent
from svc.telemetry.events.store import StoreEvent
from svc.telemetry.events.workload import WorkloadEvent

#: The enumerations of all processes.
ENUMERATIONS: Final[tuple[type[Event], ...]] = (
    DaemonEvent,
    ProxyEvent,
    NotaryEvent,
    StoreEvent,
    WorkloadEvent,
    BrokerEvent,
    AuthorityEvent,
    AgentEvent,
    ManagerEvent,
    RegistrarEvent,
    CliEvent,
)
#: Every event by its name.
EVENTS: Final[dict[str, Event]] = {event.event_name: event for each in ENUMERATIONS for event in each}
