"""What can go wrong with the broker's database while it is used; at its opening also a DatabaseError of its file."""

from __future__ import annotations

from svc.errors import Reason
from svc.sqlite.errors import DatabaseError


class JournalError(DatabaseError):
    """the broker's database {path} cannot be used: {detail}"""

    reason = "mqtt_store_unavailable"
    hint = "check the disk, its free space and the permissions of {path}"
    reasons = {
        "mqtt_store_busy": Reason(
            "{limit} {unit} already wait for the broker's database",
            "the disk is slower than the clients: use a faster one, or fewer messages with QoS 1 and 2",
            http_status=429,
        ),
        "mqtt_store_late": Reason(
            "the broker's database {path} did not respond within {seconds} s",
            "check what its disk waits for; nothing is acknowledged meanwhile; a start on a slow disk needs a longer"
            " startTimeout",
        ),
        "store_corrupt": Reason(
            "the broker's database {path} was found damaged while in use; nothing more is stored until the next start",
            "restart the broker: it checks the whole database and quarantines it",
        ),
    }


class JournalStuck(JournalError):
    """the broker's database {path} was not closed within {seconds} s"""

    reason = "mqtt_store_late"
    hint = "nothing that was acknowledged is lost; check what its disk waits for"
