"""Pods before and after the injection, as ``golden/`` has them; the configurations are loaded as the proxy does it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from ruamel.yaml import YAML
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.config import ProxySettings
from svc.settings import HostPort, parse
from tests.injection.documents import SETTINGS, TRUST_DOMAIN, Document, golden, injected, proxy_of, result_of, variables
from tests.injection.expansion import FACTS, loaded

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "kubernetes" / "web.yaml"


class GoldenTests(SynchronousTestCase):
    """Each file."""

    def test_results(self) -> None:
        """The result is that of the file."""
        for name, document in golden().items():
            pod = document.pop("pod")
            self.assertEqual(document, result_of(pod), name)

    def test_again(self) -> None:
        """An injected pod stays as it is."""
        for name, document in golden().items():
            if "injected" in document:
                self.assertEqual(document["injected"], injected(document["injected"]), name)

    def test_configurations(self) -> None:
        """The proxy accepts each configuration, and reads of it what the pod says."""
        for name, document in golden().items():
            if "injected" not in document or name == "left-alone":
                continue
            pod = document["injected"]
            settings = loaded(pod)
            self.assertEqual((TRUST_DOMAIN, None), (settings.trustDomain, settings.startTimeout), name)
            self.assertEqual(pod["metadata"]["labels"], settings.workload.labels, name)
            facts = {key: getattr(settings.workload, key) for key in FACTS.values()}
            self.assertEqual({key: f"the-{key}" for key in FACTS.values()}, facts, name)
            ports = {port["name"]: port["containerPort"] for port in proxy_of(pod)["ports"]}
            self.assertEqual(ports.pop("svc-metrics"), settings.metricsAddr and settings.metricsAddr.port)
            self.assertEqual(ports, {each.name: each.listen.port for each in settings.listeners}, name)
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                port = proxy_of(pod)[probe]["httpGet"]["port"]
                self.assertEqual(port, settings.probesAddr and settings.probesAddr.port)

    def test_levels(self) -> None:
        """HTTP and MQTT are notarized at the level of the settings; TCP cannot be."""
        listeners = loaded(golden()["deployment"]["injected"]).listeners
        found = [(each.protocol, each.notarization, str(each.upstream)) for each in listeners]
        expected = [
            ("http", "workload", "127.0.0.1:8080"),
            ("mqtt", "workload", "127.0.0.1:1883"),
            ("tcp", "none", "127.0.0.1:5432"),
        ]
        self.assertEqual(expected, found)

    def test_control_plane(self) -> None:
        """The manager of the settings; without one the proxy has what the kubelet brings."""
        pod = golden()["deployment"]["pod"]
        self.assertIsNone(loaded(injected(pod)).controlPlane)
        address = HostPort("svc-control-plane.svc-system.svc", 9446)
        settings = loaded(injected(pod, SETTINGS.model_copy(update={"controlPlane": address})))
        self.assertEqual(address, settings.controlPlane)
        self.assertEqual("/var/run/secrets/svc.internal/token", str(settings.controlPlaneToken))
        self.assertEqual(("/etc/svc/policies-compiled/policies.yaml",), settings.policy.clusterFiles)

    def test_token_of_the_pod(self) -> None:
        """For the manager alone, for ten minutes, and in the container of the proxy alone; without a manager none."""
        pod = golden()["deployment"]["pod"]
        self.assertNotIn("svc-pod-token", [each["name"] for each in injected(pod)["spec"]["volumes"]])
        address = HostPort("svc-control-plane.svc-system.svc", 9446)
        settings = SETTINGS.model_copy(update={"controlPlane": address})
        made = injected(pod, settings)
        token = {"audience": "svc-manager", "expirationSeconds": 600, "path": "token"}
        volume = {"name": "svc-pod-token", "projected": {"sources": [{"serviceAccountToken": token}]}}
        self.assertIn(volume, made["spec"]["volumes"])
        mount = {"name": "svc-pod-token", "mountPath": "/var/run/secrets/svc.internal", "readOnly": True}
        self.assertIn(mount, proxy_of(made)["volumeMounts"])
        containers = made["spec"]["containers"]
        self.assertNotIn("svc-pod-token", str([each.get("volumeMounts") for each in containers]))
        self.assertEqual(made, injected(made, settings))

    def test_texts_of_annotations(self) -> None:
        """Kubernetes expands nothing in them, and those that statements do not contain are named only."""
        annotations = loaded(golden()["init-containers"]["injected"]).workload.annotations
        self.assertEqual(("de:$(POD_NAME) $$", ""), (annotations["mls.svc.internal/level"], annotations["facts"]))


class ExampleTests(SynchronousTestCase):
    """The same written out by hand, in the documentation."""

    def setUp(self) -> None:
        """Read the pod of the example."""
        documents = list(YAML(typ="safe", pure=True).load_all(EXAMPLE.read_text()))
        self.pod: Document = next(each for each in documents if each["kind"] == "Deployment")["spec"]["template"]
        self.hand = self.pod["spec"]["initContainers"][0]

    def test_by_hand(self) -> None:
        """A proxy that the webhook has not made is never replaced."""
        self.pod["metadata"]["annotations"] = {"svc.internal/ports": "8443:8080/http"}
        self.assertEqual("injection_name_taken", result_of(self.pod)["refused"]["reason"])

    def test_same(self) -> None:
        """The injected container does what the one of the example does."""
        spec = self.pod["spec"]
        self.pod["metadata"]["annotations"] = {"svc.internal/ports": "8443:8080/http"}
        plain = {**self.pod, "spec": {**spec, "initContainers": [], "volumes": []}}
        made = injected(plain)
        container = proxy_of(made)
        for key in (
            *("command", "restartPolicy", "startupProbe", "readinessProbe", "livenessProbe"),
            *("lifecycle", "resources"),
        ):
            self.assertEqual(self.hand[key], container[key], key)
        security = {**spec["securityContext"], **self.hand["securityContext"]}
        del security["fsGroup"]
        self.assertEqual(security, container["securityContext"])
        self.assertEqual(spec["containers"], made["spec"]["containers"])
        self.assertEqual(self._compared(self._by_hand()), self._compared(loaded(made)))

    def _by_hand(self) -> ProxySettings:
        text = re.sub(r"\$\((\w+)\)", lambda match: f"the-{FACTS[match[1]]}", variables(self.hand)["SVC_CONFIG"])
        return parse(text, ProxySettings)

    def _compared(self, settings: ProxySettings) -> Mapping[str, object]:
        keys = (
            "trustDomain",
            "probesAddr",
            "startTimeout",
            "withdrawalGrace",
            "drainDelay",
            "metricsAddr",
            "adminAddr",
        )
        notary = settings.notary
        names = (settings.workload.podName, settings.workload.podUID, settings.workload.node)
        return {key: getattr(settings, key) for key in keys} | {
            "notary": (notary.path, notary.pqIssuer, notary.pqIssuerID),
            "facts": names,
            "listeners": [(each.protocol, each.listen.port, each.upstream) for each in settings.listeners],
        }
