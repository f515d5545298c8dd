"""Policy files: documents, their limits, and files that belong together."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.identity import SpiffeID
from svc.policy.engine import PolicySet
from svc.policy.rules import Action, ConnectionFacts, RequestFacts
from svc.policyfiles import files
from svc.policyfiles.files import PolicyFilesRefused, read_policies
from svc.settings import ConfigInvalid, ConfigUnreadable

POLICY = """
apiVersion: svc.internal/v1alpha1
kind: SvcClusterPolicy
metadata: {name: NAME}
spec:
  authorization:
    rules:
      - name: readers
        from: [{spiffeIDs: ["spiffe://x.org/ns/shop/*"]}]
        to: [{methods: [GET], paths: ["/orders/*"]}]
        notarization: {minimum: logRequest, maximum: signRequest}
      - to: [{paths: ["/healthz"]}]
"""
DENY_LIST = """
apiVersion: svc.internal/v1alpha1
kind: SvcDenyList
metadata: {name: stolen}
spec:
  spiffeIDs: ["spiffe://x.org/ns/old/*"]
  certificates: [{sha256: "DIGEST"}, {issuer: "CN=ca", serial: 1f}]
  workloadStatements: ["STATEMENT"]
""".replace("DIGEST", "ab" * 32).replace("STATEMENT", "_" * 43)


def target(policy: str, keys: str) -> str:
    """A policy whose second rule has a target."""
    return policy.replace('{paths: ["/healthz"]}', f"{{{keys}}}")


class FilesCase(SynchronousTestCase):
    """Cases with a folder of policy files."""

    def setUp(self) -> None:
        self.folder = os.path.abspath(self.mktemp())
        os.makedirs(self.folder)

    def write(self, name: str, text: str) -> str:
        """Write a file; returns its path."""
        path = os.path.join(self.folder, name)
        Path(path).write_text(text)
        return path

    def pattern(self) -> list[str]:
        """The pattern of all files."""
        return [os.path.join(self.folder, "*.yaml")]


class ReadTests(FilesCase):
    """What is read."""

    def test_policies_and_deny_lists(self) -> None:
        """Files are read by name, documents in their order; a rule without a name is called by its number."""
        self.write("b.yaml", POLICY.replace("NAME", "third"))
        self.write(
            "a.yaml", POLICY.replace("NAME", "first") + "---\n" + POLICY.replace("NAME", "second") + "---\n" + DENY_LIST
        )
        self.write("c.yml", "not matched")
        read = read_policies(self.pattern())
        self.assertEqual(["first", "second", "third"], [each.name for each in read.policies])
        self.assertEqual(["readers", "rule-2"], [each.name for each in read.policies[0].rules])
        self.assertEqual(["a.yaml", "b.yaml"], [os.path.basename(each) for each in read.paths])
        [denied] = read.denied
        self.assertEqual(
            ("stolen", {bytes.fromhex("ab" * 32)}, {("CN=ca", 0x1F)}, {"_" * 43}),
            (denied.name, set(denied.certificates), set(denied.serials), set(denied.statements)),
        )

    def test_statements(self) -> None:
        """The statements of a list are identifiers, refused otherwise."""
        for wrong in ("_" * 42, "_" * 44, "+" * 43, "spiffe://x.org/a"):
            text = DENY_LIST.replace("_" * 43, wrong)
            error = self.assertRaises(ConfigInvalid, read_policies, [self.write("a.yaml", text)])
            self.assertIn("spec.workloadStatements[0]", str(error.problems[0]))

    def test_decides(self) -> None:
        """What is written decides."""
        self.write("a.yaml", POLICY.replace("NAME", "first"))
        policies = PolicySet(read_policies(self.pattern()).policies)
        connection = policies.connection(ConnectionFacts("web", 1, SpiffeID.parse("spiffe://x.org/ns/shop/sa/web")))
        for method, path, allowed in (
            ("GET", "/orders/1", True),
            ("PUT", "/orders/1", False),
            ("PUT", "/healthz", True),
        ):
            self.assertEqual(allowed, connection.decide(RequestFacts(method, path)).allowed)
        self.assertEqual("logRequest", connection.authorize(RequestFacts("GET", "/orders/1")).matched[0].minimum)

    def test_mqtt_decides(self) -> None:
        """Topics, also excluded ones, actions and client identifiers."""
        keys = 'mqttActions: [Publish], mqttTopics: ["a/#"], notMqttTopics: [a/b], mqttClientIDs: ["c*"]'
        self.write("a.yaml", target(POLICY.replace("NAME", "first"), keys))
        policies = PolicySet(read_policies(self.pattern()).policies)
        connection = policies.connection(ConnectionFacts("iot", 1, SpiffeID.parse("spiffe://x.org/ns/any/sa/a")))
        for action, topic, client_id, allowed in (
            ("Publish", "a/c", "c1", True),
            ("Publish", "a/b", "c1", False),
            ("Publish", "b", "c1", False),
            ("Publish", "a/c", "d", False),
            ("Subscribe", "a/c", "c1", False),
        ):
            facts = RequestFacts(action=action, topic=topic, client_id=client_id)  # type: ignore[arg-type]
            self.assertIs(allowed, connection.decide(facts).allowed, facts)

    def test_kinds(self) -> None:
        """Mode, action and namespace."""
        text = POLICY.replace("NAME", "x, namespace: shop").replace("SvcClusterPolicy", "SvcPolicy")
        text = text.replace("authorization:", "authorization:\n    mode: DryRun\n    action: Deny")
        self.write("a.yaml", text.replace("        notarization: {minimum: logRequest, maximum: signRequest}\n", ""))
        [policy] = read_policies(self.pattern()).policies
        self.assertEqual(("shop/x", Action.DENY, False), (policy.qualified_name, policy.action, policy.enforced))

    def test_digest(self) -> None:
        """The digest changes with a name or with content, and is otherwise the same."""
        path = self.write("a.yaml", POLICY.replace("NAME", "first"))
        digests = [read_policies(self.pattern()).digest, read_policies(self.pattern()).digest]
        os.rename(path, path.replace("a.yaml", "b.yaml"))
        digests.append(read_policies(self.pattern()).digest)
        self.write("b.yaml", POLICY.replace("NAME", "second"))
        digests.append(read_policies(self.pattern()).digest)
        self.assertEqual([digests[0]], digests[1:2])
        self.assertEqual(3, len(set(digests)))

    def test_no_files(self) -> None:
        """A pattern may match nothing; a name may not."""
        self.assertEqual((), read_policies(self.pattern()).policies)
        absent = os.path.join(self.folder, "a.yaml")
        error = self.assertRaises(PolicyFilesRefused, read_policies, [absent])
        self.assertEqual(("policy_file_absent", absent), (error.reason, error.evidence["pattern"]))


class RefusedTests(FilesCase):
    """What is refused, as a whole."""

    def refused(self, text: str) -> list[str]:
        """The problems of a file."""
        path = self.write("a.yaml", text)
        error = self.assertRaises(ConfigInvalid, read_policies, [path])
        return [str(each) for each in error.problems]

    def test_every_defect_is_named(self) -> None:
        """Each with its key and value, also of keys that are not known (yet)."""
        text = POLICY.replace("NAME", "first").replace("/orders/*", "orders").replace("GET", "G T")
        problems = self.refused(text.replace("/healthz", "/a//b").replace("name: readers", "mqttTopics: [a]"))
        self.assertEqual(4, len(problems), problems)
        for part in (
            "rules[0].mqttTopics",
            "rules[0].to[0].methods[0]: 'G T'",
            "paths[0]: 'orders'",
            "paths[0]: '/a//b'",
        ):
            self.assertTrue(any(part in each for each in problems), part)

    def test_together(self) -> None:
        """What keys demand of each other."""
        policy = POLICY.replace("NAME", "first")
        both = "minimum: logRequest, maximum: signRequest"
        named = "metadata: {name: a, namespace: b}"
        denying = "authorization:\n    action: Deny"
        for text, part in (
            (policy.replace("kind: SvcClusterPolicy", "kind: Other"), "kind: 'Other': expected one of Svc"),
            (policy.replace("kind: SvcClusterPolicy", ""), "kind: missing"),
            (policy.replace("metadata: {name: first}", named), "namespace for the kind SvcPolicy"),
            (policy.replace("SvcClusterPolicy", "SvcPolicy"), "namespace for the kind SvcPolicy"),
            (policy.replace("authorization:", denying), "notarization in rules of the action Allow only"),
            (policy.replace("- to", "- name: readers\n        to"), "'readers' appears twice"),
            (policy.replace(both, "minimum: signRequest, maximum: workload"), "not above"),
            (policy.replace("spec:", "spec:\n  namespaceSelector: {}"), "namespaceSelector"),
            (target(policy, "mqttTopics: [a], hosts: [h.org]"), "hosts, methods and paths of HTTP in another entry"),
            (target(policy, "mqttActions: [Publish], notPaths: [/a]"), "rules[1].to[0]: a mapping: expected hosts"),
            (target(policy, "mqttTopics: [a], mqttActions: [Connect]"), "the action Connect in another entry"),
            (target(policy, "notMqttTopics: [a], mqttClientIDs: [a]"), "notMqttTopics together with mqttTopics or"),
            (target(policy, "mqttTopics: [a#]"), "to[0].mqttTopics[0]: 'a#': expected a topic filter"),
            (target(policy, "notMqttTopics: [$share/g/a]"), "notMqttTopics[0]: '$share/g/a': expected a topic filter"),
            (target(policy, "mqttActions: [publish]"), "mqttActions[0]: 'publish': expected 'Connect', 'Publish' or"),
            (target(policy, "mqttClientIDs: ['*a*']"), "mqttClientIDs[0]: '*a*': expected a client identifier"),
            (DENY_LIST.replace("serial: 1f", "serial: 1g"), "serial"),
            (DENY_LIST.replace("CN=ca", ""), "issuer"),
            (DENY_LIST.replace("CN=ca", "ca"), "a distinguished name"),
            (DENY_LIST.replace(", serial: 1f", ""), "either sha256, or issuer and serial"),
        ):  # fmt: skip
            problems = self.refused(text)
            self.assertTrue(any(part in each for each in problems), (part, problems))

    def test_limits(self) -> None:
        """At each limit, and one above it."""
        policy = POLICY.replace("NAME", "first")
        for count, accepted in ((128, True), (129, False)):
            path = self.write("a.yaml", policy + "      - {}\n" * (count - 2))
            if accepted:
                self.assertEqual(count, len(read_policies([path]).policies[0].rules))
            else:
                self.assertRaises(ConfigInvalid, read_policies, [path])
        self.write("a.yaml", policy)
        self.write("b.yaml", POLICY.replace("NAME", "second"))
        for name, limit, reason in (("MAX_FILES", 2, "policy_files_many"), ("MAX_ALL_RULES", 4, "policy_rules_many")):
            self.patch(files, name, limit)
            self.assertEqual(2, len(read_policies(self.pattern()).policies))
            self.patch(files, name, limit - 1)
            self.assertEqual(reason, self.assertRaises(PolicyFilesRefused, read_policies, self.pattern()).reason)
            self.patch(files, name, limit)

    def test_names_are_unique(self) -> None:
        """Two policies of one name and kind are refused, with both files; kinds and namespaces are apart."""
        self.write("a.yaml", POLICY.replace("NAME", "first"))
        self.write("b.yaml", POLICY.replace("NAME", "first, namespace: shop").replace("SvcClusterPolicy", "SvcPolicy"))
        self.assertEqual(2, len(read_policies(self.pattern()).policies))
        self.write("c.yaml", POLICY.replace("NAME", "first"))
        error = self.assertRaises(PolicyFilesRefused, read_policies, self.pattern())
        self.assertIn("SvcClusterPolicy first", str(error))
        self.assertIn("a.yaml", str(error))
        self.assertIn("c.yaml", str(error))

    def test_files_of_a_namespace(self) -> None:
        """Beside files of a cluster they only narrow, whatever their kind, and share no names with them."""
        cluster = self.write("cluster.yml", POLICY.replace("NAME", "first"))
        self.write("a.yaml", POLICY.replace("NAME", "first"))
        self.write("b.yaml", POLICY.replace("NAME", "first, namespace: shop").replace("SvcClusterPolicy", "SvcPolicy"))
        found = read_policies(self.pattern(), cluster=[cluster])
        self.assertEqual([0, 1, 2], [each.rank for each in found.policies])
        self.assertEqual(cluster, found.paths[0])
        # A cluster without policies yet.
        found = read_policies(self.pattern(), cluster=[f"{self.folder}/none/*"])
        self.assertEqual([1, 2], [each.rank for each in found.policies])
        self.assertEqual([0, 2], [each.rank for each in read_policies(self.pattern()).policies])

    def test_not_yaml(self) -> None:
        """A file that is not YAML, or holds no mapping, is named."""
        for text in ("a: [", "- a", "just text", "a: &x 1"):
            path = self.write("a.yaml", text)
            error = self.assertRaises(SvcError, read_policies, [path])
            self.assertIn("a.yaml", str(error))

    @given(st.text(max_size=200))
    def test_any_text(self, text: str) -> None:
        """Any text is refused with an error of its own, or has no policies."""
        path = self.write("a.yaml", "")
        Path(path).write_bytes(text.encode("utf-8", "surrogatepass"))
        with contextlib.suppress(ConfigInvalid, ConfigUnreadable):
            self.assertEqual((), read_policies([path]).policies)
