"""What the hub decided about a connection, and its greeting waits for."""

from __future__ import annotations

from dataclasses import dataclass

from svc.broker.session import Session


@dataclass(frozen=True, slots=True)
class Admission:
    """
    What became of a CONNECT.

    Args:
        session: the session.
        present: whether it was there before.
        expiry: seconds that it outlives its connection; None is for ever.
        recorded: whether it concerns a session that lasts, or lasted, so that it must be safe before it is told.
    """

    session: Session
    present: bool
    expiry: int | None
    recorded: bool
