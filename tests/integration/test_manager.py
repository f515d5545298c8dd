"""``twistd svc-manager`` on a real API server, with no more rights than its page gives it."""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.kinds import LICENSE_STATUS_NAME
from svc.license.secret import license_secret
from svc.license.vendors import pinned_keys
from svc.license.verification import verify_license
from tests.license.material import LICENSE, envelope, text_of
from tests.peers.apiserver import ApiServer
from tests.peers.daemon import MonitoredDaemon
from tests.peers.pages import page
from tests.peers.prometheus import RunningPrometheus
from tests.peers.waiting import TOP, Shared, eventually, free_port

ACCOUNT: Final = "system:serviceaccount:svc-system:svc-manager"
CONFIG: Final = "svc-manager-config"
_UNVERIFIED: Final = ssl._create_unverified_context()


def prepared_server(stack: ExitStack, *flags: str) -> ApiServer:
    """A server with the custom resources, and the rights of the page for the manager's account."""
    server = stack.enter_context(ApiServer(*flags))
    server.apply_crds()
    server.kubectl("create", "namespace", "svc-system")
    rights = re.findall(r"^```yaml\n(apiVersion: rbac.*?)^```", page("manager.md"), flags=re.MULTILINE | re.DOTALL)
    server.kubectl("apply", "-f", "-", data=rights[0])
    return server


SERVER: Final = Shared(prepared_server)


class RunningManager(MonitoredDaemon):
    """One replica, whose API server is reached as the manager's service account."""

    def __init__(self, server: ApiServer, **config: Any) -> None:
        super().__init__("manager", None)
        self.metrics_port, self.admin_port = free_port(), free_port()
        self.config = {
            "kubeconfig": str(server.credentials(ACCOUNT)),
            "metricsAddr": f"127.0.0.1:{self.metrics_port}",
            "metricsSecure": False,
            "adminAddr": f"127.0.0.1:{self.admin_port}",
            "cluster": {"trustDomain": "prod.example.org"},
            **config,
        }

    def value(self, name: str, **labels: str) -> float:
        """Sum the samples of a family of the manager."""
        return self.metric(f"svc_manager_{name}", **labels)

    @property
    def leads(self) -> bool:
        """Whether it said last that it leads."""
        return "svc.manager.leading" in self.log


class ManagerCase(SynchronousTestCase):
    """The server, and the managers of a test."""

    def setUp(self) -> None:
        """Take the server without what another test left, and start no manager yet."""
        self.server = SERVER.get().start()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        kubectl = self.server.kubectl
        kubectl("delete", "secrets,configmaps,leases,pods", "--all", "-n", "svc-system", "--grace-period=0", "--force")
        kubectl("delete", "spireinstances,statefulsets,daemonsets", "--all", "-n", "svc-system")
        kubectl("delete", "svclicensestatuses,svcclusters,svcforeignclusters", "--all")

    def manager(self, **config: Any) -> RunningManager:
        """Start a replica."""
        manager = RunningManager(self.server, **config)
        self.stack.callback(manager.stop)
        return manager.start()

    def install(self, **changes: Any) -> str:
        """Make the Secret of a license of the test vendor; returns its name."""
        text = text_of(envelope(dataclasses.replace(LICENSE, **changes)))
        secret = license_secret(verify_license(text.encode(), pinned_keys()), "svc-system")
        self.server.kubectl("create", "-f", "-", data=json.dumps(secret))
        return str(secret["metadata"]["name"])

    def status(self) -> dict[str, Any]:
        """Read the status of licenses; empty where there is none."""
        command = ("get", "svclicensestatuses", LICENSE_STATUS_NAME, "--ignore-not-found", "-o", "json")
        found = self.server.kubectl(*command)
        return json.loads(found).get("status", {}) if found else {}

    def until_state(self, state: str) -> dict[str, Any]:
        """Wait for a state; returns the status."""
        return eventually(lambda: (found := self.status()).get("state") == state and found, what=state)

    def holder(self) -> str:
        """Read who holds the Lease."""
        command = ("get", "lease", "svc-manager", "-n", "svc-system", "--ignore-not-found", "-o")
        return self.server.kubectl(*command, "jsonpath={.spec.holderIdentity}")


class LicenseStatusTests(ManagerCase):
    """The first controller."""

    def test_installed_and_removed(self) -> None:
        """A license is seen at once by all replicas, written once, and gone when its Secret is."""
        managers = [self.manager(), self.manager()]
        self.until_state("Missing")
        self.assertEqual([0.0, 0.0], [each.value("license_valid") for each in managers])
        name = self.install()
        status = self.until_state("Valid")
        self.assertEqual({"namespace": "svc-system", "name": name}, status["secretRef"])
        self.assertEqual({"workloads": 0, "federatedPeers": 0}, status["usage"])
        for each in managers:
            eventually(lambda each=each: each.value("license_valid") == 1.0)
        printed = self.svc_license_status()
        self.assertIn("State: Valid", printed.stdout, printed.stderr)
        self.assertEqual(0, printed.returncode, printed.stderr)
        version = self.version()
        time.sleep(2)
        self.assertEqual(version, self.version(), "an unchanged status is not written")
        self.server.kubectl("delete", "secret", "-n", "svc-system", name)
        self.until_state("Missing")
        for each in managers:
            eventually(lambda each=each: each.value("license_valid") == 0.0)
        (leader,) = (each for each in managers if each.leads)
        changes = [each["attributes"].get("state") for each in leader.records("svc.manager.license.changed")]
        self.assertEqual(["Missing", "Valid", "Missing"], changes)
        events = self.server.kubectl("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}")
        self.assertIn("Valid", events.split())

    def version(self) -> str:
        """The version of the status."""
        return self.server.kubectl("get", "svclicensestatuses", "license", "-o", "jsonpath={.metadata.resourceVersion}")

    def svc_license_status(self) -> subprocess.CompletedProcess[str]:
        """Run ``svc license status``."""
        return subprocess.run(
            [sys.executable, "-m", "svc.cli.main", "license", "status"],
            env={"KUBECONFIG": str(self.server.kubeconfig), "HOME": "/proc/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def test_end_of_a_license(self) -> None:
        """A license ends at its instant, and the alert on it fires by that cause, with its window cut to seconds."""
        manager = self.manager()
        end = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=8)
        self.install(not_after=end, grace_days=0, warn_days=())
        self.assertEqual("Expired", self.until_state("Valid")["nextChange"]["state"])
        eventually(lambda: manager.value("license_valid") == 1.0)
        rules = self.mktemp()
        text = (TOP / "svc" / "data" / "alerts" / "alerts.yaml").read_text()
        Path(rules).write_text(re.sub(r"for: \d+m", "for: 1s", text))
        targets = {"svc-manager": manager.metrics_port}
        prometheus = RunningPrometheus(self.stack, targets, Path(rules).absolute(), interval=1)
        fired = 'ALERTS{alertname="SvcLicenseInvalid",alertstate="firing"}'
        self.assertEqual({}, prometheus.ask(fired))
        self.until_state("Expired")
        self.assertTrue(end <= datetime.now(UTC) < end + timedelta(seconds=30))
        self.assertEqual(0.0, manager.value("license_valid"))
        eventually(lambda: prometheus.ask(fired), what="the alert")

    def test_usage(self) -> None:
        """Injected pods that have not ended count, and one more than the license allows is named."""
        self.manager()
        self.install(limits={"workloads": 1})
        self.until_state("Valid")
        for name in ("a", "b"):
            spec = {"containers": [{"name": "c", "image": "i"}]}
            metadata = {"name": name, "namespace": "svc-system", "labels": {"svc.internal/proxy-injected": "true"}}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            self.server.kubectl("create", "-f", "-", data=json.dumps(pod))
        self.assertEqual({"workloads": 2, "federatedPeers": 0}, self.until_state("OverLimit")["usage"])
        ended = json.dumps({"status": {"phase": "Succeeded"}})
        self.server.kubectl("patch", "pod", "a", "-n", "svc-system", "--subresource=status", "-p", ended)
        self.assertEqual({"workloads": 1, "federatedPeers": 0}, self.until_state("Valid")["usage"])

    def test_federated_peers(self) -> None:
        """Peers of federation count, and one more than the license allows is named."""
        self.manager()
        self.install(limits={"federatedPeers": 1})
        self.until_state("Valid")
        for name in ("a", "b"):
            spec = {"trustDomain": f"{name}.example.org", "bootstrapPackage": "e30="}
            peer = {"apiVersion": "svc.internal/v1alpha1", "kind": "SvcForeignCluster", "metadata": {"name": name}}
            self.server.kubectl("create", "-f", "-", data=json.dumps({**peer, "spec": spec}))
        self.assertEqual({"workloads": 0, "federatedPeers": 2}, self.until_state("OverLimit")["usage"])
        self.server.kubectl("delete", "svcforeignclusters", "a")
        self.assertEqual({"workloads": 0, "federatedPeers": 1}, self.until_state("Valid")["usage"])

    def test_successor(self) -> None:
        """A leader that ends hands over within a second or two; one that is killed is followed after its Lease."""
        first = self.manager()
        eventually(lambda: first.leads)
        self.until_state("Missing")
        second = self.manager()
        began = time.monotonic()
        first.signal(signal.SIGTERM)
        eventually(lambda: second.leads)
        self.assertLess(time.monotonic() - began, 8)
        third = self.manager()
        self.assertFalse(third.leads)
        second.kill()
        self.install()
        eventually(lambda: third.leads)
        self.until_state("Valid")

    def test_hanging_server(self) -> None:
        """A leader that cannot renew gives up before its Lease ends, and leads again when the server answers."""
        manager = self.manager()
        self.until_state("Missing")
        self.server.pause()
        try:
            eventually(lambda: "svc.manager.lease_lost" in manager.log)
            self.assertEqual(0.0, manager.value("license_valid"))
        finally:
            self.server.resume()
        self.install()
        self.until_state("Valid")

    def test_missing_right(self) -> None:
        """A status that may not be written is an error that is counted, logged and tried again until it may."""
        kubectl = self.server.kubectl
        rules = json.loads(kubectl("get", "clusterrole", "svc-manager", "-o", "json"))["rules"]

        def grant(given: list[Any]) -> None:
            kubectl("patch", "clusterrole", "svc-manager", "--type=merge", "-p", json.dumps({"rules": given}))

        self.stack.callback(grant, rules)
        grant([each for each in rules if each["resources"] != ["svclicensestatuses/status"]])
        manager = self.manager()
        labels = {"controller": "license-status", "result": "error"}
        eventually(lambda: manager.value("reconcile_total", **labels) >= 2)
        eventually(lambda: manager.records("svc.manager.reconcile.failed"))
        self.assertEqual("kubernetes_forbidden", manager.records("svc.manager.reconcile.failed")[0]["detail_reason"])
        grant(rules)
        self.until_state("Missing")

    def test_deleted_status(self) -> None:
        """The object is made again."""
        self.manager()
        self.until_state("Missing")
        self.server.kubectl("delete", "svclicensestatuses", "license")
        self.until_state("Missing")


class ConfigurationTests(ManagerCase):
    """The ConfigMap and the Secret ``svc-manager-config``."""

    def configure(self, kind: str, **data: str) -> None:
        """Make or change one of them; a key has ``_`` for ``.``."""
        content = {key.replace("_", "."): value for key, value in data.items()}
        metadata = {"name": CONFIG, "namespace": "svc-system"}
        key = "data" if kind == "ConfigMap" else "stringData"
        document = {"apiVersion": "v1", "kind": kind, "metadata": metadata, key: content}
        self.server.kubectl("apply", "-f", "-", data=json.dumps(document))

    def reloads(self, manager: RunningManager) -> tuple[float, float, float]:
        """The three series of reloads: all, configmap, secret."""
        successes = manager.value("config_reloads_total", result="success", source="all")
        config_map = manager.value("config_reloads_total", result="error", source="configmap")
        return successes, config_map, manager.value("config_reloads_total", result="error", source="secret")

    def test_changes(self) -> None:
        """A manager waits for its ConfigMap, follows it, and keeps what is in force while one of both is wrong."""
        manager = RunningManager(self.server, cluster=None)
        self.stack.callback(manager.stop)
        manager.launch()
        eventually(lambda: manager.readiness().get("configuration", {}).get("reason") == "manager_config_missing")
        self.assertEqual((0.0, 1.0, 0.0), self.reloads(manager))
        self.configure("ConfigMap", cluster_yaml="trustDomain: other.example.org")
        eventually(manager.is_ready)
        self.install()
        self.until_state("WrongTrustDomain")
        self.configure("Secret", wrong="x")
        eventually(lambda: self.reloads(manager) == (1.0, 1.0, 1.0))
        self.configure("ConfigMap", cluster_yaml="trustDomain: prod.example.org")
        eventually(lambda: self.reloads(manager) == (1.0, 1.0, 2.0), what="a change beside a wrong Secret")
        self.assertEqual("WrongTrustDomain", self.status()["state"])
        self.server.kubectl("delete", "secret", "-n", "svc-system", CONFIG)
        self.until_state("Valid")
        self.assertEqual((2.0, 1.0, 2.0), self.reloads(manager))
        self.configure("ConfigMap", cluster_yaml="trustDomain: ''")
        eventually(lambda: self.reloads(manager) == (2.0, 2.0, 2.0))
        self.assertTrue(manager.is_ready())
        eventually(lambda: "trustDomain: '': expected the name of a trust domain" in manager.log)

    def test_watches_begin_again_after_five_seconds(self) -> None:
        """While the API server is away each watch fails every five seconds, and then goes on."""
        manager = self.manager()
        self.until_state("Missing")
        self.server.kill()
        began = time.monotonic()
        failures = lambda: manager.value("config_watch_errors_total", source="configmap")  # noqa: E731
        eventually(lambda: failures() >= 3)
        spent = time.monotonic() - began
        # The watch breaks at once; the next two attempts are five and ten seconds later.
        self.assertTrue(9.5 < spent < 14, spent)
        self.assertTrue(manager.is_ready(), "what is in force stays")
        self.server.start()
        self.configure("ConfigMap", cluster_yaml="trustDomain: other.example.org")
        eventually(lambda: self.reloads(manager)[0] == 2.0)
        self.assertIn("svc.manager.kubernetes.failed", manager.log)


class MetricsAccessTests(ManagerCase):
    """``/metrics`` by HTTPS."""

    def ask(self, manager: RunningManager, token: str = "", context: ssl.SSLContext = _UNVERIFIED) -> int:
        """Request the page; returns the status."""
        request = urllib.request.Request(f"https://127.0.0.1:{manager.metrics_port}/metrics")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                self.assertIn(b"svc_manager_license_valid", answer.read())
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def test_tokens(self) -> None:
        """An account that may get the URL reads; others are refused, and so are all while nobody can be asked."""
        kubectl = self.server.kubectl
        manager = self.manager(metricsSecure=True)
        for name in ("scraper", "stranger"):
            kubectl("create", "serviceaccount", name, "-n", "svc-system")
            self.stack.callback(kubectl, "delete", "serviceaccount", name, "-n", "svc-system")
        kubectl("create", "clusterrole", "scraper", "--verb=get", "--non-resource-url=/metrics")
        bound = ("--clusterrole=scraper", "--serviceaccount=svc-system:scraper")
        kubectl("create", "clusterrolebinding", "scraper", *bound)
        self.stack.callback(kubectl, "delete", "clusterrole,clusterrolebinding", "scraper")
        token = kubectl("create", "token", "scraper", "-n", "svc-system")
        stranger = kubectl("create", "token", "stranger", "-n", "svc-system")
        self.assertEqual(200, self.ask(manager, token))
        self.assertEqual([401, 401, 403], [self.ask(manager, each) for each in ("", "forged", stranger)])
        reasons = ["metrics_token_missing", "metrics_token_refused", "metrics_forbidden"]
        denied = lambda: [each["detail_reason"] for each in manager.records("svc.manager.metrics.denied")]  # noqa: E731
        eventually(lambda: denied() == reasons)
        self.assertNotIn(stranger, manager.log)
        self.stack.callback(self.server.start)
        self.server.kill()
        self.assertEqual(503, self.ask(manager, token))

    def test_certificates(self) -> None:
        """The certificate of the Secret is served once it is there, and a client of its authorities needs no token."""
        pki = self.server.folder / "pki"
        manager = self.manager(metricsSecure=True)
        verifying = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        with self.assertRaises(urllib.error.URLError):
            self.ask(manager, context=verifying)
        files = {"metrics.crt": "server.crt", "metrics.key": "server.key", "metrics-clients.crt": "ca.crt"}
        given = [f"--from-file={key}={pki / name}" for key, name in files.items()]
        self.server.kubectl("create", "secret", "generic", CONFIG, "-n", "svc-system", *given)
        eventually(lambda: self.served(manager, verifying))
        verifying.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        self.assertEqual(200, self.ask(manager, context=verifying))

    def served(self, manager: RunningManager, context: ssl.SSLContext) -> bool:
        """Whether the certificate of the server is one of the authority."""
        try:
            return self.ask(manager, context=context) == 401
        except urllib.error.URLError:
            return False
