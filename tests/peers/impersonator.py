"""
A dishonest workload: with a valid SVID of its own, it serves artifacts of another workload.

Owns a tiny mutual TLS server on the reactor of the test, with the notary's paths, and signing of whatever it likes with
the keys it has. What is served is decided by the test.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred, succeed
from twisted.internet.protocol import Factory, Protocol

from svc import naming
from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.identity import SpiffeID, X509Svid, certificate_sha256
from svc.identity.bundle import BundleSet
from svc.notary.access import receipt_location
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import BodySummary, Peer, RecordedExchange, TlsFacts
from svc.notary.facts import WorkloadFacts
from svc.notary.level import Level
from svc.notary.receipt import PayloadWriter, Redaction, sign_receipt, with_disclosures
from svc.notary.statement import Statement, issue_statement
from svc.strictjson import b64u_encode
from svc.transport.creators import server_creator
from svc.transport.endpoints import MutualTlsServerEndpoint, TcpAddress
from svc.transport.evidence import PeerEvidence, peer_evidence
from svc.workload.pqclient import fetch_pq_leaf
from svc.workload.source import WorkloadSource

BODY = b"what you asked for\n"
_FIELDS = ((b"Content-Type", b"text/plain"), (b"Content-Length", str(len(BODY)).encode()))


class Claimed:
    """
    Somebody else's name with a certificate of one's own, for statements that lie.

    Args:
        spiffe_id: the name.
        svid: whose certificate.
    """

    def __init__(self, spiffe_id: SpiffeID, svid: X509Svid) -> None:
        self.spiffe_id = spiffe_id
        self.leaf = svid.leaf


class Identity:
    """
    One of the identities that the Workload API gives to this process; what TLS asks for.

    Args:
        source: the Workload API.
        svid: the identity.
    """

    def __init__(self, source: WorkloadSource, svid: X509Svid) -> None:
        self._source = source
        self.svid = svid

    @property
    def bundles(self) -> BundleSet:
        """The roots that it trusts."""
        return self._source.bundles


class Request:
    """
    A request as the imposter read it.

    Args:
        head: its octets.
        evidence: who sent it.
    """

    def __init__(self, head: bytes, evidence: PeerEvidence) -> None:
        start, *lines = head.split(b"\r\n")
        self.method, self.target, _ = start.decode("latin-1").split(" ")
        self.raw = tuple((name, value.strip()) for name, _, value in (line.partition(b":") for line in lines))
        self.evidence = evidence
        self.received = datetime.now(UTC)

    def get(self, name: str) -> str:
        """Find a field by its name in lower case; empty where it is not there."""
        return next((value.decode("latin-1") for each, value in self.raw if each.decode().lower() == name), "")


class Impersonator:
    """
    The dishonest workload.

    Args:
        reactor: the reactor.
        identity: who it is to TLS.
        generation: its own honest credentials.

    Attributes:
        statement_id: the identifier that its answers name.
        statement: what it serves as that statement.
        receipt: makes what it serves as the receipt of a request; may ask others.
    """

    def __init__(self, reactor: Any, identity: Identity, generation: CredentialSet) -> None:
        self._reactor = reactor
        self._identity = identity
        self.generation = generation
        self.statement_id = generation.statement.id
        self.statement = generation.statement.envelope.serialize()
        self.receipt: Callable[[Request], Deferred[bytes]] = lambda request: succeed(self.signed_receipt(request))
        self.requests: dict[str, Request] = {}

    @classmethod
    async def make(cls, reactor: Any, source: WorkloadSource, svid: X509Svid, pq_address: str) -> Impersonator:
        """
        Make one with honest credentials.

        Args:
            reactor: the reactor.
            source: the Workload API.
            svid: the identity.
            pq_address: the post-quantum issuer.

        Returns:
            The imposter, not yet listening.
        """
        identity = Identity(source, svid)
        leaf = await fetch_pq_leaf(pq_address, svid, identity, reactor, now=lambda: datetime.now(UTC))
        facts = WorkloadFacts.explicit(host_name="imposter")
        return cls(
            reactor, identity, CredentialSet.issue(svid, leaf, facts, Profile.HYBRID, datetime.now(UTC), os.urandom)
        )

    @property
    def signers(self) -> tuple[Signer, ...]:
        """The keys it has."""
        return self.generation.signers

    async def listen(self) -> Any:
        """
        Serve.

        Returns:
            The port.
        """
        creator = server_creator(self._identity, clock=lambda: datetime.now(UTC))
        endpoint = MutualTlsServerEndpoint(self._reactor, TcpAddress("127.0.0.1", 0), creator)
        return await endpoint.listen(Factory.forProtocol(lambda: _Connection(self)))

    # -- What it can sign ---------------------------------------------------------------------------------------------

    def forged_statement(self, spiffe_id: SpiffeID) -> Statement:
        """
        Sign a statement for somebody else, tied to the own key.

        Args:
            spiffe_id: the subject.

        Returns:
            The statement.
        """
        facts = WorkloadFacts.explicit(host_name="imposter")
        claimed = Claimed(spiffe_id, self.generation.svid)
        return issue_statement(claimed, facts, self.signers, datetime.now(UTC), os.urandom)  # type: ignore[arg-type]

    def signed_receipt(
        self,
        request: Request,
        *,
        issuer: SpiffeID | None = None,
        server: Peer | None = None,
        statement_id: str | None = None,
        nonce: str | None = None,
        body: bytes = BODY,
        target: str | None = None,
    ) -> bytes:
        """
        Sign a receipt, honest but for what is given.

        Args:
            request: the request.
            issuer: who it says that signs.
            server: who it says that answered.
            statement_id: the statement that it names.
            nonce: the nonce that it names.
            body: the answer that it describes.
            target: the path that it says was asked for.

        Returns:
            The envelope.
        """
        own, evidence = self.generation, request.evidence
        caller = Peer(evidence.svid.spiffe_id, b64u_encode(evidence.svid.certificate_sha256))
        path, mark, query = (target or request.target).partition("?")
        exchange = RecordedExchange(
            level=Level.SIGN_REQUEST,
            nonce=nonce or request.get("svc-notary-nonce"),
            jti="AAECAwQFBgcICQoLDA0ODw",
            client=caller,
            server=server or Peer(own.spiffe_id, b64u_encode(certificate_sha256(own.svid.leaf))),
            tls=TlsFacts(evidence.tls_version, evidence.group, evidence.cipher, evidence.post_quantum),
            method=request.method,
            scheme="https",
            authority=request.get("host"),
            path=path,
            query=mark + query,
            version="1.1",
            request_headers=request.raw,
            request_body=BodySummary.of(b""),
            request_trailers=(),
            status=200,
            response_headers=_FIELDS,
            response_body=BodySummary.of(body),
            response_trailers=(),
            received=request.received,
            completed=datetime.now(UTC),
        )
        draft = PayloadWriter(Redaction(), os.urandom).write(
            exchange, statement_id or self.statement_id, issuer or own.spiffe_id
        )
        return with_disclosures(sign_receipt(draft, self.signers), draft.disclosures).serialize()


class _Connection(Protocol):
    """One client; its requests come one after the other."""

    def __init__(self, imposter: Impersonator) -> None:
        self._imposter = imposter
        self._buffer = b""

    def dataReceived(self, data: bytes) -> None:
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            ensureDeferred(self._serve(Request(head, peer_evidence(self.transport))))

    async def _serve(self, request: Request) -> None:
        imposter = self._imposter
        if not request.target.startswith(naming.NOTARY_PATH):
            nonce = request.get("svc-notary-nonce")
            imposter.requests[nonce] = request
            names = (
                (naming.HEADER_WORKLOAD_ID, imposter.statement_id),
                (naming.HEADER_LEVEL, request.get("svc-notarization-level")),
                (naming.HEADER_RECEIPT_LOCATION, receipt_location(nonce)),
            )
            added = [(name.encode(), value.encode()) for name, value in names]
            self._answer([*_FIELDS, *added], BODY)
        elif "/statements/" in request.target:
            self._artifact(imposter.statement)
        else:
            first = imposter.requests[request.target.rpartition("/")[2]]
            self._artifact(await imposter.receipt(first))

    def _artifact(self, body: bytes) -> None:
        length = str(len(body)).encode()
        self._answer([(b"Content-Type", b"application/jose+json"), (b"Content-Length", length)], body)

    def _answer(self, fields: list[tuple[bytes, bytes]], body: bytes) -> None:
        lines = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.transport.write(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n" + body)
