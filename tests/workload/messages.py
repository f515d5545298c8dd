"""Messages of a Workload API for tests: plain objects with the fields of the protobuf classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import Encoding

from svc.identity import X509Bundle, X509Svid
from svc.testing.ca import TestAuthority, chain_der, key_der

NOW = datetime(2026, 11, 21, 8, 0, 0, tzinfo=UTC)
AUTHORITY = TestAuthority("example.org", now=NOW)
FOREIGN = TestAuthority("foreign.example", now=NOW)


@dataclass
class Svid:
    """The fields of ``X509SVID``."""

    spiffe_id: str
    x509_svid: bytes
    x509_svid_key: bytes
    bundle: bytes
    hint: str = ""


@dataclass
class Message:
    """The fields of ``X509SVIDResponse``."""

    svids: list[Svid]
    federated_bundles: Mapping[str, bytes] = field(default_factory=dict)


def bundle_der(bundle: X509Bundle) -> bytes:
    return b"".join(each.public_bytes(Encoding.DER) for each in bundle.certificates)


def message_of(*svids: X509Svid, authority: TestAuthority = AUTHORITY, **federated: bytes) -> Message:
    """The message that offers SVIDs of one authority."""
    own = bundle_der(authority.bundle())
    return Message([Svid(str(each.spiffe_id), chain_der(each), key_der(each), own) for each in svids])
