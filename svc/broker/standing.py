"""
Whether a client that was let in by its SVID may stay.

Owns the judgement of open connections when credentials change and when time passes; how a connection ends, it knows
itself. The handshake's own judgement is made in :mod:`svc.transport`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from svc.identity import verify_svid
from svc.transport.evidence import PeerEvidence
from svc.workload.errors import IdentityWithdrawn
from svc.workload.interface import CredentialSource


@dataclass(frozen=True, slots=True)
class Standing:
    """
    Judges verified clients again.

    Args:
        source: the broker's own credentials and the bundles in force.
        wall: the time, aware.
    """

    source: CredentialSource
    wall: Callable[[], datetime]

    def after_change(self, evidence: PeerEvidence) -> None:
        """
        Judge both sides by what is in force now.

        Args:
            evidence: what the handshake proved.

        Raises:
            CredentialsMissing: the identity that the client was shown is not the broker's any more.
            SvidInvalid: the client's SVID would now be refused.
        """
        shown, own = evidence.own_svid.spiffe_id, self.source.svid.spiffe_id
        if shown != own:
            raise IdentityWithdrawn(socket="in use", spiffe_id=shown, what=f"it issues {own} now")
        svid = evidence.svid
        # It was valid when it was accepted: a clock that was set back meanwhile revokes nothing.
        verify_svid(svid.chain[:-1], self.source.bundles, max(self.wall(), svid.begun))

    def after_time(self, evidence: PeerEvidence) -> None:
        """
        Judge whether the client's SVID has come to its end; cheap, for every second.

        Args:
            evidence: what the handshake proved.

        Raises:
            SvidInvalid: it has.
        """
        if self.wall() > evidence.svid.not_after:
            self.after_change(evidence)
