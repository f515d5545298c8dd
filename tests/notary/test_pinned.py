"""
Envelopes under pinned raw keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, mldsa
from twisted.trial.unittest import SynchronousTestCase

from svc import naming
from svc.notary.envelope import sign_envelope
from svc.notary.errors import (
    AlgNotAllowed,
    ChainUntrusted,
    HybridIncomplete,
    Malformed,
    SetMismatch,
    SignatureInvalid,
    UnsupportedVersion,
    WrongType,
)
from svc.notary.keys import Signer
from svc.notary.pinned import PinnedEvidence, verify_pinned
from svc.strictjson import dumps
from tests.vectors.material import forge
from tests.vectors.scenario import A, B

ED25519 = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
ML_DSA = mldsa.MLDSA87PrivateKey.from_seed_bytes(bytes(32))
SIGNERS = (Signer.from_raw_key(ED25519), Signer.from_raw_key(ML_DSA))
KEYS: dict[str, Any] = {SIGNERS[0].thumbprint: ED25519.public_key(), SIGNERS[1].thumbprint: ML_DSA.public_key()}
SETS = (("Ed25519", "ML-DSA-87"),)
TYP = naming.TYPE_LICENSE
PAYLOAD = b'{"v":1}'


def verify(signers: Sequence[Signer] = SIGNERS, payload: bytes = PAYLOAD, **changes: Any) -> PinnedEvidence:
    """Sign as a licence and verify."""
    envelope = changes.pop("envelope", None) or sign_envelope(payload, changes.pop("signed_as", TYP), signers)
    return verify_pinned(envelope, **{"typ": TYP, "keys": KEYS, "sets": SETS, **changes})


class PinnedTests(SynchronousTestCase):
    """What pinned keys prove."""

    def test_accepted(self) -> None:
        """Both keys sign; the evidence names them."""
        evidence = verify()
        self.assertEqual((evidence.payload, evidence.claims), (PAYLOAD, {"v": 1}))
        self.assertEqual(set(evidence.kids), set(KEYS))

    def test_type(self) -> None:
        """A bootstrap package is no licence."""
        self.assertRaises(WrongType, verify, signed_as=naming.TYPE_BOOTSTRAP)

    def test_stripped(self) -> None:
        """One of two signatures is never enough, removed or made alone."""
        whole = sign_envelope(PAYLOAD, TYP, SIGNERS)
        for index in (0, 1):
            self.assertRaises(SetMismatch, verify, envelope=replace(whole, signatures=(whole.signatures[index],)))
            self.assertRaises(HybridIncomplete, verify, [SIGNERS[index]])

    def test_other_algorithm(self) -> None:
        """A set of other algorithms is refused, though its keys were pinned."""
        key = ec.derive_private_key(7, ec.SECP384R1())
        signer = Signer.from_raw_key(key)
        keys = {**KEYS, signer.thumbprint: key.public_key()}
        self.assertRaises(AlgNotAllowed, verify, [signer, SIGNERS[1]], keys=keys)
        verify([signer, SIGNERS[1]], keys=keys, sets=(*SETS, ("ES384", "ML-DSA-87")))

    def test_unknown_key(self) -> None:
        """A key that is not pinned is named by its half."""
        for missing, reason in ((0, "chain_untrusted{classical}"), (1, "chain_untrusted{pq}")):
            keys = {kid: key for kid, key in KEYS.items() if kid != SIGNERS[missing].thumbprint}
            error = self.assertRaises(ChainUntrusted, verify, keys=keys)
            self.assertEqual(error.detail_reason, reason)

    def test_kid_of_another(self) -> None:
        """A signature under the name of a pinned key must be by that key."""
        other = Signer.from_raw_key(ed25519.Ed25519PrivateKey.from_private_bytes(b"\1" * 32))
        impostor = replace(other, thumbprint=SIGNERS[0].thumbprint)
        error = self.assertRaises(SignatureInvalid, verify, [impostor, SIGNERS[1]])
        self.assertEqual(error.detail_reason, "signature_invalid{Ed25519}")

    def test_certificates(self) -> None:
        """Certificates have no place beside pinned keys."""
        self.assertRaises(Malformed, verify, [A, B], sets=(("ES256", "ML-DSA-65"),))

    def test_no_kid(self) -> None:
        """A pinned key must be named."""
        nameless = dumps(forge(SIGNERS, PAYLOAD, typ=TYP, without=["kid"]))
        error = self.assertRaises(Malformed, verify, envelope=nameless)
        self.assertIn("kid is missing", str(error))

    def test_version(self) -> None:
        """The version stands at the top of the payload."""
        self.assertRaises(UnsupportedVersion, verify, payload=b'{"v":2}')
        self.assertRaises(Malformed, verify, payload=b'{"svc":{"v":1}}')
