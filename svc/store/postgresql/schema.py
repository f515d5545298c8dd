"""The tables of the notary on a PostgreSQL server; they are created and migrated by one process at a time."""

from __future__ import annotations

from typing import Final

import psycopg

from svc.store.errors import StoreError
from svc.store.postgresql.session import SCHEMA, PostgresSession, one

#: The class of our advisory locks; their numbers follow.
LOCK_CLASS: Final = 0x73766E31
MIGRATING: Final = 0
PRUNING: Final = 1
#: The first number of a replica.
FIRST_HOLDER: Final = 16
#: Seconds that a start waits for another that creates the tables.
MIGRATION_SECONDS: Final = 30.0

#: The statements that lead from each version to the next; the version is the number of steps done.
MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        "CREATE TABLE notary ("
        " id smallint PRIMARY KEY CHECK (id = 1), version integer NOT NULL, probes bigint NOT NULL)",
        "INSERT INTO notary VALUES (1, 0, 0)",
        # The certificates of one envelope in their order, named by a digest: one row for each set of credentials.
        "CREATE TABLE certificate_set ("
        " id bytea PRIMARY KEY CHECK (octet_length(id) = 32),"
        " chain bytea[] NOT NULL CHECK (cardinality(chain) <= 64))",
        "CREATE TABLE workload_statement ("
        ' id varchar(64) COLLATE "C" PRIMARY KEY, expires bigint NOT NULL,'
        " certificate_set bytea NOT NULL REFERENCES certificate_set,"
        ' cuts varchar(8192) COLLATE "C" NOT NULL, skeleton bytea NOT NULL CHECK (octet_length(skeleton) <= 1048576))',
        "CREATE INDEX workload_statement_set ON workload_statement (certificate_set)",
        "CREATE INDEX workload_statement_expires ON workload_statement (expires)",
        "CREATE TABLE receipt ("
        ' id varchar(64) COLLATE "C" PRIMARY KEY,'
        ' level varchar(16) COLLATE "C" NOT NULL,'
        ' client varchar(2048) COLLATE "C" NOT NULL,'
        ' server varchar(2048) COLLATE "C" NOT NULL,'
        ' nonce varchar(64) COLLATE "C",'
        ' jti varchar(64) COLLATE "C" NOT NULL,'
        " issued_at bigint NOT NULL,"
        ' outcome varchar(32) COLLATE "C" NOT NULL,'
        ' statement_id varchar(64) COLLATE "C" NOT NULL,'
        " certificate_set bytea REFERENCES certificate_set,"
        ' cuts varchar(8192) COLLATE "C",'
        " skeleton bytea CHECK (octet_length(skeleton) <= 1048576),"
        " payload bytea NOT NULL CHECK (octet_length(payload) <= 1048576),"
        ' disclosures text COLLATE "C" CHECK (octet_length(disclosures) <= 1048576))',
        # Signatures and digests do not compress; the attempt would cost more than the insertion.
        "ALTER TABLE receipt ALTER COLUMN skeleton SET STORAGE EXTERNAL",
        "CREATE UNIQUE INDEX receipt_nonce ON receipt (client, nonce) WHERE nonce IS NOT NULL",
        "CREATE INDEX receipt_jti ON receipt (jti)",
        "CREATE INDEX receipt_issued_at ON receipt (issued_at)",
        "CREATE INDEX receipt_statement ON receipt (statement_id)",
        "CREATE INDEX receipt_set ON receipt (certificate_set) WHERE certificate_set IS NOT NULL",
        # Nonces of exchanges that run. Not logged: they mean nothing once their replicas have ended.
        "CREATE UNLOGGED TABLE reservation ("
        ' client varchar(2048) COLLATE "C" NOT NULL, nonce varchar(64) COLLATE "C" NOT NULL,'
        " holder integer NOT NULL, PRIMARY KEY (client, nonce))",
        "CREATE INDEX reservation_holder ON reservation (holder)",
    ),
    (
        # The envelope of receipts that were signed together, named by its digest.
        "CREATE TABLE receipt_batch ("
        " id bytea PRIMARY KEY CHECK (octet_length(id) = 32),"
        " certificate_set bytea NOT NULL REFERENCES certificate_set,"
        ' cuts varchar(8192) COLLATE "C" NOT NULL, skeleton bytea NOT NULL CHECK (octet_length(skeleton) <= 1048576))',
        "ALTER TABLE receipt_batch ALTER COLUMN skeleton SET STORAGE EXTERNAL",
        "CREATE INDEX receipt_batch_set ON receipt_batch (certificate_set)",
        "ALTER TABLE receipt ADD COLUMN batch bytea REFERENCES receipt_batch,"
        " ADD COLUMN inclusion bytea CHECK (octet_length(inclusion) <= 1024)",
        "CREATE INDEX receipt_in_batch ON receipt (batch) WHERE batch IS NOT NULL",
    ),
    ("DROP INDEX receipt_statement",),
)
VERSION: Final = len(MIGRATIONS)


def prepare(session: PostgresSession, name: str) -> None:
    """
    Create the tables, or migrate them; of many processes one does it and the others wait.

    Raises:
        StoreError: the tables are of a newer program, or the schema is another program's.
        psycopg.Error: the server refuses.
    """
    with session.within(2 * MIGRATION_SECONDS):
        if version(session, name) == VERSION:
            # A role that uses the tables need not have the right to create them.
            return
        with session.transaction():
            _migrate(session, name)


def _migrate(session: PostgresSession, name: str) -> None:
    session.execute("SELECT set_config('lock_timeout', %s, true)", [f"{MIGRATION_SECONDS:g}s"])
    session.execute("SELECT set_config('statement_timeout', %s, true)", [f"{MIGRATION_SECONDS:g}s"])
    session.execute("SELECT pg_advisory_xact_lock(%s, %s)", [LOCK_CLASS, MIGRATING])
    found = version(session, name)
    if found is None:
        found = 0
        if not one(session.execute("SELECT to_regnamespace(%s) IS NOT NULL", [SCHEMA]))[0]:
            session.execute(f"CREATE SCHEMA {SCHEMA}")
    for number, steps in enumerate(MIGRATIONS[found:], start=found + 1):
        for step in steps:
            session.execute(step.encode())
        session.execute("UPDATE notary SET version = %s", [number])


def version(session: PostgresSession, name: str) -> int | None:
    """Read the version of the tables, None where there are none; raises as :func:`prepare`."""
    tables = (
        "SELECT count(*), count(*) FILTER (WHERE relname = 'notary') FROM pg_class WHERE relkind IN ('r', 'p', 'v')"
    )
    # Only constants are in the text.
    (all_tables, ours) = one(session.execute(f"{tables} AND relnamespace = to_regnamespace(%s)", [SCHEMA]))
    if not all_tables:
        return None
    try:
        found = one(session.execute("SELECT version FROM notary WHERE id = 1"))[0] if ours else None
    except (psycopg.errors.UndefinedColumn, psycopg.DataError):
        found = None
    if not isinstance(found, int):
        raise StoreError("store_foreign", path=name)
    if found > VERSION:
        raise StoreError("unsupported_version", path=name, found=found, known=VERSION)
    return found
