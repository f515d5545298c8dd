"""The TLS of ``/metrics``: the certificate of the server, and the authorities of clients with one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from OpenSSL import SSL
from OpenSSL.crypto import X509
from twisted.internet.interfaces import IOpenSSLContextFactory
from zope.interface import implementer

from svc.errors import SvcError

#: Keys of the Secret.
CERTIFICATE: Final = "metrics.crt"
KEY: Final = "metrics.key"
CLIENTS: Final = "metrics-clients.crt"
#: The life of a certificate of the manager's own, which is made anew at each start; clients cannot verify it.
_OWN_LIFE: Final = timedelta(days=3650)


class MetricsTlsRefused(SvcError):
    """{where} has no usable {key}: {defect}"""

    reason = "metrics_tls_refused"
    hint = "metrics.crt is a chain and metrics.key its key, both PEM; metrics-clients.crt has authorities of clients"


@dataclass(frozen=True)
class MetricsTls:
    """A chain with its key, and the authorities of clients; None and empty for what is not given."""

    chain: tuple[x509.Certificate, ...] = ()
    key: Any = field(default=None, repr=False, compare=False)
    clients: tuple[x509.Certificate, ...] = ()

    @classmethod
    def read(cls, data: Mapping[str, bytes], where: str) -> MetricsTls:
        """
        Read the content of the Secret.

        Raises:
            MetricsTlsRefused: where a part is missing, cannot be read, or key and certificate do not fit.
        """
        chain = _certificates(data, CERTIFICATE, where)
        clients = _certificates(data, CLIENTS, where)
        if bool(chain) != (KEY in data):
            missing = KEY if chain else CERTIFICATE
            raise MetricsTlsRefused(where=where, key=missing, defect="it goes with the other one")
        if not chain:
            return cls(clients=clients)
        key = _key(data[KEY], where)
        if key.public_key() != chain[0].public_key():
            raise MetricsTlsRefused(where=where, key=KEY, defect="it is not that of the first certificate")
        return cls(chain, key, clients)

    @classmethod
    def own(cls, now: datetime) -> MetricsTls:
        """Make a certificate that nobody vouches for."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "svc-manager")])
        builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + _OWN_LIFE)
        names = x509.SubjectAlternativeName([x509.DNSName("svc-manager"), x509.DNSName("localhost")])
        return cls((builder.add_extension(names, critical=False).sign(key, hashes.SHA256()),), key)


def _certificates(data: Mapping[str, bytes], key: str, where: str) -> tuple[x509.Certificate, ...]:
    if key not in data:
        return ()
    try:
        return tuple(x509.load_pem_x509_certificates(data[key]))
    except ValueError as error:
        raise MetricsTlsRefused(where=where, key=key, defect="there is no certificate in PEM") from error


def _key(pem: bytes, where: str) -> Any:
    try:
        return serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise MetricsTlsRefused(where=where, key=KEY, defect="there is no private key in PEM without a password") from (
            error
        )


@implementer(IOpenSSLContextFactory)
class MetricsContexts:
    """
    Contexts of new connections, from the TLS that is in force.

    Args:
        tls: returns it.
    """

    def __init__(self, tls: Callable[[], MetricsTls]) -> None:
        self._tls = tls
        self._made: tuple[MetricsTls, SSL.Context] | None = None

    def getContext(self) -> SSL.Context:
        """Return the context of a new connection; a client may come without a certificate."""
        tls = self._tls()
        if self._made is None or self._made[0] is not tls:
            self._made = tls, _context(tls)
        return self._made[1]


def _context(tls: MetricsTls) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    # Who reads is decided for each connection: no session goes on with what was decided for another one.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    context.use_certificate(tls.chain[0])
    context.use_privatekey(tls.key)
    for each in tls.chain[1:]:
        context.add_extra_chain_cert(each)
    store = context.get_cert_store()
    for each in tls.clients:
        if store is not None:
            store.add_cert(X509.from_cryptography(each))
    if tls.clients:
        context.set_verify(SSL.VERIFY_PEER, lambda _connection, _certificate, _number, _depth, good: bool(good))
    return context
