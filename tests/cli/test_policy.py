"""``svc policy check`` and ``svc policy test`` with files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.doubles import Ran, run_svc

ID = "spiffe://x.org/ns/web/sa/fe"
POLICY = """
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {name: shop}
spec:
  authorization:
    rules:
      - name: readers
        from: [{namespaces: [web]}]
        to: [{methods: [GET], paths: ["/orders/*"]}]
        notarization: {minimum: logRequest}
      - name: never
        from: [{spiffeIDs: ["spiffe://x.org/ns/web/sa/fe"], namespaces: [web]}]
        to: [{methods: [GET], paths: ["/orders/a"]}]
---
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {name: trial}
spec: {authorization: {mode: DryRun, action: Deny, rules: [{name: closed, to: [{paths: [/orders/7]}]}]}}
---
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {name: seen}
spec: {authorization: {action: Audit, rules: [{name: all}]}}
"""
MQTT = '{mqttTopics: ["a/#"], mqttClientIDs: ["web-*"]}'
CASES = """
apiVersion: svc.internal/v1alpha1
kind: SvcPolicyTest
metadata: {name: cases}
spec:
  cases:
    - {as: ID, method: GET, path: /orders/1, expect: allow, rule: readers}
    - {as: ID, method: PUT, path: /orders/1, expect: EXPECTED}
""".replace("ID", ID)


class PolicyCommandTests(SynchronousTestCase):
    """The commands."""

    def setUp(self) -> None:
        """Write a policy."""
        self.folder = os.path.abspath(self.mktemp())
        os.makedirs(self.folder)
        self.policy = self.write("shop.yaml", POLICY)

    def write(self, name: str, text: str) -> str:
        """Write a file; returns its path."""
        path = Path(self.folder, name)
        path.write_text(text)
        return str(path)

    def check(self, *words: str) -> Ran:
        """Check the policy."""
        return run_svc("policy", "check", "--trust-domain", "x.org", self.policy, *words)

    def test_valid(self) -> None:
        """Without a question the files are counted, and rules that never decide are named."""
        ran = self.check()
        self.assertEqual((0, ""), (ran.status, ran.stderr))
        expected = [
            "valid: 1 files, 3 policies, 4 rules, 0 deny lists",
            "shadowed: the rule never of shop never decides, readers of shop matches all that it matches",
        ]
        self.assertEqual(expected, ran.stdout.decode().splitlines())

    def test_every_defect(self) -> None:
        """All defects of the first bad file are named."""
        self.policy = self.write("bad.yaml", POLICY.replace("GET", "G T").replace("[web]", "[Web]"))
        ran = self.check()
        self.assertEqual((1, b""), (ran.status, ran.stdout))
        self.assertEqual(4, ran.stderr.count("expected"), ran.stderr)
        self.assertIn("bad.yaml", ran.stderr)

    def test_explained(self) -> None:
        """The decision, its level, what a dry run would change and what is audited; the query does not count."""
        ran = self.check("--as", ID, "--method", "GET", "--path", "/orders/7?a=b")
        expected = [
            "allowed: the rule readers of shop",
            "notarization: minimum logRequest by the rule readers of shop",
            "dry run: denied: the rule closed of trial",
            "audited: the rule all of seen",
        ]
        self.assertEqual(expected, ran.stdout.decode().splitlines()[:-1])
        for words, line in (
            (("--method", "PUT", "--path", "/orders/7"), "denied: no rule allows it (default-deny)"),
            (("--path", "/orders//7"), "denied: the path of the request can be read in more than one way: "),
        ):
            ran = self.check("--as", ID, *words)
            self.assertEqual(0, ran.status)
            self.assertTrue(ran.stdout.decode().startswith(line), ran.stdout)

    def test_mqtt(self) -> None:
        """The action, the topic and the client identifier of an MQTT client."""
        self.policy = self.write(
            "iot.yaml", POLICY.replace('paths: ["/orders/*"]', "X").replace("{methods: [GET], X}", MQTT)
        )
        ran = self.check("--as", ID, "--mqtt-action", "publish", "--topic", "a/b", "--client-id", "web-1")
        self.assertEqual("allowed: the rule readers of shop", ran.stdout.decode().splitlines()[0], ran.stderr)
        for words in (
            ("--mqtt-action", "publish", "--topic", "b", "--client-id", "web-1"),
            ("--mqtt-action", "publish", "--topic", "a/b", "--client-id", "other"),
            ("--mqtt-action", "subscribe", "--topic", "#", "--client-id", "web-1"),
            ("--mqtt-action", "connect"),
        ):
            ran = self.check("--as", ID, *words)
            denied = "denied: no rule allows it (default-deny)"
            self.assertEqual((0, denied), (ran.status, ran.stdout.decode().splitlines()[0]), ran.stderr)

    def test_json(self) -> None:
        """One object with counts, decision and shadowed rules."""
        ran = self.check("--as", ID, "--method", "GET", "--path", "/orders/7", "-o", "json")
        found: dict[str, Any] = json.loads(ran.stdout)
        self.assertEqual((1, 3, 4, 0), tuple(found[each] for each in ("files", "policies", "rules", "denyLists")))
        readers = {"policy": "shop", "rule": "readers"}
        decision = found["decision"]
        self.assertEqual([{**readers, "minimum": "logRequest", "maximum": None}], decision["matched"])
        self.assertEqual((True, None), (decision["allowed"], decision["refused"]))
        self.assertEqual((False, "closed"), (decision["dryRun"]["allowed"], decision["dryRun"]["matched"][0]["rule"]))
        self.assertEqual([{"policy": "seen", "rule": "all"}], decision["audited"])
        shadowed = {"policy": "shop", "rule": "never", "byPolicy": "shop", "byRule": "readers"}
        self.assertEqual([shadowed], found["shadowed"])
        self.assertIsNone(json.loads(self.check("-o", "json").stdout)["decision"])

    def test_configuration(self) -> None:
        """A configuration gives trust domain, section and files; its other keys are not looked at."""
        text = f"trustDomain: x.org\nother: [1]\npolicy: {{allow: ['spiffe://y.org/*'], files: ['{self.policy}']}}\n"
        config = self.write("proxy.yaml", text)
        for identity, first in (
            ("spiffe://y.org/a", "allowed: the rule allow spiffe://y.org/* of configuration"),
            ("spiffe://z.org/a", "denied: no rule allows it (default-deny)"),
        ):
            ran = run_svc("policy", "check", "--config", config, "--as", identity, "--path", "/")
            self.assertEqual(first, ran.stdout.decode().splitlines()[0], ran.stderr)
        ran = run_svc("policy", "check", "--config", self.write("bad.yaml", "trustDomain: X\npolicy: {default: all}\n"))
        self.assertEqual((1, 2), (ran.status, ran.stderr.count("expected")))

    def test_cases(self) -> None:
        """The status is 1 where a case fails, which is named with its table and number."""
        for expected, status in (("deny", 0), ("allow", 1)):
            cases = self.write("cases.yaml", CASES.replace("EXPECTED", expected))
            words = ("policy", "test", "--trust-domain", "x.org", self.policy, cases)
            ran = run_svc(*words)
            self.assertEqual(status, ran.status)
            self.assertEqual(f"2 cases, {status} failed", ran.stdout.decode().splitlines()[-1])
        failed = "expected allow, decided deny by default-deny"
        self.assertIn(f"cases, case 2: PUT /orders/1 as {ID}: {failed}\n", ran.stdout.decode())
        document = json.loads(run_svc(*words, "-o", "json").stdout)
        self.assertEqual((2, ["cases, case 2"]), (document["cases"], [each["where"] for each in document["failed"]]))
        self.assertEqual("PUT", document["failed"][0]["case"]["method"])

    def test_no_cases(self) -> None:
        """Files without a table are an error: nothing would be tested."""
        ran = run_svc("policy", "test", "--trust-domain", "x.org", self.policy)
        self.assertEqual(1, ran.status)
        self.assertIn("(policy_cases_missing)", ran.stderr)
