"""The roots of the post-quantum issuer: those that are due, and the Secret that holds them."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from random import Random

from twisted.trial.unittest import SynchronousTestCase

from svc.identity import TrustDomain
from svc.manager.config import IssuerSettings
from svc.manager.issuer.roots import Roots, due_roots, next_change, read_roots, secret_data
from svc.pqissuer.keydocument import KeyDocumentInvalid
from svc.settings import parse

TRUST_DOMAIN = TrustDomain("prod.example.org")
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS = parse("rootTtl: 24h", IssuerSettings)


def due(roots: Roots, hours: float) -> Roots:
    """The roots some hours after the beginning."""
    return due_roots(roots, TRUST_DOMAIN, SETTINGS, Random(1).randbytes, BEGAN + timedelta(hours=hours))


class DueRootsTests(SynchronousTestCase):
    """What follows from the time."""

    def test_life_of_a_root(self) -> None:
        """The first at once, the next at half of its life; nothing between the changes, and one that has ended goes."""
        first = due((), 0)
        self.assertEqual(1, len(first))
        self.assertEqual(BEGAN + timedelta(hours=12), next_change(first))
        self.assertEqual(first, due(first, 11.9))
        both = due(first, 12.1)
        self.assertEqual((first[0], 2), (both[0], len(both)))
        self.assertEqual(BEGAN + timedelta(hours=24), next_change(both))
        later = due(both, 24.1)
        self.assertEqual(both[1], later[0])


class SecretTests(SynchronousTestCase):
    """The data of the Secret."""

    def test_written_and_read(self) -> None:
        """All roots are those that were written."""
        roots = due(due((), 0), 12.1)
        secret = {"metadata": {"name": "keys"}, "data": secret_data(roots, TRUST_DOMAIN)}
        found = read_roots(secret, TRUST_DOMAIN)
        self.assertEqual([each.key.certificate for each in roots], [each.key.certificate for each in found])

    def test_damaged(self) -> None:
        """Without the key, or with another content, it is refused."""
        for data in (None, {}, {"keys.json": base64.b64encode(b"{}").decode("ascii")}):
            with self.assertRaises(KeyDocumentInvalid):
                read_roots({"metadata": {"name": "keys"}, "data": data}, TRUST_DOMAIN)
