"""
From OpenSSL's errors to the reasons of the transport.

Owns the reading of OpenSSL's error queue. Knows nothing of Twisted.
"""

from __future__ import annotations

import re
from typing import Final

from OpenSSL import SSL

from svc.transport.errors import (
    AlpnRefused,
    GroupNotAllowed,
    HandshakeFailed,
    PeerSvidInvalid,
    PqRequired,
    TransportError,
)
from svc.transport.groups import GroupPolicy
from svc.transport.verification import VerifiedConnection

# "tlsv13 alert certificate required", "ssl/tls alert handshake failure", "tls alert bad certificate"
_ALERT: Final = re.compile(r"(?:ssl|tls)[a-z0-9/]* alert (?:number )?(.+)\Z")

#: What this side found wrong, by OpenSSL's words, and the alert that OpenSSL sends for it (RFC 8446, 6.2).
_SENT: Final = {
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
_NO_GROUP: Final = frozenset({"no suitable key share", "no suitable groups", "no shared groups", "bad key share"})


def is_truncation(error: BaseException) -> bool:
    """
    Say whether an error means that the peer closed TCP without a TLS close (RFC 8446, 6.1).

    Args:
        error: raised by OpenSSL.

    Returns:
        True for an unexpected end of the stream.
    """
    if isinstance(error, SSL.SysCallError):
        return True
    if not isinstance(error, SSL.Error):
        return False
    # OpenSSL 4 leaves its error queue empty at the end of a memory BIO.
    return error.args == ([],) or _words(error).casefold().startswith("unexpected eof")


def handshake_error(
    error: BaseException, connection: SSL.Connection | None, address: str, groups: GroupPolicy
) -> TransportError:
    """
    Say why a handshake failed, or which alert ended an established connection.

    Args:
        error: raised by OpenSSL, or why the connection was lost.
        connection: the TLS connection, for the judgement of its peer; None where there is none.
        address: the peer's address.
        groups: the key agreement policy of this side.

    Returns:
        The precise error with ``error`` as its cause.
    """
    found = _classified(error, connection, address, groups)
    if found.__cause__ is None:
        found.__cause__ = error
    return found


def _classified(
    error: BaseException, connection: SSL.Connection | None, address: str, groups: GroupPolicy
) -> TransportError:
    if isinstance(connection, VerifiedConnection):
        if connection.verification.refusal is not None:
            return connection.verification.error(address)
        if connection.alpn_offered is not None:
            offered, allowed = _names(connection.alpn_offered), _names(connection.alpn_allowed)
            return AlpnRefused(address=address, alert="no_application_protocol", offered=offered, allowed=allowed)
    words = _words(error)
    if words in _NO_GROUP:
        if groups == "require":
            return PqRequired(address=address, alert="handshake_failure")
        return GroupNotAllowed(address=address, alert="handshake_failure")
    if words == "peer did not return a certificate":
        cause = "it presented no certificate"
        return PeerSvidInvalid(address=address, alert="certificate_required", detail="certificate_missing", cause=cause)
    received = _ALERT.match(words)
    if received is not None:
        alert = received[1].replace(" ", "_")
        return HandshakeFailed(address=address, alert=alert, detail=f"the peer sent the alert {alert}")
    detail = "the peer closed the connection" if is_truncation(error) or not isinstance(error, SSL.Error) else words
    return HandshakeFailed(address=address, alert=_SENT.get(words, ""), detail=detail)


def _names(protocols: tuple[bytes, ...]) -> str:
    return ", ".join(name.decode("latin-1") for name in protocols)


def _words(error: BaseException) -> str:
    """OpenSSL's words for the first thing that went wrong; what follows in its queue are consequences."""
    queue = error.args[0] if isinstance(error, SSL.Error) and error.args else ()
    return str(queue[0][-1]) if isinstance(queue, list) and queue else ""
