"""The tables of the embedded notary database."""

from __future__ import annotations

from typing import Final

from svc.sqlite.kind import DatabaseKind
from svc.store.errors import StoreUnavailable

#: What a record takes: a row with its entries in the indexes, and what is stored of it alone.
_OCTETS: Final = (
    "1024 + length({0}.payload) + coalesce(length({0}.skeleton), 0)"
    " + coalesce(length({0}.inclusion), 0) + coalesce(length({0}.disclosures), 0)"
)
_MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE certificate_blob (sha256 BLOB PRIMARY KEY, der BLOB NOT NULL)",
        # The certificates of one envelope in their order, as concatenated digests: one row for each set of credentials.
        "CREATE TABLE certificate_set (id INTEGER PRIMARY KEY, digests BLOB NOT NULL UNIQUE)",
        "CREATE TABLE workload_statement ("
        " id TEXT PRIMARY KEY, expires INTEGER NOT NULL, certificate_set INTEGER NOT NULL,"
        " cuts TEXT NOT NULL, skeleton BLOB NOT NULL)",
        "CREATE INDEX workload_statement_set ON workload_statement (certificate_set)",
        "CREATE INDEX workload_statement_expires ON workload_statement (expires)",
        "CREATE TABLE receipt ("
        " seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, level TEXT NOT NULL, client TEXT NOT NULL,"
        " server TEXT NOT NULL, nonce TEXT, jti TEXT NOT NULL, issued_at INTEGER NOT NULL, outcome TEXT NOT NULL,"
        " statement_id TEXT NOT NULL, certificate_set INTEGER, cuts TEXT, skeleton BLOB, payload BLOB NOT NULL,"
        " disclosures TEXT)",
        "CREATE UNIQUE INDEX receipt_nonce ON receipt (client, nonce) WHERE nonce IS NOT NULL",
        "CREATE INDEX receipt_jti ON receipt (jti)",
        "CREATE INDEX receipt_issued_at ON receipt (issued_at)",
        "CREATE INDEX receipt_statement ON receipt (statement_id)",
        "CREATE INDEX receipt_set ON receipt (certificate_set) WHERE certificate_set IS NOT NULL",
        "CREATE TABLE write_probe (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL)",
        "INSERT INTO write_probe VALUES (1, 0)",
    ),
    (
        # The envelope of receipts that were signed together.
        "CREATE TABLE receipt_batch ("
        " id INTEGER PRIMARY KEY, certificate_set INTEGER NOT NULL, cuts TEXT NOT NULL, skeleton BLOB NOT NULL)",
        "CREATE INDEX receipt_batch_set ON receipt_batch (certificate_set)",
        "ALTER TABLE receipt ADD COLUMN batch INTEGER",
        "ALTER TABLE receipt ADD COLUMN inclusion BLOB",
        "CREATE INDEX receipt_in_batch ON receipt (batch) WHERE batch IS NOT NULL",
    ),
    (
        # Each index with keys in no order costs a record a page of 4 KiB in the log. Unsigned records are not served by
        # their jti; that nothing names an expired statement follows from the time.
        "DROP INDEX receipt_jti",
        "CREATE INDEX receipt_jti ON receipt (jti) WHERE level = 'signRequest'",
        "DROP INDEX receipt_statement",
    ),
    (
        # The octets of the records of each client, counted in the transaction that writes or deletes them.
        "CREATE TABLE held (client TEXT PRIMARY KEY, octets INTEGER NOT NULL) WITHOUT ROWID",
        f"INSERT INTO held SELECT client, {_OCTETS.format('receipt')} FROM receipt WHERE TRUE"  # noqa: S608 (constants)
        " ON CONFLICT (client) DO UPDATE SET octets = octets + excluded.octets",
        "CREATE TRIGGER receipt_written AFTER INSERT ON receipt BEGIN"  # noqa: S608 (constants)
        " INSERT INTO held SELECT NEW.client, 0"
        " WHERE NOT EXISTS (SELECT 1 FROM held WHERE client = NEW.client);"
        f" UPDATE held SET octets = octets + {_OCTETS.format('NEW')} WHERE client = NEW.client; END",
        "CREATE TRIGGER receipt_deleted AFTER DELETE ON receipt BEGIN"  # noqa: S608 (constants)
        f" UPDATE held SET octets = octets - ({_OCTETS.format('OLD')}) WHERE client = OLD.client;"
        " DELETE FROM held WHERE client = OLD.client AND octets <= 0; END",
    ),
)
NOTARY: Final = DatabaseKind(
    name="the notary database",
    key="notary.path",
    loss="receipts that are not rescued from the damaged one (docs/operations.md, A damaged database) are lost",
    application=0x73766E31,
    migrations=_MIGRATIONS,
    unavailable=StoreUnavailable,
)
