"""
What can go wrong with a store, for those who call it.

Knows nothing of SQL: each class carries the reason, the HTTP status and the advice.
"""

from __future__ import annotations

from svc.errors import SvcError


class StoreError(SvcError):
    """the notary store failed"""

    reason = "notary_unavailable"
    http_status = 503


class StoreUnavailable(StoreError):
    """the notary database {path} cannot be used: {detail}"""

    hint = "check the disk, its free space and the permissions of {path}"
    path: str
    detail: str


class StoreClosed(StoreError):
    """the notary store is closed"""


class StoreLate(StoreError):
    """the notary database did not say within {seconds} s that the record is stored"""

    hint = "it may be stored all the same; look at what the database waits for: its disk, a lock, the network"
    seconds: float


class StoreStuck(StoreError):
    """the notary database was not closed within {seconds} s"""

    hint = "no receipt that was promised is lost; look at what the database waits for: its disk, a lock, the network"
    seconds: float


class StoreBusy(StoreError):
    """{limit} records already wait for the notary database"""

    reason = "notary_rate"
    http_status = 429
    limit: int


class Replayed(StoreError):
    """a record with this nonce or id is already stored for {client}"""

    reason = "replayed"
    http_status = 409
    client: str


class RecordRefused(StoreError):
    """the record has a member that no database can hold: {detail}"""

    reason = "malformed"
    http_status = 500
    detail: str


class StoreVersionUnsupported(StoreError):
    """the notary database {path} has schema version {found}; this program knows versions up to {known}"""

    reason = "unsupported_version"
    hint = "start the newer program again, or give this one another file under notary.path"
    path: str
    found: int
    known: int


class StoreForeign(StoreError):
    """{path} is an SQLite database of another program"""

    reason = "store_foreign"
    hint = "give another file under notary.path"
    path: str


class DatabaseUnavailable(StoreUnavailable):
    """the notary database {path} cannot be used: {detail}"""

    hint = (
        "does the server run, take connections and writes, and know this role? psql with the same parameters, run by"
        " the same user, says more"
    )


class DatabaseUnsafe(StoreError):
    """the server of the notary database {path} does not keep what it says is stored: {detail}"""

    reason = "store_unsafe"
    hint = "set fsync = on in its configuration; a receipt must survive the loss of power"
    path: str
    detail: str


class ServerUnsupported(StoreError):
    """the server of the notary database {path} is PostgreSQL {found}; this program needs {needed} or newer"""

    reason = "unsupported_version"
    hint = "upgrade the server"
    path: str
    found: int
    needed: int


class SchemaTooNew(StoreVersionUnsupported):
    """the notary database {path} has schema version {found}; this program knows versions up to {known}"""

    hint = "start the newer program again, or give this one another database under notary.database"


class SchemaForeign(StoreForeign):
    """the schema svc_notary of the database {path} belongs to another program"""

    hint = "give another database under notary.database"


class DriverMissing(StoreError):
    """notary.database needs the package psycopg, which cannot be loaded: {detail}"""

    reason = "driver_missing"
    hint = "in the checkout, with the pip of this virtual environment: pip install -c constraints.txt '.[postgresql]'"
    detail: str


class StoreCorrupt(StoreError):
    """the notary database {path} is damaged: {detail}"""

    reason = "store_corrupt"
    hint = (
        "nothing was changed; move {path} and the files {path}-wal and {path}-shm beside it to a safe place "
        "(the sqlite3 shell can read what is left with .dump or .recover), then start again with a new database"
    )
    path: str
    detail: str


class StoreInUse(StoreError):
    """the notary database {path} is in use by another process"""

    reason = "store_in_use"
    hint = "stop the other process, or give this one another file under notary.path"
    path: str
