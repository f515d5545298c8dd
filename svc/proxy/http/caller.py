"""
Who is at the client's end of a connection, and the field lines that follow from it.

Owns the identity, the credentials of the connection, the one question to the policy, and the lines that are the same
for every request of the connection. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from svc.identity import BundleSet, SpiffeID
from svc.naming import HEADER_FORWARDED_CLIENT, HEADER_LEVEL, HEADER_NONCE, HEADER_RECEIPT_LOCATION, HEADER_WORKLOAD_ID
from svc.notary.access import receipt_location
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import Peer, TlsFacts
from svc.notary.ids import new_nonce
from svc.notary.level import Level
from svc.policy import AccessRequest, Denied, Permit, Policy
from svc.proxy.errors import IdentityGone, LevelInvalid
from svc.proxy.http.notary_headers import asked_level
from svc.strictjson import b64u_encode
from svc.transport.evidence import PeerEvidence
from svc.wire.http1 import RequestHead

if TYPE_CHECKING:
    from svc.proxy.notarizer import Reservation
    from svc.telemetry.metrics import ListenerMetrics


class VerifiedCaller:
    """
    The verified client of an inbound connection.

    Args:
        evidence: what the handshake proved.
        credentials: the credentials that this side presented; None where they cannot serve the notary.
        policy: who is admitted.
        metrics: counts decisions.
    """

    def __init__(
        self, evidence: PeerEvidence, credentials: CredentialSet | None, policy: Policy, metrics: ListenerMetrics
    ) -> None:
        svid = evidence.svid
        self.evidence = evidence
        self.credentials = credentials
        self.identity: SpiffeID = svid.spiffe_id
        self.text = str(svid.spiffe_id)
        self.peer: Peer | None = Peer(svid.spiffe_id, b64u_encode(svid.certificate_sha256))
        self.tls: TlsFacts | None = TlsFacts(
            evidence.tls_version, evidence.group, evidence.cipher, evidence.post_quantum
        )
        #: What the proxy adds to every request for the application.
        self.forwarded_lines = b"%b: By=%b;Hash=%b;URI=%b\r\n" % (
            HEADER_FORWARDED_CLIENT.encode("ascii"),
            str(evidence.own_svid.spiffe_id).encode("ascii"),
            svid.certificate_sha256.hex().encode("ascii"),
            self.text.encode("ascii"),
        )
        self._policy = policy
        self._metrics = metrics
        self._decision: Permit | Denied | None = None
        self._counted = False
        self._level_lines: dict[Level, bytes] = {}
        #: Whether the policy ever permitted a request, or this client after a change.
        self.permitted = False

    def count(self, *, refused: bool = False) -> None:
        """
        Count the connection: by the first decision, or at its end where there was none.

        Args:
            refused: whether the policy refused.
        """
        if not self._counted:
            self._counted = True
            (self._metrics.auth_failed if refused else self._metrics.succeeded).inc()

    def same_identity(self, own: SpiffeID | None) -> bool:
        """
        Say whether it is still us whom the client connected to.

        Args:
            own: who this proxy is now, None where it has no identity.

        Returns:
            True where this is whom the handshake showed to the client.
        """
        return self.evidence.own_svid.spiffe_id == own

    def reauthorize(self, bundles: BundleSet, wall: datetime, own: SpiffeID | None, policy: Policy | None) -> None:
        """
        Judge both sides by what is in force now.

        Args:
            bundles: the bundles.
            wall: the time.
            own: who this proxy is, None where it has no identity.
            policy: who is admitted.

        Raises:
            IdentityGone: the connection was made under another identity of ours.
            SvidInvalid: the client's SVID would now be refused.
            Denied: another policy than before refuses a client that was not refused.
        """
        if not self.same_identity(own):
            raise IdentityGone()
        self.evidence.reauthorize(bundles, wall)
        if policy is not None and policy is not self._policy:
            self._take_policy(policy)

    def _take_policy(self, policy: Policy) -> None:
        was_refused = isinstance(self._decision, Denied)
        self._policy, self._decision = policy, None
        if policy.depends_on_request:
            # Each request asks it by itself.
            return
        try:
            self._decision = policy.authorize(AccessRequest(self.identity))
            self.permitted = True
        except Denied as denied:
            self._decision = denied
            if not was_refused:
                raise

    def permit(self, head: RequestHead) -> Permit:
        """
        Ask the policy; one answer serves the whole connection where the policy does not look at requests. Each request
        that is let in is counted.

        Args:
            head: the request.

        Returns:
            The permit.

        Raises:
            Denied: the policy denies.
        """
        decision = self._decision
        if decision is None:
            request = AccessRequest(self.identity, head.method.decode("latin-1"), head.path.decode("latin-1"))
            try:
                decision = self._policy.authorize(request)
                self.permitted = True
            except Denied as denied:
                decision = denied
            if not self._policy.depends_on_request:
                self._decision = decision
            self.count(refused=isinstance(decision, Denied))
        if isinstance(decision, Denied):
            raise decision
        self._metrics.auth_allowed.inc()
        return decision

    def request_lines(self, head: RequestHead, random: Callable[[int], bytes]) -> bytes:
        """Say what the proxy adds to a request for the application: lines with CRLF, the same for every request."""
        return self.forwarded_lines

    def response_lines(self, level: Level, reservation: Reservation | None, *, own: bool) -> bytes:
        """
        Write the notary's field lines of a response.

        Args:
            level: the level in force.
            reservation: the admission of a recorded exchange.
            own: whether the answer is the proxy's own; those always name the workload, which is the level ``workload``.

        Returns:
            Lines with CRLF; empty for the application's answers without a level.
        """
        if level is Level.NONE:
            if not own:
                return b""
            level = Level.WORKLOAD
        lines = self._level_lines.get(level)
        if lines is None:
            lines = self._lines(level)
            self._level_lines[level] = lines
        if reservation is not None and reservation.level is Level.SIGN_REQUEST:
            location = receipt_location(reservation.key).encode("ascii")
            lines += b"%b: %b\r\n" % (HEADER_RECEIPT_LOCATION.encode("ascii"), location)
        return lines

    def _lines(self, level: Level) -> bytes:
        if self.credentials is None:
            return b""
        return b"%b: %b\r\n%b: %b\r\n" % (
            HEADER_WORKLOAD_ID.encode("ascii"),
            self.credentials.statement.id.encode("ascii"),
            HEADER_LEVEL.encode("ascii"),
            level.value.encode("ascii"),
        )


class PlainCaller:
    """
    The application behind an outbound listener: on this machine, without an identity of its own.

    Args:
        own: tells the identity under which the proxy calls the peer, None where it has none.
    """

    evidence: PeerEvidence | None = None
    credentials: CredentialSet | None = None
    identity: SpiffeID | None = None
    peer: Peer | None = None
    tls: TlsFacts | None = None
    text = ""

    def __init__(self, own: Callable[[], SpiffeID | None]) -> None:
        self._own = own
        self._permit: Permit | None = None
        #: Whether a request was ever forwarded.
        self.permitted = False

    def count(self) -> None:
        """Count nothing: outbound the connections to the peer are counted, by how each ended up."""

    def permit(self, head: RequestHead) -> Permit:
        """
        Inbound rules do not apply; the peer decides on us.

        Args:
            head: the request.

        Returns:
            The permit, in the name of the proxy.

        Raises:
            IdentityGone: the proxy has no identity any more.
        """
        own, permit = self._own(), self._permit
        if own is None:
            raise IdentityGone()
        if permit is None or permit.identity is not own:
            permit = self._permit = Permit(own, "outbound listener")
            self.permitted = True
        return permit

    def same_identity(self, own: SpiffeID | None) -> bool:
        """A plain client was shown no identity."""
        return True

    def reauthorize(self, bundles: BundleSet, wall: datetime, own: SpiffeID | None, policy: Policy | None) -> None:
        """There is nothing to judge in a plain client; each of its requests asks who we are."""

    def request_lines(self, head: RequestHead, random: Callable[[int], bytes]) -> bytes:
        """
        Issue the application's wish anew for the peer's proxy, with a fresh nonce.

        Args:
            head: the request; its own wish is consumed here, so what it spells wrong is no wish.
            random: gives secure random octets.

        Returns:
            Lines with CRLF; empty without a wish.
        """
        try:
            level = asked_level(head)
        except LevelInvalid:
            return b""
        if level is Level.NONE:
            return b""
        lines = b"%b: %b\r\n" % (HEADER_LEVEL.encode("ascii"), level.value.encode("ascii"))
        if level.recorded:
            lines += b"%b: %b\r\n" % (HEADER_NONCE.encode("ascii"), new_nonce(random(16)).encode("ascii"))
        return lines

    def response_lines(self, level: Level, reservation: Reservation | None, *, own: bool) -> bytes:
        """The notary of an outbound connection is the peer's; here nothing is said."""
        return b""


Caller = VerifiedCaller | PlainCaller
