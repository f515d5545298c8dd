"""
The reservation of client nonces.

A nonce is taken from the moment its request is let in until its record is stored; from then on the store knows it. Two
requests with one nonce therefore never run at the same time, and never one after the other.
"""

from __future__ import annotations

from twisted.internet.defer import Deferred, fail

from svc.store.errors import Replayed
from svc.store.interface import INotaryStore


class NonceReservations:
    """
    The nonces of running exchanges, beside those that the store knows.

    Args:
        store: where records end up.
    """

    def __init__(self, store: INotaryStore) -> None:
        self._store = store
        self._running: set[tuple[str, str]] = set()

    def reserve(self, client: str, nonce: str) -> Deferred[None]:
        """
        Take a nonce for an exchange that is about to be forwarded.

        Args:
            client: SPIFFE ID of the client as text.
            nonce: as the client sent it.

        Returns:
            Fires when the nonce is taken; fails with Replayed where it was used before, or with another StoreError
            where that cannot be found out. After a failure nothing is taken.
        """
        key = (client, nonce)
        if key in self._running:
            return fail(Replayed(client=client))
        self._running.add(key)

        def answered(known: bool) -> None:
            if known:
                raise Replayed(client=client)

        def not_taken(failure: object) -> object:
            self._running.discard(key)
            return failure

        asked = self._store.nonce_known(client, nonce).addCallback(answered)
        asked.addErrback(not_taken)
        return asked

    def release(self, client: str, nonce: str) -> None:
        """
        Give a nonce back, after its record is stored or where there will be none.

        Args:
            client: as in :meth:`reserve`.
            nonce: as in :meth:`reserve`.
        """
        self._running.discard((client, nonce))
