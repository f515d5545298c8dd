"""NetworkPolicies that ``twistd svc-manager`` keeps in enabled namespaces, on a real API server."""

from __future__ import annotations

import json
import signal
from typing import Any, Final
from uuid import uuid4

from svc.manager.networkpolicies.policies import policy_spec
from tests.integration.test_manager import ManagerCase, RunningManager
from tests.peers.waiting import eventually

EVENT: Final = "svc.manager.network_policy.changed"
OWN: Final = "svc-proxy-metrics"
INJECTION: Final = {"image": "svc", "pqIssuer": "issuer:8444", "pqIssuerID": "spiffe://prod.example.org/issuer"}
SPEC: Final = policy_spec(9092, "monitoring")


def cluster(monitoring: str = "monitoring", **injection: str) -> dict[str, Any]:
    """The section ``cluster``; without policies for an empty namespace of the monitoring."""
    found: dict[str, Any] = {"trustDomain": "prod.example.org", "injection": {**INJECTION, **injection}}
    if monitoring:
        found["networkPolicies"] = {"monitoringNamespace": monitoring}
    return found


class NetworkPolicyTests(ManagerCase):
    """Namespaces and policies, as users change them."""

    def setUp(self) -> None:
        """Make a namespace that is enabled."""
        super().setUp()
        self.shop = self.namespace()

    def namespace(self, *, enabled: bool = True) -> str:
        """Make a namespace."""
        name = f"t-{uuid4().hex[:8]}"
        self.server.kubectl("create", "namespace", name)
        self.stack.callback(self.label, name, enabled=False)
        if enabled:
            self.label(name)
        return name

    def label(self, name: str, *, enabled: bool = True) -> None:
        """Set the label of a namespace, or take it off."""
        self.server.kubectl("label", "namespace", name, f"svc.internal/injection{'=enabled' if enabled else '-'}")

    def policies(self, namespace: str) -> dict[str, Any]:
        """The policies of a namespace, what they say by name."""
        found = json.loads(self.server.kubectl("get", "networkpolicies", "-n", namespace, "-o", "json"))["items"]
        return {each["metadata"]["name"]: each["spec"] for each in found}

    def until(self, namespace: str, policies: dict[str, Any]) -> None:
        """Wait until a namespace has these policies."""
        eventually(lambda: self.policies(namespace) == policies, what=f"{sorted(policies)} in {namespace}")

    def change(self, namespace: str, name: str, **changes: Any) -> None:
        """Change an object."""
        text = json.dumps(changes)
        self.server.kubectl("patch", "networkpolicy", name, "-n", namespace, "--type=merge", "-p", text)

    def deny(self, namespace: str, types: str = "Ingress") -> dict[str, Any]:
        """Close everything by a policy of the user; gives what it says."""
        metadata = {"name": "deny", "namespace": namespace}
        spec: dict[str, Any] = {"podSelector": {}, "policyTypes": [types]}
        body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata, "spec": spec}
        self.server.kubectl("create", "-f", "-", data=json.dumps(body))
        return spec

    def changes(self, manager: RunningManager, namespace: str) -> list[str]:
        """What a manager has logged of a namespace."""
        found = [each["attributes"] for each in manager.records(EVENT)]
        return [each["action"] for each in found if each["namespace"] == namespace]

    def reload(self, manager: RunningManager, section: dict[str, Any]) -> None:
        """Put another section ``cluster`` in force."""
        manager.config["cluster"] = section
        manager.write_config()
        manager.signal(signal.SIGHUP)

    def test_enabled(self) -> None:
        """Enabled namespaces have it exactly as written, the manager's own has none; without the label it goes."""
        other = self.namespace(enabled=False)
        self.label("svc-system")
        self.stack.callback(self.label, "svc-system", enabled=False)
        manager = self.manager(cluster=cluster())
        self.until(self.shop, {OWN: SPEC})
        self.assertEqual(({}, {}), (self.policies(other), self.policies("svc-system")))
        self.label(other)
        self.until(other, {OWN: SPEC})
        self.label(self.shop, enabled=False)
        self.until(self.shop, {})
        eventually(lambda: self.changes(manager, self.shop) == ["created", "deleted"])

    def test_policy_of_a_user(self) -> None:
        """It gives way to a policy for ingress, and comes back when that is gone; one for egress does not matter."""
        manager = self.manager(cluster=cluster())
        self.until(self.shop, {OWN: SPEC})
        theirs = self.deny(self.shop)
        self.until(self.shop, {"deny": theirs})
        self.server.kubectl("delete", "networkpolicy", "deny", "-n", self.shop)
        self.until(self.shop, {OWN: SPEC})
        theirs = self.deny(self.shop, "Egress")
        self.change(self.shop, OWN, spec={"ingress": []})
        self.until(self.shop, {OWN: SPEC, "deny": theirs})
        eventually(lambda: self.changes(manager, self.shop) == ["created", "deleted", "created", "replaced"])

    def test_policy_of_a_user_without_manager(self) -> None:
        """What was added while no manager ran is followed when one runs again."""
        first = self.manager(cluster=cluster())
        self.until(self.shop, {OWN: SPEC})
        first.stop()
        theirs = self.deny(self.shop)
        self.assertEqual({OWN: SPEC, "deny": theirs}, self.policies(self.shop))
        self.manager(cluster=cluster())
        self.until(self.shop, {"deny": theirs})

    def test_repaired(self) -> None:
        """What somebody changes or deletes is made again; without the label of the manager it is the user's."""
        manager = self.manager(cluster=cluster())
        self.until(self.shop, {OWN: SPEC})
        self.change(self.shop, OWN, spec={"egress": [{}], "policyTypes": ["Ingress", "Egress"]})
        self.until(self.shop, {OWN: SPEC})
        self.server.kubectl("delete", "networkpolicy", OWN, "-n", self.shop)
        eventually(lambda: self.changes(manager, self.shop) == ["created", "replaced", "created"])
        self.change(self.shop, OWN, metadata={"labels": None}, spec={"ingress": []})
        self.label(self.shop, enabled=False)
        second = self.namespace()
        self.until(second, {OWN: SPEC})
        self.assertEqual([OWN], list(self.policies(self.shop)))
        self.assertNotEqual(SPEC, self.policies(self.shop)[OWN])

    def test_configuration(self) -> None:
        """Another port and namespace are written; without metrics, or the setting, there is no policy."""
        manager = self.manager(cluster=cluster())
        self.until(self.shop, {OWN: SPEC})
        self.reload(manager, cluster("observability", metricsAddr=":9100"))
        self.until(self.shop, {OWN: policy_spec(9100, "observability")})
        self.reload(manager, cluster(metricsAddr="0"))
        self.until(self.shop, {})
        self.reload(manager, cluster())
        self.until(self.shop, {OWN: SPEC})
        self.reload(manager, cluster(""))
        self.until(self.shop, {})

    def test_refused(self) -> None:
        """A namespace in which it is refused is logged, and keeps no other one waiting, nor a policy of a user."""
        quota = {"hard": {"count/networkpolicies.networking.k8s.io": "0"}}
        full = self.namespace(enabled=False)
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full", "namespace": full}}
        self.server.kubectl("create", "-f", "-", data=json.dumps({**body, "spec": quota}))
        # No controller of quotas runs here.
        status = json.dumps({"status": {**quota, "used": quota["hard"]}})
        self.server.kubectl("patch", "resourcequota", "full", "-n", full, "--subresource=status", "-p", status)
        self.label(full)
        manager = self.manager(cluster=cluster())
        self.until(self.shop, {OWN: SPEC})
        eventually(lambda: manager.records("svc.manager.reconcile.failed"))
        failed = manager.records("svc.manager.reconcile.failed")[0]
        self.assertEqual(
            ("kubernetes_forbidden", "network-policies"), (failed["detail_reason"], failed["attributes"]["controller"])
        )
        theirs = self.deny(self.shop)
        self.until(self.shop, {"deny": theirs})
        self.server.kubectl("delete", "resourcequota", "full", "-n", full)
        self.until(full, {OWN: SPEC})
