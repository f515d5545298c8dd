"""The admission webhook of ``twistd svc-manager`` with a real API server: its authorities, and its answers."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
import time
from typing import Any, Final
from uuid import uuid4

from cryptography import x509

from tests.integration.kube_rig import KubeCase
from tests.integration.test_injection import restricted
from tests.integration.test_manager import ManagerCase, RunningManager
from tests.peers.apiserver import ApiServerFailed
from tests.peers.waiting import eventually, free_port

INJECTION: Final = {
    "image": "svc:1.0",
    "pqIssuer": "svc-authority.svc-system.svc:8444",
    "pqIssuerID": "spiffe://prod.example.org/svc/authority",
    "controlPlane": "svc-control-plane.svc-system.svc:9446",
}
CONFIGURATION: Final = ("mutatingwebhookconfiguration", "svc-injection")


class WebhookCase(ManagerCase):
    """A manager with a webhook, and a namespace that has chosen it."""

    def setUp(self) -> None:
        """Make the namespace, and remove what another test left."""
        super().setUp()
        self.remove()
        self.addCleanup(self.remove)
        self.port = free_port()
        self.kubectl = self.server.kubectl
        # Nobody ends a deleted namespace, since no controller runs.
        self.namespace = f"t-{uuid4().hex[:8]}"
        self.kubectl("create", "namespace", self.namespace)
        self.kubectl("label", "namespace", self.namespace, "svc.internal/injection=enabled")

    def remove(self) -> None:
        """Remove the configuration, as whoever removes the manager does."""
        self.server.kubectl("delete", *CONFIGURATION, "--ignore-not-found")
        self.server.kubectl("delete", "validatingwebhookconfiguration", "svc-policies", "--ignore-not-found")

    def webhook(self, injection: dict[str, Any] | None = INJECTION, **settings: Any) -> RunningManager:
        """Start a manager, and wait until its webhook is called."""
        address = f"127.0.0.1:{self.port}"
        cluster = {"trustDomain": "prod.example.org", **({} if injection is None else {"injection": injection})}
        manager = self.manager(webhook={"listen": address, "address": address, **settings}, cluster=cluster)
        self.assertNotEqual("", self.kubectl("get", *CONFIGURATION, "--ignore-not-found"), "it is there by now")
        return manager

    def pod(self, name: str, **metadata: Any) -> dict[str, Any]:
        """A pod within ``restricted`` that asks for a port."""
        pod = restricted({"spec": {"containers": [{"name": "web"}]}})
        annotations = {"svc.internal/ports": "8443:8080/http", **metadata.pop("annotations", {})}
        pod["metadata"] = {"name": name, "namespace": self.namespace, "annotations": annotations, **metadata}
        # As the API server of a cluster sets it before it asks the webhook; a token of the pod needs it.
        pod["spec"]["serviceAccountName"] = "default"
        return pod

    def create(self, pod: dict[str, Any], *options: str) -> dict[str, Any]:
        """Create a pod; returns it as the API server has it."""
        return json.loads(self.kubectl("create", "-f", "-", "-o", "json", *options, data=json.dumps(pod)))

    def refused(self, pod: dict[str, Any], said: str, *options: str) -> None:
        """Create a pod that is refused."""
        with self.assertRaises(ApiServerFailed) as caught:
            self.create(pod, *options)
        self.assertIn(said, str(caught.exception))

    def requests(self, manager: RunningManager, result: str) -> float:
        """Calls of the webhook with one result."""
        return manager.value("webhook_requests_total", operation="CREATE", resource="pods", result=result)


class InjectionTests(WebhookCase):
    """What becomes of pods."""

    def test_injected_refused_and_others(self) -> None:
        """A pod of the namespace gets the proxy, one with a defect is refused, one elsewhere is as it was."""
        manager = self.webhook()
        made = self.create(self.pod("web"))
        (proxy,) = made["spec"]["initContainers"]
        self.assertEqual(("svc-proxy", "Always", "svc:1.0"), (proxy["name"], proxy["restartPolicy"], proxy["image"]))
        self.assertEqual("true", made["metadata"]["labels"]["svc.internal/proxy-injected"])
        (config,) = (each["value"] for each in proxy["env"] if each["name"] == "SVC_CONFIG")
        self.assertEqual("prod.example.org", json.loads(config)["trustDomain"])
        wrong = {"svc.internal/ports": "8443"}
        self.refused(self.pod("wrong", annotations=wrong), "the annotation svc.internal/ports is 8443")
        elsewhere = self.pod("other")
        elsewhere["metadata"]["namespace"] = "default"
        self.assertNotIn("initContainers", self.create(elsewhere)["spec"])
        self.kubectl("delete", "pod", "other", "-n", "default", "--grace-period=0", "--force")
        self.assertEqual((1.0, 1.0), (self.requests(manager, "allowed"), self.requests(manager, "denied")))
        eventually(lambda: manager.records("svc.manager.injection.denied"))
        (denied,) = manager.records("svc.manager.injection.denied")
        self.assertEqual((self.namespace, "injection_annotation"), (denied["namespace"], denied["detail_reason"]))
        self.assertEqual("security", denied["event"]["category"])

    def test_dry_run(self) -> None:
        """A dry run is counted, and nothing else is written of it."""
        manager = self.webhook()
        made = self.create(self.pod("web"), "--dry-run=server")
        self.assertEqual("svc-proxy", made["spec"]["initContainers"][0]["name"])
        log = manager.log
        wrong = self.pod("wrong", annotations={"svc.internal/ports": ""})
        self.refused(wrong, "svc.internal/ports", "--dry-run=server")
        self.assertEqual((1.0, 1.0), (self.requests(manager, "allowed"), self.requests(manager, "denied")))
        self.assertEqual(2.0, manager.value("webhook_duration_seconds_count", operation="CREATE", resource="pods"))
        time.sleep(1)
        self.assertEqual(log, manager.log)

    def test_large_pod(self) -> None:
        """Pods of 200 kB go through, without a file."""
        self.webhook()
        annotations = {f"note-{number}": "x" * 10_000 for number in range(20)}
        made = self.create(self.pod("large", annotations=annotations))
        self.assertEqual("svc-proxy", made["spec"]["initContainers"][0]["name"])

    def test_nothing_to_inject(self) -> None:
        """Without the section injection pods are refused, and it says what is missing."""
        manager = self.webhook(injection=None)
        self.refused(self.pod("web"), "it is not configured what is injected into pods")
        self.assertEqual(1.0, self.requests(manager, "error"))

    def test_clients_that_leave(self) -> None:
        """Whoever leaves before the answer leaves nothing behind, not even a record."""
        manager = self.webhook()
        context = ssl._create_unverified_context()
        head = b"POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        for path, sent in ((b"inject", 10), (b"inject", 2_000_000), (b"connect", 2_000_000)) * 10:
            with socket.create_connection(("127.0.0.1", self.port), 5) as raw, context.wrap_socket(raw) as secured:
                secured.sendall(head % (path, 2_000_000) + b"x" * sent)
        self.create(self.pod("web"))
        self.assertNotIn("svc.runtime.failure", manager.log)

    def test_manager_away(self) -> None:
        """Without a manager pods of chosen namespaces are refused, others are not; they are made when it is back."""
        manager = self.webhook()
        manager.kill()
        self.refused(self.pod("web"), "failed calling webhook")
        manager.start()
        eventually(lambda: self.attempt("web"))

    def attempt(self, name: str) -> bool:
        """Whether a pod can be made."""
        try:
            self.create(self.pod(name))
        except ApiServerFailed:
            return False
        return True


class ConfigurationTests(WebhookCase):
    """The configuration of the webhook."""

    def read(self) -> dict[str, Any]:
        """The webhook as the API server has it; empty where there is none."""
        found = self.kubectl("get", *CONFIGURATION, "--ignore-not-found", "-o", "json")
        return json.loads(found)["webhooks"][0] if found else {}

    def test_repaired(self) -> None:
        """What somebody changes, adds or deletes is written again within some seconds, and recorded."""
        manager = self.webhook()
        before = self.read()
        for change in (
            {"failurePolicy": "Ignore", "rules": []},
            {"objectSelector": {"matchLabels": {"proxy": "wanted"}}},
            {"matchConditions": [{"name": "never", "expression": "false"}]},
        ):
            patch = [{"op": "add", "path": f"/webhooks/0/{key}", "value": value} for key, value in change.items()]
            self.kubectl("patch", *CONFIGURATION, "--type=json", "-p", json.dumps(patch))
            began = time.monotonic()
            eventually(lambda: self.read() == before, what=f"the repair of {change}")
            self.assertLess(time.monotonic() - began, 5)
        records = manager.records("svc.manager.webhook.repaired")
        self.assertEqual([1, 2, 3], [each["attributes"]["repairs"] for each in records])
        self.kubectl("delete", *CONFIGURATION)
        eventually(lambda: self.read() == before)

    def test_written_when_the_server_answers(self) -> None:
        """A configuration that nobody would serve is not written; the log says why, and no replica is ready."""
        with socket.create_server(("127.0.0.1", self.port)) as taken:
            self.assertTrue(taken)
            address = f"127.0.0.1:{self.port}"
            manager = RunningManager(self.server, webhook={"listen": address, "address": address})
            self.stack.callback(manager.stop)
            manager.launch()
            eventually(lambda: manager.records("svc.manager.reconcile.failed"))
            failed = manager.records("svc.manager.reconcile.failed")[0]
            self.assertEqual("webhook_not_served", failed["detail_reason"])
            self.assertEqual({}, self.read())
            conditions = manager.readiness()
            self.assertEqual((False, False), (conditions["webhook"]["ok"], conditions["injection"]["ok"]))
        eventually(manager.is_ready)
        self.assertNotEqual({}, self.read())

    def test_damaged_secret(self) -> None:
        """Authorities that cannot be read are named; when they are deleted there are new ones."""
        manager = self.webhook()
        patch = json.dumps({"data": {"current.key": base64.b64encode(b"x").decode()}})
        self.kubectl("patch", "secret", "svc-webhook-ca", "-n", "svc-system", "-p", patch)
        eventually(lambda: manager.readiness()["webhook"].get("reason") == "webhook_ca_damaged")
        before = self.read()
        self.kubectl("delete", "secret", "svc-webhook-ca", "-n", "svc-system")
        eventually(manager.is_ready)
        eventually(lambda: self.read()["clientConfig"]["caBundle"] != before["clientConfig"]["caBundle"])
        eventually(lambda: InjectionTests.attempt(self, "web"))  # type: ignore[arg-type]


class CompartmentTests(WebhookCase):
    """``kubectl exec`` and its like into pods of a compartment."""

    def setUp(self) -> None:
        """Make two pods, and somebody who may do what is not forbidden."""
        super().setUp()
        self.addCleanup(
            self.kubectl, "delete", "validatingwebhookconfiguration", "svc-compartments", "--ignore-not-found"
        )
        self.running = self.webhook(compartments=True)
        for name, labels in (("alpha", {"svc.internal/compartment": "DE-S-ALPHA"}), ("free", {})):
            self.create(self.pod(name, labels=labels))
        verbs = ("--verb=create,get", "--resource=pods/exec,pods/attach,pods/portforward,pods")
        self.kubectl("create", "role", "user", "-n", self.namespace, *verbs)
        self.kubectl("create", "rolebinding", "user", "-n", self.namespace, "--role=user", "--user=ann")
        rules = [{"apiGroups": ["svc.internal"], "resources": ["compartments"], "verbs": ["override"]}]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "override"}}
        self.kubectl("create", "-f", "-", data=json.dumps({**role, "rules": rules}))
        self.kubectl("create", "clusterrolebinding", "override", "--clusterrole=override", "--group=admins")
        self.addCleanup(self.kubectl, "delete", "clusterrole,clusterrolebinding", "override")

    def exec(self, pod: str, *groups: str) -> str:
        """What kubectl says; the pod never runs, so what is allowed fails behind the webhook."""
        given = [f"--as-group={each}" for each in groups]
        with self.assertRaises(ApiServerFailed) as caught:
            self.kubectl("--as=ann", *given, "exec", "-n", self.namespace, pod, "--", "true")
        return str(caught.exception)

    def test_exec(self) -> None:
        """Members of another compartment are refused, with both names; the rest is not concerned, or may override."""
        eventually(
            lambda: self.kubectl("get", "validatingwebhookconfiguration", "svc-compartments", "--ignore-not-found")
        )
        bravo = ("svc:country:de", "svc:sensitivity:s", "svc:compartment:bravo")
        eventually(lambda: "is in compartment DE-S-ALPHA, and ann is not" in self.exec("alpha", *bravo))
        allowed = (
            ("alpha", ()),
            ("alpha", ("svc:country:de", "svc:sensitivity:s", "svc:compartment:alpha")),
            ("alpha", (*bravo, "admins")),
            ("free", bravo),
        )
        for pod, groups in allowed:
            self.assertIn("does not have a host assigned", self.exec(pod, *groups), groups)
        eventually(lambda: self.running.records("svc.manager.connection.denied"))
        labels = {"operation": "CONNECT", "resource": "pods/exec", "result": "denied"}
        self.assertGreaterEqual(self.running.value("webhook_requests_total", **labels), 1.0)


class Handshakes(threading.Thread):
    """
    Connects over and over, and keeps the serials of the certificates that were presented.

    Attributes:
        serials: in hexadecimal.
    """

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        self._ended = threading.Event()
        self.serials: set[str] = set()

    def run(self) -> None:
        """Connect until stopped."""
        context = ssl._create_unverified_context()
        while not self._ended.wait(0.2):
            with socket.create_connection(("127.0.0.1", self._port), 5) as raw, context.wrap_socket(raw) as secured:
                presented = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
                self.serials.add(f"{presented.serial_number:x}")

    def stop(self) -> None:
        """End it."""
        self._ended.set()
        self.join()


class RotationTests(WebhookCase, KubeCase):  # type: ignore[misc]
    """Authorities and certificates that live for seconds."""

    def test_rotations_under_load(self) -> None:
        """Over three rotations of the authority no pod is refused, and each new certificate is presented."""
        manager = self.webhook(authorityLife="20s", certificateLife="9s")
        handshakes = Handshakes(self.port)
        handshakes.start()
        self.stack.callback(handshakes.stop)
        made = 0

        def certificates() -> list[dict[str, str]]:
            return [each["attributes"] for each in manager.records("svc.manager.webhook.certificate")]

        while made < 200 or len({each["authority_serial"] for each in certificates()}) < 4:
            pods = [self.pod(f"web-{made + number}") for number in range(10)]
            listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
            self.kubectl("create", "-f", "-", data=listed)
            made += len(pods)
            time.sleep(1)
        issued = certificates()
        self.assertEqual(float(made), self.requests(manager, "allowed"))
        self.assertEqual(set(), {each["serial"] for each in issued[:-1]} - handshakes.serials)
        self.assertLess(3, len(issued))
