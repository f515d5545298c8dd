"""Questions to policies, and tables of expected decisions."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from svc.policy.rules import RequestFacts
from svc.policyfiles.cases import CasesDocument, Question, explain, run_cases
from svc.policyfiles.settings import Policies, PolicySettings, load_policies
from svc.settings import ConfigInvalid, parse
from tests.policyfiles.test_files import DENY_LIST, POLICY, FilesCase

CASES = """
apiVersion: svc.internal/v1alpha1
kind: SvcPolicyTest
metadata: {name: shop}
spec:
  cases:
    - {as: "spiffe://x.org/ns/shop/sa/web", method: GET, path: /orders/1, expect: allow, rule: readers}
    - {as: "spiffe://x.org/ns/shop/sa/web", method: PUT, path: /orders/1, expect: deny, rule: default-deny}
    - {as: "spiffe://x.org/ns/shop/sa/web", method: GET, path: /orders/../x, expect: deny}
    - {as: "spiffe://x.org/ns/old/sa/web", method: GET, path: /healthz, expect: deny}
    - {as: "spiffe://x.org/ns/shop/sa/web", method: GET, path: /other, expect: allow}
    - {as: "spiffe://x.org/ns/shop/sa/web", method: GET, path: /healthz, expect: allow, rule: readers}
"""


class CaseTests(FilesCase):
    """Policies of files, asked."""

    def policies(self, **section: object) -> Policies:
        """The policies of the folder."""
        self.write("a.yaml", POLICY.replace("NAME", "shop") + "---\n" + DENY_LIST)
        return load_policies(PolicySettings(files=tuple(self.pattern()), **section), "x.org")  # type: ignore[arg-type]

    def test_table(self) -> None:
        """Each case is decided; what differs is named."""
        results = run_cases(self.policies(), parse(CASES, CasesDocument).spec.cases)
        self.assertEqual(
            [
                "",
                "",
                "",
                "",
                "expected allow, decided deny by default-deny",
                "expected the rule readers, decided by rule-2",
            ],
            [each.failed for each in results],
        )
        self.assertIn("dot segment", results[2].explanation.refused)
        self.assertIn("deny list stolen", results[3].explanation.refused)

    def test_configured(self) -> None:
        """What the configuration allows is asked in the same way, and files narrow nothing of it."""
        policies = self.policies(default="allow")
        allowed = explain(policies, Question(**{"as": "spiffe://x.org/ns/any/sa/x"}))  # type: ignore[arg-type]
        assert allowed.decision is not None
        self.assertEqual(
            ("configuration", "default allow"), (allowed.decision.matched[0].policy, allowed.decision.matched[0].rule)
        )
        foreign = Question(**{"as": "spiffe://y.org/ns/any/sa/x"})  # type: ignore[arg-type]
        self.assertFalse(explain(policies, foreign).allowed)
        listed = load_policies(PolicySettings(allow=("spiffe://y.org/*",)), "x.org")
        self.assertTrue(explain(listed, foreign).allowed)
        self.assertEqual((), listed.files.policies)

    def test_attributes(self) -> None:
        """Levels and compartments come from the configuration, or from the question."""
        text = POLICY.replace("NAME", "mls").replace(
            'spiffeIDs: ["spiffe://x.org/ns/shop/*"]', "sameCompartment: true, dominates: true"
        )
        self.write("b.yaml", text)
        section = {
            "templates": ["spiffe://x.org/{country}/{sensitivity}/{compartment}"],
            "attributes": [{"spiffeID": "spiffe://x.org/api", "level": "DE:C", "compartment": "alpha"}],
        }
        policies = load_policies(PolicySettings.model_validate({"files": self.pattern(), **section}), "x.org")
        given = {"own": "spiffe://x.org/api", "method": "GET", "path": "/orders/1"}
        for identity, more, allowed in (
            ("spiffe://x.org/DE/S/alpha", {}, True),
            ("spiffe://x.org/DE/U/alpha", {}, False),
            ("spiffe://x.org/DE/S/beta", {}, False),
            ("spiffe://x.org/web", {}, False),
            ("spiffe://x.org/web", {"level": "DE:TS", "compartment": "alpha"}, True),
        ):
            question = Question(**{"as": identity, **given, **more})  # type: ignore[arg-type]
            self.assertEqual(allowed, explain(policies, question).allowed, identity)

    def request(self, question: Question) -> RequestFacts:
        """What is asked of policies that look at nothing."""
        policies = load_policies(PolicySettings(), "x.org")
        return question.request(policies.rules.connection(question.connection(policies)))

    def test_mqtt_questions(self) -> None:
        """A topic is a name or a filter by its action; keys of two protocols do not fit together."""
        for given, fits in (
            ({"mqttAction": "Connect", "clientID": "a"}, True),
            ({"mqttAction": "Publish", "topic": "a/b"}, True),
            ({"mqttAction": "Subscribe", "topic": "$share/g/a/#"}, True),
            ({"mqttAction": "Connect", "topic": "a"}, False),
            ({"mqttAction": "Publish"}, False),
            ({"mqttAction": "Publish", "topic": "a/#"}, False),
            ({"mqttAction": "Subscribe", "topic": ""}, False),
            ({"mqttAction": "Subscribe", "topic": "a#"}, False),
            ({"mqttAction": "Publish", "topic": "a", "path": "/"}, False),
            ({"topic": "a"}, False),
            ({"clientID": "a"}, False),
        ):
            text = json.dumps({"as": "spiffe://x.org/a", **given})
            if fits:
                action = self.request(parse(text, Question)).action
                self.assertEqual(given["mqttAction"], action)
            else:
                self.assertRaises(ConfigInvalid, parse, text, Question)
        shared = Question(**{"as": "spiffe://x.org/a", "mqttAction": "Subscribe", "topic": "$share/g/a/#"})  # type: ignore[arg-type]
        self.assertEqual(RequestFacts(action="Subscribe", topic="a/#"), self.request(shared))

    def test_path_without_influence(self) -> None:
        """A path or host with several readings is refused only where a rule names paths or hosts."""
        for key, value, named in (("path", "/a//b", "paths: [/admin]"), ("host", "%61dmin", "hosts: [admin]")):
            question = Question(**{"as": "spiffe://x.org/a", key: value})  # type: ignore[arg-type]
            self.assertTrue(explain(load_policies(PolicySettings(default="allow"), "x.org"), question).allowed)
            self.write("a.yaml", POLICY.replace("NAME", "shop").replace('paths: ["/healthz"]', named))
            section = PolicySettings(files=tuple(self.pattern()), default="deny")
            explained = explain(load_policies(section, "x.org"), question)
            self.assertIsNone(explained.decision, key)
            self.assertIn("more than one way", explained.refused)


class SectionTests(SynchronousTestCase):
    """The section of the configuration."""

    def test_refused(self) -> None:
        """Relative patterns, unknown placeholders and identities without a path."""
        for text in ("files: [policy.yaml]", 'templates: ["spiffe://x.org/{who}"]', "attributes: [{spiffeID: 'spiffe://x.org'}]",
                     "attributes: [{spiffeID: 'spiffe://x.org/a', level: secret}]"):  # fmt: skip
            self.assertRaises(ConfigInvalid, parse, text, PolicySettings)
