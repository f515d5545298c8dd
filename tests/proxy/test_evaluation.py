"""What becomes of a connection after a change: by each error the cause, the metric and the record."""

from __future__ import annotations

from functools import partial
from typing import Final

from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity.errors import ChainUntrusted, SvidInvalid
from svc.policy.engine import Denied
from svc.proxy.errors import FormerSvidRefused
from svc.proxy.evaluation import Kept, Refused, evaluated
from svc.telemetry.labels import UpstreamCause
from svc.transport.errors import OwnIdentityWithdrawn
from tests.proxy.rig import AUTHORITY, BASE, CALLER, Rig, evidence_of

PEER: Final = str(CALLER.spiffe_id)
UNTRUSTED: Final = ChainUntrusted(spiffe_id=PEER, trust_domain="prod.example", detail="no root")
#: The error; the cause with which the connection is closed; denials counted for policies and for SVIDs; the record.
TABLE: Final[list[tuple[SvcError, UpstreamCause, tuple[int, int], str | None]]] = [
    (OwnIdentityWithdrawn(presented=PEER, own="none"), "identity_withdrawn", (0, 0), None),
    (FormerSvidRefused(cause=UNTRUSTED), "rotation", (0, 0), "own_svid_refused"),
    (Denied(identity=CALLER.spiffe_id, policy="p", rule="r"), "reauthorization", (1, 0), "policy_deny"),
    (UNTRUSTED, "reauthorization", (0, 1), "chain_untrusted"),
]


def refuse(error: Exception) -> bool:
    """Refuse a connection."""
    raise error


class EvaluationTests(SynchronousTestCase):
    """One connection that is decided on again."""

    def test_table(self) -> None:
        """Each error has its cause, is counted and recorded, of clients and of peers."""
        for error, cause, denials, record in TABLE:
            evaluation = evaluated(partial(refuse, error))
            self.assertEqual(evaluation, Refused(cause, error))
            for direction in ("inbound", "outbound"):
                rig = Rig(inbound=direction == "inbound")
                before = self.counted(rig)
                decision = rig.context.report_refused(error, "10.0.0.1", PEER)
                counted = tuple(now - then for now, then in zip(self.counted(rig), before, strict=True))
                self.assertEqual(counted, denials, (cause, direction))
                self.assertEqual(rig.reporter.denials, [] if record is None else [(record, PEER)])
                self.assertEqual(decision is not None, record == "policy_deny")

    def counted(self, rig: Rig) -> tuple[float, float]:
        """Denials of the listener, for policies and for SVIDs."""
        metrics = rig.context.metrics
        return metrics.denied_policy.value, metrics.denied_svid.value

    def test_kept(self) -> None:
        """What nothing refuses stays, or ends in order."""
        self.assertEqual([evaluated(lambda: False), evaluated(lambda: True)], [Kept.KEEP, Kept.DRAIN])

    def test_defect(self) -> None:
        """Another error is a defect, not an evaluation."""
        self.assertRaises(ZeroDivisionError, evaluated, partial(refuse, ZeroDivisionError()))

    def test_peer_before_policies(self) -> None:
        """A peer that cannot be verified any more is not authorized; rotation is looked at last."""
        rig = Rig()
        asked: list[None] = []
        evidence = evidence_of(CALLER)
        self.assertIs(rig.context.evaluate(evidence, lambda: asked.append(None)), Kept.KEEP)
        rig.context.on_rotation = "drain"
        self.assertIs(rig.context.evaluate(evidence, lambda: asked.append(None)), Kept.KEEP)
        rig.rotation.bundles = type(AUTHORITY)("prod.example", now=BASE).bundles()
        refused = rig.context.evaluate(evidence, lambda: asked.append(None))
        assert isinstance(refused, Refused)
        self.assertIsInstance(refused.error, SvidInvalid)
        self.assertEqual(len(asked), 2)
