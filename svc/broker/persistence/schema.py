"""The tables of the broker's database."""

from __future__ import annotations

from typing import Final

from svc.sqlite.errors import JournalError
from svc.sqlite.kind import DatabaseKind

_MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE session ("
        " client_id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, version INTEGER NOT NULL, expiry INTEGER,"
        " ended REAL, will_topic TEXT, will_payload BLOB, will_qos INTEGER, will_retain INTEGER,"
        " will_properties BLOB, will_due REAL)",
        "CREATE TABLE subscription ("
        " client_id TEXT NOT NULL, filter TEXT NOT NULL, qos INTEGER NOT NULL, no_local INTEGER NOT NULL,"
        " retain_as_published INTEGER NOT NULL, retain_handling INTEGER NOT NULL, identifier INTEGER,"
        " PRIMARY KEY (client_id, filter)) WITHOUT ROWID",
        # Once for all its deliveries and as retained message; deleted with the last of them.
        "CREATE TABLE message ("
        " number INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL, qos INTEGER NOT NULL,"
        " retain INTEGER NOT NULL, properties BLOB NOT NULL, publisher TEXT NOT NULL, expires REAL)",
        # In the order in which they were queued.
        "CREATE TABLE delivery ("
        " number INTEGER PRIMARY KEY, client_id TEXT NOT NULL, message INTEGER NOT NULL, qos INTEGER NOT NULL,"
        " retain INTEGER NOT NULL, identifiers TEXT NOT NULL, stage INTEGER NOT NULL, packet_id INTEGER NOT NULL)",
        # QoS 2 messages that were received and are not released.
        "CREATE TABLE received ("
        " client_id TEXT NOT NULL, packet_id INTEGER NOT NULL, PRIMARY KEY (client_id, packet_id)) WITHOUT ROWID",
        "CREATE TABLE retained (topic TEXT PRIMARY KEY, message INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE write_probe (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL)",
        "INSERT INTO write_probe VALUES (1, 0)",
    ),
    # Whose room a retained message takes; of earlier ones that is not known.
    ("ALTER TABLE retained ADD COLUMN owner TEXT NOT NULL DEFAULT ''",),
)
BROKER: Final = DatabaseKind(
    name="the broker's database",
    key="persistence.path",
    loss="sessions and messages begin anew",
    application=0x73766D31,
    migrations=_MIGRATIONS,
    unavailable=JournalError,
)
