"""Tests of svc.pqissuer.nodes."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.pqissuer.nodes import SETTLE_SECONDS, NodeReport, ReportMalformed, ServingNodes

LIFE = 100.0


class NodeReportTests(SynchronousTestCase):
    """The parameters of a request."""

    def test_read(self) -> None:
        """Names of nodes up to the longest, and sequences of 16 digits; nothing is no report."""
        for node in ("n", "ip-10-0-0-1.eu-west-1.compute.internal", "My_Host", "a" * 253):
            found = NodeReport.parse({b"node": [node.encode()], b"sequence": [b"9" * 16]})
            self.assertEqual(NodeReport(node, 9999999999999999), found)
        self.assertIsNone(NodeReport.parse({b"other": [b"1"]}))

    def test_malformed(self) -> None:
        """What is missing, given twice, too long or of other characters is refused."""
        good = {b"node": [b"n"], b"sequence": [b"1"]}
        cases: list[dict[bytes, list[bytes]]] = [{b"node": [b"n"]}, {b"sequence": [b"1"]}]
        cases += [{**good, b"node": [each]} for each in (b"", b"a" * 254, b"a b", b"-a", b"a.", b"a\n", b"\xe4")]
        cases += [{**good, b"sequence": [each]} for each in (b"", b"9" * 17, b"-1", b"1.0", "١".encode())]
        cases += [{**good, b"node": [b"n", b"n"]}, {**good, b"sequence": [b"1", b"1"]}]
        for case in cases:
            self.assertRaises(ReportMalformed, NodeReport.parse, case)


class ServingNodesTests(SynchronousTestCase):
    """What all nodes serve."""

    def setUp(self) -> None:
        """Collecting began at 0."""
        self.nodes = ServingNodes(0.0, LIFE, limit=3)

    def report(self, now: float, **sequences: int) -> None:
        """Nodes report."""
        for node, sequence in sequences.items():
            self.nodes.report(NodeReport(node, sequence), now)

    def test_all(self) -> None:
        """All nodes serve what each has served for the time that verifiers need."""
        self.report(LIFE, a=2, b=3)
        self.assertFalse(self.nodes.all_serve(2, LIFE + SETTLE_SECONDS - 1))
        self.assertTrue(self.nodes.all_serve(2, LIFE + SETTLE_SECONDS))
        self.assertFalse(self.nodes.all_serve(3, LIFE + SETTLE_SECONDS))
        self.assertEqual((("a",), ("a", "b")), (self.nodes.behind(3, LIFE), self.nodes.behind(4, LIFE)))
        self.report(LIFE + 10, a=2, b=3)
        self.assertTrue(self.nodes.all_serve(2, LIFE + 10))
        self.report(LIFE + 20, a=3)
        self.assertFalse(self.nodes.all_serve(3, LIFE + 20))

    def test_none(self) -> None:
        """Without reports nothing is served by all, and nobody is behind."""
        self.assertEqual((False, ()), (self.nodes.all_serve(0, 10 * LIFE), self.nodes.behind(1, 10 * LIFE)))

    def test_collecting(self) -> None:
        """Until reports were collected for their life, another node may be behind."""
        self.report(LIFE - SETTLE_SECONDS - 1, a=2)
        self.assertFalse(self.nodes.all_serve(2, LIFE - 1))
        self.assertTrue(self.nodes.all_serve(2, LIFE))

    def test_forgotten(self) -> None:
        """A node that has not reported for the life of reports is forgotten, and counts up to then."""
        self.report(LIFE, a=1, b=2)
        self.report(LIFE + 50, b=2)
        self.assertEqual(["a", "b"], list(self.nodes.known(2 * LIFE - 1)))
        self.assertFalse(self.nodes.all_serve(2, 2 * LIFE - 1))
        self.assertEqual(["b"], list(self.nodes.known(2 * LIFE)))
        self.assertTrue(self.nodes.all_serve(2, 2 * LIFE))

    def test_too_many(self) -> None:
        """One node more than the limit is not stored, and until that is long ago nothing is served by all."""
        self.report(LIFE, a=2, b=2, c=2)
        self.assertTrue(self.nodes.all_serve(2, LIFE + 10))
        self.report(LIFE + 10, d=2)
        self.assertEqual(["a", "b", "c"], list(self.nodes.known(LIFE + 10)))
        self.report(LIFE + 90, a=2, b=2)
        self.assertFalse(self.nodes.all_serve(2, 2 * LIFE + 9))
        self.assertTrue(self.nodes.all_serve(2, 2 * LIFE + 10))

    def test_limit_of_forgotten_nodes(self) -> None:
        """Nodes that are forgotten make room."""
        self.report(LIFE, a=2, b=2, c=2)
        self.report(2 * LIFE, d=2)
        self.assertEqual((["d"], True), (list(self.nodes.known(2 * LIFE)), self.nodes.all_serve(2, 2 * LIFE + 10)))
