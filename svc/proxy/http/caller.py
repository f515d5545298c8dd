"""
Who is at the client's end of a connection, and the field lines that follow from it.

Owns the identity, the credentials of the connection, the one question to the policy, and the lines that are the same
for every request of the connection. Knows no sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from svc.identity import SpiffeID
from svc.naming import HEADER_FORWARDED_CLIENT, HEADER_LEVEL, HEADER_NONCE, HEADER_RECEIPT_LOCATION, HEADER_WORKLOAD_ID
from svc.notary.access import receipt_location
from svc.notary.exchange import Peer, TlsFacts
from svc.notary.generation import Generation
from svc.notary.ids import new_nonce
from svc.notary.level import Level
from svc.policy import AccessRequest, Denied, Permit, Policy
from svc.proxy.errors import LevelInvalid
from svc.proxy.http.wishes import asked_level
from svc.strictjson import b64u_encode
from svc.transport.evidence import PeerEvidence
from svc.wire.http1 import RequestHead

if TYPE_CHECKING:
    from svc.proxy.notarizer import Ticket
    from svc.telemetry.children import ListenerMetrics


class VerifiedCaller:
    """
    The verified client of an inbound connection.

    Args:
        evidence: what the handshake proved.
        generation: the credentials that this side presented; None where they cannot serve the notary.
        policy: who is admitted.
        metrics: counts decisions.
    """

    def __init__(
        self, evidence: PeerEvidence, generation: Generation | None, policy: Policy, metrics: ListenerMetrics
    ) -> None:
        svid = evidence.svid
        self.evidence = evidence
        self.generation = generation
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
        self._level_lines: dict[Level, bytes] = {}

    @property
    def refused(self) -> bool:
        """Whether the policy has refused this client for the whole connection."""
        return isinstance(self._decision, Denied)

    def permit(self, head: RequestHead) -> Permit:
        """
        Ask the policy; one answer serves the whole connection where the policy does not look at requests.

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
                self._metrics.auth_allowed.inc()
            except Denied as denied:
                decision = denied
            if not self._policy.looks_at_requests:
                self._decision = decision
        if isinstance(decision, Denied):
            raise decision
        return decision

    def request_lines(self, head: RequestHead, random: Callable[[int], bytes]) -> bytes:
        """Say what the proxy adds to a request for the application: lines with CRLF, the same for every request."""
        return self.forwarded_lines

    def response_lines(self, level: Level, ticket: Ticket | None, *, own: bool) -> bytes:
        """
        Write the notary's field lines of a response.

        Args:
            level: the level in force.
            ticket: the admission of a recorded exchange.
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
        if ticket is not None and ticket.level is Level.SIGN_REQUEST:
            location = receipt_location(ticket.key).encode("ascii")
            lines += b"%b: %b\r\n" % (HEADER_RECEIPT_LOCATION.encode("ascii"), location)
        return lines

    def _lines(self, level: Level) -> bytes:
        if self.generation is None:
            return b""
        return b"%b: %b\r\n%b: %b\r\n" % (
            HEADER_WORKLOAD_ID.encode("ascii"),
            self.generation.statement.id.encode("ascii"),
            HEADER_LEVEL.encode("ascii"),
            level.value.encode("ascii"),
        )


class PlainCaller:
    """
    The application behind an outbound listener: on this machine, without an identity of its own.

    Args:
        own: the identity under which the proxy calls the peer.
    """

    evidence: PeerEvidence | None = None
    generation: Generation | None = None
    identity: SpiffeID | None = None
    peer: Peer | None = None
    tls: TlsFacts | None = None
    text = ""
    refused = False

    def __init__(self, own: SpiffeID) -> None:
        self._permit = Permit(own, "outbound listener")

    def permit(self, head: RequestHead) -> Permit:
        """Inbound rules do not apply; the peer decides on us."""
        return self._permit

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

    def response_lines(self, level: Level, ticket: Ticket | None, *, own: bool) -> bytes:
        """The notary of an outbound connection is the peer's; here nothing is said."""
        return b""


Caller = VerifiedCaller | PlainCaller
