"""
Writes SPIFFE bundles (Trust Domain and Bundle, section 4) and reads their JWT keys.

X.509 roots are read by ``svc.identity``. Post-quantum roots are never written to such a file: readers refuse a whole
bundle for one unknown key.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from svc import strictjson
from svc.authority.jwtsvid import JwtBundle
from svc.errors import SvcError
from svc.identity.bundle import X509Bundle
from svc.identity.documents import MAX_BUNDLE_NODES

#: How long a consumer may wait before it looks again, in seconds.
REFRESH_HINT: Final = 60
_EC_MEMBERS: Final = ("kty", "kid", "use", "crv", "x", "y")
_RSA_MEMBERS: Final = ("kty", "kid", "use", "n", "e")
_MAX_JWT_KEYS: Final = 64


class BundleNotWritable(SvcError):
    """a root of {trust_domain} has a key that a SPIFFE bundle cannot represent: {kind}"""

    reason = "key_not_allowed"


def spiffe_bundle(bundle: X509Bundle, jwt_keys: JwtBundle, sequence: int) -> bytes:
    """
    The JSON document of a SPIFFE bundle; ``sequence`` has to grow with each change.

    Raises :class:`BundleNotWritable` as :func:`bundle_keys`.
    """
    keys = bundle_keys(bundle, jwt_keys)
    return strictjson.dumps({"keys": keys, "spiffe_sequence": sequence, "spiffe_refresh_hint": REFRESH_HINT})


def bundle_keys(bundle: X509Bundle, jwt_keys: JwtBundle) -> list[dict[str, object]]:
    """
    The JWK set of a SPIFFE bundle.

    Raises :class:`BundleNotWritable` for a root whose key has no registered JWK form.
    """
    keys: list[dict[str, object]] = []
    for anchor in bundle.anchors:
        der = anchor.certificate.public_bytes(Encoding.DER)
        jwk = _jwk(anchor.certificate.public_key(), bundle)
        keys.append({**jwk, "use": "x509-svid", "x5c": [base64.b64encode(der).decode("ascii")]})
    keys.extend(dict(key) for key in jwt_keys)
    return keys


def pem_bundle(bundle: X509Bundle) -> bytes:
    """The roots as concatenated PEM certificates."""
    return b"".join(anchor.certificate.public_bytes(Encoding.PEM) for anchor in bundle.anchors)


def jwks(jwt_keys: JwtBundle) -> bytes:
    """A JWT bundle as the Workload API sends it."""
    return strictjson.dumps({"keys": [dict(key) for key in jwt_keys]})


def read_jwt_keys(data: bytes) -> JwtBundle:
    """
    The public parts of all usable keys of a SPIFFE bundle with ``use`` ``jwt-svid`` and a ``kid``.

    A document of another kind, such as PEM, has none; malformed JSON raises ``JsonRefused``.
    """
    if not data.lstrip().startswith(b"{"):
        return ()
    listed = strictjson.loads_object(data, max_bytes=4 * 1024 * 1024, max_nodes=MAX_BUNDLE_NODES).get("keys")
    if not isinstance(listed, list):
        return ()
    found = [_public_part(key) for key in listed if isinstance(key, dict) and key.get("use") == "jwt-svid"]
    return tuple(key for key in found if key)[:_MAX_JWT_KEYS]


def _public_part(key: Mapping[str, Any]) -> dict[str, Any]:
    members = {"EC": _EC_MEMBERS, "RSA": _RSA_MEMBERS}.get(str(key.get("kty")), ())
    part = {name: key[name] for name in members if isinstance(key.get(name), str)}
    return part if members and len(part) == len(members) else {}


def _jwk(public_key: object, bundle: X509Bundle) -> dict[str, Any]:
    match public_key:
        case ec.EllipticCurvePublicKey():
            jwk = ECAlgorithm.to_jwk(public_key, as_dict=True)
        case rsa.RSAPublicKey():
            jwk = RSAAlgorithm.to_jwk(public_key, as_dict=True)
        case ed25519.Ed25519PublicKey():
            jwk = OKPAlgorithm.to_jwk(public_key, as_dict=True)
        case _:
            raise BundleNotWritable(trust_domain=bundle.trust_domain, kind=type(public_key).__name__)
    return {name: value for name, value in jwk.items() if name in ("kty", "crv", "x", "y", "n", "e")}
