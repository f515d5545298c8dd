"""Tests of svc.authority.conditions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.authority.conditions import AuthorityHealth
from svc.authority.federation import ForeignRootsMissing, WatchedFile
from svc.authority.keyfile import KeysNotStored
from svc.identity import TrustDomain
from svc.pqissuer.rotation import KeyRing
from svc.testing.workload import MemorySource
from tests.workload.messages import AUTHORITY

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TTL = timedelta(hours=24)
NOT_STORED = KeysNotStored(path="/keys", what="the disk is full")


class AuthorityHealthTests(SynchronousTestCase):
    """:class:`AuthorityHealth`."""

    def health(self, *, pq_only: bool = False, federated: bool = False) -> AuthorityHealth:
        """The conditions of an authority whose sockets are open."""
        health = AuthorityHealth(pq_only=pq_only, federated=federated, now=lambda: NOW)
        health.holds("listeners")
        return health

    def shown(self, health: AuthorityHealth) -> dict[str, str]:
        """The reason of each condition that does not hold."""
        return {each.name: each.reason for each in health.conditions if not each.holds}

    def ring(self) -> KeyRing[int]:
        """A ring with one key, made at ``NOW``."""
        ring: KeyRing[int] = KeyRing(lambda now, expires: 1, TTL)
        ring.advance(NOW)
        return ring

    def test_names(self) -> None:
        """Conditions that do not apply are not shown."""
        self.assertEqual(["roots", "files", "listeners"], [each.name for each in self.health().conditions])
        everything = self.health(pq_only=True, federated=True).conditions
        self.assertEqual(["credentials", "workloadApi", "federation"], [each.name for each in everything][3:])

    def test_keys_not_stored(self) -> None:
        """It stays ready while the previous keys are in use, and is not when one kind has none left."""
        health, ring = self.health(), self.ring()
        health.advanced([ring], NOW, None)
        self.assertTrue(health.ready)
        health.advanced([ring], NOW, NOT_STORED)
        self.assertEqual({"files": NOT_STORED.reason}, self.shown(health))
        self.assertTrue(health.ready)
        health.advanced([ring], NOW + TTL, NOT_STORED)
        self.assertEqual({"roots": NOT_STORED.reason, "files": NOT_STORED.reason}, self.shown(health))
        self.assertFalse(health.ready)

    def test_federation(self) -> None:
        """A file that is not usable is shown, with its error, until it can be read."""
        path = Path(self.mktemp())
        problems = [ForeignRootsMissing(path=path, trust_domain=TrustDomain("b.example"))]

        def read() -> None:
            for each in problems:
                raise each

        file = WatchedFile(str(path), read, lambda path, error: None)
        health = self.health(federated=True)
        file.check()
        health.federated([file])
        self.assertEqual("trust_domain_unknown", self.shown(health)["federation"])
        self.assertIn("has no roots of b.example", health.condition("federation").message)
        problems.clear()
        file.check()
        health.federated([file])
        self.assertNotIn("federation", self.shown(health))

    def test_beside_another_implementation(self) -> None:
        """It is ready only while it has an SVID that has not expired."""
        health, source = self.health(pq_only=True), MemorySource()
        health.advanced([self.ring()], NOW, None)
        health.credentials(source, NOW)
        self.assertEqual("credentials_missing", self.shown(health)["credentials"])
        svid = AUTHORITY.svid("/issuer")
        source.rotate(svid, AUTHORITY.bundles())
        health.credentials(source, svid.chain_not_after)
        self.assertEqual({}, self.shown(health))
        health.credentials(source, svid.chain_not_after + timedelta(seconds=1))
        self.assertEqual({"credentials": "expired"}, self.shown(health))
        self.assertFalse(health.ready)
