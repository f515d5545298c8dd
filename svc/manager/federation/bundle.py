"""The bundle of SPIRE as the SPIFFE bundle of a package. Pure."""

from __future__ import annotations

import json
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_der_public_key
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from svc.errors import SvcError
from svc.federation.payload import PeerBundle
from svc.identity import TrustDomain, X509Bundle
from svc.identity.documents import certificate_to_base64
from svc.strictjson import MAX_INTEGER

#: Seconds after which a bundle is fetched again, where SPIRE does not say (Trust Domain and Bundle, section 4.1.2).
REFRESH_HINT: Final = 300


class BundleUnusable(SvcError):
    """the bundle of the SPIRE server cannot be published: {defect}"""

    reason = "spire_bundle_unusable"
    hint = "compare spire-server bundle show -format spiffe with the trust domain of the manager"


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
