"""Policies as objects of a real API server: the webhook, the ConfigMaps of namespaces, and the status."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from svc.identity import SpiffeID
from svc.license.payload import Enforcement
from svc.policy.engine import PolicySet
from svc.policy.rules import ConnectionFacts, RequestFacts
from svc.policyfiles.files import KINDS, policy_files
from svc.settings import parse_all
from tests.integration.test_manager import RunningManager
from tests.integration.test_manager_webhook import WebhookCase
from tests.manager.policies.objects import policy_object, rules
from tests.peers.apiserver import ApiServerFailed
from tests.peers.waiting import eventually

COMPILED: Final = "svc-policies-compiled"
WEB: Final = SpiffeID.parse("spiffe://prod.example.org/ns/shop/sa/web")


class PolicyCase(WebhookCase):
    """A manager with a webhook; policies are removed before and behind each test."""

    def remove(self) -> None:
        """Remove the configurations first: without a manager nobody could change a policy."""
        super().remove()
        kubectl = self.server.kubectl
        kubectl("delete", "svcclusterpolicies", "--all")
        kubectl("delete", "svcpolicies", "--all", "--all-namespaces")

    def apply(self, *objects: dict[str, Any], user: str = "anna") -> str:
        """Apply policies as a user; returns what kubectl says, warnings included."""
        for each in objects:
            for server_side in ("uid", "generation"):
                each["metadata"].pop(server_side, None)
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
        kubeconfig = str(self.server.credentials(user, "system:masters"))
        command = [str(self.server._programs / "kubectl"), "--kubeconfig", kubeconfig, "apply", "-f", "-"]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=60)
        if ran.returncode:
            raise ApiServerFailed(ran.stderr)
        return ran.stdout + ran.stderr

    def refused_policy(self, *said: str, found: dict[str, Any]) -> None:
        """Apply a policy that is refused."""
        with self.assertRaises(ApiServerFailed) as caught:
            self.apply(found)
        for each in said:
            self.assertIn(each, str(caught.exception))

    def compiled(self, namespace: str) -> str:
        """The policy file of a namespace; empty where there is none."""
        command = ("get", "configmap", COMPILED, "-n", namespace, "--ignore-not-found", "-o", "json")
        found = self.kubectl(*command)
        return json.loads(found)["data"]["policies.yaml"] if found else ""

    def until_compiled(self, *names: str, namespace: str = "") -> str:
        """Wait until the file of a namespace has exactly these policies; returns it."""

        def found() -> str:
            text = self.compiled(namespace or self.namespace)
            documents = parse_all(text, KINDS, "compiled")
            return text if text and [each.metadata.name for each in documents] == list(names) else ""

        return eventually(found, what=f"the policies {names}")

    def conditions(self, kind: str, name: str, *options: str) -> dict[str, tuple[str, str]]:
        """The conditions of a policy, each with its reason."""
        status = json.loads(self.kubectl("get", kind, name, *options, "-o", "json")).get("status", {})
        return {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", [])}

    def until(self, wanted: tuple[str, str], condition: str, kind: str, name: str, *options: str) -> None:
        """Wait for a condition."""
        eventually(
            lambda: self.conditions(kind, name, *options).get(condition) == wanted,
            what=f"{condition} {wanted} of {name}",
        )

    def admitted(self, namespace: str, path: str) -> bool:
        """Whether a proxy with the file of a namespace admits the client."""
        documents = [("compiled", each) for each in parse_all(self.compiled(namespace), KINDS, "compiled")]
        files = policy_files(documents, (), "", lambda: {"app": "api"})
        connection = PolicySet(files.policies).connection(ConnectionFacts("http-8443", 8443, WEB))
        return connection.decide(RequestFacts("GET", path, "api", "none")).allowed


class PolicyTests(PolicyCase):
    """From the object to the proxy."""

    def test_denied_then_admitted(self) -> None:
        """A namespace narrows what the cluster allows; each change is compiled, and recorded with its user."""
        manager = self.webhook()
        name, other = self.namespace, f"t-{uuid4().hex[:8]}"
        self.kubectl("create", "namespace", other)
        self.until_compiled()
        self.apply(policy_object("all", authorization=rules()))
        self.until_compiled("all")
        self.assertTrue(self.admitted(name, "/orders"))
        self.apply(policy_object("api", name, podSelector={"matchLabels": {"app": "api"}}, authorization=rules("/a")))
        self.until_compiled("all", "api")
        self.assertEqual([False, True], [self.admitted(name, path) for path in ("/orders", "/a")])
        self.apply(policy_object("api", name, authorization=rules("/a", "/orders")))
        eventually(lambda: self.admitted(name, "/orders"))
        self.apply(policy_object("no", authorization=rules("/orders", action="Deny")))
        eventually(lambda: not self.admitted(name, "/orders"))
        self.kubectl("delete", "svcclusterpolicy", "no")
        eventually(lambda: self.admitted(name, "/orders"))
        self.assertEqual("", self.compiled(other), "it is not enabled")
        self.until(("True", "Compiled"), "Ready", "svcclusterpolicy", "all")
        self.until(("True", "Compiled"), "Programmed", "svcpolicy", "api", "-n", name)
        self.assertEqual(
            (1.0, 1.0), tuple(manager.value("policies_total", kind=each) for each in ("cluster", "namespace"))
        )
        self.assertLess(0.0, manager.value("reconcile_total", controller="svc-cluster-policy", result="success"))
        compiled = [each["attributes"] for each in manager.records("svc.manager.policies.compiled")]
        first = {"namespace": name, "policies": 0, "action": "created"}
        self.assertIn(first, compiled)
        self.assertIn({**first, "policies": 2, "action": "replaced"}, compiled)
        changed = eventually(lambda: len(found := manager.records("svc.manager.policy.changed")) == 5 and found)
        self.assertEqual(
            [("CREATE", "all"), ("CREATE", "api"), ("UPDATE", "api"), ("CREATE", "no"), ("DELETE", "no")],
            [(each["attributes"]["operation"], each["attributes"]["policy"]) for each in changed],
        )
        self.assertEqual(
            ("anna", "svcpolicies", name, "audit"),
            (
                changed[1]["user"],
                changed[1]["attributes"]["resource"],
                changed[1]["namespace"],
                changed[1]["event"]["category"],
            ),
        )

    def test_namespaces(self) -> None:
        """Those that a policy selects, when labels change, and a ConfigMap that somebody has changed or deleted."""
        self.webhook()
        selector = {"matchLabels": {"team": "pay"}}
        self.apply(policy_object("pay", namespaceSelector=selector, authorization=rules()))
        self.until_compiled()
        self.kubectl("label", "namespace", self.namespace, "team=pay")
        self.until_compiled("pay")
        self.until(("True", "Compiled"), "Ready", "svcclusterpolicy", "pay")
        change = json.dumps({"data": {"policies.yaml": "", "more.yaml": "a"}})
        self.kubectl("patch", "configmap", COMPILED, "-n", self.namespace, "--type=merge", "-p", change)
        self.until_compiled("pay")
        found = json.loads(self.kubectl("get", "configmap", COMPILED, "-n", self.namespace, "-o", "json"))
        self.assertEqual(["policies.yaml"], list(found["data"]))
        self.kubectl("delete", "configmap", COMPILED, "-n", self.namespace)
        self.until_compiled("pay")
        # Its proxies go on.
        self.kubectl("label", "namespace", self.namespace, "svc.internal/injection-")
        self.apply(policy_object("more", authorization=rules("/a")))
        self.until_compiled("more", "pay")
        self.until(("True", "NoNamespace"), "Ready", "svcclusterpolicy", "pay")

    def test_warnings_and_refusals(self) -> None:
        """Kubectl prints what is strange; what is not valid is refused with what was perhaps meant, and recorded."""
        manager = self.webhook()
        said = self.apply(policy_object("d", authorization=rules("/a", action="Deny")))
        self.assertNotIn("Warning", said)
        said = self.apply(policy_object("p", self.namespace, authorization=rules("/a", "/b")))
        self.assertIn("Warning: the rule rule-1 never decides: rule-1 of d matches all that it matches", said)
        self.until(("True", "Overlap"), "Conflicted", "svcpolicy", "p", "-n", self.namespace)
        self.until(("True", "Compiled"), "Ready", "svcpolicy", "p", "-n", self.namespace)
        wrong = {"rules": [{"to": [{"mqttClientIds": ["device-*"], "mqttActions": ["Connect"]}]}]}
        self.refused_policy(
            "SvcClusterPolicy wrong is not valid",
            "to[0].mqttClientIds: a list: expected no such key, perhaps mqttClientIDs",
            found=policy_object("wrong", authorization=wrong),
        )
        # What the schema of the API server sees is not asked for.
        self.refused_policy("Unsupported value", found=policy_object("wrong", authorization={"action": "Permit"}))
        self.refused_policy("'a' appears twice", found=policy_object("x", authorization={"rules": [{"name": "a"}] * 2}))
        (first, second) = eventually(lambda: len(found := manager.records("svc.manager.policy.refused")) == 2 and found)
        self.assertEqual(
            ("anna", "security", "policy_object_invalid", "wrong"),
            (first["user"], first["event"]["category"], first["detail_reason"], first["attributes"]["policy"]),
        )
        self.assertEqual("x", second["attributes"]["policy"])
        denied = manager.value("webhook_requests_total", resource="svcclusterpolicies", result="denied")
        self.assertEqual(2.0, denied)

    def test_invalid_object(self) -> None:
        """One that was made without a webhook is not in force; one that was valid before stays as it was."""
        manager = self.webhook()
        self.apply(policy_object("former", authorization=rules("/a")))
        self.until_compiled("former")
        manager.stop()
        self.kubectl("delete", "validatingwebhookconfiguration", "svc-policies")
        for name in ("former", "new"):
            self.apply(policy_object(name, authorization={"rules": [{"to": [{"paths": ["/b"], "pathz": []}]}]}))
        self.webhook()
        for name, reason in (("former", "Invalid"), ("new", "Invalid")):
            self.until(("False", reason), "Ready", "svcclusterpolicy", name)
        self.assertIn("/a", self.until_compiled("former"))

    def test_without_a_manager(self) -> None:
        """Policies cannot be changed, and can be deleted."""
        manager = self.webhook()
        self.apply(policy_object("p", authorization=rules()))
        manager.stop()
        self.refused_policy("policies.svc.internal", found=policy_object("p", authorization=rules("/a")))
        self.kubectl("delete", "svcclusterpolicy", "p")

    def test_ports(self) -> None:
        """A pod without the annotation gets the ports of a policy, one with it a warning; levels add up."""
        self.webhook()
        inbound = [{"port": 9443, "targetPort": 8080, "protocol": "http"}]
        self.apply(policy_object("web", self.namespace, proxy={"inbound": inbound, "notarization": "logRequest"}))
        self.until(("True", "Injection"), "Ready", "svcpolicy", "web", "-n", self.namespace)
        pod = self.pod("by-policy")
        del pod["metadata"]["annotations"]["svc.internal/ports"]
        (proxy,) = self.create(pod)["spec"]["initContainers"]
        (config,) = (json.loads(each["value"]) for each in proxy["env"] if each["name"] == "SVC_CONFIG")
        listener = config["listeners"][0]
        self.assertEqual((":9443", "logRequest"), (listener["listen"], listener["notarization"]))
        self.assertEqual(["/etc/svc/policies-compiled/policies.yaml"], config["policy"]["clusterFiles"])
        (other,) = self.create(self.pod("by-annotation"))["spec"]["initContainers"]
        self.assertIn(8443, [each["containerPort"] for each in other["ports"]])


class LicenseTests(PolicyCase):
    """What a license does to new policies."""

    def started(self, enforcement: str) -> RunningManager:
        """A manager whose license has ended."""
        ended = {"not_before": datetime(2020, 1, 1, tzinfo=UTC), "not_after": datetime(2021, 1, 1, tzinfo=UTC)}
        self.install(issued=ended["not_before"], enforcement=Enforcement(enforcement), grace_days=0, **ended)
        manager = self.webhook()
        self.until_state("Expired")
        return manager

    def test_hard(self) -> None:
        """New ones are refused, and those that are there can be changed; the same when the license is removed."""
        manager = self.webhook()
        self.apply(policy_object("there", authorization=rules()))
        manager.stop()
        self.started("hard")
        self.refused_policy("a new policy is refused", found=policy_object("new", authorization=rules()))
        self.assertIn("Warning: the license has ended", self.apply(policy_object("there", authorization=rules("/a"))))
        self.kubectl("delete", "secrets", "-l", "svc.internal/license=true", "-n", "svc-system")
        self.until_state("Missing")
        self.refused_policy("there is no license", found=policy_object("new", authorization=rules()))

    def test_soft(self) -> None:
        """There is a warning."""
        self.started("soft")
        self.assertIn("Warning: the license has ended", self.apply(policy_object("new", authorization=rules())))
