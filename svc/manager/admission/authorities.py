"""
The certificate authorities of the admission webhook, and how one follows another. Pure; they are kept in a Secret.

A new authority is published to the API servers before it signs: beside the current one, while its ``next`` waits. It
becomes the current one when the configuration of the webhook has had it for a while, and the one before is trusted
until it ends, so that no certificate of the webhook is ever unknown.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from svc.errors import SvcError
from svc.transport.addresses import is_ip_literal
from svc.transport.heldtls import HeldTls

#: Part of a life after which the successor is made.
_RENEWED_AFTER: Final = 2 / 3
#: Clocks of nodes differ.
_BACKDATED: Final = timedelta(minutes=5)
_AUTHORITY_USAGE: Final = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
_PARTS: Final = ("current", "next", "previous")


class AuthoritiesDamaged(SvcError):
    """the Secret with the authorities of the webhook cannot be used: {defect}"""

    reason = "webhook_ca_damaged"
    hint = "delete it: the manager makes new ones"


@dataclass(frozen=True)
class CertificateAuthority:
    """A certificate authority and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(repr=False, compare=False)

    @classmethod
    def make(cls, now: datetime, life: timedelta) -> CertificateAuthority:
        """Make an authority that ends after ``life``."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "svc webhook")])
        builder = _builder(name, name, key.public_key(), now, now + life)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_AUTHORITY_USAGE, critical=True)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        return cls(builder.sign(key, hashes.SHA256()), key)

    @property
    def end(self) -> datetime:
        """The instant at which it ends."""
        return self.certificate.not_valid_after_utc

    def due(self, life: timedelta) -> datetime:
        """The instant at which its successor is made."""
        return self.end - life * (1 - _RENEWED_AFTER)

    def issue(self, names: Sequence[str], now: datetime, life: timedelta) -> HeldTls:
        """Issue a certificate of a server, which ends after ``life`` and not after the authority."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0][:64])])
        end = min(now + life, self.end)
        builder = _builder(subject, self.certificate.subject, key.public_key(), now, end)
        given = x509.SubjectAlternativeName([_name(each) for each in names])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        for extension in (given, usage, issuer):
            builder = builder.add_extension(extension, critical=False)
        return HeldTls((builder.sign(self.key, hashes.SHA256()),), key)


def renewal(tls: HeldTls, now: datetime, life: timedelta) -> datetime:
    """Return when a certificate issued at ``now`` is replaced: after two thirds of the life that it has."""
    return now + min(life, tls.chain[0].not_valid_after_utc - now) * _RENEWED_AFTER


@dataclass(frozen=True)
class Authorities:
    """The authority that signs, the one that follows it, and the one before."""

    current: CertificateAuthority
    next: CertificateAuthority | None = None
    previous: CertificateAuthority | None = None

    @property
    def trusted(self) -> tuple[x509.Certificate, ...]:
        """What API servers trust."""
        return tuple(each.certificate for each in (self.previous, self.current, self.next) if each is not None)

    @property
    def bundle(self) -> str:
        """The same as ``caBundle`` of the configuration has it: PEM in base64."""
        pem = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in self.trusted)
        return base64.b64encode(pem).decode("ascii")

    def to_data(self) -> dict[str, str]:
        """Write the data of the Secret."""
        data: dict[str, str] = {}
        for part in _PARTS:
            found: CertificateAuthority | None = getattr(self, part)
            if found is not None:
                key = found.key.private_bytes(
                    serialization.Encoding.PEM,
                    serialization.PrivateFormat.PKCS8,
                    serialization.NoEncryption(),
                )
                pem = found.certificate.public_bytes(serialization.Encoding.PEM)
                data |= {f"{part}.crt": _base64(pem), f"{part}.key": _base64(key)}
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, str]) -> Authorities:
        """
        Read the data of the Secret.

        Raises:
            AuthoritiesDamaged: where a part cannot be read, or there is no current one.
        """
        parts = {part: _read(data, part) for part in _PARTS}
        current = parts.pop("current")
        if current is None:
            raise AuthoritiesDamaged(defect="it has no current.crt")
        return cls(current, **parts)


def advance(
    authorities: Authorities | None,
    now: datetime,
    life: timedelta,
    published: Callable[[x509.Certificate], bool],
) -> Authorities:
    """
    Return what the authorities are from now on; the same object where nothing is due.

    Args:
        authorities: None for the first time.
        life: of new ones.
        published: whether the API servers have had a certificate for long enough.
    """
    if authorities is None or now >= authorities.current.end:
        # The manager was away for too long: nothing that was published is of use any more.
        waiting = None if authorities is None else authorities.next
        return Authorities(
            waiting if waiting is not None and now < waiting.end else CertificateAuthority.make(now, life)
        )
    if authorities.previous is not None and now >= authorities.previous.end:
        authorities = replace(authorities, previous=None)
    if authorities.next is None:
        if now >= authorities.current.due(life):
            authorities = replace(authorities, next=CertificateAuthority.make(now, life))
    elif published(authorities.next.certificate):
        authorities = Authorities(authorities.next, None, authorities.current)
    return authorities


def _builder(subject: x509.Name, issuer: x509.Name, key: Any, now: datetime, end: datetime) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    return builder.not_valid_before(now - _BACKDATED).not_valid_after(end)


def _name(text: str) -> x509.GeneralName:
    return x509.IPAddress(ipaddress.ip_address(text)) if is_ip_literal(text) else x509.DNSName(text)


def _base64(octets: bytes) -> str:
    return base64.b64encode(octets).decode("ascii")


def _read(data: Mapping[str, str], part: str) -> CertificateAuthority | None:
    if f"{part}.crt" not in data:
        return None
    try:
        certificate = x509.load_pem_x509_certificate(base64.b64decode(data[f"{part}.crt"]))
        key = serialization.load_pem_private_key(base64.b64decode(data[f"{part}.key"]), None)
    except (ValueError, TypeError, KeyError) as error:
        raise AuthoritiesDamaged(defect=f"{part}.crt or {part}.key cannot be read") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise AuthoritiesDamaged(defect=f"{part}.key is not that of {part}.crt")
    return CertificateAuthority(certificate, key)
