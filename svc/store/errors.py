"""
What can go wrong with a notary store.

What is wrong with the file of the embedded store at its opening is a :class:`svc.sqlite.errors.DatabaseError`.
"""

from __future__ import annotations

from svc.errors import Reason, SvcError


class StoreError(SvcError):
    """the notary store failed"""

    reason = "notary_unavailable"
    http_status = 503
    reasons = {
        "malformed": Reason("the record has a member that no database can hold: {detail}", http_status=500),
        "store_foreign": Reason(
            "the schema svc_notary of the database {path} belongs to another program",
            "give another database under notary.database",
        ),
        "store_unsafe": Reason(
            "the server of the notary database {path} does not keep what it reports as stored: {detail}",
            "set fsync = on in its configuration; a receipt must survive the loss of power",
        ),
        "unsupported_version": Reason(
            "the notary database {path} has schema version {found}; this program supports versions up to {known}",
            "start the newer program again, or give this one another database under notary.database",
        ),
    }


class StoreUnavailable(StoreError):
    """the notary database {path} cannot be used: {detail}"""

    hint = "check the disk, its free space and the permissions of {path}"
    path: str
    detail: str


class DatabaseUnavailable(StoreUnavailable):
    """the notary database {path} cannot be used: {detail}"""

    hint = (
        "does the server run, accept connections and writes, and have this role? psql with the same parameters, run by"
        " the same user, says more"
    )


class ServerUnsupported(StoreError):
    """the server of the notary database {path} is PostgreSQL {found}; this program needs {needed} or newer"""

    reason = "unsupported_version"
    hint = "upgrade the server"


class DriverMissing(StoreError):
    """notary.database needs the package psycopg, which cannot be loaded: {detail}"""

    reason = "driver_missing"
    hint = "in the checkout, with the pip of this virtual environment: pip install -c constraints.txt '.[postgresql]'"


class StoreClosed(StoreError):
    """the notary store is closed"""


class StoreLate(StoreError):
    """the notary database did not report within {seconds} s that the record is stored"""

    hint = "it may be stored all the same; check what the database waits for: its disk, a lock, the network"
    seconds: float
    #: The record, for :meth:`svc.store.interface.INotaryStore.cancel`.
    record: object = None


class StoreStuck(StoreError):
    """the notary database was not closed within {seconds} s"""

    hint = "no acknowledged receipt is lost; check what the database waits for: its disk, a lock, the network"
    seconds: float


class StoreBusy(StoreError):
    """{limit} reads already wait for the notary database"""

    reason = "notary_rate"
    http_status = 429
    limit: int


class SearchesBusy(StoreBusy):
    """{limit} searches already wait for the notary database"""


class Replayed(StoreError):
    """a record with this nonce or id is already stored for {client}"""

    reason = "replayed"
    http_status = 409
    client: str
