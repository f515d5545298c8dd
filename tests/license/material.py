"""Keys of vendors and licenses for the tests, and signing as the format specifies or with faults."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from svc import naming
from svc.envelope.keys import Signer
from svc.identity import TrustDomain
from svc.license.armour import ArmouredText, armoured
from svc.license.payload import License
from svc.license.vendors import VendorKey, pinned_keys
from svc.license.verification import VerifiedLicense
from svc.strictjson import b64u_encode, dumps
from tests.vectors.material import forge, make_key, seed

#: Both private keys of the test vendor, as ``bin/license-sign new-key`` writes them.
TEST_VENDOR_FILE: Final = Path(__file__).parent / "test-vendor.pem"
NOW: Final = datetime(2026, 11, 21, 0, 25, 32, tzinfo=UTC)
TEST_VENDOR: Final = "svc test vendor"
#: Another key of the same vendor, and one that no program knows.
SECOND: Final = "license second key"
STRANGER: Final = "license stranger"

LICENSE: Final = License(
    id=b64u_encode(seed("license")[:16]),
    issuer=TEST_VENDOR,
    customer="acme-17",
    issued=datetime(2026, 1, 1, tzinfo=UTC),
    not_before=datetime(2026, 1, 1, tzinfo=UTC),
    not_after=datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC),
    licensee="ACME GmbH",
    edition="enterprise",
    features=("federation", "mqtt"),
    limits={"clusters": 3, "workloads": 500, "federatedPeers": 4},
    grace_days=30,
    warn_days=(60, 30, 14, 7, 1),
    maintenance_until=datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC),
    trust_domains=(TrustDomain.parse("prod.example.org"),),
)


@cache
def signers(name: str = "license test vendor") -> tuple[Signer, Signer]:
    """Both signers of a vendor's key, made from its name."""
    return (
        Signer.from_raw_key(make_key("Ed25519", name)),
        Signer.from_raw_key(make_key("ML-DSA-87", name)),
    )


@cache
def vendor_key(name: str = "license test vendor", issuer: str = TEST_VENDOR) -> VendorKey:
    """The public keys of a vendor."""
    return VendorKey(issuer, make_key("Ed25519", name).public_key(), make_key("ML-DSA-87", name).public_key())


#: What the tests accept: the test vendor as the program has it, and its second key.
KEYS: Final = (*pinned_keys(), vendor_key(SECOND))


def envelope(payload: bytes | License = LICENSE, name: str = "license test vendor", **faults: Any) -> dict[str, Any]:
    """Sign a license; ``faults`` are those of :func:`tests.vectors.material.forge`."""
    octets = payload if isinstance(payload, bytes) else payload.to_payload()
    return forge(signers(name), octets, **{"typ": naming.TYPE_LICENSE, **faults})


def text_of(document: bytes | dict[str, Any]) -> str:
    """The file with an envelope."""
    content = document if isinstance(document, bytes) else dumps(document)
    return armoured(ArmouredText((("Licensee", "ACME GmbH"), ("Expires", "2027-12-31T23:59:59Z")), content))


def verified(**changes: Any) -> VerifiedLicense:
    """A license with other content, as if it had been verified."""
    return VerifiedLicense(dataclasses.replace(LICENSE, **changes), KEYS[0], b"")
