"""Whether a peer is still the one whose package was pinned, by the result of the last poll: a table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from svc.envelope.errors import EnvelopeError


class Continuity(Enum):
    """The state of a relationship; the value is the word in status and output."""

    #: The last poll was verified.
    WORKING = "working"
    #: What the peer serves is not verified by the pinned roots, or is older than what was pinned.
    BROKEN = "broken"
    #: The pinned package has expired, and the peer has no newer one.
    EXPIRED = "expired"
    #: The peer serves what cannot be judged here: packages on the way are missing, or it is too new.
    UNVERIFIABLE = "unverifiable"


class Poll(Enum):
    """What came of asking a peer for its package."""

    VERIFIED = "verified"
    #: No package was received.
    UNREACHABLE = "unreachable"
    #: It was refused, for a reason that tells nothing about who made it.
    UNKNOWN = "unknown"
    #: It is by the pinned roots, and has expired.
    STALE = "stale"
    #: It was refused for any other reason.
    REFUSED = "refused"


#: Reasons that are no sign of another peer, and what such a poll is. A refusal for any other reason is a broken one.
_POLLS: Final[Mapping[str, Poll]] = {
    "package_expired": Poll.STALE,
    "packages_missing": Poll.UNKNOWN,
    "package_not_yet_valid": Poll.UNKNOWN,
    "unsupported_version": Poll.UNKNOWN,
    "alg_not_allowed": Poll.UNKNOWN,
    "critical_unknown": Poll.UNKNOWN,
}

#: By the poll, and whether the pinned package has expired; None where the state stays as it was.
TABLE: Final[Mapping[tuple[Poll, bool], Continuity | None]] = {
    (Poll.VERIFIED, False): Continuity.WORKING,
    (Poll.VERIFIED, True): Continuity.WORKING,
    (Poll.UNREACHABLE, False): None,
    (Poll.UNREACHABLE, True): Continuity.EXPIRED,
    (Poll.UNKNOWN, False): Continuity.UNVERIFIABLE,
    (Poll.UNKNOWN, True): Continuity.UNVERIFIABLE,
    (Poll.STALE, False): Continuity.EXPIRED,
    (Poll.STALE, True): Continuity.EXPIRED,
    (Poll.REFUSED, False): Continuity.BROKEN,
    (Poll.REFUSED, True): Continuity.BROKEN,
}


def poll_of(error: EnvelopeError | None) -> Poll:
    """Return what a poll was that received a package; ``error`` is why it was refused, None where it was not."""
    return Poll.VERIFIED if error is None else _POLLS.get(error.reason, Poll.REFUSED)


def after_poll(before: Continuity, poll: Poll, *, pinned_expired: bool) -> Continuity:
    """
    Return the state after a poll.

    Args:
        before: the state before; right after the import it is working.
        poll: what came of it.
        pinned_expired: whether the pinned package has expired; of a verified poll it is the new one.
    """
    return TABLE[poll, pinned_expired] or before
