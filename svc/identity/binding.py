"""The private X.509 extension that binds a post-quantum leaf to an X.509-SVID by the SHA-256 of the SVID's key."""

from __future__ import annotations

from typing import Final

from cryptography import x509

from svc.identity.certificate import read_extensions
from svc.identity.errors import SvidMalformed
from svc.naming import OID_SVID_BINDING

_OID: Final = x509.ObjectIdentifier(OID_SVID_BINDING)
#: DER header of an OCTET STRING of 32 octets.
_HEADER: Final = b"\x04\x20"


def binding_extension(svid_spki_sha256: bytes) -> x509.UnrecognizedExtension:
    """Return the extension, to be added as non-critical, for the digest of an SVID's SubjectPublicKeyInfo."""
    if len(svid_spki_sha256) != 32:
        raise ValueError("a SHA-256 digest has 32 octets")
    return x509.UnrecognizedExtension(_OID, _HEADER + svid_spki_sha256)


def binding_of(certificate: x509.Certificate) -> bytes | None:
    """
    Return the digest in the extension of a post-quantum leaf, or None when the leaf has no such extension.

    Raises:
        SvidMalformed: when the extension holds anything but an OCTET STRING of 32 octets.
    """
    try:
        value = read_extensions(certificate).get_extension_for_oid(_OID).value
    except x509.ExtensionNotFound:
        return None
    octets = value.value if isinstance(value, x509.UnrecognizedExtension) else b""
    if len(octets) != 34 or not octets.startswith(_HEADER):
        raise SvidMalformed(defect="the binding to the SVID is not an octet string of 32 octets")
    return octets[2:]
