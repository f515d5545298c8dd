"""
The DER encoding of a certificate, checked for size before the library decodes its parts (RFC 5280, section 4.1; X.690).

Owns the limits on names and extensions, and the encoded names and keys by which chains are built: comparing octets is
cheap, while the cost of comparing the library's objects is chosen by the author of the certificate. Does not depend on
the meaning of an extension.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cryptography import x509

from svc.identity.errors import SvidMalformed

#: Octets that the signature of a certificate covers; those of a certificate with an ML-DSA-87 key are about 3,500.
MAX_SIGNED_PART: Final = 16 * 1024
#: Octets of a subject or issuer; most have fewer than 200.
MAX_NAME: Final = 1024
#: Attributes in all RDNs of a subject or issuer; most have one to six.
MAX_NAME_ATTRIBUTES: Final = 32
#: DER elements in all extensions: about 450 subject alternative names. The library creates an object for most of them.
MAX_EXTENSION_ELEMENTS: Final = 512

#: Shortest and longest value of name attributes in characters, by encoded OID (RFC 5280, appendix A.1; CA/B Baseline
#: Requirements, section 9.2.4). The library issues a Python warning for other lengths.
_LENGTHS: Final = {
    bytes.fromhex("550403"): (1, 64),
    bytes.fromhex("550406"): (2, 2),
    bytes.fromhex("2b0601040182373c020103"): (2, 2),
}
_SUBJECT_KEY_ID: Final = bytes.fromhex("0603551d0e")
_AUTHORITY_KEY_ID: Final = bytes.fromhex("0603551d23")
_INTEGER, _OCTET_STRING, _OID, _UTF8, _UNIVERSAL, _BMP, _SEQUENCE = 0x02, 0x04, 0x06, 0x0C, 0x1C, 0x1E, 0x30
_VERSION, _EXTENSIONS, _KEY_IDENTIFIER, _AUTHORITY_SERIAL = 0xA0, 0xA3, 0x80, 0x82
_CONSTRUCTED: Final = 0x20


class NotDer(Exception):
    """The octets are not a DER element; the text says why."""


@dataclass(frozen=True, slots=True)
class CertificateEncoding:
    """
    The encoded parts of a certificate, made by :meth:`read`.

    ``size`` is the number of octets that the signature covers. ``serial`` and ``extensions`` are contents; ``issuer``,
    ``subject`` and ``key`` (the SubjectPublicKeyInfo) are whole elements.
    """

    size: int
    serial: bytes
    issuer: bytes
    subject: bytes
    key: bytes
    extensions: bytes

    @classmethod
    def read(cls, certificate: x509.Certificate) -> CertificateEncoding:
        """Split a certificate of any size without decoding its parts."""
        signed = certificate.tbs_certificate_bytes
        try:
            return cls._split(signed)
        except NotDer as error:
            raise SvidMalformed(defect="not a DER certificate") from error

    @classmethod
    def _split(cls, signed: bytes) -> CertificateEncoding:
        _, at, _ = der_element(signed, 0)
        _, start, end = _serial_number(signed, at)
        serial = signed[start:end]
        parts = []
        # signature, issuer, validity, subject, subjectPublicKeyInfo
        for _ in range(5):
            at = end
            _, _, end = der_element(signed, at)
            parts.append(signed[at:end])
        extensions = b""
        while end < len(signed):
            tag, start, end = der_element(signed, end)
            if tag == _EXTENSIONS:
                extensions = signed[start:end]
        _, issuer, _, subject, key = parts
        return cls(len(signed), serial, issuer, subject, key, extensions)

    @property
    def self_issued(self) -> bool:
        """Whether subject and issuer are the same name (RFC 5280, section 3.2)."""
        return self.subject == self.issuer

    @property
    def subject_key_id(self) -> bytes | None:
        """The subject key identifier; it only orders the search for an issuer and proves nothing."""
        return _inner(_value(self.extensions, _SUBJECT_KEY_ID), _OCTET_STRING)

    @property
    def authority_key_id(self) -> bytes | None:
        """The key identifier of the issuer; it only orders the search too."""
        return _inner(_inner(_value(self.extensions, _AUTHORITY_KEY_ID), _SEQUENCE), _KEY_IDENTIFIER)

    def check_serial(self) -> None:
        """Refuse a serial number that is not positive (RFC 5280, section 4.1.2.2)."""
        _check_serial(self.serial)

    def check_limits(self) -> None:
        """Refuse what would be too expensive for the library to decode, or what it would issue a warning for."""
        if self.size > MAX_SIGNED_PART:
            defect = f"a certificate of {self.size} octets without its signature, at most {MAX_SIGNED_PART}"
            raise SvidMalformed(defect=defect)
        try:
            _check_name(self.issuer, "issuer")
            if not self.self_issued:
                _check_name(self.subject, "subject")
        except NotDer as error:
            raise SvidMalformed(defect="the subject or the issuer of a certificate is unreadable") from error
        _check_extensions(self.extensions)
        serial = _inner(_value(self.extensions, _AUTHORITY_KEY_ID), _SEQUENCE) or b""
        while serial:
            try:
                tag, start, end = der_element(serial, 0)
            except NotDer:
                break
            if tag == _AUTHORITY_SERIAL:
                _check_serial(serial[start:end])
            serial = serial[end:]


def check_octets(der: bytes) -> None:
    """
    Refuse a DER certificate whose serial number is not positive, for which the library would only issue a warning, or
    whose signature is not whole octets: the library passes over the number of unused bits, so that the same certificate
    would have other octets.

    Octets that are not a certificate pass: the library refuses them.
    """
    try:
        _, signed, _ = der_element(der, 0)
        _, at, end = der_element(der, signed)
        tag, start, stop = _serial_number(der, at)
        _, _, end = der_element(der, end)
        _, signature, _ = der_element(der, end)
    except NotDer:
        return
    if tag == _INTEGER:
        _check_serial(der[start:stop])
    if der[signature : signature + 1] != b"\0":
        raise SvidMalformed(defect="the signature of a certificate has unused bits")


def _serial_number(data: bytes, at: int) -> tuple[int, int, int]:
    """The serial number in a TBSCertificate whose content begins at an offset: the element behind the version."""
    first = der_element(data, at)
    return der_element(data, first[2]) if first[0] == _VERSION else first


def _check_serial(content: bytes) -> None:
    if not any(content) or content[0] >= 0x80:
        raise SvidMalformed(defect="the serial number of a certificate is not positive")


def _check_name(name: bytes, what: str) -> None:
    if len(name) > MAX_NAME:
        raise SvidMalformed(defect=f"the {what} of a certificate has {len(name)} octets, at most {MAX_NAME}")
    attributes = 0
    _, rdn, end = der_element(name, 0)
    while rdn < end:
        _, attribute, rdn = der_element(name, rdn)
        while attribute < rdn:
            attributes += 1
            if attributes > MAX_NAME_ATTRIBUTES:
                raise SvidMalformed(
                    defect=f"the {what} of a certificate has more than {MAX_NAME_ATTRIBUTES} attributes"
                )
            _, start, attribute = der_element(name, attribute)
            _, start, value = der_element(name, start)
            _check_length(name[start:value], name, value)


def _check_length(oid: bytes, data: bytes, at: int) -> None:
    """Check the length of an attribute's value, which is the element at an offset."""
    limits = _LENGTHS.get(oid)
    if limits is None:
        return
    tag, start, end = der_element(data, at)
    fewest, most = limits
    characters = end - start
    if tag == _UTF8:
        characters = sum(octet & 0xC0 != 0x80 for octet in data[start:end]) if characters > most else characters
    elif tag in (_BMP, _UNIVERSAL):
        characters //= 2 if tag == _BMP else 4
    if not fewest <= characters <= most:
        defect = f"an attribute of a name in a certificate has {characters} characters, expected {fewest} to {most}"
        raise SvidMalformed(defect=defect)


def _check_extensions(extensions: bytes) -> None:
    if len(extensions) <= 2 * MAX_EXTENSION_ELEMENTS and not any(oid in extensions for oid in _LENGTHS):
        # An element has at least two octets, and no attribute here has a limited length.
        return
    elements = 0
    pending = [(0, len(extensions))]
    while pending:
        at, end = pending.pop()
        if at >= end:
            continue
        try:
            tag, start, stop = der_element(extensions, at, end)
            if tag == _OID and stop < end:
                _check_length(extensions[start:stop], extensions, stop)
        except NotDer:
            # The content of an OCTET STRING need not be DER.
            continue
        elements += 1
        if elements > MAX_EXTENSION_ELEMENTS:
            defect = f"the extensions of a certificate have more than {MAX_EXTENSION_ELEMENTS} DER elements"
            raise SvidMalformed(defect=defect)
        pending.append((stop, end))
        if tag & _CONSTRUCTED or tag == _OCTET_STRING:
            pending.append((start, stop))


def _value(extensions: bytes, oid: bytes) -> bytes | None:
    """The content of the OCTET STRING of a non-critical extension."""
    at = extensions.find(oid)
    return None if at < 0 else _inner(extensions[at + len(oid) :], _OCTET_STRING)


def _inner(data: bytes | None, tag: int) -> bytes | None:
    """The content of the first element if it has this tag."""
    try:
        found, start, end = der_element(data or b"", 0)
    except NotDer:
        return None
    return data[start:end] if data is not None and found == tag else None


def der_element(data: bytes, at: int, within: int | None = None) -> tuple[int, int, int]:
    """Return the tag of the element at an offset and the offsets at which its content begins and ends (X.690, 8.1)."""
    limit = len(data) if within is None else within
    if at + 2 > limit:
        raise NotDer("cut off")
    tag, length, start = data[at], data[at + 1], at + 2
    if length >= 0x80:
        octets = length & 0x7F
        start += octets
        length = int.from_bytes(data[at + 2 : start], "big")
        if not 1 <= octets <= 4:
            raise NotDer("a length of another form")
    if tag & 0x1F == 0x1F:
        raise NotDer("a tag of several octets")
    if start + length > limit:
        raise NotDer("cut off")
    return tag, start, start + length
