"""The PQ bundle of a node, from an issuer in memory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from svc.agent.pqbundle import NodePqBundle, combined
from svc.errors import SvcError
from svc.identity import TrustDomain, X509Bundle
from svc.identity.pqbundle import PqBundle, PqBundles
from svc.notary.pqissuer import PqIssuer
from svc.telemetry.events.agent import AgentEvent
from svc.workload.errors import CredentialsMissing, PqIssuerError
from tests.peers.folders import short_folder
from tests.proxy.parts import LogTestCase

NOW = datetime(2026, 11, 21, tzinfo=UTC)
DOMAIN = TrustDomain("example.org")
ROOTS = [PqIssuer.create(DOMAIN, NOW, timedelta(days=30), os.urandom).certificate for _number in range(2)]
OLD = PqBundles().with_bundle(X509Bundle.from_certificates(DOMAIN, ROOTS[:1]), 1)
NEW = PqBundles().with_bundle(X509Bundle.from_certificates(DOMAIN, ROOTS), 2)
PEER = TrustDomain("partner.example.org")
PEER_ROOTS = [PqIssuer.create(PEER, NOW, timedelta(days=30), os.urandom).certificate for _number in range(2)]


def peers(sequence: int, *roots: int) -> PqBundles:
    """What the manager gives: some of the roots of one peer."""
    bundle = X509Bundle.from_certificates(PEER, [PEER_ROOTS[each] for each in roots])
    return PqBundles({PEER: PqBundle(sequence, bundle)})


class NodePqBundleTests(LogTestCase):
    """What is written, and when."""

    def setUp(self) -> None:
        """Start it without a file."""
        super().setUp()
        stack = ExitStack()
        self.addCleanup(stack.close)
        folder = short_folder(stack)
        folder.chmod(0o755)
        self.path = folder / "pq-bundle.json"
        self.answer: PqBundles | SvcError | None = CredentialsMissing(socket="memory")
        self.asked = 0
        self.reports: list[int] = []
        self.states: list[str] = []
        self.clock = Clock()
        self.service = NodePqBundle(str(self.path), DOMAIN, self.fetch, 10.0, self.clock, self.state)
        self.service.startService()
        self.addCleanup(self.service.stopService)

    def fetch(self, served: PqBundles | None) -> Deferred[PqBundles]:
        """What the issuer answers; never, for None."""
        self.asked += 1
        self.reports.append(0 if served is None else served.entries[DOMAIN].sequence)
        if self.answer is None:
            return Deferred()
        return fail(self.answer) if isinstance(self.answer, SvcError) else succeed(self.answer)

    def state(self, error: SvcError | None) -> None:
        self.states.append("" if error is None else error.reason)

    def written(self) -> PqBundles | None:
        """The content of the file."""
        return PqBundles.parse(self.path.read_bytes()) if self.path.exists() else None

    def step(self, answer: PqBundles | SvcError | None, seconds: float = 10.0) -> None:
        """Let time pass while the issuer answers so."""
        self.answer = answer
        self.clock.advance(seconds)

    def test_first(self) -> None:
        """It asks each second until there is a file that is reported, and then at its interval."""
        self.step(OLD, 1.0)
        self.assertEqual(OLD, self.written())
        self.assertEqual(0o644, self.path.stat().st_mode & 0o777)
        self.assertEqual(2, self.asked)
        self.clock.advance(1.0)
        self.assertEqual([0, 0, 1], self.reports)
        for _second in range(7):
            self.clock.advance(1.0)
        self.assertEqual(3, self.asked)
        self.clock.advance(1.0)
        self.assertEqual(4, self.asked)
        self.assertEqual(1, len(self.of(AgentEvent.PQ_BUNDLE_WRITTEN)))

    def test_report(self) -> None:
        """A bundle that was written is reported a second later, and once more at the interval."""
        self.step(OLD, 1.0)
        self.clock.advance(1.0)
        self.step(NEW, 8.0)
        self.clock.advance(1.0)
        self.assertEqual([0, 0, 1, 1, 2], self.reports)
        self.clock.advance(8.0)
        self.assertEqual(5, self.asked)

    def test_newer_and_older(self) -> None:
        """A newer bundle replaces the file; an older one, or other roots with the same sequence, do not."""
        self.step(OLD, 1.0)
        self.step(NEW)
        self.assertEqual(NEW, self.written())
        self.step(OLD)
        self.step(PqBundles().with_bundle(X509Bundle.from_certificates(DOMAIN, ROOTS[:1]), 2))
        self.assertEqual(NEW, self.written())
        self.assertEqual(["sequence_fell"] * 2, self.states[-2:])

    def test_issuer_away(self) -> None:
        """The file stays, the reason is shown and logged once, and the next success clears it."""
        self.step(OLD, 1.0)
        away = PqIssuerError("pq_issuer_timeout", address="x:1", seconds=1)
        for _attempt in range(3):
            self.step(away)
        self.assertEqual((OLD, "pq_issuer_timeout"), (self.written(), self.states[-1]))
        self.assertEqual(1, len(self.of(AgentEvent.PQ_BUNDLE_FAILED)))
        self.step(OLD)
        self.assertEqual("", self.states[-1])
        self.step(away)
        self.assertEqual(2, len(self.of(AgentEvent.PQ_BUNDLE_FAILED)))

    def test_peers(self) -> None:
        """Peers are written when they are known, in the order in which both answer, and never under the own name."""
        self.service.stopService()
        self.service = NodePqBundle(str(self.path), DOMAIN, self.fetch, 10.0, self.clock, self.state, peers=True)
        self.service.startService()
        self.service.take_foreign(peers(5, 0))
        self.assertEqual(None, self.written())
        self.step(OLD, 1.0)
        self.assertEqual(PqBundles({**OLD.entries, **peers(5, 0).entries}), self.written())
        self.service.take_foreign(PqBundles({**peers(6, 0, 1).entries, **NEW.entries}))
        self.assertEqual(PqBundles({**OLD.entries, **peers(6, 0, 1).entries}), self.written())
        self.step(NEW)
        self.assertEqual(PqBundles({**NEW.entries, **peers(6, 0, 1).entries}), self.written())

    def test_peers_stay(self) -> None:
        """After a restart those of the file stay until the manager answers, while the issuer's are renewed."""
        self.path.write_bytes(PqBundles({**OLD.entries, **peers(5, 0).entries}).serialize())
        self.service.stopService()
        self.service = NodePqBundle(str(self.path), DOMAIN, self.fetch, 10.0, self.clock, self.state, peers=True)
        self.answer = NEW
        self.service.startService()
        self.assertEqual(PqBundles({**NEW.entries, **peers(5, 0).entries}), self.written())

    def test_former_peer(self) -> None:
        """A former peer keeps its sequence and no roots; when it begins anew, verifiers take that for no old copy."""
        known = combined(OLD, OLD, peers(5, 0), DOMAIN)
        steps = [known]
        for answer in (PqBundles(), PqBundles(), peers(1, 1), peers(2, 0, 1), peers(2, 0, 1)):
            steps.append(combined(steps[-1], OLD, answer, DOMAIN))
        found = [(each.entries[PEER].sequence, len(each.entries[PEER].bundle.anchors)) for each in steps]
        self.assertEqual([(5, 1), (6, 0), (6, 0), (7, 1), (8, 2), (8, 2)], found)
        verifier = steps[0]
        for each in steps[1:]:
            verifier = verifier.advanced_to(PqBundles.parse(each.serialize()))

    def test_peer_of_the_issuer(self) -> None:
        """Roots of a peer that the issuer has are the issuer's; without a manager, what the issuer drops is gone."""
        issued = PqBundles({**OLD.entries, **peers(3, 0).entries})
        self.assertEqual(issued, combined(None, issued, peers(9, 1), DOMAIN))
        self.assertEqual(OLD, combined(issued, OLD, None, DOMAIN))

    def test_no_svid_yet(self) -> None:
        """Before the first SVID nothing is logged here."""
        self.assertEqual(["credentials_missing"], self.states)
        self.assertEqual([], self.of(AgentEvent.PQ_BUNDLE_FAILED))

    def test_unusable_file(self) -> None:
        """A file that no verifier would use is replaced; one that cannot be written is reported."""
        self.path.write_text("not a bundle")
        self.step(OLD, 1.0)
        self.assertEqual(OLD, self.written())
        self.path.unlink()
        self.path.parent.rmdir()
        self.step(NEW)
        self.assertEqual("pq_bundle_unwritable", self.states[-1])
        self.path.parent.mkdir(mode=0o755)
        self.step(NEW)
        self.assertEqual(NEW, self.written())

    def test_stop(self) -> None:
        """A request under way ends with the service and is no failure."""
        self.step(None, 1.0)
        self.service.stopService()
        self.clock.advance(60.0)
        self.assertEqual((2, 1), (self.asked, len(self.states)))
        self.service.startService()
