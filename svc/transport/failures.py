"""Translates OpenSSL's errors into the typed errors of the transport."""

from __future__ import annotations

import re
from typing import Final

from OpenSSL import SSL

from svc.transport.certificates import CertificateConnection
from svc.transport.client_certificates import ClientCertificateConnection
from svc.transport.errors import (
    ClientCertificateInvalid,
    HandshakeFailed,
    OwnSvidExpired,
    OwnSvidRefused,
    PeerSvidInvalid,
    ServerCertificateInvalid,
    TransportError,
)
from svc.transport.groups import GroupPolicy
from svc.transport.observer import Role
from svc.transport.verification import VerifiedConnection

# "tlsv13 alert certificate required", "ssl/tls alert handshake failure", "tls alert bad certificate"
_ALERT: Final = re.compile(r"(?:ssl|tls)[a-z0-9/]* alert (?:number )?(.+)\Z")

#: OpenSSL's text of an error on this side, to the alert that OpenSSL sends for it (RFC 8446, 6.2).
_ALERTS_SENT: Final = {
    "unsupported protocol": "protocol_version",
    "wrong version number": "protocol_version",
    "tlsv1 alert protocol version": "protocol_version",
    "no shared cipher": "handshake_failure",
    "no suitable signature algorithm": "handshake_failure",
    "bad signature": "decrypt_error",
    "decryption failed or bad record mac": "bad_record_mac",
    "digest check failed": "decrypt_error",
    "unexpected message": "unexpected_message",
}
#: Alerts by which a server refuses the certificate of a client.
_CERTIFICATE_ALERTS: Final = frozenset(
    {
        "access_denied",
        "bad_certificate",
        "certificate_expired",
        "certificate_revoked",
        "certificate_unknown",
        "unknown_ca",
        "unsupported_certificate",
    }
)
#: Alerts of a server that supports none of the offered parameters (RFC 8446, section 4.1.1).
_NO_COMMON_PARAMETERS: Final = frozenset({"handshake_failure", "insufficient_security"})
_NO_CERTIFICATE: Final = "peer did not return a certificate"
_NO_GROUP: Final = frozenset({"no suitable key share", "no suitable groups", "no shared groups", "bad key share"})


def is_truncation(error: BaseException) -> bool:
    """Whether an error of OpenSSL means that the peer closed TCP without a TLS close (RFC 8446, 6.1)."""
    if isinstance(error, SSL.SysCallError):
        return True
    if not isinstance(error, SSL.Error):
        return False
    # OpenSSL 4 leaves its error queue empty at the end of a memory BIO.
    return error.args == ([],) or _error_text(error).casefold().startswith("unexpected eof")


def handshake_error(
    error: BaseException, connection: SSL.Connection | None, address: str, groups: GroupPolicy, role: Role
) -> TransportError:
    """
    Return why a handshake failed, or which alert ended an established connection.

    ``error`` was raised by OpenSSL, or is why the connection was lost; it becomes the cause. ``groups`` and ``role``
    are those of this side.
    """
    found = _classified(error, connection, address, groups)
    if (
        role == "client"
        and groups == "require"
        and found.alert in _NO_COMMON_PARAMETERS
        and not _server_hello_received(connection)
    ):
        # Groups are the only parameter of which this side offers less than its TLS library has (RFC 8446, 4.1.1).
        found = TransportError("pq_required", address=address, alert=found.alert)
    if found.__cause__ is None:
        found.__cause__ = error
    return found


def own_svid_refused(error: TransportError, connection: SSL.Connection | None, address: str) -> OwnSvidRefused | None:
    """
    Return the error of a connection that its server ended because it refuses this client's certificate, or None.

    Nothing else is verified after a client's handshake, so an alert about a certificate has no other meaning (RFC 8446,
    sections 4.4.2.4 and 6.2).
    """
    if not isinstance(connection, VerifiedConnection) or connection.peer_evidence is None:
        return None
    if error.alert not in _CERTIFICATE_ALERTS:
        return None
    kind = OwnSvidExpired if error.alert == "certificate_expired" else OwnSvidRefused
    svid = connection.own_svid
    ends = svid.chain_not_after.isoformat(timespec="seconds")
    refused = kind(address=address, alert=error.alert, detail="", spiffe_id=svid.spiffe_id, ends=ends)
    refused.__cause__ = error
    return refused


def presented_leaf(connection: SSL.Connection | None) -> bytes:
    """Return the DER of the peer's leaf certificate; empty where none was received or requested."""
    return connection.verification.presented_leaf if isinstance(connection, VerifiedConnection) else b""


def _classified(
    error: BaseException, connection: SSL.Connection | None, address: str, groups: GroupPolicy
) -> TransportError:
    if isinstance(connection, VerifiedConnection):
        if connection.verification.refusal is not None:
            return connection.verification.error(address)
        if connection.alpn_offered is not None:
            offered, allowed = _names(connection.alpn_offered), _names(connection.alpn_allowed)
            return TransportError(
                "alpn_refused", address=address, alert="no_application_protocol", offered=offered, allowed=allowed
            )
    if isinstance(connection, CertificateConnection) and connection.defect:
        return ServerCertificateInvalid(
            address=address, alert="bad_certificate", name=connection.name, cause=connection.defect
        )
    text = _error_text(error)
    if isinstance(connection, ClientCertificateConnection):
        if connection.defect:
            return ClientCertificateInvalid(address=address, alert="bad_certificate", cause=connection.defect)
        if text == _NO_CERTIFICATE:
            cause = "it presented none"
            return ClientCertificateInvalid(address=address, alert="certificate_required", cause=cause)
    if text in _NO_GROUP:
        if groups == "require":
            return TransportError("pq_required", address=address, alert="handshake_failure")
        return TransportError("group_not_allowed", address=address, alert="handshake_failure")
    if text == _NO_CERTIFICATE:
        cause = "it presented no certificate"
        return PeerSvidInvalid(address=address, alert="certificate_required", detail="certificate_missing", cause=cause)
    received = _ALERT.match(text)
    if received is not None:
        alert = received[1].replace(" ", "_")
        return HandshakeFailed(address=address, alert=alert, detail=f"the peer sent the alert {alert}")
    detail = "the peer closed the connection" if is_truncation(error) or not isinstance(error, SSL.Error) else text
    return HandshakeFailed(address=address, alert=_ALERTS_SENT.get(text, ""), detail=detail)


def _server_hello_received(connection: SSL.Connection | None) -> bool:
    """Whether a server has chosen parameters: from its ServerHello on there is a cipher."""
    return connection is not None and connection.get_cipher_name() is not None


def _names(protocols: tuple[bytes, ...]) -> str:
    return ", ".join(name.decode("latin-1") for name in protocols)


def _error_text(error: BaseException) -> str:
    """OpenSSL's text of the first error in its queue; the others are consequences."""
    queue = error.args[0] if isinstance(error, SSL.Error) and error.args else ()
    return str(queue[0][-1]) if isinstance(queue, list) and queue else ""
