"""What can be wrong with a database file; errors name the database by the words of its DatabaseKind."""

from __future__ import annotations

from svc.errors import Reason, SvcError


class DatabaseError(SvcError):
    """{database} {path} is in use by another process"""

    reason = "store_in_use"
    hint = "stop the other process, or give this one another file under {key}"
    http_status = 503
    reasons = {
        "store_foreign": Reason(
            "{path} is an SQLite database of another program, not {database}", "give another file under {key}"
        ),
        "unsupported_version": Reason(
            "{database} {path} has schema version {found}; this program supports versions up to {known}",
            "start the newer program again, or give this one another file under {key}",
        ),
    }
    path: str


class DatabaseCorrupt(DatabaseError):
    """{database} {path} is damaged: {detail}"""

    reason = "store_corrupt"
    hint = (
        "nothing was changed; move {path} and the files {path}-wal and {path}-shm beside it to a safe place"
        " (the sqlite3 shell can read what is left with .dump or .recover), then start with a new database: {loss}"
    )
    detail: str


class DatabaseQuarantined(DatabaseCorrupt):
    """{database} {path} was damaged ({detail}) and is quarantined as {quarantined}"""

    hint = "nothing in it was changed; the next start begins a new database: {loss}"
    quarantined: str
