"""The bundle of SPIRE as the SPIFFE bundle of a package, and that of a peer as SPIRE takes it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key
from jwt import PyJWTError
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from svc.errors import SvcError, printable
from svc.federation.payload import PeerBundle
from svc.identity import TrustDomain, X509Bundle
from svc.identity.documents import certificate_to_base64
from svc.spire.messages import BundleMessage
from svc.strictjson import MAX_INTEGER

#: Seconds after which a bundle is fetched again, where SPIRE does not say (Trust Domain and Bundle, section 4.1.2).
REFRESH_HINT: Final = 300
#: Keys that SPIRE has, by ``kty``.
_KINDS: Final[Mapping[str, type[ECAlgorithm] | type[RSAAlgorithm]]] = {"EC": ECAlgorithm, "RSA": RSAAlgorithm}


class BundleUnusable(SvcError):
    """the bundle of the SPIRE server cannot be published: {defect}"""

    reason = "spire_bundle_unusable"
    hint = "compare spire-server bundle show -format spiffe with the trust domain of the manager"


class PeerBundleUnusable(SvcError):
    """the bundle of the peer {trust_domain} cannot be given to SPIRE: {defect}"""

    reason = "peer_bundle_unusable"
    hint = "its administrator has to publish another package"


def peer_bundle(message: Any, trust_domain: TrustDomain) -> PeerBundle:
    """
    Read a ``Bundle`` message.

    Args:
        message: ``spire.api.types.Bundle``.
        trust_domain: whose it has to be.

    Raises:
        BundleUnusable: it is of another trust domain, or has a key that cannot be read.
    """
    if message.trust_domain != trust_domain.name:
        raise BundleUnusable(defect=f"it is of {message.trust_domain or 'no trust domain'}, and not of {trust_domain}")
    try:
        certificates = [x509.load_der_x509_certificate(each.asn1) for each in message.x509_authorities]
        keys = [_x509_key(each) for each in certificates]
        keys += [_jwt_key(each) for each in message.jwt_authorities]
        roots = X509Bundle.from_certificates(trust_domain, certificates)
    except BundleUnusable:
        raise
    except (ValueError, SvcError) as error:
        raise BundleUnusable(defect=str(error)) from error
    hint = message.refresh_hint if message.refresh_hint > 0 else REFRESH_HINT
    return PeerBundle(message.sequence_number & MAX_INTEGER, hint, tuple(keys), roots)


def spire_bundle(bundle: PeerBundle, trust_domain: TrustDomain) -> Any:
    """
    Return the bundle of a peer as a ``Bundle`` message.

    As SPIFFE Trust Domain and Bundle, section 4.2, has it, keys of another use or kind are ignored.

    Args:
        bundle: of the pinned package.
        trust_domain: whose it is.

    Raises:
        PeerBundleUnusable: a JWT key has no ``kid``, or cannot be read.
    """
    jwt = [each for each in bundle.keys if each.get("use") == "jwt-svid" and each.get("kty") in _KINDS]
    try:
        authorities = [{"key_id": each["kid"], "public_key": _spki(each)} for each in jwt]
        return BundleMessage(
            trust_domain=trust_domain.name,
            x509_authorities=[{"asn1": each.public_bytes(Encoding.DER)} for each in bundle.roots.certificates],
            jwt_authorities=authorities,
            refresh_hint=bundle.refresh_hint,
            sequence_number=bundle.sequence,
        )
    except (KeyError, TypeError, ValueError, PyJWTError) as error:
        raise PeerBundleUnusable(trust_domain=trust_domain, defect=f"a JWT key: {printable(error)}") from error


def same_bundle(stored: Any, wanted: Any) -> bool:
    """Whether a server has a bundle; it may have the keys in another order."""
    return _members(stored) == _members(wanted)


def _members(bundle: Any) -> tuple[object, ...]:
    return (
        bundle.trust_domain,
        {each.asn1 for each in bundle.x509_authorities},
        {(each.key_id, each.public_key, each.expires_at) for each in bundle.jwt_authorities},
        bundle.refresh_hint,
        bundle.sequence_number,
    )


def _spki(key: Mapping[str, object]) -> bytes:
    public = _KINDS[str(key["kty"])].from_jwk(dict(key))
    if not isinstance(public, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise TypeError("it is private")
    return public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _x509_key(certificate: x509.Certificate) -> dict[str, object]:
    return {**_jwk(certificate.public_key()), "use": "x509-svid", "x5c": [certificate_to_base64(certificate)]}


def _jwt_key(message: Any) -> dict[str, object]:
    return {**_jwk(load_der_public_key(message.public_key)), "use": "jwt-svid", "kid": message.key_id}


def _jwk(key: object) -> dict[str, object]:
    """The public key as a JWK (RFC 7518, section 6); SPIRE has keys of these two kinds."""
    if isinstance(key, ec.EllipticCurvePublicKey):
        found = ECAlgorithm.to_jwk(key)
    elif isinstance(key, rsa.RSAPublicKey):
        found = RSAAlgorithm.to_jwk(key)
    else:
        raise BundleUnusable(defect=f"a key of the kind {type(key).__name__}")
    members: dict[str, object] = json.loads(found)
    return {name: value for name, value in members.items() if name != "key_ops"}
