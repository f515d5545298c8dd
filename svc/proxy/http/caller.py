"""
Who is at the client's end of a connection: identity, policy decision, notary headers in and out.

Owns everything in which verified clients (inbound) and plain clients of this machine (outbound) differ while a request
is served, and the header lines that are the same for every request of a connection.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol

from svc.envelope.ids import NonceMalformed, new_nonce, parse_nonce
from svc.identity import SpiffeID
from svc.naming import (
    HEADER_FORWARDED_CLIENT,
    HEADER_FORWARDED_PROTO,
    HEADER_LEVEL,
    HEADER_NONCE,
    HEADER_RECEIPT_LOCATION,
    HEADER_WORKLOAD_ID,
)
from svc.notary.access import receipt_location
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import Peer, TlsFacts
from svc.notary.level import Level, LevelUnknown, effective_level
from svc.policy.engine import DEFAULT_DENY, Denied, MatchedRule, Permit
from svc.policy.paths import RequestAmbiguous, plain_host, plain_path
from svc.policy.rules import RequestFacts
from svc.policyfiles.settings import Policies
from svc.proxy.context import level_bounds
from svc.proxy.errors import IdentityGone, LevelInvalid, RequestRefused
from svc.proxy.records.notarizer import attested_client
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.wire.forwarded import ForwardedHop, node, obfuscated
from svc.wire.http1 import RequestHead

if TYPE_CHECKING:
    from svc.proxy.http.context import HttpContext
    from svc.proxy.records.notarizer import Reservation

_LEVEL: Final = HEADER_LEVEL.encode("ascii")
_NONCE: Final = HEADER_NONCE.encode("ascii")
# As keys of :attr:`RequestHead.reserved`.
_LEVEL_KEY: Final = _LEVEL.lower()
_NONCE_KEY: Final = _NONCE.lower()
_WORKLOAD_ID: Final = HEADER_WORKLOAD_ID.encode("ascii")
_RECEIPT_LOCATION: Final = HEADER_RECEIPT_LOCATION.encode("ascii")
_CERTIFICATE_LINE: Final = f"{HEADER_FORWARDED_CLIENT}: By=%b;Hash=%b;URI=%b\r\n".encode("ascii")
_PROTO_LINE: Final = f"{HEADER_FORWARDED_PROTO}: https\r\n".encode("ascii")
# Looking up a member of an enum costs three times what comparing it does.
_NO_LEVEL: Final = Level.NONE
_WORKLOAD: Final = Level.WORKLOAD
#: What policies that do not look at requests decide on.
_NO_REQUEST: Final = RequestFacts()
#: The permit of requests from this machine, which the policies do not decide on.
_OUTBOUND: Final = (MatchedRule("", "outbound listener"),)
_rank: Final = attrgetter("rank")


def asked_level(head: RequestHead) -> Level:
    """Return the level that a request asks for, ``NONE`` without the header; a misspelt one is refused."""
    text = head.reserved.get(_LEVEL_KEY)
    if text is None:
        return Level.NONE
    try:
        level = Level.parse(text.decode("latin-1"))
    except LevelUnknown as error:
        raise LevelInvalid() from error
    if level is Level.NONE:
        raise LevelInvalid()
    return level


def given_nonce(head: RequestHead) -> str | None:
    """Return the nonce of a request; refuse what is not 22 characters of canonical base64url."""
    text = head.reserved.get(_NONCE_KEY)
    if text is None:
        return None
    try:
        return parse_nonce(text.decode("latin-1"))
    except NonceMalformed as error:
        raise RequestRefused("nonce_malformed") from error


def asking_lines(level: Level, nonce: str | None) -> bytes:
    """The header lines that ask a peer for a level, each with CRLF."""
    lines = b"%b: %b\r\n" % (_LEVEL, level.value.encode("ascii"))
    return lines if nonce is None else lines + b"%b: %b\r\n" % (_NONCE, nonce.encode("ascii"))


def notary_lines(statement_id: str, level: Level, receipt_key: str | None) -> bytes:
    """The header lines of a response that name its statement, level and receipt, each with CRLF."""
    lines = b"%b: %b\r\n%b: %b\r\n" % (
        _WORKLOAD_ID,
        statement_id.encode("ascii"),
        _LEVEL,
        level.value.encode("ascii"),
    )
    if receipt_key is None:
        return lines
    return lines + b"%b: %b\r\n" % (_RECEIPT_LOCATION, receipt_location(receipt_key).encode("ascii"))


class RunningExchange(Protocol):
    """An exchange."""

    @property
    def level(self) -> Level:
        """The level in force for it."""


class VerifiedCaller:
    """
    The verified client of an inbound connection.

    ``credentials`` are None where they cannot serve the notary, ``hop`` where requests get no ``Forwarded`` field;
    ``context`` is that of the listener.
    """

    def __init__(
        self,
        evidence: PeerEvidence,
        credentials: CredentialSet | None,
        policies: Policies,
        context: HttpContext,
        hop: ForwardedHop | None = None,
    ) -> None:
        svid = evidence.svid
        self.evidence = evidence
        peer, tls = attested_client(evidence)
        self.credentials = credentials
        #: Until when the credentials serve the notary, in seconds since 1970.
        self.serves_until = _end_of(credentials)
        self.identity: SpiffeID = svid.spiffe_id
        self.text = str(svid.spiffe_id)
        self.peer: Peer | None = peer
        self.tls: TlsFacts | None = tls
        own, digest = str(evidence.own_svid.spiffe_id).encode("ascii"), svid.certificate_sha256.hex().encode("ascii")
        self._constant_lines = _CERTIFICATE_LINE % (own, digest, self.text.encode("ascii")) + _PROTO_LINE
        #: What the proxy adds to every request for the application; empty where that depends on the request.
        self.forwarded_lines = self._constant_lines if hop is None else b""
        self._hop = hop
        # The lines of the last request, since most requests of a connection have the same Host.
        self._host: bytes | None = None
        self._host_lines = b""
        #: What a response at the level ``workload`` contains.
        self.workload_lines = self._lines(_WORKLOAD)
        self._context = context
        self._counted = False
        #: Whether the policies ever permitted a request, or this client after a change.
        self.permitted = False
        self._take(policies)

    def _take(self, policies: Policies) -> None:
        """Narrow the policies to this connection."""
        self._policies = policies
        #: The permit of all requests, where no policy looks at requests and one has been decided on.
        self.connection_permit: Permit | None = None
        #: Set where a deny list refuses this client, the notary's own paths included.
        self.listed = policies.listed(self.evidence.svid)
        self._decision: Permit | Denied | None = self.listed
        self._rules = self._context.narrowed(policies, self.evidence)

    def newest_credentials(self, under_way: RunningExchange | None) -> CredentialSet | None:
        """
        Use the newest credentials with the SVID of the handshake: central statements end long before it.

        The record of an exchange names the statement with which it began.
        """
        newest = self._context.rotation.of_evidence(self.evidence)
        recorded = under_way is not None and under_way.level.recorded
        if newest is not None and newest is not self.credentials and not recorded:
            self.credentials, self.serves_until = newest, _end_of(newest)
            self.workload_lines = self._lines(_WORKLOAD)
        return self.credentials

    def count(self, *, refused: bool = False) -> None:
        """Count the connection once: by the first decision, or at its end where there was none."""
        if not self._counted:
            self._counted = True
            metrics = self._context.metrics
            (metrics.auth_failed if refused else metrics.succeeded).inc()

    def same_identity(self, own: SpiffeID | None) -> bool:
        """Whether this proxy still has the identity that the handshake presented to the client."""
        return self.evidence.own_svid.spiffe_id == own

    def reauthorize(self, under_way: RequestHead | None = None) -> None:
        """
        Authorize the verified client again by the policies of now; ``under_way`` is the request that is served.

        Raises:
            Denied: other policies than before refuse a client that was not refused, or the request that is served.
        """
        policies = self._context.policies
        if policies is not None and policies is not self._policies:
            self._apply(policies, under_way)

    def _apply(self, policies: Policies, under_way: RequestHead | None) -> None:
        was_refused = isinstance(self._decision, Denied)
        self._take(policies)
        try:
            if self.listed is not None:
                raise self.listed
            if not self._rules.depends_on_http:
                decision = self._decide(_NO_REQUEST)
                if isinstance(decision, Denied):
                    raise decision
            elif under_way is not None:
                # Every other request is authorized by itself.
                self._rules.authorize(self._facts(under_way))
        except RequestAmbiguous as error:
            # The policies before did not look at its path or host.
            raise Denied(identity=self.identity, policy=DEFAULT_DENY, rule=DEFAULT_DENY) from error
        except Denied:
            if not was_refused:
                raise

    def permit(self, head: RequestHead) -> Permit:
        """
        Return the permit of a request; count the decision. It holds for the connection where no policy looks at
        requests.

        Raises:
            Denied: with the policy and the rule.
            RequestAmbiguous: the policies look at the path or the host, and it has more than one reading.
        """
        decision, rules = self._decision, self._rules
        if decision is None or rules.observed:
            request = self._facts(head) if rules.depends_on_http or rules.observed else _NO_REQUEST
            if decision is None:
                decision = self._decide(request)
            if rules.observed:
                permitted = isinstance(decision, Permit)
                self._context.observe(rules, request, self.text, head, permitted=permitted)
        self.count(refused=isinstance(decision, Denied))
        if isinstance(decision, Denied):
            # Raised for each request of the connection, it must not collect their tracebacks.
            raise decision.with_traceback(None)
        self._context.metrics.auth_allowed.inc()
        return decision

    def _decide(self, request: RequestFacts) -> Permit | Denied:
        rules = self._rules
        decision: Permit | Denied
        try:
            decision = rules.authorize(request)
            self.permitted = True
        except Denied as denied:
            decision = denied
        if not rules.depends_on_http:
            self._decision = decision
            if isinstance(decision, Permit) and not rules.observed:
                self.connection_permit = decision
        return decision

    def _facts(self, head: RequestHead) -> RequestFacts:
        path: str | None
        host: str | None
        try:
            path = plain_path(head.path)
        except RequestAmbiguous:
            if self._rules.depends_on_path:
                raise
            path = None
        try:
            host = plain_host(head.host.decode("latin-1"))
        except RequestAmbiguous:
            if self._rules.depends_on_host:
                raise
            host = None
        # A misspelt level is refused once the request is permitted.
        asked = head.reserved.get(_LEVEL_KEY, b"none").decode("latin-1")
        return RequestFacts(head.method.decode("latin-1"), path, host, asked)

    def notarization(self, head: RequestHead, permit: Permit) -> tuple[Level, str | None]:
        """
        Return level and nonce of a request with a body or reserved headers, or under a rule with a level; refuse a body
        beyond the limit.
        """
        context = self._context
        limit = context.body_limit
        if limit is not None and head.length is not None and head.length > limit:
            raise RequestRefused("body_too_large", limit=limit)
        asked, nonce = (asked_level(head), given_nonce(head)) if head.reserved else (_NO_LEVEL, None)
        demanded, maximum = context.demanded, context.maximum
        if permit.bounded:
            demanded, maximum = level_bounds(permit, demanded, maximum)
        return effective_level(demanded=demanded, asked=asked, maximum=maximum), nonce

    def request_lines(self, head: RequestHead, random: Callable[[int], bytes]) -> bytes:
        """Return the header lines that the proxy adds to a request for the application."""
        hop = self._hop
        if hop is None:
            return self._constant_lines
        if head.host != self._host:
            self._host = head.host
            self._host_lines = b"%bForwarded: %b\r\n" % (self._constant_lines, hop.value(head.host))
        return self._host_lines

    def response_lines(self, level: Level, reservation: Reservation | None, *, own: bool) -> bytes:
        """
        Return the notary's header lines of a response, each with CRLF.

        The proxy's own answers always name the workload; the application's do from the level ``workload`` on.
        """
        if level is _NO_LEVEL and not own:
            return b""
        if level is _NO_LEVEL or level is _WORKLOAD:
            return self.workload_lines
        signed = reservation is not None and reservation.level is Level.SIGN_REQUEST
        return self._lines(level, reservation.key if reservation is not None and signed else None)

    def _lines(self, level: Level, receipt_key: str | None = None) -> bytes:
        if self.credentials is None:
            return b""
        return notary_lines(self.credentials.statement.id, level, receipt_key)


def _end_of(credentials: CredentialSet | None) -> float:
    return 0.0 if credentials is None else credentials.close_at.timestamp()


class PlainCaller:
    """The application behind an outbound listener: on this machine, without an identity of its own."""

    evidence: PeerEvidence | None = None
    credentials: CredentialSet | None = None
    serves_until = 0.0
    identity: SpiffeID | None = None
    peer: Peer | None = None
    tls: TlsFacts | None = None
    text = ""

    def newest_credentials(self, under_way: RunningExchange | None) -> None:
        """None: the application has no handshake."""

    forwarded_lines = b""
    workload_lines = b""
    connection_permit: Permit | None = None
    listed: Denied | None = None

    def __init__(self, own: Callable[[], SpiffeID | None], demanded: Level = _NO_LEVEL) -> None:
        #: Returns the identity under which the proxy calls the peer, None where it has none.
        self._own = own
        #: What the listener demands of its peer for every request.
        self._demanded = demanded
        self._permit: Permit | None = None
        #: Whether a request was ever forwarded.
        self.permitted = False

    def count(self) -> None:
        """Count nothing: outbound the connections to the peer are counted, by how each ended up."""

    def permit(self, head: RequestHead) -> Permit:
        """Return a permit in the name of the proxy, whom the peer authorizes; inbound rules do not apply."""
        own, permit = self._own(), self._permit
        if own is None:
            raise IdentityGone()
        if permit is None or permit.identity is not own:
            permit = self._permit = Permit(own, _OUTBOUND)
            self.permitted = True
        return permit

    def notarization(self, head: RequestHead, permit: Permit) -> tuple[Level, str | None]:
        """
        Return the level that is demanded of the peer, none where the listener demands nothing; the limit of the body is
        checked while it streams.
        """
        if self._demanded is _NO_LEVEL:
            return _NO_LEVEL, None
        return max(self._demanded, asked_level(head), key=_rank), None

    def same_identity(self, own: SpiffeID | None) -> bool:
        """No identity was presented to a plain client."""
        return True

    def reauthorize(self, under_way: RequestHead | None = None) -> None:
        """A plain client is not authorized; the own identity is read for each of its requests."""

    def request_lines(self, head: RequestHead, random: Callable[[int], bytes]) -> bytes:
        """Issue the application's level anew for the peer's proxy, with a fresh nonce; ignore a misspelt level."""
        if not head.reserved:
            return b""
        try:
            level = asked_level(head)
        except LevelInvalid:
            return b""
        if level is Level.NONE:
            return b""
        return asking_lines(level, new_nonce(random(16)) if level.recorded else None)

    def response_lines(self, level: Level, reservation: Reservation | None, *, own: bool) -> bytes:
        """Add nothing: the notary of an outbound connection is the peer's."""
        return b""


Caller = VerifiedCaller | PlainCaller


def connected_caller(context: HttpContext, transport: Any) -> Caller:
    """Return who is at the other end of a new connection; the direction of the listener decides it here alone."""
    if context.policies is None:
        return PlainCaller(lambda: context.rotation.identity, context.demanded)
    evidence = peer_evidence(transport)
    hop: ForwardedHop | None = None
    if context.forwarded:
        peer = transport.getPeer()
        client = node(getattr(peer, "host", None), getattr(peer, "port", None))
        hop = ForwardedHop(client, obfuscated(context.name), b"https")
    return VerifiedCaller(evidence, context.rotation.of_evidence(evidence), context.policies, context, hop)
