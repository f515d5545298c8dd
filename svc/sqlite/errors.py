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


class JournalError(DatabaseError):
    """{database} {path} cannot be used: {detail}"""

    reason = "mqtt_store_unavailable"
    hint = "check the disk, its free space and the permissions of {path}"
    reasons = {
        "mqtt_store_busy": Reason(
            "{limit} {unit} already wait for {database}",
            "the disk is slower than the clients: use a faster one, or fewer messages with QoS 1 and 2",
            http_status=429,
        ),
        "mqtt_store_late": Reason(
            "{database} {path} did not respond within {seconds} s",
            "check what its disk waits for; nothing is acknowledged meanwhile; a start on a slow disk needs a longer"
            " startTimeout",
        ),
        "store_corrupt": Reason(
            "{database} {path} was found damaged while in use; nothing more is stored until the next start",
            "restart the process: it checks the whole database and quarantines it",
        ),
    }


class JournalStuck(JournalError):
    """{database} {path} was not closed within {seconds} s"""

    reason = "mqtt_store_late"
    hint = "nothing that was acknowledged is lost; check what its disk waits for"
