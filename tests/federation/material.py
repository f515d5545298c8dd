"""Federation roots and bootstrap packages for the tests, signed as the format specifies or with faults."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any, Final

from svc import naming
from svc.envelope.keys import Signer
from svc.federation.endpoint import Endpoint
from svc.federation.package import VerifiedPackage, sign_package
from svc.federation.payload import Chain, M2MEndpoint, PackageContent, PeerBundle, Previous
from svc.federation.roots import FederationRoots
from svc.identity import SpiffeID, TrustDomain, X509Bundle
from svc.identity.bundle import TrustAnchor
from svc.identity.documents import certificate_to_base64
from svc.identity.pqbundle import PqBundle
from svc.strictjson import dumps
from tests.vectors.material import DOMAIN, NOW, Root, forge, make_key

PROD: Final = TrustDomain.parse(DOMAIN)
PARTNER: Final = TrustDomain.parse("partner.example.org")
DAY: Final = timedelta(days=1)
ENDPOINT: Final = Endpoint.parse("m2m.prod.example.org:31443")


@cache
def signers(generation: int = 1, classical: str = "Ed25519", post_quantum: str = "ML-DSA-65") -> tuple[Signer, Signer]:
    """Both signers of a generation of federation roots."""
    name = f"federation roots {generation}"
    return (
        Signer.from_raw_key(make_key(classical, name)),
        Signer.from_raw_key(make_key(post_quantum, name)),
    )


@cache
def roots(generation: int = 1, classical: str = "Ed25519") -> FederationRoots:
    """The public keys of a generation."""
    name = f"federation roots {generation}"
    return FederationRoots(make_key(classical, name).public_key(), make_key("ML-DSA-65", name).public_key())


def empty_bundle(trust_domain: TrustDomain = PROD) -> PeerBundle:
    """A bundle of which all roots are revoked."""
    return PeerBundle(42, 300, (), X509Bundle(trust_domain))


def content(
    sequence: int = 1, *, issued: datetime = NOW, trust_domain: TrustDomain = PROD, **more: Any
) -> PackageContent:
    """
    A package without certificates whose roots are of the generation of its sequence.

    Args:
        more: other members of :class:`svc.federation.payload.PackageContent`.
    """
    previous = None
    if sequence > 1:
        previous = Previous(sequence - 1, roots(sequence - 1).fingerprint(trust_domain))
    members: dict[str, Any] = {
        "issuer": SpiffeID(trust_domain, "/svc/manager"),
        "issued": issued,
        "expires": issued + 30 * DAY,
        "trust_domain": trust_domain,
        "sequence": sequence,
        "roots": roots(sequence),
        "previous": previous,
        "chains": (),
        "bundle": empty_bundle(trust_domain),
        "pq": PqBundle(3, X509Bundle(trust_domain)),
        "m2m": M2MEndpoint(SpiffeID(trust_domain, "/svc/m2m")),
        **more,
    }
    return PackageContent(**members)


def signed(sequence: int = 1, *, introduced: bool = False, **more: Any) -> VerifiedPackage:
    """A verified package; ``introduced`` has it signed by the roots before as well."""
    previous = signers(sequence - 1) if introduced else ()
    return sign_package(content(sequence, **more), signers(sequence), previous=previous)


@cache
def full_content() -> PackageContent:
    """A package with a SPIFFE bundle, a JWT key, a post-quantum bundle and a chain of each purpose."""
    root, pq_root = Root("federation-p256"), Root("federation-pq", "ML-DSA-65")
    keys = (
        {"kty": "EC", "use": "x509-svid", "x5c": [certificate_to_base64(root.certificate)]},
        {"kty": "EC", "use": "jwt-svid", "kid": "jwt-1", "crv": "P-256", "x": "x", "y": "y"},
    )
    return dataclasses.replace(
        content(),
        chains=(
            Chain("x509-svid", (root.certificate,)),
            Chain("svc-pq", (pq_root.certificate,)),
            Chain("m2m", (root.certificate,)),
        ),
        bundle=PeerBundle(42, 300, keys, X509Bundle.from_certificates(PROD, [root.certificate])),
        pq=PqBundle(3, X509Bundle(PROD, (TrustAnchor(pq_root.certificate, NOW, NOW + 365 * DAY),))),
    )


def claims(found: PackageContent) -> dict[str, Any]:
    """The payload as an object that may be changed."""
    members: dict[str, Any] = json.loads(found.to_payload())
    return members


def forged(payload: bytes | Mapping[str, object] | PackageContent, sequence: int = 1, **faults: Any) -> dict[str, Any]:
    """Sign a payload; ``faults`` are those of :func:`tests.vectors.material.forge`."""
    if isinstance(payload, PackageContent):
        payload = payload.to_payload()
    octets = payload if isinstance(payload, bytes) else dumps(payload)
    return forge(faults.pop("signers", signers(sequence)), octets, **{"typ": naming.TYPE_BOOTSTRAP, **faults})
