"""What an event is: its name, its audience, how severe it is and what its message is."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, Literal

EventOutcome = Literal["success", "failure", "unknown"]


class Category(Enum):
    """The audience of a record."""

    SECURITY = "security"
    OPERATIONAL = "operational"
    AUDIT = "audit"


class Severity(IntEnum):
    """Severity numbers of the OpenTelemetry log data model."""

    TRACE = 1
    DEBUG = 5
    INFO = 9
    WARN = 13
    ERROR = 17
    FATAL = 21


SECURITY: Final = Category.SECURITY
OPERATIONAL: Final = Category.OPERATIONAL
AUDIT: Final = Category.AUDIT
INFO: Final = Severity.INFO
WARN: Final = Severity.WARN
ERROR: Final = Severity.ERROR


class Event(Enum):
    """
    One kind of event; the value is (name, category, severity, outcome, message).

    Each process has an enumeration of its own.
    """

    def __init__(
        self, event_name: str, category: Category, severity: Severity, outcome: EventOutcome, message: str
    ) -> None:
        self.event_name = event_name
        self.category = category
        self.severity = severity
        self.outcome = outcome
        self.message = message
