"""
Signing keys with their times as JSON, for whoever stores them.

A record has a private key: it goes to storage that administrators protect, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import mldsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from svc import strictjson
from svc.identity.spiffeid import TrustDomain
from svc.notary.pqissuer import PqIssuer
from svc.pqissuer.rotation import Slot

#: More than three keys of a kind are announced only if the clock was set repeatedly.
MAX_KEYS: Final = 16
TIMES: Final = ("made", "activeFrom", "succeededAt", "expires")
_KeyT = TypeVar("_KeyT")


def slot_record(slot: Slot[Any]) -> dict[str, str]:
    """Write a key: its times, and its private key in base64url of PKCS #8; what else it has is its owner's to add."""
    private = slot.key.private_key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    times = (slot.made, slot.active_from, slot.succeeded_at, slot.expires)
    record = {name: time.astimezone(UTC).isoformat() for name, time in zip(TIMES, times, strict=True)}
    record["key"] = strictjson.b64u_encode(private)
    return record


def certified_record(slot: Slot[Any]) -> dict[str, str]:
    """Write a key that has a certificate."""
    return {
        **slot_record(slot),
        "certificate": strictjson.b64u_encode(slot.key.certificate.public_bytes(Encoding.DER)),
    }


def slots_of(records: list[dict[str, str]], read: Callable[[Mapping[str, str]], _KeyT]) -> tuple[Slot[_KeyT], ...]:
    """
    Read keys; raises ``KeyError``, ``TypeError``, ``ValueError`` or ``SvcError`` for what was not written here.

    ``read`` reads the key of one record.
    """
    if len(records) > MAX_KEYS:
        raise ValueError("too many keys")
    found = []
    for record in records:
        made, active_from, succeeded_at, expires = (_time(record[name]) for name in TIMES)
        if not made <= active_from < expires or not made <= succeeded_at <= expires:
            raise ValueError("times out of order")
        found.append(Slot(read(record), made, active_from, succeeded_at, expires))
    return tuple(found)


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.utcoffset() != timedelta():
        raise ValueError("a time that is not in UTC")
    return time


def read_certified(record: Mapping[str, str], trust_domain: TrustDomain) -> tuple[x509.Certificate, Any]:
    """Read certificate and private key of a root, which must fit, and be of the trust domain; raises as above."""
    certificate = x509.load_der_x509_certificate(strictjson.b64u_decode(record["certificate"]))
    key = load_der_private_key(strictjson.b64u_decode(record["key"]), password=None)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if names.get_values_for_type(x509.UniformResourceIdentifier) != [str(trust_domain.id)]:
        raise ValueError("a root of another trust domain")
    if certificate.public_key() != key.public_key():
        raise ValueError("a key that is not the certificate's")
    return certificate, key


def read_pq_root(record: Mapping[str, str], trust_domain: TrustDomain) -> PqIssuer:
    """Read a post-quantum root; raises as above."""
    certificate, key = read_certified(record, trust_domain)
    if not isinstance(key, mldsa.MLDSA65PrivateKey | mldsa.MLDSA87PrivateKey):
        raise TypeError("a post-quantum root with another key")
    return PqIssuer(trust_domain, certificate, key)
