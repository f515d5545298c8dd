"""
TLS with a certificate of the server alone, for clients that have no identity.

Owns the context that is made from two PEM files. Peers with SPIFFE identities are served by
:mod:`svc.transport.creators`.
"""

from __future__ import annotations

from pathlib import Path

from OpenSSL import SSL, crypto
from twisted.internet.interfaces import IProtocolFactory
from twisted.internet.ssl import CertificateOptions, TLSVersion
from twisted.protocols.tls import TLSMemoryBIOFactory

from svc.transport.errors import TransportError


class CertificateUnusable(TransportError):
    """the certificate {certificate} or the key {key} cannot be used: {what}"""

    reason = "certificate_unusable"
    hint = "both are PEM files; the key belongs to the first certificate of the file, its chain follows"


def certificate_factory(factory: IProtocolFactory, certificate: str, key: str) -> IProtocolFactory:
    """
    Serve TLS 1.2 and 1.3 with a certificate; clients show none.

    Args:
        factory: builds the protocol of each connection.
        certificate: PEM file with the certificate and its chain.
        key: PEM file with its private key.

    Returns:
        The factory, for a :class:`svc.transport.endpoints.PlainServerEndpoint`.

    Raises:
        CertificateUnusable: a file is absent, not readable, no PEM, or the key is of another certificate.
    """
    try:
        chain = _certificates(Path(certificate).read_bytes())
        private = crypto.load_privatekey(crypto.FILETYPE_PEM, Path(key).read_bytes(), lambda _rw: b"")
        options = CertificateOptions(
            privateKey=private,
            certificate=chain[0],
            extraCertChain=chain[1:],
            raiseMinimumTo=TLSVersion.TLSv1_2,
        )
        context = options.getContext()
        context.check_privatekey()
    except OSError as error:
        raise CertificateUnusable(certificate=certificate, key=key, what=error.strerror or "unreadable") from error
    except (SSL.Error, crypto.Error, ValueError, TypeError) as error:
        raise CertificateUnusable(certificate=certificate, key=key, what="it is no PEM or they do not match") from error
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION)
    return TLSMemoryBIOFactory(options, False, factory)


def _certificates(pem: bytes) -> list[crypto.X509]:
    marker = b"-----BEGIN CERTIFICATE-----"
    found = [crypto.load_certificate(crypto.FILETYPE_PEM, marker + part) for part in pem.split(marker)[1:]]
    if not found:
        raise ValueError("no certificate")
    return found
