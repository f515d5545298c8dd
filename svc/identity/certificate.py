"""
What the rules need to know of one certificate, read once and completely.

Owns the step from an X.509 certificate to plain facts, and the splitting of concatenated DER. Knows no rule that
depends on where in a chain a certificate stands. A certificate whose facts cannot be read completely is refused,
never half-read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from svc.identity.errors import CertificateVersionRefused, CriticalExtensionUnknown, SvidMalformed

#: Extensions that the verification evaluates; any other one that is critical is refused (RFC 5280, section 4.2).
_EVALUATED: Final = frozenset(
    {
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.NAME_CONSTRAINTS,
    }
)

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """One certificate, taken apart. Made by :meth:`read`."""

    certificate: x509.Certificate
    is_ca: bool
    path_length: int | None
    key_usage: x509.KeyUsage | None
    extended_key_usage: frozenset[x509.ObjectIdentifier] | None
    names: tuple[x509.GeneralName, ...]
    name_constraints: x509.NameConstraints | None
    subject_key_id: bytes | None
    authority_key_id: bytes | None

    @classmethod
    def read(cls, certificate: x509.Certificate) -> CertificateFacts:
        """
        Take a certificate apart.

        Args:
            certificate: any certificate.

        Returns:
            Its facts.

        Raises:
            CertificateVersionRefused: when it is not X.509 v3.
            CriticalExtensionUnknown: when it has a critical extension that no rule evaluates.
            SvidMalformed: when an extension cannot be read.
        """
        if certificate.version is not x509.Version.v3:
            raise CertificateVersionRefused(subject=subject_text(certificate), version=certificate.version.name)
        if subject_of(certificate) is None or issuer_of(certificate) is None:
            raise SvidMalformed(defect="the subject or the issuer of a certificate is unreadable")
        _check_dates(certificate)
        extensions = read_extensions(certificate)
        for extension in extensions:
            if extension.critical and extension.oid not in _EVALUATED:
                raise CriticalExtensionUnknown(subject=subject_text(certificate), oid=extension.oid.dotted_string)
        constraints = _value(extensions, x509.BasicConstraints)
        usage = _value(extensions, x509.ExtendedKeyUsage)
        alternative = _value(extensions, x509.SubjectAlternativeName)
        subject_key = _value(extensions, x509.SubjectKeyIdentifier)
        authority_key = _value(extensions, x509.AuthorityKeyIdentifier)
        return cls(
            certificate=certificate,
            is_ca=constraints is not None and constraints.ca,
            path_length=constraints.path_length if constraints is not None else None,
            key_usage=_value(extensions, x509.KeyUsage),
            extended_key_usage=frozenset(usage) if usage is not None else None,
            names=tuple(alternative) if alternative is not None else (),
            name_constraints=_value(extensions, x509.NameConstraints),
            subject_key_id=subject_key.digest if subject_key is not None else None,
            authority_key_id=authority_key.key_identifier if authority_key is not None else None,
        )

    @property
    def subject(self) -> str:
        """The subject as text for people (RFC 4514); empty when it has none."""
        return subject_text(self.certificate)

    @property
    def uris(self) -> tuple[str, ...]:
        """The URI names of the subject alternative name, in order."""
        return tuple(name.value for name in self.names if isinstance(name, x509.UniformResourceIdentifier))

    @property
    def self_issued(self) -> bool:
        """Whether subject and issuer are the same name (RFC 5280, section 3.2)."""
        return self.certificate.subject == self.certificate.issuer


def _check_dates(certificate: x509.Certificate) -> None:
    """Refuse dates that no calendar has, such as the year 0; the library raises when they are asked for."""
    try:
        _ = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    except ValueError as error:
        raise SvidMalformed(defect="a date of a certificate is in no calendar") from error


def split_der(data: bytes, *, limit: int) -> tuple[x509.Certificate, ...]:
    """
    Read concatenated DER certificates, the form of the SPIFFE Workload API.

    Args:
        data: certificates one after the other, without anything between them.
        limit: the most certificates accepted.

    Returns:
        The certificates in order; none for no octets.

    Raises:
        SvidMalformed: when the octets are anything else, or more than ``limit`` certificates.
    """
    certificates: list[x509.Certificate] = []
    start = 0
    while start < len(data):
        if len(certificates) == limit:
            raise SvidMalformed(defect=f"more than {limit} certificates")
        end = _end_of_sequence(data, start)
        certificates.append(load_certificate(data[start:end]))
        start = end
    return tuple(certificates)


def load_certificate(der: bytes) -> x509.Certificate:
    """
    Read one DER certificate.

    Args:
        der: exactly one certificate.

    Returns:
        The certificate.

    Raises:
        SvidMalformed: when the octets are anything else.
    """
    try:
        return x509.load_der_x509_certificate(der)
    except (ValueError, x509.InvalidVersion) as error:
        raise SvidMalformed(defect="not a DER certificate") from error


def read_extensions(certificate: x509.Certificate) -> x509.Extensions:
    """
    Read all extensions of a certificate.

    Args:
        certificate: any certificate.

    Returns:
        The extensions.

    Raises:
        SvidMalformed: when one of them cannot be read or stands there twice.
    """
    try:
        return certificate.extensions
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType) as error:
        raise SvidMalformed(defect=f"the extensions of a certificate are unreadable ({error})") from error


def subject_of(certificate: x509.Certificate) -> x509.Name | None:
    """
    Read the subject, which the library decodes late.

    Args:
        certificate: any certificate, also a broken one.

    Returns:
        The name, or None when it cannot be read; such a certificate is nobody's issuer.
    """
    try:
        return certificate.subject
    except ValueError:
        return None


def issuer_of(certificate: x509.Certificate) -> x509.Name | None:
    """
    Read the issuer, which the library decodes late.

    Args:
        certificate: any certificate, also a broken one.

    Returns:
        The name, or None when it cannot be read.
    """
    try:
        return certificate.issuer
    except ValueError:
        return None


def subject_text(certificate: x509.Certificate) -> str:
    """
    Name a certificate for people (RFC 4514).

    Args:
        certificate: any certificate, also a broken one.

    Returns:
        Its subject; empty when it has none.
    """
    name = subject_of(certificate)
    return "(unreadable)" if name is None else name.rfc4514_string()


def _value(extensions: x509.Extensions, kind: type[_Extension]) -> _Extension | None:
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _end_of_sequence(data: bytes, start: int) -> int:
    """Where the DER SEQUENCE that starts here ends (X.690, 8.1 and 10.1)."""
    header = data[start : start + 6]
    if len(header) < 2 or header[0] != 0x30:
        raise SvidMalformed(defect=f"no DER certificate at octet {start}")
    length, size = header[1], 2
    if length >= 0x80:
        octets = length & 0x7F
        size += octets
        if not 1 <= octets <= 4 or len(header) < size:
            raise SvidMalformed(defect=f"a broken DER length at octet {start}")
        length = int.from_bytes(header[2:size], "big")
    if start + size + length > len(data):
        raise SvidMalformed(defect=f"the certificate at octet {start} is cut off")
    return start + size + length
