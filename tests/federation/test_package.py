"""Bootstrap packages: content that is written and read back, any claims, and how they are signed."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError
from svc.federation.endpoint import Endpoint
from svc.federation.errors import PackageRefused
from svc.federation.package import BootstrapPackage, sign_package, verify_package
from svc.federation.payload import PackageContent
from svc.strictjson import dumps
from tests.federation.material import ENDPOINT, claims, content, forged, full_content, signed, signers

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def paths(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each value in a document."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, each in items for found in paths(each, (*path, key)))]


class ContentTests(SynchronousTestCase):
    """The payload."""

    def test_round_trip(self) -> None:
        """What is written is read back to equal content."""
        for found in (content(), content(5), full_content()):
            self.assertEqual(PackageContent.from_payload(found.to_payload()), found)

    def test_secrets(self) -> None:
        """A package with everything in it has no member that could hold a private key."""
        names = {path[-1] for path in paths(claims(full_content())) if path}
        self.assertEqual(names & {"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"}, set())

    @given(st.data())
    def test_any_claims(self, data: st.DataObject) -> None:
        """With any value in any place a payload is read, or refused with EnvelopeError."""
        members = copy.deepcopy(claims(full_content()))
        place = data.draw(st.sampled_from(paths(members)[1:]))
        target: Any = members
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = data.draw(VALUES)
        try:
            found = PackageContent.from_payload(dumps(members))
        except EnvelopeError:
            return
        self.assertEqual(PackageContent.from_payload(found.to_payload()), found)


class PackageTests(SynchronousTestCase):
    """The envelope."""

    @given(st.binary(max_size=64) | VALUES.map(dumps))
    def test_any_octets(self, data: bytes) -> None:
        """What is no package is refused with EnvelopeError."""
        self.assertRaises(EnvelopeError, BootstrapPackage.parse, data)

    @given(st.text(max_size=12), VALUES)
    def test_any_extra_member(self, name: str, value: object) -> None:
        """A member that nobody signs is ignored, or refused with EnvelopeError; the content stays the same."""
        for member in (name, "hints", "previousSignatures"):
            document = {**PLAIN, **({member: value} if member not in PLAIN else {})}
            try:
                found = verify_package(dumps(document))
            except EnvelopeError:
                continue
            self.assertEqual(found.content, content())

    def test_hint(self) -> None:
        """The hint can be replaced and removed without a new signature."""
        found = sign_package(content(), signers(), endpoint=ENDPOINT).package
        other = Endpoint.parse("[2001:db8::1]:443")
        for endpoint in (other, None):
            again = verify_package(found.with_endpoint(endpoint).serialize())
            self.assertEqual((again.package.endpoint, again.package.reference.endpoint), (endpoint, endpoint))
            self.assertEqual(again.package.envelope.signatures, found.envelope.signatures)

    def test_signers(self) -> None:
        """Other keys than the roots of the content, and one key alone, sign no package."""
        self.assertRaises(PackageRefused, sign_package, content(), signers(2))
        self.assertRaises(EnvelopeError, sign_package, content(), signers()[:1])
        self.assertRaises(EnvelopeError, sign_package, content(), signers(1, "ES256"))

    def test_without_secrets_of_the_signer(self) -> None:
        """Neither the seed of a root nor its private encoding is in the octets."""
        from tests.vectors.material import seed

        data = signed().package.serialize()
        self.assertNotIn(seed("federation roots 1"), data)
        self.assertLess(len(data), MAX_ENVELOPE // 8)

    def test_unverified(self) -> None:
        """Reading alone proves nothing: a package with a wrong signature is read, and not verified."""
        found = BootstrapPackage.parse(dumps(forged(content(), other_payload=b"{}")))
        self.assertEqual(found.content, content())
        self.assertRaises(EnvelopeError, found.verify)


PLAIN = signed().package.envelope.to_object()
