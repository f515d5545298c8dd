"""What policies say of an injected proxy."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.injection import InjectionRefused, PodSettings, inject
from svc.manager.policies.ports import pod_settings
from svc.naming import ANNOTATION_PORTS
from tests.injection.documents import SETTINGS
from tests.manager.policies.objects import policy

WEB = {"app": "web"}


def inbound(*ports: int) -> list[dict[str, Any]]:
    """Ports of the proxy, all for 8080."""
    return [{"port": port, "targetPort": 8080, "protocol": "http"} for port in ports]


class PodSettingsTests(SynchronousTestCase):
    """What counts."""

    def chosen(self, *policies: Any, labels: Any = WEB) -> PodSettings:
        """What is injected into a pod of the namespace shop."""
        return pod_settings(policies, "shop", {"team": "a"}, labels, SETTINGS)

    def test_nothing(self) -> None:
        """Without a policy about the pod it is the same for all."""
        others = (
            policy("a", podSelector={"matchLabels": {"app": "db"}}, proxy={"inbound": inbound(1024)}),
            policy("b", namespaceSelector={"matchLabels": {"team": "b"}}, proxy={"notarization": "signRequest"}),
            policy("c", "pay", proxy={"inbound": inbound(1024)}),
        )
        self.assertEqual(PodSettings(SETTINGS), self.chosen(*others))

    def test_order(self) -> None:
        """Ports and amounts: those of the namespace, then the first by name; of levels the strongest."""
        cluster = policy("a", proxy={"inbound": inbound(1025), "notarization": "signRequest", "requests": {"cpu": "1"}})
        own = policy("b", "shop", proxy={"inbound": inbound(1026), "notarization": "none", "limits": {"memory": "1Gi"}})
        more = policy("c", "shop", proxy={"inbound": inbound(1027), "limits": {"memory": "2Gi"}})
        found = self.chosen(more, cluster, own)
        self.assertEqual(([1026], "SvcPolicy shop/b"), ([each.listen for each in found.ports], found.ports_of))
        self.assertEqual("signRequest", found.settings.notarization)
        self.assertEqual(
            ({"cpu": "1"}, {"memory": "1Gi"}), (found.settings.requests.amounts(), found.settings.limits.amounts())
        )
        self.assertEqual(1, len(found.warnings))
        self.assertIn("SvcPolicy shop/c differs", found.warnings[0])

    def test_weaker_level(self) -> None:
        """A policy takes nothing from the level that is the same for all."""
        self.assertEqual("workload", self.chosen(policy(proxy={"notarization": "none"})).settings.notarization)


class InjectTests(SynchronousTestCase):
    """What becomes of a pod."""

    def injected(self, *policies: Any, **annotations: str) -> Any:
        """Inject a pod."""
        pod = {"metadata": {"labels": WEB, "annotations": annotations}, "spec": {"containers": [{"name": "a"}]}}
        return inject(
            pod, SETTINGS, "x.org", "", lambda labels, settings: pod_settings(policies, "shop", {}, labels, settings)
        )

    def ports(self, injection: Any) -> list[int]:
        """The ports of the proxy without that of the metrics."""
        (container,) = [each["value"] for each in injection.operations if "initContainers" in each["path"]]
        return [each["containerPort"] for each in container[0]["ports"][:-1]]

    def test_ports(self) -> None:
        """The annotation goes before a policy, with a warning; one of the two is needed."""
        given = policy("web", "shop", proxy={"inbound": inbound(8443)})
        by_policy, both = self.injected(given), self.injected(given, **{ANNOTATION_PORTS: "9443:8080/http"})
        self.assertEqual(([8443], ()), (self.ports(by_policy), by_policy.warnings))
        self.assertEqual([9443], self.ports(both))
        self.assertEqual(
            ("the annotation svc.internal/ports goes before proxy.inbound of SvcPolicy shop/web",), both.warnings
        )
        refused = self.assertRaises(InjectionRefused, self.injected, policy("web", "shop", proxy={}))
        self.assertEqual("injection_ports_missing", refused.reason)

    def test_port_taken(self) -> None:
        """A port of a policy that is the proxy's own is refused."""
        refused = self.assertRaises(
            InjectionRefused, self.injected, policy("web", "shop", proxy={"inbound": inbound(9092)})
        )
        self.assertEqual("injection_port_taken", refused.reason)
