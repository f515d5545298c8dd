"""When the package of a cluster is signed anew."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from functools import partial

from twisted.trial.unittest import SynchronousTestCase

from svc.federation.endpoint import Endpoint
from svc.federation.package import VerifiedPackage, verify_package
from svc.federation.payload import PeerBundle
from svc.federation.succession import check_follows
from svc.manager.federation.package import due_package, needs_successor, own_content
from svc.manager.federation.roots import OwnRoots
from tests.federation.material import ENDPOINT, full_content
from tests.manager.federation.test_roots import DAY, generations
from tests.vectors.material import NOW

SECOND = timedelta(seconds=1)


def due(
    published: VerifiedPackage | None,
    now: datetime,
    *,
    roots: OwnRoots | None = None,
    bundle: PeerBundle | None = None,
    endpoint: Endpoint | None = ENDPOINT,
) -> VerifiedPackage:
    """What is published."""
    full = full_content()
    signing = roots or generations()[0]
    content = partial(own_content, signing, bundle or full.bundle, full.pq)
    return due_package(signing, content, published, endpoint, now)


class PackageTests(SynchronousTestCase):
    """The rule."""

    def test_first(self) -> None:
        """It verifies, lives for thirty days, and names who serves it and where."""
        found = verify_package(due(None, NOW).package.serialize())
        self.assertEqual((NOW, NOW + 30 * DAY), (found.content.issued, found.content.expires))
        self.assertEqual("spiffe://prod.example.org/svc/m2m", str(found.content.m2m.spiffe_id))
        self.assertEqual(ENDPOINT, found.package.endpoint)
        self.assertEqual(full_content().pq, found.content.pq)

    def test_signed_each_day(self) -> None:
        """For a day it stays as it is; then it is signed anew with the same sequence, and peers take it."""
        first = due(None, NOW)
        self.assertIs(first, due(first, NOW + DAY - SECOND))
        again = due(first, NOW + DAY)
        self.assertEqual((NOW + DAY, 1), (again.content.issued, again.content.sequence))
        check_follows(first, again, NOW + DAY)

    def test_other_content(self) -> None:
        """Another bundle is published at once."""
        first = due(None, NOW)
        bundle = dataclasses.replace(full_content().bundle, sequence=43)
        again = due(first, NOW + SECOND, bundle=bundle)
        self.assertEqual((43, NOW + SECOND), (again.content.bundle.sequence, again.content.issued))

    def test_other_endpoint(self) -> None:
        """The hint is not signed: it is replaced beside the same signatures."""
        first = due(None, NOW)
        other = Endpoint.parse("192.0.2.1:31443")
        moved = due(first, NOW + SECOND, endpoint=other)
        self.assertEqual(other, moved.package.endpoint)
        self.assertEqual(first.package.envelope.signatures, moved.package.envelope.signatures)
        self.assertIsNone(due(first, NOW, endpoint=None).package.endpoint)

    def test_clock_set_back(self) -> None:
        """A package is never older than the one before, which would be a rollback."""
        first = due(None, NOW)
        bundle = dataclasses.replace(full_content().bundle, sequence=43)
        self.assertEqual(NOW, due(first, NOW - DAY, bundle=bundle).content.issued)
        self.assertIs(first, due(first, NOW - DAY))

    def test_successor(self) -> None:
        """New roots are introduced by the package that the roots before have signed too; peers follow it."""
        first, second = due(None, NOW), generations()[1]
        introduced = due(first, second.made, roots=second)
        self.assertTrue(introduced.package.previous_signatures)
        check_follows(first, introduced, second.made)
        later = due(introduced, second.made + DAY, roots=second)
        self.assertFalse(later.package.previous_signatures)

    def test_life_of_roots(self) -> None:
        """Roots are followed at the end of their life."""
        roots = generations()[0]
        self.assertFalse(needs_successor(roots, 86400.0, roots.made + DAY - SECOND))
        self.assertTrue(needs_successor(roots, 86400.0, roots.made + DAY))
