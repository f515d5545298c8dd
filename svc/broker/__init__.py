"""
An embedded MQTT 3.1.1 and 5.0 broker for one machine.

The core (messages, subscriptions, sessions, the hub) is pure: it is passed the time, writes to sinks and records
durable state in a journal. The shell around it uses Twisted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.lazy import exports

if TYPE_CHECKING:
    from svc.broker.access import AccessRule, AllowAll, Guard, Principal, Rules
    from svc.broker.broker import Broker, anonymous, verified
    from svc.broker.connection import ConnectionLimits, ConnectionReporter
    from svc.broker.errors import BrokerError, StoreRefuses
    from svc.broker.hub import HubLimits
    from svc.broker.journal import Journal, RecoveredState
    from svc.broker.persistence.opening import open_journal
    from svc.broker.session import SessionLimits
else:
    __getattr__ = exports(
        __name__,
        {
            "access": "AllowAll Guard Principal AccessRule Rules",
            "broker": "Broker anonymous verified",
            "connection": "ConnectionReporter ConnectionLimits",
            "errors": "BrokerError StoreRefuses",
            "hub": "HubLimits",
            "journal": "Journal RecoveredState",
            "persistence.opening": "open_journal",
            "session": "SessionLimits",
        },
    )

__all__ = [
    "AccessRule",
    "AllowAll",
    "Broker",
    "BrokerError",
    "ConnectionLimits",
    "ConnectionReporter",
    "Guard",
    "HubLimits",
    "Journal",
    "Principal",
    "RecoveredState",
    "Rules",
    "SessionLimits",
    "StoreRefuses",
    "anonymous",
    "open_journal",
    "verified",
]
