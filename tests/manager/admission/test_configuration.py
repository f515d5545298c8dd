"""The configuration of the webhook, and when it is another one."""

from __future__ import annotations

import copy

from twisted.trial.unittest import SynchronousTestCase

from svc.manager.admission.configuration import (
    contains,
    policies_configuration,
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
        (expression,) = webhook["namespaceSelector"]["matchExpressions"]
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
        """Defaults of the API server are none; anything else is, also what was added to a list."""
        wanted = webhook_configuration(WebhookSettings(), "svc-system", "QUE=")  # type: ignore[call-arg]
        found = copy.deepcopy(wanted)
        found["webhooks"][0]["clientConfig"]["extra"] = 1
        found["metadata"]["uid"] = "u"
        self.assertTrue(contains(found, wanted))
        for change in ({"failurePolicy": "Ignore"}, {"rules": []}, {"admissionReviewVersions": ["v1", "v1beta1"]}):
            other = copy.deepcopy(found)
            other["webhooks"][0] |= change
            self.assertFalse(contains(other, wanted), change)
        self.assertFalse(contains({**found, "webhooks": found["webhooks"] * 2}, wanted))
