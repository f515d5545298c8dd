"""
Keys, certificates and forged envelopes for the generators of test vectors.

All keys come from seeds: the name of the key, hashed. Certificates and signatures made with them differ from run to
run, because ECDSA and ML-DSA signing are randomised; the vectors therefore test verification only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from cryptography.hazmat.primitives.serialization import Encoding

from svc import naming
from svc.envelope.keys import Signer
from svc.identity import binding_extension, spki_sha256
from svc.strictjson import b64u_encode, dumps
from svc.testing.certificates import (
    SIGNING_KEY_USAGE,
    CertificateTemplate,
    build_certificate,
    name_of,
    subject_key_identifier,
)
from svc.testing.vectors import Vector

FOLDER: Final = Path(__file__).parent
NOW: Final = datetime(2026, 11, 21, 0, 25, 32, tzinfo=UTC)
DOMAIN: Final = "prod.example.org"
WORKLOAD: Final = f"spiffe://{DOMAIN}/ns/pay/sa/api"
NEIGHBOUR: Final = f"spiffe://{DOMAIN}/ns/web/sa/shop"
MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)


def seed(name: str) -> bytes:
    """Return 32 octets that are derived from a name."""
    return hashlib.sha256(f"svc test vectors: {name}".encode()).digest()


def make_key(algorithm: str, name: str) -> Any:
    """Return the key of an algorithm, derived from a name."""
    match algorithm:
        case "ES256" | "ES384":
            curve = ec.SECP256R1() if algorithm == "ES256" else ec.SECP384R1()
            return ec.derive_private_key(int.from_bytes(seed(name), "big") >> 1 | 1, curve)
        case "Ed25519":
            return ed25519.Ed25519PrivateKey.from_private_bytes(seed(name))
        case "ML-DSA-44":
            return mldsa.MLDSA44PrivateKey.from_seed_bytes(seed(name))
        case "ML-DSA-65":
            return mldsa.MLDSA65PrivateKey.from_seed_bytes(seed(name))
        case "ML-DSA-87":
            return mldsa.MLDSA87PrivateKey.from_seed_bytes(seed(name))
    raise ValueError(algorithm)


class Root:
    """A root or an intermediate of the vectors."""

    def __init__(
        self, name: str, algorithm: str = "ES256", *, issuer: Root | None = None, digest: str = "sha256", **knobs: Any
    ) -> None:
        self.name = name
        self.digest = digest
        self.issuer = issuer
        self.key = make_key(algorithm, name)
        shape: dict[str, Any] = {
            "subject": name,
            "uris": (f"spiffe://{DOMAIN}",),
            "ca": True,
            "key_usage": SIGNING_KEY_USAGE,
            "eku": None,
            "not_before": NOW - 30 * 24 * HOUR,
            "not_after": NOW + 365 * 24 * HOUR,
            "signature": digest,
            "extensions": ((subject_key_identifier(self.key), False),),
            **knobs,
        }
        above = issuer or self
        self.certificate = build_certificate(
            CertificateTemplate(**shape), self.key.public_key(), name_of(above.name), above.key
        )

    def pem(self) -> str:
        """Return the certificate for a bundle file."""
        return self.certificate.public_bytes(Encoding.PEM).decode("ascii")

    def leaf(self, key: Any, spiffe_id: str = WORKLOAD, **knobs: Any) -> tuple[x509.Certificate, ...]:
        """Create an SVID chain for a key; ``knobs`` as in :class:`svc.testing.certificates.CertificateTemplate`."""
        shape: dict[str, Any] = {
            "subject": "workload",
            "uris": (spiffe_id,),
            "not_before": NOW - MINUTE,
            "not_after": NOW + HOUR,
            "signature": self.digest,
            **knobs,
        }
        leaf = build_certificate(CertificateTemplate(**shape), key.public_key(), name_of(self.name), self.key)
        return (leaf,) if self.issuer is None else (leaf, self.certificate)

    def pq_leaf(
        self, key: Any, svid: x509.Certificate, spiffe_id: str = WORKLOAD, *, bound: bool = True, **knobs: Any
    ) -> tuple[x509.Certificate, ...]:
        """Create a chain B leaf that is bound to an SVID."""
        extension = binding_extension(spki_sha256(svid))
        knobs.setdefault("extensions", ((extension, False),) if bound else ())
        return self.leaf(key, spiffe_id, eku=None, **knobs)


def forge(
    signers: Sequence[Signer],
    payload: bytes,
    *,
    typ: str = naming.TYPE_RECEIPT,
    protected: Mapping[str, object] | None = None,
    protected_of: Mapping[str, Mapping[str, object]] | None = None,
    without: Sequence[str] = (),
    header: Mapping[str, object] | None = None,
    x5c: Sequence[str] | None = None,
    other_payload: bytes | None = None,
    algorithms: Sequence[str] | None = None,
) -> dict[str, Any]:
    """
    Sign as the format specifies, except for what the arguments change.

    Args:
        signers: the signing keys with their chains.
        payload: the content of the envelope.
        typ: the type.
        protected: members set in every protected header.
        protected_of: members set in the protected header of one algorithm.
        without: members left out of every protected header.
        header: members added to every unprotected header.
        x5c: certificates instead of the signer's own.
        other_payload: the octets to sign instead of the payload.
        algorithms: ``svc-set`` instead of the right one.
    """
    ordered = sorted(signers, key=lambda signer: signer.alg)
    announced = list(algorithms) if algorithms is not None else [signer.alg for signer in ordered]
    signatures = []
    for signer in ordered:
        members: dict[str, object] = {
            "alg": signer.alg,
            "typ": typ,
            "x5t#S256" if signer.chain else "kid": signer.thumbprint,
            "svc-set": announced,
            "crit": ["svc-set"],
            **(protected or {}),
            **(protected_of or {}).get(signer.alg, {}),
        }
        text = b64u_encode(dumps({name: value for name, value in members.items() if name not in without}))
        signed = f"{text}.{b64u_encode(payload if other_payload is None else other_payload)}".encode("ascii")
        certificates = list(signer.x5c if x5c is None else x5c)
        unprotected = {**({"x5c": certificates} if certificates else {}), **(header or {})}
        signatures.append(
            {
                "protected": text,
                **({"header": unprotected} if unprotected else {}),
                "signature": b64u_encode(signer.sign(signed)),
            }
        )
    return {"payload": b64u_encode(payload), "signatures": signatures}


def write_vector(
    name: str, comment: str, expect: str, envelope: bytes | dict[str, Any], headers: Mapping[str, str], **more: bytes
) -> None:
    """Write one vector below the folder of this module."""
    data = envelope if isinstance(envelope, bytes) else dumps(envelope)
    vector = Vector(name, {"expect": expect, **headers}, {"envelope": data, **more}, comment)
    (FOLDER / f"{name}.txt").write_bytes(vector.render())
