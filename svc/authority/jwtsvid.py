"""Signs and validates JWT-SVIDs (SPIFFE JWT-SVID)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from svc.errors import SvcError
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed, TrustDomain
from svc.pqissuer.rotation import KeyRing
from svc.strictjson import MAX_INTEGER, b64u_encode

MAX_TOKEN: Final = 16 * 1024
#: How far the clock of an issuer may be ahead or behind.
LEEWAY: Final = timedelta(seconds=10)
#: JWT-SVID 2.1: the only accepted algorithms, by the key that may use them.
_EC_ALGORITHMS: Final = {"P-256": ("ES256",), "P-384": ("ES384",), "P-521": ("ES512",)}
_RSA_ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")

JwtBundle = tuple[Mapping[str, Any], ...]


class JwtSvidInvalid(SvcError):
    """the JWT-SVID is not valid: {defect}"""

    reason = "jwt_svid_invalid"
    defect: str


@dataclass(frozen=True, slots=True)
class JwtKey:
    """A P-256 key that signs JWT-SVIDs; ``kid`` is its name in the bundle."""

    kid: str
    private_key: ec.EllipticCurvePrivateKey

    def public(self) -> dict[str, Any]:
        """The public key as a JWK with ``kid`` and ``use`` (Trust Domain and Bundle, section 4.2)."""
        jwk = dict(ECAlgorithm.to_jwk(self.private_key.public_key(), as_dict=True))
        return {"kty": jwk["kty"], "use": "jwt-svid", "kid": self.kid, "crv": jwk["crv"], "x": jwk["x"], "y": jwk["y"]}


@dataclass(frozen=True, slots=True)
class JwtEvidence:
    """Subject and claims of a valid token."""

    spiffe_id: SpiffeID
    claims: Mapping[str, Any]


class JwtAuthority:
    """Signs JWT-SVIDs of one trust domain with keys of the lifetime ``ttl``."""

    def __init__(self, trust_domain: TrustDomain, *, ttl: timedelta, random: Callable[[int], bytes]) -> None:
        self.trust_domain = trust_domain
        self._random = random
        self.ring: KeyRing[JwtKey] = KeyRing(self._make, ttl)

    def advance(self, now: datetime) -> bool:
        """Rotate keys that are due; returns whether the bundle or the signing key changed."""
        return self.ring.advance(now)

    def bundle(self) -> JwtBundle:
        """The public keys."""
        return tuple(slot.key.public() for slot in self.ring.announced)

    def issue(self, spiffe_id: SpiffeID, audience: tuple[str, ...], ttl: timedelta, now: datetime) -> str:
        """A token in compact serialization; it expires no later than the signing key."""
        slot = self.ring.active(now)
        expires = min(now + ttl, slot.expires)
        claims = {
            "sub": str(spiffe_id),
            "aud": list(audience),
            "iat": int(now.timestamp()),
            "exp": int(expires.timestamp()),
            "jti": b64u_encode(self._random(16)),
        }
        return jwt.encode(claims, slot.key.private_key, "ES256", headers={"kid": slot.key.kid, "typ": "JWT"})

    def _make(self, now: datetime, expires: datetime) -> JwtKey:
        return JwtKey(b64u_encode(self._random(16)), ec.generate_private_key(ec.SECP256R1()))


def validate(token: str, audience: str, bundles: Mapping[TrustDomain, JwtBundle], now: datetime) -> JwtEvidence:
    """
    Validate a token in compact serialization for one audience (JWT-SVID, sections 2, 3 and 5).

    Raises :class:`JwtSvidInvalid`.
    """
    if len(token) > MAX_TOKEN:
        raise JwtSvidInvalid(defect=f"it is longer than {MAX_TOKEN} characters")
    header = _unverified(token, 0)
    if header.get("typ", "JWT") not in ("JWT", "JOSE"):
        raise JwtSvidInvalid(defect="its typ is neither JWT nor JOSE")
    spiffe_id = _subject(_unverified(token, 1))
    bundle = bundles.get(spiffe_id.trust_domain)
    if bundle is None:
        raise JwtSvidInvalid(defect=f"no bundle for trust domain {spiffe_id.trust_domain}")
    claims = _verified(token, header, bundle)
    _check_claims(claims, audience, now)
    return JwtEvidence(_subject(claims), claims)


def _verified(token: str, header: Mapping[str, Any], bundle: JwtBundle) -> dict[str, Any]:
    kid = header.get("kid")
    algorithm = header.get("alg")
    jwk = next((each for each in bundle if isinstance(kid, str) and each.get("kid") == kid), None)
    if jwk is None:
        raise JwtSvidInvalid(defect="its kid names no key of the trust domain")
    if algorithm not in _algorithms(jwk):
        raise JwtSvidInvalid(defect="its alg does not go with the key")
    try:
        payload = jwt.PyJWS().decode(token, jwt.PyJWK(dict(jwk), str(algorithm)), algorithms=[str(algorithm)])
        claims = json.loads(payload)
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise JwtSvidInvalid(defect="its signature does not verify") from error
    if not isinstance(claims, dict):
        raise JwtSvidInvalid(defect="its claims are no object")
    return claims


def _algorithms(jwk: Mapping[str, Any]) -> tuple[str, ...]:
    if jwk.get("kty") == "RSA":
        return _RSA_ALGORITHMS
    return _EC_ALGORITHMS.get(str(jwk.get("crv")), ()) if jwk.get("kty") == "EC" else ()


def _check_claims(claims: Mapping[str, Any], audience: str, now: datetime) -> None:
    named = claims.get("aud")
    if isinstance(named, str):
        named = [named]
    if not isinstance(named, list) or audience not in named:
        raise JwtSvidInvalid(defect="its audience is another one")
    expires, begins = _time(claims, "exp"), _time(claims, "nbf")
    if expires is None:
        raise JwtSvidInvalid(defect="it has no exp")
    if now.timestamp() >= expires + LEEWAY.total_seconds():
        raise JwtSvidInvalid(defect="it has expired")
    if begins is not None and now.timestamp() + LEEWAY.total_seconds() < begins:
        raise JwtSvidInvalid(defect="it is not valid yet")


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JwtSvidInvalid(defect=f"its {name} is no number")
    # An integer of any length compares with a float; to convert it is an OverflowError from 309 digits on.
    if not (abs(value) <= MAX_INTEGER):
        raise JwtSvidInvalid(defect=f"its {name} is no time")
    return float(value)


def _subject(claims: Mapping[str, Any]) -> SpiffeID:
    try:
        return SpiffeID.parse(claims.get("sub", ""))
    except SpiffeIdMalformed as error:
        raise JwtSvidInvalid(defect="its subject is no SPIFFE ID") from error


def _unverified(token: str, part: int) -> dict[str, Any]:
    """Read a part only to find the key; nothing of it is trusted before the signature is verified."""
    parts = token.split(".")
    if len(parts) != 3:
        raise JwtSvidInvalid(defect="it has not three parts")
    try:
        value = json.loads(base64.urlsafe_b64decode(parts[part] + "=" * (-len(parts[part]) % 4)))
    except (ValueError, RecursionError) as error:
        raise JwtSvidInvalid(defect="it is no JSON in base64url") from error
    if not isinstance(value, dict):
        raise JwtSvidInvalid(defect="it is no JSON object")
    return value
