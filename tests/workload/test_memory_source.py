"""Tests of svc.testing.workload."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.testing.workload import MemorySource
from svc.workload.errors import CredentialsMissing, IdentityWithdrawn, NoIdentityIssued, WorkloadApiUnavailable
from svc.workload.interface import CredentialSource
from tests.workload.messages import AUTHORITY, FOREIGN


class MemorySourceTests(SynchronousTestCase):
    """The double behaves as the real source does."""

    def test_ready(self) -> None:
        """Given credentials it is ready at once."""
        svid = AUTHORITY.svid("/a")
        source: CredentialSource = MemorySource(svid, AUTHORITY.bundles())
        self.successResultOf(source.when_ready())
        self.assertEqual((source.svid, source.bundles), (svid, AUTHORITY.bundles()))
        self.assertEqual(source.state.phase, "connected")

    def test_late(self) -> None:
        """Without credentials it waits for the first rotation and notifies every subscriber."""
        source = MemorySource()
        received: list[int] = []
        unsubscribe = source.subscribe(lambda: received.append(1))
        ready = source.when_ready()
        self.assertRaises(CredentialsMissing, lambda: source.svid)
        self.assertRaises(CredentialsMissing, lambda: source.bundles)
        self.assertNoResult(ready)
        source.rotate(AUTHORITY.svid("/a"), AUTHORITY.bundles())
        self.successResultOf(ready)
        source.rotate(bundles=FOREIGN.bundles())
        self.assertEqual(source.svid.spiffe_id.path, "/a")
        unsubscribe()
        unsubscribe()
        source.rotate(AUTHORITY.svid("/b"))
        self.assertEqual(received, [1, 1])

    def test_failing(self) -> None:
        """A failure ends the wait for credentials; after they have come it makes the source stale."""
        source = MemorySource()
        ready = source.when_ready()
        source.fail(NoIdentityIssued(socket="memory", seconds=1))
        self.failureResultOf(ready, NoIdentityIssued)
        self.assertEqual(source.state.phase, "starting")
        source.rotate(AUTHORITY.svid("/a"), AUTHORITY.bundles())
        source.fail()
        self.assertEqual(source.state.phase, "stale")
        self.assertIsInstance(source.state.last_error, WorkloadApiUnavailable)
        self.assertEqual(source.svid.spiffe_id.path, "/a")

    def test_withdrawn(self) -> None:
        """
        A withdrawn identity is missing until the next rotation; bundles stay, and subscribers are notified of both.
        """
        svid = AUTHORITY.svid("/a")
        source = MemorySource(svid, AUTHORITY.bundles())
        phases: list[str] = []
        source.subscribe(lambda: phases.append(source.state.phase))
        source.withdraw()
        self.assertRaises(IdentityWithdrawn, lambda: source.svid)
        self.assertEqual(source.bundles, AUTHORITY.bundles())
        source.rotate()
        self.assertEqual(source.svid, svid)
        self.assertEqual(phases, ["withdrawn", "connected"])
