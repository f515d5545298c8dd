"""
X.509 certificates for tests, valid or invalid, down to forms that the cryptography library refuses to write.

Does not depend on trust domains and SPIFFE IDs; names are given as text or octets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final, TypedDict

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, mldsa, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, ExtensionOID, NameOID

LEAF_KEY_USAGE: Final = frozenset({"digital_signature"})
SIGNING_KEY_USAGE: Final = frozenset({"key_cert_sign", "crl_sign"})
BOTH_ROLES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_KEY_USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)


class CertificateFields(TypedDict, total=False):
    """The fields of a certificate that can be set, see :class:`CertificateTemplate`."""

    subject: str | None
    uris: tuple[str | bytes, ...]
    names: tuple[x509.GeneralName, ...]
    ca: bool | None
    path_length: int | None
    key_usage: frozenset[str] | None
    eku: tuple[x509.ObjectIdentifier, ...] | None
    permitted: tuple[x509.GeneralName, ...]
    excluded: tuple[x509.GeneralName, ...]
    extensions: tuple[tuple[x509.ExtensionType, bool], ...]
    signature: str
    version: int


@dataclass(frozen=True, kw_only=True)
class CertificateTemplate:
    """
    The content of a certificate.

    ``subject`` is a common name or None for an empty subject. A URI given as ``bytes`` is written unchecked. ``ca``
    None leaves the basic constraints out, ``key_usage`` None and ``eku`` None leave theirs out. ``extensions`` are
    pairs of an extension and whether it is critical. ``signature`` is ``sha256``, ``sha384``, ``sha512``, ``pss`` or
    ``sha1``; it applies to RSA and ECDSA. ``version`` is 3 or 1.
    """

    not_before: datetime
    not_after: datetime
    subject: str | None = None
    uris: tuple[str | bytes, ...] = ()
    names: tuple[x509.GeneralName, ...] = ()
    ca: bool | None = False
    path_length: int | None = None
    key_usage: frozenset[str] | None = LEAF_KEY_USAGE
    eku: tuple[x509.ObjectIdentifier, ...] | None = BOTH_ROLES
    permitted: tuple[x509.GeneralName, ...] = ()
    excluded: tuple[x509.GeneralName, ...] = ()
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = ()
    signature: str = "sha256"
    version: int = 3


def generate_key(algorithm: str, slot: str = "") -> CertificateIssuerPrivateKeyTypes:
    """
    Make a private key, also of kinds that no SVID may have.

    Args:
        algorithm: a name of :data:`svc.identity.ALGORITHMS`, or ``RSA-<bits>``, ``ECDSA-P224``, ``ECDSA-P521``,
            ``ECDSA-K256`` (secp256k1), ``Ed448``.
        slot: RSA keys, slow to generate, are made once a process for each algorithm and slot; others are always new.
    """
    if algorithm.startswith("RSA"):
        return _rsa_key(int(algorithm.partition("-")[2] or 2048), slot)
    match algorithm:
        case "Ed25519":
            return ed25519.Ed25519PrivateKey.generate()
        case "Ed448":
            return ed448.Ed448PrivateKey.generate()
        case "ML-DSA-44":
            return mldsa.MLDSA44PrivateKey.generate()
        case "ML-DSA-65":
            return mldsa.MLDSA65PrivateKey.generate()
        case "ML-DSA-87":
            return mldsa.MLDSA87PrivateKey.generate()
    return ec.generate_private_key(_CURVES[algorithm])


@lru_cache(maxsize=32)
def _rsa_key(bits: int, _slot: str) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


_CURVES: Final[dict[str, ec.EllipticCurve]] = {
    "ECDSA-P224": ec.SECP224R1(),
    "ECDSA-P256": ec.SECP256R1(),
    "ECDSA-P384": ec.SECP384R1(),
    "ECDSA-P521": ec.SECP521R1(),
    "ECDSA-K256": ec.SECP256K1(),
}


def name_of(common_name: str | None) -> x509.Name:
    """Make a subject or issuer with this common name only; None gives an empty name."""
    if common_name is None:
        return x509.Name([])
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def build_certificate(
    template: CertificateTemplate,
    public_key: object,
    issuer: x509.Name,
    signer: CertificateIssuerPrivateKeyTypes,
) -> x509.Certificate:
    """
    Build and sign a certificate.

    Args:
        template: its content.
        public_key: the key it certifies.
        issuer: its issuer name.
        signer: the signing key; it need not belong to the issuer.
    """
    builder = x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=name_of(template.subject),
        public_key=public_key,  # type: ignore[arg-type]
        serial_number=x509.random_serial_number(),
        not_valid_before=template.not_before,
        not_valid_after=template.not_after,
    )
    for extension, critical in _extensions(template):
        builder = builder.add_extension(extension, critical)
    digest = _hash_for(signer, template.signature)
    certificate = builder.sign(signer, digest, rsa_padding=_padding(signer, template.signature))
    if template.signature == "sha1" or template.version == 1:
        return _forge(certificate, signer, sha1=template.signature == "sha1", version=template.version)
    return certificate


def subject_key_identifier(private_key: CertificateIssuerPrivateKeyTypes) -> x509.SubjectKeyIdentifier:
    """Make the extension that identifies a key (RFC 5280, section 4.2.1.2)."""
    return x509.SubjectKeyIdentifier.from_public_key(private_key.public_key())


def der(tag: int, content: bytes) -> bytes:
    """Write one DER element (X.690, section 8.1); ``tag`` is the identifier octet."""
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    octets = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(octets))) + octets + content


def rebuilt(certificate: x509.Certificate, fields: dict[int, bytes]) -> bytes:
    """
    Replace encoded elements of the signed part, which makes the signature invalid; returns DER.

    Args:
        certificate: an X.509 v3 certificate.
        fields: encoded elements by position: 0 version, 1 serial number, 2 signature, 3 issuer, 4 validity, 5 subject,
            6 subjectPublicKeyInfo, 7 extensions.
    """
    parts = list(_elements(_content(certificate.tbs_certificate_bytes)))
    for position, field in fields.items():
        parts[position] = field
    _whole, algorithm, signature = _elements(_content(certificate.public_bytes(Encoding.DER)))
    return der(0x30, der(0x30, b"".join(parts)) + algorithm + signature)


def _extensions(template: CertificateTemplate) -> Iterator[tuple[x509.ExtensionType, bool]]:
    if template.uris or template.names:
        # RFC 5280, section 4.2.1.6: critical when the subject is empty.
        yield _alternative_names(template), template.subject is None
    if template.ca is not None:
        yield x509.BasicConstraints(template.ca, template.path_length if template.ca else None), True
    if template.key_usage is not None:
        usages = {name: name in template.key_usage for name in _KEY_USAGES}
        yield x509.KeyUsage(**usages, encipher_only=False, decipher_only=False), True
    if template.eku is not None:
        yield x509.ExtendedKeyUsage(template.eku), False
    if template.permitted or template.excluded:
        yield x509.NameConstraints(template.permitted or None, template.excluded or None), True
    yield from template.extensions


def _alternative_names(template: CertificateTemplate) -> x509.ExtensionType:
    if not any(isinstance(uri, bytes) for uri in template.uris):
        uris = [x509.UniformResourceIdentifier(uri) for uri in template.uris if isinstance(uri, str)]
        return x509.SubjectAlternativeName([*uris, *template.names])
    # GeneralName's uniformResourceIdentifier is [6] IMPLICIT IA5String (RFC 5280, section 4.2.1.6).
    raw = b"".join(der(0x86, uri if isinstance(uri, bytes) else uri.encode("ascii")) for uri in template.uris)
    return x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, der(0x30, raw))


def _hash_for(
    signer: CertificateIssuerPrivateKeyTypes, signature: str
) -> hashes.SHA256 | hashes.SHA384 | hashes.SHA512 | None:
    if not isinstance(signer, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        return None
    if signature == "sha512":
        return hashes.SHA512()
    return hashes.SHA384() if signature == "sha384" else hashes.SHA256()


def _padding(signer: CertificateIssuerPrivateKeyTypes, signature: str) -> padding.PSS | None:
    if signature != "pss" or not isinstance(signer, rsa.RSAPrivateKey):
        return None
    return padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)


#: AlgorithmIdentifiers of signatures with SHA-1 (RFC 3279, section 2.2), which the library does not write any more.
_SHA1_WITH_RSA: Final = bytes.fromhex("300d06092a864886f70d0101050500")
_SHA1_WITH_ECDSA: Final = bytes.fromhex("300906072a8648ce3d0401")


def _forge(
    certificate: x509.Certificate, signer: CertificateIssuerPrivateKeyTypes, *, sha1: bool, version: int
) -> x509.Certificate:
    """Change what no library would write in a certificate, and sign it again."""
    fields = list(_elements(_content(certificate.tbs_certificate_bytes)))
    _whole, algorithm, _signature = _elements(_content(certificate.public_bytes(Encoding.DER)))
    if sha1:
        algorithm = _SHA1_WITH_RSA if isinstance(signer, rsa.RSAPrivateKey) else _SHA1_WITH_ECDSA
        # version [0], serial number, signature
        fields[2] = algorithm
    if version == 1:
        # Without a version it is v1 (RFC 5280, section 4.1.2.1), and v1 has no extensions [3].
        fields = [field for field in fields if field[0] not in (0xA0, 0xA3)]
    tbs = der(0x30, b"".join(fields))
    signature = _sign(tbs, signer, hashes.SHA1() if sha1 else hashes.SHA256())  # noqa: S303 - a wrong one is wanted
    return x509.load_der_x509_certificate(der(0x30, tbs + algorithm + der(0x03, b"\x00" + signature)))


def _sign(tbs: bytes, signer: CertificateIssuerPrivateKeyTypes, digest: hashes.HashAlgorithm) -> bytes:
    if isinstance(signer, rsa.RSAPrivateKey):
        return signer.sign(tbs, padding.PKCS1v15(), digest)
    if isinstance(signer, ec.EllipticCurvePrivateKey):
        return signer.sign(tbs, ec.ECDSA(digest))
    raise ValueError("only RSA and ECDSA signatures can be forged")


def _content(element: bytes) -> bytes:
    return element[_header_size(element) :]


def _elements(content: bytes) -> Iterable[bytes]:
    while content:
        size = _header_size(content)
        first = content[1]
        length = first if first < 0x80 else int.from_bytes(content[2:size], "big")
        yield content[: size + length]
        content = content[size + length :]


def _header_size(element: bytes) -> int:
    return 2 if element[1] < 0x80 else 2 + (element[1] & 0x7F)
