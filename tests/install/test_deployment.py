"""The values of the chart, and what follows from the release that is there."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.data import FOLDER
from svc.install.deployment.chartfile import Chart, check_trust_domain, check_values, known_values, read_chart
from svc.install.deployment.cluster import pull_secret
from svc.install.deployment.errors import DeploymentError
from svc.install.deployment.existing import Existing, Step, decide, older, read_existing

NOW: Final = datetime(2026, 11, 28, 12, tzinfo=UTC)
CHART: Final = Chart("1.0.0", json.loads((FOLDER / "chart/values.schema.json").read_text()))


def packaged(change: dict[str, bytes | None] | None = None) -> bytes:
    """The chart of the tree as ``helm package`` writes it, with some files replaced, or left out where None."""
    chart = FOLDER / "chart"
    files = {str(path.relative_to(chart)): path.read_bytes() for path in chart.rglob("*") if path.is_file()}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in {**files, **(change or {})}.items():
            if content is not None:
                member = tarfile.TarInfo(f"svc-core/{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class ChartTests(SynchronousTestCase):
    """The file of the chart, and values that a user gives."""

    def test_chart_of_the_tree(self) -> None:
        """Version and schema are read."""
        chart = read_chart(packaged(), "svc-core.tgz")
        self.assertEqual(CHART.schema, chart.schema)
        self.assertTrue(chart.version)

    def test_unusable_charts(self) -> None:
        """What is no archive, lacks a file or is another chart is refused with the file's name."""
        for content in (
            b"",
            b"no archive",
            packaged()[:500],
            packaged({"Chart.yaml": None}),
            packaged({"values.schema.json": b"{"}),
            packaged({"Chart.yaml": b"name: other\nversion: 1.0.0\n"}),
            packaged({"Chart.yaml": b"- svc-core\n"}),
        ):
            error = self.assertRaises(DeploymentError, read_chart, content, "file.tgz")
            self.assertEqual("chart_unusable", error.reason)
            self.assertIn("file.tgz", str(error))

    def test_unknown_value_has_a_suggestion(self) -> None:
        """The path is named, and the nearest one below the same parent."""
        for values, path, suggestion in (
            ({"trustdomain": "x"}, "trustdomain", "did you mean trustDomain?"),
            ({"spire": {"storage": {"Size": "1Gi"}}}, "spire.storage.Size", "did you mean spire.storage.size?"),
            ({"qqqqqq": 1}, "qqqqqq", "svc files chart prints"),
        ):
            error = self.assertRaises(DeploymentError, check_values, values, CHART)
            self.assertEqual(("value_unknown", path), (error.reason, error.evidence["path"]))
            self.assertIn(suggestion, error.hint)

    def test_values_of_the_release_are_not_set(self) -> None:
        """Registry, digests and variant follow from flags, which the error names."""
        for values, flag in (
            ({"images": {"registry": "x"}}, "--qhx-registry"),
            ({"images": {"svc": {"digest": ""}}}, "--version"),
            ({"images": {"spireAgent": None}}, "--version"),
        ):
            error = self.assertRaises(DeploymentError, check_values, values, CHART)
            self.assertEqual("value_owned", error.reason)
            self.assertIn(flag, error.hint)
        check_values({"trustDomain": "a.example", "images": {"pullSecrets": ["mine"]}, "manager": None}, CHART)

    def test_values_of_an_earlier_release(self) -> None:
        """What the chart does not have any more is left out and named; everything else stays."""
        before = {"trustDomain": "a.example", "old": {"a.b": 1}, "manager": {"replicas": 3, "gone": True}}
        kept, gone = known_values(before, CHART)
        self.assertEqual({"trustDomain": "a.example", "manager": {"replicas": 3}}, kept)
        self.assertEqual(["old", "manager.gone"], gone)

    def test_trust_domain_is_needed(self) -> None:
        """One of the values has to name it: those of the user, or those of the release that is there."""
        check_trust_domain({}, {"trustDomain": "a.example"})
        error = self.assertRaises(DeploymentError, check_trust_domain, {"trustDomain": None}, {})
        self.assertEqual("trust_domain_missing", error.reason)


def secret(revision: int, status: str, version: str = "1.0.0", **config: Any) -> dict[str, Any]:
    """A Secret of Helm."""
    release = {"info": {"status": status}, "chart": {"metadata": {"version": version}}, "config": config}
    packed = base64.b64encode(gzip.compress(json.dumps(release).encode()))
    return {
        "metadata": {
            "name": f"sh.helm.release.v1.svc-core.v{revision}",
            "labels": {"version": str(revision), "status": status, "modifiedAt": str(int(NOW.timestamp()) - 60)},
        },
        "data": {"release": base64.b64encode(packed).decode()},
    }


def existing(status: str, *, version: str = "1.0.0", deployed: int = 2, seconds: float = 60) -> Existing:
    """A release."""
    return Existing(3, status, version, {}, deployed, NOW - timedelta(seconds=seconds))


class ExistingTests(SynchronousTestCase):
    """The release of Helm."""

    def test_newest_revision(self) -> None:
        """The newest revision counts by its number, not by its place; the newest that was ready is remembered."""
        older = [secret(9, "deployed", "1.0.0"), secret(8, "superseded", "1.0.0")]
        secrets = [secret(11, "failed", "1.1.0", trustDomain="a.example"), secret(10, "failed", "1.1.0"), *older]
        for order in (secrets, secrets[::-1]):
            found = read_existing(order)
            self.assertEqual(
                Existing(11, "failed", "1.1.0", {"trustDomain": "a.example"}, 9, NOW - timedelta(seconds=60)), found
            )
        self.assertIsNone(read_existing([]))

    def test_unreadable_release(self) -> None:
        """A Secret that is none of Helm's is named as such, and no release is assumed to be absent."""
        for data in ({}, {"release": "!"}, {"release": base64.b64encode(b"no").decode()}):
            error = self.assertRaises(DeploymentError, read_existing, [{**secret(1, "deployed"), "data": data}])
            self.assertEqual("release_unreadable", error.reason)

    def test_decisions(self) -> None:
        """A table: what is there, whether --upgrade was given, and what follows."""
        for found, upgrade, wanted in (
            (None, False, Step.INSTALL),
            (None, True, "release_absent"),
            (existing("deployed"), False, "release_there"),
            (existing("deployed"), True, Step.UPGRADE),
            (existing("failed"), False, "release_there"),
            (existing("failed"), True, Step.UPGRADE),
            (existing("failed", deployed=0), False, Step.INSTALL),
            (existing("failed", deployed=0), True, Step.INSTALL),
            (existing("uninstalled"), False, Step.INSTALL),
            (existing("uninstalling"), True, "release_uninstalling"),
            (existing("pending-upgrade"), True, "release_pending"),
            (existing("pending-upgrade", seconds=601.0), False, "release_pending"),
            (existing("pending-upgrade", seconds=601.0), True, Step.ROLL_BACK_AND_UPGRADE),
            (existing("pending-rollback", seconds=601.0), True, Step.ROLL_BACK_AND_UPGRADE),
            (existing("pending-install", deployed=0), False, "release_pending"),
            (existing("pending-install", deployed=0, seconds=601.0), True, "release_pending_install"),
        ):
            with self.subTest(found=found, upgrade=upgrade):
                try:
                    step: object = decide(found, "1.2.0", NOW, upgrade=upgrade, named=False, timeout=600)
                except DeploymentError as error:
                    step = error.reason
                self.assertEqual(wanted, step)

    def test_downgrade(self) -> None:
        """An older version follows a newer one only where it was named."""
        found = existing("deployed", version="1.2.0")
        error = self.assertRaises(DeploymentError, decide, found, "1.1.9", NOW, upgrade=True, named=False, timeout=600)
        self.assertEqual("downgrade", error.reason)
        self.assertEqual(Step.UPGRADE, decide(found, "1.1.9", NOW, upgrade=True, named=True, timeout=600))

    def test_upgrade_over_several_releases(self) -> None:
        """A release says from which version on it can be reached; the error names that version."""
        for version, wanted in (("1.0.9", "upgrade_too_far"), ("1.1.0", Step.UPGRADE)):
            found = existing("deployed", version=version)
            try:
                step: object = decide(found, "1.4.0", NOW, upgrade=True, named=False, timeout=600, oldest="1.1.0")
            except DeploymentError as error:
                step = error.reason
                self.assertIn("--version 1.1.0", error.hint)
            self.assertEqual(wanted, step)

    def test_order_of_versions(self) -> None:
        """Semantic versions have the order of section 11."""
        ordered = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11"]
        ordered += ["1.0.0-rc.1", "1.0.0", "1.0.1", "1.2.0", "1.10.0", "2.0.0"]
        for place, one in enumerate(ordered):
            for other_place, other in enumerate(ordered):
                self.assertEqual(place < other_place, older(one, other), f"{one} {other}")
        self.assertFalse(older("latest", "1.0.0"))

    @given(st.binary(max_size=200))
    def test_any_release_data(self, data: bytes) -> None:
        """Whatever a Secret holds is read or refused."""
        try:
            read_existing([{**secret(1, "deployed"), "data": {"release": base64.b64encode(data).decode()}}])
        except DeploymentError as error:
            self.assertEqual("release_unreadable", error.reason)


class PullSecretTests(SynchronousTestCase):
    """The Secret of the registry."""

    def test_kubelet_reads_it(self) -> None:
        """User and password stand there as the kubelet reads them."""
        made = pull_secret("registry.example:5000", "key", "pa:ss")
        document = json.loads(base64.b64decode(made["data"][".dockerconfigjson"]))
        auth = document["auths"]["registry.example:5000"]["auth"]
        self.assertEqual(b"key:pa:ss", base64.b64decode(auth))
        self.assertEqual("kubernetes.io/dockerconfigjson", made["type"])
