"""The values of the chart: model, ``values.yaml`` and schema agree, and mistakes are refused by name."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from svc import __version__, strictyaml
from svc.chart.values import ChartValues
from tests.chart.rendering import CHART, VALUES, Document, helm, merged, template


def defaults() -> Document:
    """What ``values.yaml`` says."""
    found = strictyaml.loads((CHART / "values.yaml").read_text())
    assert isinstance(found, dict)
    return found


class ValuesTests(SynchronousTestCase):
    """``values.yaml`` and the schema are generated; here is what Helm makes of them."""

    def test_defaults(self) -> None:
        """With the required values the file says what the model has as its defaults."""
        self.assertEqual(ChartValues.model_validate(VALUES), ChartValues.model_validate(merged(defaults(), VALUES)))

    def test_lint(self) -> None:
        """Helm finds no fault."""
        ran = helm("lint", "--strict", "--namespace", "svc-system", values=VALUES)
        self.assertEqual(0, ran.returncode, ran.stdout + ran.stderr)
        self.assertIn("0 chart(s) failed", ran.stdout)

    def test_version(self) -> None:
        """The chart has the version of the package."""
        chart = strictyaml.loads((CHART / "Chart.yaml").read_text())
        assert isinstance(chart, dict)
        self.assertEqual([__version__] * 2, [chart["version"], chart["appVersion"]])

    def test_mistakes(self) -> None:
        """A value that is missing, unknown or of another form is refused with its path."""
        cases: list[tuple[Document, str]] = [
            ({"trustDomain": None}, "missing property 'trustDomain'"),
            ({"images": {"registry": None}}, "at '/images': missing property 'registry'"),
            ({"images": {"registry": "https://example.org"}}, "at '/images/registry'"),
            ({"images": {"svc": {"digest": "sha256:12"}}}, "at '/images/svc/digest'"),
            ({"trustDomain": "Example.org"}, "at '/trustDomain'"),
            ({"manager": {"replica": 3}}, "at '/manager': additional properties 'replica' not allowed"),
            ({"manager": {"replicas": 0}}, "at '/manager/replicas'"),
            ({"manager": {"replicas": 10}}, "at '/manager/replicas'"),
            ({"manager": {"metricsSecure": "false"}}, "at '/manager/metricsSecure': got string, want boolean"),
            ({"agent": {"metricsAddr": "9091"}}, "at '/agent/metricsAddr'"),
            ({"agent": {"kubeletDir": "var/lib/kubelet"}}, "at '/agent/kubeletDir'"),
            ({"proxy": {"resources": {"limits": {"memory": "lots"}}}}, "at '/proxy/resources/limits/memory'"),
            ({"monitoring": {"interval": "30"}}, "at '/monitoring/interval'"),
            ({"monitoring": {"interval": "5s"}}, "at '/monitoring/interval'"),
            ({"monitoring": {"interval": "14s"}}, "at '/monitoring/interval'"),
            ({"monitoring": {"interval": "61s"}}, "at '/monitoring/interval'"),
            ({"monitoring": {"interval": "2m"}}, "at '/monitoring/interval'"),
            ({"monitoring": {"labels": {"re lease": "a"}}}, "at '/monitoring/labels'"),
            ({"monitoring": {"labels": {"release": "a b"}}}, "at '/monitoring/labels/release'"),
            ({"monitoring": {"labels": {"release": 1}}}, "at '/monitoring/labels/release'"),
            ({"monitoring": {"namespace": "monitoring.example"}}, "at '/monitoring/namespace'"),
            ({"networkPolicies": {"enabled": "no"}}, "at '/networkPolicies/enabled'"),
            ({"spire": {"storage": {"size": "1 Gi"}}}, "at '/spire/storage/size'"),
            ({"spire": {"x509SvidTtl": "1 h"}}, "at '/spire/x509SvidTtl'"),
        ]
        for values, words in cases:
            said = str(self.assertRaises(AssertionError, template, values))
            self.assertIn(words, said)

    def test_bounds(self) -> None:
        """The ends of a range are accepted."""
        for values in ({"manager": {"replicas": 1}}, {"manager": {"replicas": 9}}, {"manager": {"metricsAddr": 0}}):
            self.assertTrue(template(values))
        for interval in ("15s", "60s", "1m"):
            self.assertIn(f"interval: {interval}", template({"monitoring": {"enabled": True, "interval": interval}}))

    def test_place(self) -> None:
        """Another name or namespace of the release is refused with the command to use."""
        for place in ({"name": "other"}, {"namespace": "other"}):
            said = str(self.assertRaises(AssertionError, template, {}, **place))
            self.assertIn("helm install svc-core CHART --namespace svc-system", said)

    def test_statsd_without_address(self) -> None:
        """StatsD needs to know where."""
        said = str(self.assertRaises(AssertionError, template, {"spire": {"statsd": {"enabled": True}}}))
        self.assertIn("spire.statsd.address", said)

    def test_each_value_is_used(self) -> None:
        """Every key of the values is read by a template."""
        texts = "".join(path.read_text() for path in sorted((CHART / "templates").iterdir()))
        read = set(re.findall(r"\.Values\.([A-Za-z0-9.]+)", texts))
        images = {f"images.{name}.{part}" for name in re.findall(r'"root" \. "name" "(\w+)"', texts) for part in PARTS}
        for path in paths(merged(defaults(), VALUES)):
            above = {path[: found.start()] for found in re.finditer(r"\.", path)} | {path}
            self.assertTrue(above & (read | images) - {"images"}, path)


PARTS = ("repository", "tag", "digest")


def paths(values: Document, above: str = "") -> list[str]:
    """The paths of all values."""
    found = []
    for name, value in values.items():
        path = f"{above}.{name}" if above else name
        found += paths(value, path) if isinstance(value, dict) and value else [path]
    return found
