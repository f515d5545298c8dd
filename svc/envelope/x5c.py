"""
Certificates in signatures: the ``x5c`` texts (RFC 7515, 4.1.6) and the names in a leaf.

Reads only; chain verification decides whether a certificate is trusted.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from svc.envelope.errors import Malformed
from svc.identity.certificate import load_certificate
from svc.identity.encoding import CertificateEncoding
from svc.identity.errors import SvidInvalid
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed
from svc.identity.svid import is_self_signed

#: A workload's chain has two or three certificates; more only cost the verifier.
MAX_CERTIFICATES: Final = 8

#: What the certificate library raises for a certificate or extension that it cannot read.
UNREADABLE: Final = (
    ValueError,
    TypeError,
    UnsupportedAlgorithm,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
)


def encode_x5c(chain: Sequence[x509.Certificate]) -> tuple[str, ...]:
    """Write a chain as padded standard base64 of each certificate's DER."""
    return tuple(base64.b64encode(each.public_bytes(Encoding.DER)).decode("ascii") for each in chain)


def texts_of_x5c(value: object, where: str) -> tuple[str, ...]:
    """Check that an ``x5c`` member of a JSON document is an array of one to eight texts; ``where`` is for the error."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CERTIFICATES:
        raise Malformed(where=where, defect=f"not an array of 1 to {MAX_CERTIFICATES} certificates")
    if not all(isinstance(each, str) for each in value):
        raise Malformed(where=where, defect="a certificate that is not text")
    return tuple(value)


def decode_x5c(texts: Sequence[str], where: str) -> tuple[x509.Certificate, ...]:
    """
    Read the certificates of an ``x5c`` member, leaf first.

    Raises:
        Malformed: for base64 that is not canonical, octets that are not one readable DER certificate, or a root, which
            is never sent with a signature.
    """
    chain = tuple(_decode_certificate(text, f"{where}[{index}]") for index, text in enumerate(texts))
    for index, certificate in enumerate(chain):
        _check_readable(certificate, f"{where}[{index}]")
        if is_self_signed(certificate):
            raise Malformed(where=f"{where}[{index}]", defect="a root, which never travels with a signature")
    return chain


def decode_certificate(text: str, where: str) -> x509.Certificate:
    """
    Read one certificate, which may be a root; ``where`` is for the error.

    Raises:
        Malformed: as :func:`decode_x5c`.
    """
    certificate = _decode_certificate(text, where)
    _check_readable(certificate, where)
    return certificate


def _check_readable(certificate: x509.Certificate, where: str) -> None:
    """Decode names, dates and extensions, which the library does only on access."""
    try:
        CertificateEncoding.read(certificate).check_limits()
        _ = certificate.subject, certificate.issuer, uri_names(certificate)
        _ = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except (*UNREADABLE, SvidInvalid) as error:
        raise Malformed(where=where, defect="names, dates or extensions that cannot be read") from error


def _decode_certificate(text: str, where: str) -> x509.Certificate:
    try:
        der = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(where=where, defect="not padded standard base64") from error
    if base64.b64encode(der).decode("ascii") != text:
        raise Malformed(where=where, defect="base64 with spare bits or padding that is not canonical")
    try:
        return load_certificate(der)
    except SvidInvalid as error:
        raise Malformed(where=where, defect="not a DER certificate") from error


def uri_names(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the URI names of a certificate as they are written (RFC 5280, 4.2.1.6); empty without the extension."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.get_values_for_type(x509.UniformResourceIdentifier))


def one_spiffe_id(certificate: x509.Certificate) -> SpiffeID | None:
    """
    Return the SPIFFE ID of a leaf (X.509-SVID, section 2); None unless it has exactly one URI name and that is one.
    """
    names = uri_names(certificate)
    if len(names) != 1:
        return None
    try:
        return SpiffeID.parse(names[0])
    except SpiffeIdMalformed:
        return None
