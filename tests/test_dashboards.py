"""The description of the dashboards; ``tests.test_docs`` finds stale files, ``tests.integration`` asks a Prometheus."""

from __future__ import annotations

import json
import re

from twisted.trial.unittest import SynchronousTestCase

from docs.generator.dashboards import dashboards, document, proxy_metrics
from docs.generator.pages import PageBroken
from svc.data import FOLDER


class DashboardTests(SynchronousTestCase):
    """The generated JSON."""

    def test_files(self) -> None:
        """The folder holds these dashboards and nothing else."""
        names = {f"{board.name}.json" for board in dashboards()}
        self.assertEqual({path.name for path in (FOLDER / "dashboards").iterdir()}, names)

    def test_form(self) -> None:
        """Identifiers are unique, no panel overlaps another, and every query is limited to the variables."""
        for board in dashboards():
            found = json.loads(document(board))
            panels = found["panels"]
            self.assertEqual(len(panels), len({panel["id"] for panel in panels}))
            quiet = [panel.title for panel in board.panels if panel.quiet]
            self.assertEqual(len(quiet), sum(panel.title in quiet for panel in board.panels))
            taken: set[tuple[int, int]] = set()
            for panel in panels:
                place = panel["gridPos"]
                cells = {
                    (x, y)
                    for x in range(place["x"], place["x"] + place["w"])
                    for y in range(place["y"], place["y"] + place["h"])
                }
                self.assertEqual(set(), taken & cells, panel["title"])
                self.assertLessEqual(place["x"] + place["w"], 24)
                taken |= cells
                for target in panel.get("targets", ()):
                    selectors = re.findall(r"\{[^}]*\}", target["expr"])
                    self.assertTrue(selectors, target["expr"])
                    for selector in selectors:
                        self.assertIn('job=~"$job",instance=~"$instance"', selector)

    def test_what_is_not_there(self) -> None:
        """A metric, label or value that no process has ends the generation."""
        metrics = proxy_metrics()
        name = "svc_proxy_connections_total"
        selector = '{job=~"$job",instance=~"$instance",direction="inbound"}'
        self.assertEqual(
            f"sum by (result) (rate({name}{selector}[$__rate_interval]))",
            metrics.rate(name, "result", direction="inbound"),
        )
        for wrong in (
            lambda: metrics.series("svc_proxy_connections"),
            lambda: metrics.series(name, direction="sideways"),
            lambda: metrics.series(name, side="inbound"),
            lambda: metrics.rate(name, "side"),
        ):
            self.assertRaises(PageBroken, wrong)
