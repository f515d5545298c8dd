"""The settings of the injection."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.injection import InjectionSettings
from svc.settings import ConfigInvalid, parse
from tests.injection.documents import Document, injected, proxy_of

REQUIRED = """
image: registry.example.org/svc@sha256:0f
pqIssuer: issuer.example.org:8444
pqIssuerID: spiffe://example.org/svc/*
"""
POD: Document = {
    "metadata": {"annotations": {"svc.internal/ports": "8443:8080/http"}},
    "spec": {"containers": [{"name": "web"}]},
}


class SettingsTests(SynchronousTestCase):
    """What is accepted, and where it goes."""

    def test_defaults(self) -> None:
        """Without further keys: small requests, a limit of memory, no level, and the agent's default folder."""
        pod = injected(POD, parse(REQUIRED, InjectionSettings))
        proxy = proxy_of(pod)
        self.assertEqual("IfNotPresent", proxy["imagePullPolicy"])
        self.assertEqual(
            {"requests": {"cpu": "50m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}}, proxy["resources"]
        )
        self.assertIn(
            {"name": "svc-workload-api", "csi": {"driver": "csi.svc.internal", "readOnly": True}}, _volumes(pod)
        )

    def test_given(self) -> None:
        """Pull policy, amounts, metrics and the folder of the Workload API are those of the settings."""
        text = (
            f"{REQUIRED}imagePullPolicy: Always\nsource: second\nmetricsAddr: '0'\nrequests: {{}}\nlimits: {{cpu: '1'}}"
        )
        pod = injected(POD, parse(text, InjectionSettings))
        proxy = proxy_of(pod)
        self.assertEqual(("Always", {"limits": {"cpu": "1"}}), (proxy["imagePullPolicy"], proxy["resources"]))
        self.assertEqual([{"name": "http-8443", "containerPort": 8443}], proxy["ports"])
        csi = {"driver": "csi.svc.internal", "readOnly": True, "volumeAttributes": {"source": "second"}}
        self.assertIn({"name": "svc-workload-api", "csi": csi}, _volumes(pod))

    def test_pull_secrets(self) -> None:
        """A pod gets the names that it lacks, behind its own ones; a second call adds none."""
        settings = parse(f"{REQUIRED}imagePullSecrets: [one, two]", InjectionSettings)
        pod = injected(POD, settings)
        self.assertEqual([{"name": "one"}, {"name": "two"}], pod["spec"]["imagePullSecrets"])
        self.assertEqual(pod, injected(pod, settings))
        own = {**POD, "spec": {**POD["spec"], "imagePullSecrets": [{"name": "two"}, {}, {"name": "own"}]}}
        names = injected(own, settings)["spec"]["imagePullSecrets"]
        self.assertEqual([{"name": "two"}, {}, {"name": "own"}, {"name": "one"}], names)
        self.assertNotIn("imagePullSecrets", injected(POD, parse(REQUIRED, InjectionSettings))["spec"])

    def test_defects(self) -> None:
        """Each is named by its key."""
        for line, key in (
            ("image: 'a b'", "image"),
            ("image: ''", "image"),
            (f"image: {'a' * 513}", "image"),
            ("pqIssuer: unix:///run/svc/pq.sock", "pqIssuer"),
            ("pqIssuer: ':8444'", "pqIssuer"),
            ("pqIssuer: issuer:0", "pqIssuer"),
            ("pqIssuerID: issuer", "pqIssuerID"),
            ("notarization: all", "notarization"),
            ("imagePullSecrets: [A]", "imagePullSecrets[0]"),
            ("requests: {cpu: 50 m}", "requests.cpu"),
            ("limits: {memory: 256mi}", "limits.memory"),
            ("limits: {storage: 1Gi}", "limits.storage"),
            (f"source: {'a' * 129}", "source"),
            ("metricsAddr: ':9910'", "configuration"),
            ("metricsAddr: ':9902'", "configuration"),
            ("metricsAddr: ':0'", "configuration"),
        ):
            lines = [each for each in REQUIRED.splitlines() if each.partition(":")[0] != line.partition(":")[0]]
            error = self.assertRaises(ConfigInvalid, parse, "\n".join([*lines, line]), InjectionSettings)
            self.assertEqual([key], [problem.key for problem in error.problems], line)
        parse(REQUIRED.replace("registry.example.org/svc@sha256:0f", "a" * 512), InjectionSettings)


def _volumes(pod: dict[str, dict[str, list[object]]]) -> list[object]:
    return pod["spec"]["volumes"]
