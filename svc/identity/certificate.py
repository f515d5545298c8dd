"""
Reads X.509 certificates: from DER, and into the facts that the verification rules need.

A certificate whose facts cannot be read completely is refused as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from svc.identity.encoding import CertificateEncoding, NotDer, check_octets, der_element
from svc.identity.errors import SvidInvalid, SvidMalformed
from svc.identity.spiffeid import MAX_SPIFFE_ID, SCHEME

#: Extensions that the verification evaluates; any other critical extension is refused (RFC 5280, section 4.2).
_EVALUATED: Final = frozenset(
    {
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.NAME_CONSTRAINTS,
    }
)
_SEQUENCE: Final = 0x30

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What the verification rules need of one certificate. Made by :meth:`read`."""

    certificate: x509.Certificate
    encoding: CertificateEncoding
    is_ca: bool
    path_length: int | None
    key_usage: x509.KeyUsage | None
    extended_key_usage: frozenset[x509.ObjectIdentifier] | None
    names: tuple[x509.GeneralName, ...]
    name_constraints: x509.NameConstraints | None

    @classmethod
    def read(cls, certificate: x509.Certificate, encoding: CertificateEncoding | None = None) -> CertificateFacts:
        """
        Read a certificate; its encoding is computed unless it is given.

        Raises:
            SvidInvalid: ``certificate_version``, when it is not X.509 v3; ``critical_extension_unknown``, when it has a
                critical extension that no rule evaluates.
            SvidMalformed: when a name, a date or an extension cannot be read, or exceeds a limit of
                :mod:`svc.identity.encoding`.
        """
        encoding = encoding or CertificateEncoding.read(certificate)
        encoding.check_limits()
        if certificate.version is not x509.Version.v3:
            raise SvidInvalid(
                "certificate_version", subject=subject_text(certificate), version=certificate.version.name
            )
        _check_readable(certificate)
        extensions = read_extensions(certificate)
        for extension in extensions:
            if extension.critical and extension.oid not in _EVALUATED:
                raise SvidInvalid(
                    "critical_extension_unknown", subject=subject_text(certificate), oid=extension.oid.dotted_string
                )
        constraints = _value(extensions, x509.BasicConstraints)
        usage = _value(extensions, x509.ExtendedKeyUsage)
        alternative = _value(extensions, x509.SubjectAlternativeName)
        return cls(
            certificate=certificate,
            encoding=encoding,
            is_ca=constraints is not None and constraints.ca,
            path_length=constraints.path_length if constraints is not None else None,
            key_usage=_value(extensions, x509.KeyUsage),
            extended_key_usage=frozenset(usage) if usage is not None else None,
            names=tuple(alternative) if alternative is not None else (),
            name_constraints=_value(extensions, x509.NameConstraints),
        )

    @property
    def subject(self) -> str:
        """The subject in the text form of RFC 4514; empty when the certificate has none."""
        return subject_text(self.certificate)

    @property
    def uris(self) -> tuple[str, ...]:
        """The URI names of the subject alternative name, in order."""
        return tuple(name.value for name in self.names if isinstance(name, x509.UniformResourceIdentifier))


def _check_readable(certificate: x509.Certificate) -> None:
    """Decode names and dates, for which the library raises only when they are read."""
    try:
        _ = (certificate.subject, certificate.issuer)
    except Exception as error:
        # TypeError for a BIT STRING, KeyError for a type that is not text, and others.
        raise SvidMalformed(defect="the subject or the issuer of a certificate is unreadable") from error
    try:
        _ = (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    except ValueError as error:
        raise SvidMalformed(defect="a date of a certificate is in no calendar") from error


def split_der(data: bytes, *, limit: int) -> tuple[x509.Certificate, ...]:
    """
    Read concatenated DER certificates, the form of the SPIFFE Workload API; no octets give no certificates.

    Raises:
        SvidMalformed: when the octets are anything else, or more than ``limit`` certificates.
    """
    certificates: list[x509.Certificate] = []
    start = 0
    while start < len(data):
        if len(certificates) == limit:
            raise SvidMalformed(defect=f"more than {limit} certificates")
        try:
            tag, _, end = der_element(data, start)
        except NotDer as error:
            raise SvidMalformed(defect=f"no DER certificate at octet {start}: {error}") from error
        if tag != _SEQUENCE:
            raise SvidMalformed(defect=f"no DER certificate at octet {start}")
        certificates.append(load_certificate(data[start:end]))
        start = end
    return tuple(certificates)


def load_certificate(der: bytes) -> x509.Certificate:
    """
    Read exactly one DER certificate.

    Raises:
        SvidMalformed: when the octets are anything else.
    """
    try:
        return x509.load_der_x509_certificate(der)
    except Exception as error:
        # The library does not document all exceptions that it raises for invalid DER.
        raise SvidMalformed(defect="not a DER certificate") from error


def load_presented(der: bytes) -> x509.Certificate:
    """Read a DER certificate of a peer; it is refused where the library would only issue a warning."""
    check_octets(der)
    return load_certificate(der)


def claimed_spiffe_id(der: bytes) -> str:
    """
    Read the SPIFFE ID that a certificate names, whatever is wrong with the certificate; for logs only.

    Args:
        der: the leaf certificate as a peer sent it, not verified; may be empty.

    Returns:
        The first URI name that begins with ``spiffe://``, cut to the length of the longest SPIFFE ID; empty where there
        is none or the certificate cannot be read. It proves nothing.
    """
    try:
        certificate = load_presented(der)
        CertificateEncoding.read(certificate).check_limits()
        names = _value(read_extensions(certificate), x509.SubjectAlternativeName) or ()
    except SvidInvalid:
        return ""
    uris = (name.value for name in names if isinstance(name, x509.UniformResourceIdentifier))
    return next((uri[:MAX_SPIFFE_ID] for uri in uris if uri.startswith(SCHEME)), "")


def read_extensions(certificate: x509.Certificate) -> x509.Extensions:
    """
    Decode all extensions of a certificate.

    Raises:
        SvidMalformed: when one of them cannot be read or appears twice.
    """
    try:
        return certificate.extensions
    except Exception as error:
        raise SvidMalformed(defect=f"the extensions of a certificate are unreadable ({error})") from error


def subject_text(certificate: x509.Certificate) -> str:
    """The subject of any certificate in the text form of RFC 4514, for messages."""
    try:
        return certificate.subject.rfc4514_string()
    except Exception:  # noqa: BLE001 (as in _check_readable)
        return "(unreadable)"


def _value(extensions: x509.Extensions, kind: type[_Extension]) -> _Extension | None:
    try:
        return extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None
