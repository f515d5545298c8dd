"""
An embedded MQTT 3.1.1 and 5.0 broker for one machine.

The core (messages, subscriptions, sessions, the hub) is pure: it is told the time, writes to outlets and records what
must last in a journal. The shell around it speaks Twisted. Beyond one machine, any broker takes its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.broker.access import Everything, Guard, Principal, Rule, Rules, covers
    from svc.broker.broker import Broker, anonymous, verified
    from svc.broker.connection import ConnectionReporter, ConnectionTerms
    from svc.broker.errors import BrokerError, StoreRefuses
    from svc.broker.hub import HubLimits
    from svc.broker.journal import Journal, Remains
    from svc.broker.persistence.opening import open_journal
    from svc.broker.session import SessionLimits
    from svc.broker.standing import Standing
else:
    __getattr__ = exports(
        __name__,
        {
            "access": "Everything Guard Principal Rule Rules covers",
            "broker": "Broker anonymous verified",
            "connection": "ConnectionReporter ConnectionTerms",
            "errors": "BrokerError StoreRefuses",
            "hub": "HubLimits",
            "journal": "Journal Remains",
            "persistence.opening": "open_journal",
            "session": "SessionLimits",
            "standing": "Standing",
        },
    )

__all__ = [
    "Broker",
    "BrokerError",
    "ConnectionReporter",
    "ConnectionTerms",
    "Everything",
    "Guard",
    "HubLimits",
    "Journal",
    "Principal",
    "Remains",
    "Rule",
    "Rules",
    "SessionLimits",
    "Standing",
    "StoreRefuses",
    "anonymous",
    "covers",
    "open_journal",
    "verified",
]
