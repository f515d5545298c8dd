"""What clients are refused because their identity has most of something that all share: sessions, connections."""

from __future__ import annotations

from svc.broker.errors import BrokerError
from svc.shares import SCARCE_PART, Holdings, fits_left


def check_share(reason: str, holdings: Holdings[str], owner: str, limit: int) -> None:
    """
    Check that an owner may have one more of ``limit``, see :func:`svc.shares.fits_left`.

    Raises:
        BrokerError: it may not; the error has ``reason`` and names who has most.
    """
    held = holdings.held(owner)
    if not fits_left(held, 1, limit - holdings.total, limit // SCARCE_PART):
        most = holdings.most() or ""
        raise BrokerError(
            reason, taken=holdings.total, limit=limit, held=held, most=most, most_held=holdings.held(most)
        )
