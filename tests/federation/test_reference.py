"""Federation references: one line, and what happens to it on its way."""

from __future__ import annotations

import base64
import hashlib

from hypothesis import assume, given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.federation.errors import ReferenceRefused
from svc.federation.fingerprint import Fingerprint
from svc.federation.reference import MAX_REFERENCE, ExpectedPeer, FederationReference
from svc.identity import TrustDomain
from tests.federation.material import ENDPOINT, PROD, roots
from tests.federation.test_endpoint import ENDPOINTS

DOMAINS = st.from_regex(r"[a-z0-9._-]{1,40}", fullmatch=True).map(TrustDomain.parse)
REFERENCES = st.builds(
    FederationReference, DOMAINS, st.binary(min_size=32, max_size=32).map(Fingerprint), st.none() | ENDPOINTS
)


class ReferenceTests(SynchronousTestCase):
    """Reading and writing."""

    def test_form(self) -> None:
        """Prefix, trust domain, fingerprint, hint, and 6 characters of SHA-256 over them."""
        fingerprint = roots().fingerprint(PROD)
        body = f"svcfed1:prod.example.org:{fingerprint.base32}@m2m.prod.example.org:31443"
        checksum = base64.b32encode(hashlib.sha256(body.encode()).digest())[:6].decode().lower()
        self.assertEqual(str(FederationReference(PROD, fingerprint, ENDPOINT)), f"{body}~{checksum}")

    def test_expected_peer(self) -> None:
        """A reference gives the trust domain as well, a fingerprint alone does not."""
        fingerprint = roots().fingerprint(PROD)
        for endpoint in (None, ENDPOINT):
            found = ExpectedPeer.parse(f" {FederationReference(PROD, fingerprint, endpoint)}\n")
            self.assertEqual((found.trust_domain, found.fingerprint.matches(fingerprint)), (PROD, True))
        alone = ExpectedPeer.parse(fingerprint.digits)
        self.assertEqual((alone.trust_domain, alone.fingerprint.matches(fingerprint)), (None, True))

    @given(REFERENCES)
    def test_round_trip(self, reference: FederationReference) -> None:
        """What is written is read back to an equal reference, and has a bounded length."""
        self.assertEqual(FederationReference.parse(str(reference)), reference)
        self.assertLess(len(str(reference)), MAX_REFERENCE)

    @given(REFERENCES, st.data())
    def test_damage(self, reference: FederationReference, data: st.DataObject) -> None:
        """A changed, lost, doubled or inserted character is noticed."""
        text = str(reference)
        at = data.draw(st.integers(0, len(text) - 1))
        other = data.draw(st.characters(exclude_categories=["Cs"]))
        damaged = data.draw(
            st.sampled_from(
                (
                    text[:at] + other + text[at + 1 :],
                    text[:at] + text[at + 1 :],
                    text[:at] + other + text[at:],
                    text[:at],
                )
            )
        )
        assume(damaged.strip() != text)
        self.assertRaises(ReferenceRefused, FederationReference.parse, damaged)

    @given(st.text(max_size=60) | st.text(max_size=60).map(lambda end: f"svcfed1:{end}"))
    def test_any_text(self, text: str) -> None:
        """Any text is refused with ReferenceRefused."""
        self.assertRaises(ReferenceRefused, FederationReference.parse, text)
