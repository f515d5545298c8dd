"""The configuration of the webhook, and when it is another one."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta

from twisted.trial.unittest import SynchronousTestCase

from svc.manager.admission.configuration import (
    Repairs,
    is_wanted,
    policies_configuration,
    repaired,
    server_names,
    webhook_configuration,
)
from svc.manager.config import WebhookSettings
from svc.settings import HostPort


class ConfigurationTests(SynchronousTestCase):
    """How the API server reaches the webhook, and for what."""

    def test_service(self) -> None:
        """By default it is reached by its Service, whose names the certificate has."""
        (webhook,) = webhook_configuration(WebhookSettings(), "svc-system", "QUE=")["webhooks"]  # type: ignore[call-arg]
        service = {"namespace": "svc-system", "name": "svc-manager", "path": "/inject", "port": 443}
        self.assertEqual({"caBundle": "QUE=", "service": service}, webhook["clientConfig"])
        self.assertEqual("svc-manager.svc-system.svc", server_names(WebhookSettings(), "svc-system")[0])  # type: ignore[call-arg]

    def test_address(self) -> None:
        """An address takes its place."""
        settings = WebhookSettings(address=HostPort("manager.example.org", 9443))  # type: ignore[call-arg]
        (webhook,) = webhook_configuration(settings, "svc-system", "QUE=")["webhooks"]
        self.assertEqual("https://manager.example.org:9443/inject", webhook["clientConfig"]["url"])
        self.assertEqual(("manager.example.org",), server_names(settings, "svc-system"))

    def test_namespaces_that_are_never_concerned(self) -> None:
        """Pods of the system and of the manager cannot be refused."""
        (webhook,) = webhook_configuration(WebhookSettings(), "own", "QUE=")["webhooks"]  # type: ignore[call-arg]
        expression, *_of_aks = webhook["namespaceSelector"]["matchExpressions"]
        self.assertEqual(["kube-node-lease", "kube-public", "kube-system", "own"], expression["values"])
        self.assertEqual("Fail", webhook["failurePolicy"])

    def test_policies(self) -> None:
        """Policies are changed with a manager alone, and deleted without one too; their status is never reviewed."""
        found = policies_configuration(WebhookSettings(), "svc-system", "QUE=")  # type: ignore[call-arg]
        self.assertEqual(
            [(["CREATE", "UPDATE"], "Fail"), (["DELETE"], "Ignore")],
            [(each["rules"][0]["operations"], each["failurePolicy"]) for each in found["webhooks"]],
        )
        for each in found["webhooks"]:
            self.assertEqual(["svcclusterpolicies", "svcpolicies"], each["rules"][0]["resources"])
            self.assertEqual("/policies", each["clientConfig"]["service"]["path"])

    def test_differences(self) -> None:
        """Labels of others are none; whatever is changed or added to a webhook is one, and is put right."""
        wanted = webhook_configuration(WebhookSettings(), "svc-system", "QUE=")  # type: ignore[call-arg]
        found = copy.deepcopy(wanted)
        found["metadata"] |= {"uid": "u", "resourceVersion": "7", "managedFields": [{}]}
        found["metadata"]["labels"]["other"] = "x"
        self.assertTrue(is_wanted(found, wanted))
        (webhook,) = wanted["webhooks"]
        expressions = webhook["namespaceSelector"]["matchExpressions"]
        for change in (
            {"failurePolicy": "Ignore"},
            {"rules": []},
            {"admissionReviewVersions": ["v1", "v1beta1"]},
            {"objectSelector": {"matchLabels": {"proxy": "yes"}}},
            {"matchConditions": [{"name": "never", "expression": "false"}]},
            {"namespaceSelector": {"matchExpressions": [*expressions, {"key": "a", "operator": "Exists"}]}},
        ):
            other = copy.deepcopy(found)
            other["webhooks"][0] |= change
            self.assertFalse(is_wanted(other, wanted), change)
            put = repaired(other, wanted)
            self.assertTrue(is_wanted(put, wanted))
            self.assertEqual(("7", "x"), (put["metadata"]["resourceVersion"], put["metadata"]["labels"]["other"]))
        self.assertFalse(is_wanted({**found, "webhooks": found["webhooks"] * 2}, wanted))
        self.assertFalse(is_wanted({**found, "metadata": {}}, wanted))


class RepairsTests(SynchronousTestCase):
    """How often a configuration is repaired."""

    def test_pauses(self) -> None:
        """Three at once, then after 1, 2, 4 s and so on, at most 300; a quiet quarter of an hour forgets them."""
        repairs, now = Repairs(), datetime(2026, 11, 28, tzinfo=UTC)
        pauses = []
        for number in range(1, 15):
            pauses.append(repairs.pause("a", now))
            now += timedelta(seconds=pauses[-1])
            self.assertEqual(0.0, repairs.pause("a", now))
            self.assertEqual(number, repairs.note("a", now))
        self.assertEqual([0.0, 0.0, 0.0, *(2.0**each for each in range(9)), 300.0, 300.0], pauses)
        self.assertEqual(0.0, repairs.pause("b", now))
        self.assertEqual(299.0, repairs.pause("a", now + timedelta(seconds=1)))
        self.assertEqual(1, repairs.note("a", now + timedelta(seconds=900)))
