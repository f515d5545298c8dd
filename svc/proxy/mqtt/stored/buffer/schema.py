"""The tables of the buffer."""

from __future__ import annotations

from typing import Final

from svc.sqlite.errors import JournalError
from svc.sqlite.kind import DatabaseKind

_MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        # ``content`` is one CONNECT, or two; ``key`` is the fingerprint of the key that encrypted it.
        "CREATE TABLE session ("
        " number INTEGER PRIMARY KEY, listener TEXT NOT NULL, client_id TEXT NOT NULL, owner TEXT NOT NULL,"
        " incomplete INTEGER NOT NULL, ended REAL NOT NULL, expiry INTEGER,"
        " until INTEGER NOT NULL, clean INTEGER NOT NULL, opened INTEGER NOT NULL, linked INTEGER NOT NULL,"
        " renewed INTEGER NOT NULL, key BLOB, content BLOB NOT NULL, UNIQUE (listener, client_id, owner))",
        # ``content`` is topic, properties and payload as in PUBLISH of MQTT 5.0.
        "CREATE TABLE message ("
        " number INTEGER PRIMARY KEY, session INTEGER NOT NULL, qos INTEGER NOT NULL, retain INTEGER NOT NULL,"
        " packet_id INTEGER NOT NULL, relayed INTEGER NOT NULL, stored REAL NOT NULL, size INTEGER NOT NULL,"
        " state INTEGER NOT NULL, upstream_id INTEGER NOT NULL, key BLOB, content BLOB NOT NULL)",
        "CREATE INDEX message_session ON message (session, number)",
        # QoS 2 messages of the client that were received and are not released.
        "CREATE TABLE received ("
        " session INTEGER NOT NULL, packet_id INTEGER NOT NULL, message INTEGER NOT NULL, owed INTEGER NOT NULL,"
        " receipt TEXT NOT NULL,"
        " PRIMARY KEY (session, packet_id)) WITHOUT ROWID",
        "CREATE TABLE write_probe (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL)",
        "INSERT INTO write_probe VALUES (1, 0)",
    ),
    (
        # ``digest`` is that of a message whose record is due.
        "ALTER TABLE received ADD COLUMN code INTEGER",
        "ALTER TABLE received ADD COLUMN digest BLOB",
        "ALTER TABLE received ADD COLUMN key BLOB",
    ),
    ("ALTER TABLE message ADD COLUMN refused REAL NOT NULL DEFAULT 0",),
    (
        # ``content`` is one CONNECT, and the message as in its table; ``wanted`` is what an operator wants done.
        "CREATE TABLE dead_letter ("
        " number INTEGER PRIMARY KEY, listener TEXT NOT NULL, client_id TEXT NOT NULL, owner TEXT NOT NULL,"
        " incomplete INTEGER NOT NULL, qos INTEGER NOT NULL, retain INTEGER NOT NULL, stored REAL NOT NULL,"
        " rejected REAL NOT NULL, cause TEXT NOT NULL, code INTEGER NOT NULL, size INTEGER NOT NULL,"
        " content BLOB NOT NULL, key BLOB, wanted INTEGER NOT NULL DEFAULT 0)",
    ),
)
BUFFER: Final = DatabaseKind(
    name="the buffer of MQTT messages",
    key="mqttBuffer.path",
    loss="messages in the damaged one that were acknowledged and not forwarded are lost",
    application=0x73767131,
    migrations=_MIGRATIONS,
    unavailable=JournalError,
)
