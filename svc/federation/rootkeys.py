"""
The private keys of federation roots, and the document in which they are stored.

The document has its fingerprint inside, so that a key that was damaged, or is of another trust domain, is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ed25519, mldsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)

from svc.envelope.keys import Signer
from svc.errors import SvcError
from svc.federation.roots import FederationRoots
from svc.identity import TrustDomain
from svc.strictjson import b64u_decode, b64u_encode, dumps, loads_object

VERSION: Final = 1
#: Two keys in base64 and their fingerprint have less than 10 KiB.
MAX_DOCUMENT: Final = 64 * 1024


class RootKeysInvalid(SvcError):
    """the federation root keys are not used: {defect}"""

    reason = "root_keys_invalid"
    hint = "restore them; with new ones every peer has to bootstrap anew"
    defect: str


@dataclass(frozen=True)
class RootKeys:
    """The private keys of one set of federation roots."""

    classical: ed25519.Ed25519PrivateKey = field(repr=False)
    post_quantum: mldsa.MLDSA65PrivateKey = field(repr=False)

    @classmethod
    def make(cls) -> RootKeys:
        """Make new keys: Ed25519 and ML-DSA-65."""
        return cls(ed25519.Ed25519PrivateKey.generate(), mldsa.MLDSA65PrivateKey.generate())

    @property
    def roots(self) -> FederationRoots:
        """The public keys."""
        return FederationRoots(self.classical.public_key(), self.post_quantum.public_key())

    @property
    def signers(self) -> tuple[Signer, Signer]:
        """What signs packages."""
        return Signer.from_raw_key(self.classical), Signer.from_raw_key(self.post_quantum)

    def serialize(self, trust_domain: TrustDomain) -> bytes:
        """Write the document of a trust domain; it is a secret."""
        return dumps(
            {
                "v": VERSION,
                "trustDomain": trust_domain.name,
                "fingerprint": self.roots.fingerprint(trust_domain).base32,
                "keys": [b64u_encode(_pkcs8(key)) for key in (self.classical, self.post_quantum)],
            }
        )

    @classmethod
    def parse(cls, data: bytes, trust_domain: TrustDomain) -> RootKeys:
        """
        Read the document of a trust domain.

        Raises:
            RootKeysInvalid: it is damaged, malformed, or of another version or trust domain.
        """
        try:
            found = cls._read(loads_object(data, max_bytes=MAX_DOCUMENT), trust_domain)
        except RootKeysInvalid:
            raise
        except (SvcError, KeyError, TypeError, ValueError, UnsupportedAlgorithm) as error:
            # Without the parser's message, which may contain a part of a key.
            raise RootKeysInvalid(defect=f"they are malformed ({type(error).__name__})") from None
        return found

    @classmethod
    def _read(cls, members: Mapping[str, object], trust_domain: TrustDomain) -> RootKeys:
        if members["v"] != VERSION:
            raise RootKeysInvalid(defect=f"they have the version {members['v']!r}")
        if members["trustDomain"] != trust_domain.name:
            raise RootKeysInvalid(defect="they are of another trust domain")
        texts = members["keys"]
        if not isinstance(texts, list):
            raise TypeError("no list of keys")
        keys = [load_der_private_key(b64u_decode(text), password=None) for text in texts]
        roots = FederationRoots.of([key.public_key() for key in keys])
        if roots.fingerprint(trust_domain).base32 != members["fingerprint"]:
            raise RootKeysInvalid(defect="they are damaged: their fingerprint is another one")
        classical, post_quantum = keys
        if not isinstance(classical, ed25519.Ed25519PrivateKey) or not isinstance(
            post_quantum, mldsa.MLDSA65PrivateKey
        ):
            raise TypeError("other kinds of keys, or another order")
        return cls(classical, post_quantum)


def _pkcs8(key: ed25519.Ed25519PrivateKey | mldsa.MLDSA65PrivateKey) -> bytes:
    return key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
