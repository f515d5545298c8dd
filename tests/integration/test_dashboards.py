"""The dashboards for Grafana: every query of every panel, asked of a real Prometheus that scrapes real processes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

from twisted.trial.unittest import SynchronousTestCase

from docs.generator.dashboards import dashboards
from svc.data import FOLDER
from tests.peers.observed import Observed
from tests.peers.programs import find
from tests.peers.waiting import NotInTime, Shared, eventually

RULES = FOLDER / "alerts" / "alerts.yaml"
OBSERVED = Shared(lambda stack: Observed(stack, RULES))


def queries(name: str) -> Iterator[tuple[str, str]]:
    """The panels of a file with each query as Grafana would send it for all instances."""
    found = json.loads((FOLDER / "dashboards" / f"{name}.json").read_text())
    for panel in found["panels"]:
        for target in panel.get("targets", ()):
            asked = target["expr"].replace("$job", name).replace("$instance", ".*").replace("$__rate_interval", "10s")
            yield panel["title"], asked


class PanelTests(SynchronousTestCase):
    """What the panels show while proxy and broker are used and nothing fails."""

    def setUp(self) -> None:
        """Start everything."""
        for program in ("prometheus", "promtool"):
            find(program)
        self.observed: Observed = OBSERVED.get()

    def check(self, name: str) -> None:
        """Ask for each panel until all have data; those that only failures fill are asked for their family."""
        (board,) = (each for each in dashboards() if each.name == name)
        quiet = {panel.title for panel in board.panels if panel.quiet}
        asked = list(queries(name))
        self.assertEqual({panel.title for panel in board.panels}, {title for title, _query in asked})
        self.assertNotIn("$", "".join(query for _title, query in asked))
        prometheus = self.observed.prometheus
        # Without the comparison a panel that is empty now shows the zeros of its family.
        shown = [query.removesuffix(" > 0") if title in quiet else query for title, query in asked]
        missing = shown

        def empty() -> list[str]:
            nonlocal missing
            self.observed.use(2)
            self.observed.refuse()
            missing = [query for query in missing if not prometheus.ask(query)]
            return missing

        with contextlib.suppress(NotInTime):
            eventually(lambda: not empty())
        self.assertEqual([], missing)

    def test_proxy(self) -> None:
        """Every panel of the proxy has data."""
        self.check("svc-proxy")

    def test_broker(self) -> None:
        """Every panel of the broker has data."""
        self.check("svc-broker")

    def test_variables(self) -> None:
        """The variables of each dashboard find its job and its instance."""
        for name, port in (
            ("svc-proxy", self.observed.proxy.metrics_port),
            ("svc-broker", self.observed.broker.metrics_port),
        ):
            (board,) = (each for each in dashboards() if each.name == name)
            expected = f'"instance": "127.0.0.1:{port}", "job": "{name}"'
            eventually(
                lambda family=board.family, expected=expected: any(
                    expected in series for series in self.observed.prometheus.ask(family)
                ),
                what="its series",
            )
