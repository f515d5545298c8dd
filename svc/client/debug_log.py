"""
Debug records of an exchange for ``-v 1`` and ``--log-devel``: requests, addresses and verified certificate chains.

What may be secret is left out: values of fields, bodies, and the query of a URL.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from cryptography import x509
from twisted.logger import Logger

from svc.identity.algorithms import certificate_sha256
from svc.identity.verification import SvidEvidence

if TYPE_CHECKING:
    from svc.notary.receiptcheck import ReceiptEvidence
    from svc.notary.statement import StatementEvidence
    from svc.transport.evidence import PeerEvidence

_log = Logger(namespace="svc.cli")
_END_OF_HEAD: Final = b"\r\n\r\n"


def request_sent(request: bytes, address: object) -> None:
    """Log the first line, the names of the fields and the size of the body of a request."""
    head_size = request.index(_END_OF_HEAD)
    line, *fields = request[:head_size].decode("latin-1").split("\r\n")
    method, target, version = line.split(" ")
    path, question, _query = target.partition("?")
    _log.debug(
        "sent to {address}: {line}; fields: {names}; {size} octets of body",
        address=address_text(address),
        line=f"{method} {path}{'?[left out]' if question else ''} {version}",
        names=", ".join(field.partition(":")[0] for field in fields),
        size=len(request) - head_size - len(_END_OF_HEAD),
    )


def head_received(status: int, names: Iterable[bytes]) -> None:
    """Log the status and the names of the fields of a response."""
    _log.debug(
        "received: {status}; fields: {names}", status=status, names=", ".join(name.decode("latin-1") for name in names)
    )


def connecting(server: str, expected: object) -> None:
    """Log an attempt to connect, with the identities that are accepted; None without TLS."""
    if expected is None:
        _log.debug("connecting to {server} without TLS", server=server)
    else:
        _log.debug(
            "connecting to {server} with mutual TLS, expecting {expected}", server=server, expected=str(expected)
        )


def connected(address: object, peer: PeerEvidence | None) -> None:
    """Log an open connection and the certificate chain by which the server was verified."""
    if peer is None:
        _log.debug("connected to {address}", address=address_text(address))
        return
    _log.debug(
        "connected to {address}: TLS {version}, {group}, {cipher}; server {server}, own identity {own}",
        address=address_text(address),
        version=peer.tls_version,
        group=peer.group,
        cipher=peer.cipher,
        server=str(peer.svid.spiffe_id),
        own=str(peer.own_svid.spiffe_id),
    )
    _log_chain("server", peer.svid)


def verified(artifact: str, evidence: StatementEvidence | ReceiptEvidence) -> None:
    """Log the signatures by which a statement or a receipt was verified, and their certificate chains."""
    found = evidence.envelope_evidence
    _log.debug(
        "verified the {artifact} {id} of {issuer} by the profile {profile}",
        artifact=artifact,
        id=evidence.id,
        issuer=str(found.issuer),
        profile=found.profile.value,
    )
    for chain in (found.classical, found.pq):
        if chain is not None:
            _log_chain(f"{chain.algorithm.jose} signature of the {artifact}", chain)


def address_text(address: object) -> str:
    """Format what ``getPeer`` returns as host and port, such as ``127.0.0.1:8443`` or ``[::1]:8443``."""
    host, port = getattr(address, "host", None), getattr(address, "port", None)
    if host is None:
        return str(address)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _log_chain(what: str, evidence: SvidEvidence) -> None:
    last = len(evidence.chain)
    for number, certificate in enumerate(evidence.chain, 1):
        _log.debug(
            "certificate chain of the {what}, {number} of {last}: {certificate}",
            what=what,
            number=number,
            last=last,
            certificate=_certificate_text(certificate, evidence, root=number == last),
        )


def _certificate_text(certificate: x509.Certificate, evidence: SvidEvidence, *, root: bool) -> str:
    name = f"root of {evidence.spiffe_id.trust_domain}" if root else certificate.subject.rfc4514_string()
    shown = evidence.spiffe_id if certificate is evidence.leaf else name or "an intermediate without a name"
    begin = certificate.not_valid_before_utc.isoformat(timespec="seconds")
    end = certificate.not_valid_after_utc.isoformat(timespec="seconds")
    return f"{shown}, SHA-256 {certificate_sha256(certificate).hex()}, valid from {begin} to {end}"
