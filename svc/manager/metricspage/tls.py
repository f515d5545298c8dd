"""The TLS of ``/metrics``: what the Secret of the configuration gives, or a certificate of the manager's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from svc.errors import SvcError
from svc.transport.heldtls import HeldTls

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
class GivenTls:
    """What the Secret gives: a certificate with its key or None, and the authorities of clients."""

    server: HeldTls | None = None
    clients: tuple[x509.Certificate, ...] = ()


def read_tls(data: Mapping[str, bytes], where: str) -> GivenTls:
    """
    Read the content of the Secret.

    Raises:
        MetricsTlsRefused: where a part is missing, cannot be read, or key and certificate do not fit.
    """
    chain, clients = _certificates(data, CERTIFICATE, where), _certificates(data, CLIENTS, where)
    if bool(chain) != (KEY in data):
        raise MetricsTlsRefused(where=where, key=KEY if chain else CERTIFICATE, defect="it goes with the other one")
    if not chain:
        return GivenTls(None, clients)
    key = _key(data[KEY], where)
    if key.public_key() != chain[0].public_key():
        raise MetricsTlsRefused(where=where, key=KEY, defect="it is not that of the first certificate")
    return GivenTls(HeldTls(chain, key, clients), clients)


def own_tls(now: datetime) -> HeldTls:
    """Make a certificate that nobody vouches for."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "svc-manager")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + _OWN_LIFE)
    names = x509.SubjectAlternativeName([x509.DNSName("svc-manager"), x509.DNSName("localhost")])
    return HeldTls((builder.add_extension(names, critical=False).sign(key, hashes.SHA256()),), key)


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
        defect = "there is no private key in PEM without a password"
        raise MetricsTlsRefused(where=where, key=KEY, defect=defect) from error
