"""The log records of the authority, with a limit on refusals."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from cryptography import x509
from grpclib.const import Status
from twisted.logger import Logger, LogLevel

from svc.authority.attestation import Caller
from svc.errors import SvcError
from svc.federation.fingerprint import Fingerprint
from svc.federation.payload import PackageContent
from svc.identity.certificate import CertificateFacts
from svc.identity.errors import SvidInvalid
from svc.identity.rules import check_leaf
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.process.status import IssuedCounts
from svc.telemetry.log_limits import RecordLimiter
from svc.transport.errors import PeerDenied, PeerSvidInvalid, TransportError
from svc.transport.observer import NullObserver, Role

#: One record a second for each kind of refusal by one user.
REFUSAL_SECONDS: Final = 1.0
_MAX_KINDS: Final = 1024
#: Nodes that are named in one record.
MAX_NAMES: Final = 20
#: Handshakes that end because of who the peer is.
_REFUSED: Final = frozenset({PeerDenied.reason, PeerSvidInvalid.reason})


class AuthorityLog:
    """
    Writes the log records of the Workload API and of the PQ issuer, and counts what was issued and refused.

    ``seconds`` is the monotonic clock of the limit on refusals. ``issued`` and ``refusals`` count since the start, the
    latter by precise reason and also those that the limit keeps out of the log.
    """

    log = Logger()

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._limiter = RecordLimiter(REFUSAL_SECONDS, _MAX_KINDS)
        self.issued = IssuedCounts(0, 0, 0)
        self.refusals: Counter[str] = Counter()

    def granted(self, caller: Caller, call: str, identities: tuple[SpiffeID, ...]) -> None:
        """Log issued SVIDs; bundles are public and not logged."""
        if call not in ("FetchX509SVID", "FetchJWTSVID"):
            return
        self._count(**{"x509" if call == "FetchX509SVID" else "jwt": len(identities)})
        for identity in identities:
            self.record(
                "svc.authority.svid.issued",
                {"peer_spiffe_id": str(identity)},
                {"call": call, "uid": caller.uid, "gid": caller.gid, "pid": caller.pid},
            )

    def refused(self, caller: Caller | None, call: str, status: Status, detail: str) -> None:
        uid = -1 if caller is None else caller.uid
        attributes: dict[str, object] = {"call": call, "status": status.name}
        if caller is not None:
            attributes |= {"uid": uid, "gid": caller.gid, "pid": caller.pid, "executable": caller.executable or ""}
        self._refusal(uid, status.name, {"detail_reason": status.name.lower(), "detail": detail}, attributes)

    def leaf_issued(self, leaf: x509.Certificate) -> None:
        self._count(pq_leaves=1)
        try:
            name = str(check_leaf(CertificateFacts.read(leaf)))
        except SvidInvalid as error:
            name = error.reason
        self.record("svc.authority.pq_leaf.issued", {"peer_spiffe_id": name}, {})

    def leaf_refused(self, error: SvcError, caller: SpiffeID | int | None) -> None:
        """
        Log a refusal; ``caller`` is the identity over TLS, the user on a Unix socket, or None if neither is known.
        """
        fields = {"detail_reason": error.reason, "detail": str(error)}
        attributes: dict[str, object] = {"call": "pq-leaf"}
        if isinstance(caller, SpiffeID):
            fields["peer_spiffe_id"] = str(caller)
        elif caller is not None:
            attributes["uid"] = caller
        self._refusal(caller, error.reason, fields, attributes)

    def handshake_refused(self, error: TransportError, address: str) -> None:
        """Log a TLS peer whose certificate was refused."""
        fields = {"detail_reason": error.detail, "detail": f"the certificate of {address} is refused"}
        if error.peer_spiffe_id:
            fields["peer_spiffe_id"] = error.peer_spiffe_id
        elif error.claimed_spiffe_id:
            fields["claimed_spiffe_id"] = error.claimed_spiffe_id
        self._refusal(None, error.detail, fields, {"call": "pq-leaf"})

    def nodes_behind(self, names: Sequence[str]) -> None:
        """Log the nodes that do not have the root that begins to sign, if there are any."""
        if names:
            more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
            detail = f"{', '.join(names[:MAX_NAMES])}{more} serve no bundle with it: leaves below it are refused there"
            self.record("svc.authority.nodes.behind", {"detail": detail}, {"nodes": len(names)}, warn=True)

    def federated(self, trust_domain: TrustDomain, path: str) -> None:
        """Log that the roots of a federated trust domain were read from a file."""
        self.record("svc.authority.federated", {}, {"trust_domain": str(trust_domain), "path": path})

    def roots_begun(self, trust_domain: TrustDomain, fingerprint: Fingerprint) -> None:
        """Log that there were no federation roots, and new ones were made."""
        attributes: dict[str, object] = {"trust_domain": trust_domain.name, "fingerprint": fingerprint.grouped}
        self.record("svc.authority.federation.begun", {}, attributes, warn=True)

    def peer_pinned(self, content: PackageContent, before: Fingerprint | None, result: str) -> None:
        """Log that the federation roots of a peer were pinned, with their fingerprint and the one before."""
        attributes = {
            "trust_domain": content.trust_domain.name,
            "fingerprint": content.fingerprint.grouped,
            "previous_fingerprint": "" if before is None else before.grouped,
            "sequence": content.sequence,
            "result": result,
        }
        self.record("svc.authority.peer.pinned", {}, attributes)

    def federation_refused(self, error: SvcError, caller: SpiffeID | int | None) -> None:
        """Log a refusal at the federation socket; ``caller`` is the user, None where it is not known."""
        fields = {"detail_reason": error.reason, "detail": str(error)}
        attributes: dict[str, object] = {"call": "federation"}
        if caller is not None:
            attributes["uid"] = caller if isinstance(caller, int) else str(caller)
        self._refusal(caller, error.reason, fields, attributes)

    def file_refused(self, path: str, error: SvcError) -> None:
        """Log a file that is not used."""
        fields = {"detail_reason": error.reason, "detail": str(error)}
        self.record("svc.workload.update.rejected", fields, {"path": path}, warn=True)

    def record(self, event: str, fields: dict[str, str], attributes: dict[str, object], *, warn: bool = False) -> None:
        """Write a record with a registered event name."""
        level = LogLevel.warn if warn else LogLevel.info
        self.log.emit(level, None, svc_event=event, svc_fields=fields, svc_attributes=attributes)

    def _count(self, **more: int) -> None:
        counts = {name: getattr(self.issued, name) + count for name, count in more.items()}
        self.issued = replace(self.issued, **counts)

    def _refusal(self, who: object, kind: str, fields: dict[str, str], attributes: dict[str, object]) -> None:
        self.refusals[fields["detail_reason"]] += 1
        suppressed = self._limiter.admit((who, kind), self._seconds())
        if suppressed is None:
            return
        if suppressed:
            attributes = {**attributes, "suppressed": suppressed}
        self.record("svc.authority.refused", fields, attributes, warn=True)


class HandshakeLog(NullObserver):
    """Logs TLS peers whose certificates are refused; handshakes that fail for other reasons are not logged."""

    def __init__(self, log: AuthorityLog) -> None:
        self._log = log

    def handshake_failed(self, role: Role, error: TransportError, address: str) -> None:
        if error.reason in _REFUSED:
            self._log.handshake_refused(error, address)


class LibraryLogHandler(logging.Handler):
    """Passes records of the standard library's logging, which grpclib and asyncio use, to Twisted's logger."""

    log = Logger(namespace="svc.authority.library")

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record).split("\n", 1)[0]
        write = self.log.warn if record.levelno < logging.ERROR else self.log.error
        write("{library}: {text}", library=record.name, text=text)
