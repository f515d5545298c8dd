"""What can go wrong with the broker's database: the errors of any embedded database, in the words of this one."""

from __future__ import annotations

from typing import Final

from svc.store.damage import StoreSetAside
from svc.store.errors import (
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreForeign,
    StoreInUse,
    StoreLate,
    StoreStuck,
    StoreUnavailable,
    StoreVersionUnsupported,
)


class PersistenceUnavailable(StoreUnavailable):
    """the broker's database {path} cannot be used: {detail}"""

    reason = "mqtt_store_unavailable"
    hint = "check the disk, its free space and the permissions of {path}"


class PersistenceBusy(StoreBusy):
    """{limit} {unit} already wait for the broker's database"""

    reason = "mqtt_store_busy"
    hint = "the disk is slower than the clients: use a faster one, or fewer messages with QoS 1 and 2"
    unit: str


class PersistenceLate(StoreLate):
    """the broker's database did not say within {seconds} s that what it got is safe"""

    reason = "mqtt_store_late"
    hint = "look at what its disk waits for; nothing is acknowledged meanwhile"


class PersistenceStuck(StoreStuck):
    """the broker's database {path} was not closed within {seconds} s"""

    reason = "mqtt_store_late"
    hint = "nothing that was acknowledged is lost; look at what its disk waits for"
    path: str


class PersistenceSilent(StoreLate):
    """the broker's database {path} was opened for {seconds} s and its disk gave nothing"""

    reason = "mqtt_store_late"
    hint = "look at what its disk waits for; one that is slow and no more needs a longer startTimeout"
    path: str


class PersistenceDamaged(StoreCorrupt):
    """the broker's database {path} was found damaged while it was in use; nothing more is kept until a new start"""

    hint = "start the broker anew: it looks at the whole database and sets it aside"


class PersistenceVersionUnsupported(StoreVersionUnsupported):
    """the broker's database {path} has schema version {found}; this program knows versions up to {known}"""

    hint = "start the newer program again, or give this one another file under persistence.path"


class PersistenceForeign(StoreForeign):
    """{path} is an SQLite database that is not the broker's"""

    hint = "give another file under persistence.path"


class PersistenceCorrupt(StoreCorrupt):
    """the broker's database {path} is damaged: {detail}"""

    hint = (
        "nothing was changed; move {path} and the files {path}-wal and {path}-shm beside it to a safe place, then start"
        " again with a new database: sessions and messages begin anew"
    )


class PersistenceSetAside(StoreSetAside):
    """the broker's database {path} was damaged ({detail}) and is set aside as {aside}"""

    hint = "nothing in it was changed; the next start begins a new database: sessions and messages begin anew"


class PersistenceInUse(StoreInUse):
    """the broker's database {path} is in use by another process"""

    hint = "stop the other process, or give this one another file under persistence.path"


_OURS: Final[dict[type[StoreError], type[StoreError]]] = {
    StoreUnavailable: PersistenceUnavailable,
    StoreVersionUnsupported: PersistenceVersionUnsupported,
    StoreForeign: PersistenceForeign,
    StoreCorrupt: PersistenceCorrupt,
    StoreSetAside: PersistenceSetAside,
    StoreInUse: PersistenceInUse,
}


def in_our_words(error: StoreError) -> StoreError:
    """
    Say an error of an embedded database as one of the broker's.

    Args:
        error: what the opening raised.

    Returns:
        The error to raise; the same where it speaks of no database in particular.
    """
    ours = _OURS.get(type(error))
    return error if ours is None else ours(**error.evidence)
