"""The keys with which the manager signs statements: its SVID, and the post-quantum leaf of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import SpiffeID, X509Svid
from svc.notary.credentials import signing_keys
from svc.notary.pqleaf import PqLeaf
from svc.transport.creators import TlsIdentity

#: How long a statement is valid at most.
LIFE: Final = timedelta(minutes=10)


class SigningKeysMissing(SvcError):
    """the manager cannot sign statements: {what}"""

    reason = "statement_unsigned"
    hint = "see whether the manager has its SVID, and the post-quantum issuer gives it a leaf"
    http_status = 503


@dataclass(frozen=True)
class SigningKeys:
    """The keys beside one SVID; ``expires`` is the earliest end of their certificates."""

    svid: X509Svid
    signers: tuple[Signer, ...]
    expires: datetime

    @property
    def issuer(self) -> SpiffeID:
        """Who signs."""
        return self.svid.spiffe_id


class ManagerKeys:
    """
    Has the keys for the SVID that the manager has now, and until they can be made those of the one before.

    Args:
        identity: the manager's.
        obtain_leaf: fetches the post-quantum leaf of an SVID.
        now: returns the time, aware.
    """

    def __init__(
        self, identity: TlsIdentity, obtain_leaf: Callable[[X509Svid], Awaitable[PqLeaf]], now: Callable[[], datetime]
    ) -> None:
        self._identity = identity
        self._obtain_leaf = obtain_leaf
        self._now = now
        self._keys: SigningKeys | None = None
        self._making = asyncio.Lock()

    async def current(self) -> SigningKeys:
        """
        Return the keys.

        Raises:
            SigningKeysMissing: there are none.
        """
        async with self._making:
            try:
                svid = self._identity.svid
                if self._keys is None or self._keys.svid.leaf != svid.leaf or self._ends_before(svid):
                    leaf = await self._obtain_leaf(svid)
                    signers = signing_keys(svid, leaf, Profile.HYBRID)
                    self._keys = SigningKeys(svid, signers, min(leaf.not_after, svid.chain_not_after))
            except SvcError as error:
                if self._keys is None or self._keys.expires - self._now() < LIFE:
                    raise SigningKeysMissing(what=str(error)) from error
            return self._keys

    def _ends_before(self, svid: X509Svid) -> bool:
        """Whether the leaf ends soon, and before its SVID: its root does."""
        keys = self._keys
        return keys is not None and keys.expires < svid.chain_not_after and keys.expires - self._now() < 2 * LIFE
