"""
Certificates as signatures carry them, and what a signing leaf says of itself.

Owns the ``x5c`` texts (RFC 7515, 4.1.6) and the reading of a leaf's one name. Trusts nothing: whether a certificate may
be believed is decided by chain verification.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from svc.identity.certificate import load_certificate
from svc.identity.errors import SvidInvalid
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed
from svc.identity.svid import is_self_signed
from svc.notary.errors import Malformed

#: A workload's chain has two or three certificates; more only cost whoever verifies.
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
    """
    Write a chain as ``x5c``.

    Args:
        chain: the leaf and its intermediates.

    Returns:
        Padded standard base64 of each certificate's DER.
    """
    return tuple(base64.b64encode(each.public_bytes(Encoding.DER)).decode("ascii") for each in chain)


def texts_of_x5c(value: object, where: str) -> tuple[str, ...]:
    """
    Check the shape of an ``x5c`` member.

    Args:
        value: the member out of a JSON document.
        where: its place, for the error.

    Returns:
        The texts, one to eight.

    Raises:
        Malformed: for anything but an array of one to eight texts.
    """
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_CERTIFICATES:
        raise Malformed(where=where, defect=f"not an array of 1 to {MAX_CERTIFICATES} certificates")
    if not all(isinstance(each, str) for each in value):
        raise Malformed(where=where, defect="a certificate that is not text")
    return tuple(value)


def decode_x5c(texts: Sequence[str], where: str) -> tuple[x509.Certificate, ...]:
    """
    Read the certificates of an ``x5c`` member.

    Args:
        texts: as :func:`texts_of_x5c` gives them.
        where: the place of the member, for the error.

    Returns:
        The certificates, leaf first.

    Raises:
        Malformed: for base64 that is not canonical, octets that are not one readable DER certificate, or a root,
            which never travels with a signature.
    """
    chain = tuple(_decode_certificate(text, f"{where}[{index}]") for index, text in enumerate(texts))
    for index, certificate in enumerate(chain):
        _check_readable(certificate, f"{where}[{index}]")
        if is_self_signed(certificate):
            raise Malformed(where=f"{where}[{index}]", defect="a root, which never travels with a signature")
    return chain


def _check_readable(certificate: x509.Certificate, where: str) -> None:
    """The library decodes names, dates and extensions only when they are asked for, and fails only then."""
    try:
        _ = certificate.subject, certificate.issuer, uri_names(certificate)
        _ = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    except UNREADABLE as error:
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
    """
    Read the URI names of a certificate (RFC 5280, 4.2.1.6).

    Args:
        certificate: any certificate whose extensions can be read.

    Returns:
        The names as they are written, in order; empty without the extension.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.get_values_for_type(x509.UniformResourceIdentifier))


def one_spiffe_id(certificate: x509.Certificate) -> SpiffeID | None:
    """
    Read the SPIFFE ID of a leaf (X.509-SVID, section 2).

    Args:
        certificate: any certificate whose extensions can be read.

    Returns:
        The identity, or None where there is not exactly one URI name or it is no SPIFFE ID.
    """
    names = uri_names(certificate)
    if len(names) != 1:
        return None
    try:
        return SpiffeID.parse(names[0])
    except SpiffeIdMalformed:
        return None
