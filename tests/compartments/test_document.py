"""The text of the configuration file."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from svc.compartments.compartment import Compartment
from svc.compartments.config import AuditLog, Config, Context
from svc.compartments.document import changed, context_mapping, read_config
from svc.settings import ConfigInvalid

FULL = """\
currentContext: de-s-alpha
contexts:
  de-s-alpha: {country: de, sensitivity: s, compartment: alpha, kubeContext: prod, namespace: team-a}
defaultUserGroups: [team-a]
kubeconfig: /etc/kube/config
requireExplicitContextSwitch: true
auditLog: {enabled: true, path: /var/log/svc.log, level: warn}
podTemplates: {Rollout.argoproj.io: [spec.template], Train: [spec.*.template, template]}
"""


def defect(text: str) -> str:
    """What is refused in a text, each defect on a line."""
    try:
        read_config(text, "config.yaml")
    except ConfigInvalid as error:
        return "\n".join(map(str, error.problems))
    return ""


class ReadTests(SynchronousTestCase):
    """Every key, and its defects."""

    def test_every_key(self) -> None:
        """Each key has its place in the configuration."""
        config, unknown = read_config(FULL, "config.yaml")
        self.assertEqual([], unknown)
        self.assertEqual(
            Config(
                "config.yaml",
                "de-s-alpha",
                {"de-s-alpha": Context(Compartment("DE", "S", "ALPHA"), "prod", "team-a")},
                ("team-a",),
                "/etc/kube/config",
                True,
                AuditLog(True, "/var/log/svc.log", "warn"),
                {"Rollout.argoproj.io": ("spec.template",), "Train": ("spec.*.template", "template")},
            ),
            config,
        )

    def test_defaults(self) -> None:
        """Without keys there is nothing but the defaults."""
        for text in ("", "# nothing\n", "{}"):
            self.assertEqual((Config("p"), []), read_config(text, "p"))
        self.assertEqual(AuditLog(False, "~/.svc/audit.log", "info"), Config("p").audit)

    def test_defects(self) -> None:
        """Each key names its value and what was expected."""
        context = "contexts: {a: {country: DE, sensitivity: S, compartment: A, kubeContext: k}}"
        for text, expected in (
            ("currentContext: 7", "currentContext: 7: expected text"),
            ("contexts: []", "contexts: a list: expected a mapping"),
            ("contexts: {a: 1}", "contexts.a: 1: expected a mapping"),
            (context.replace("DE", "'D E'"), "contexts.a.country: 'D E': expected a code of up to 8 letters"),
            (context.replace(" S", " X"), "contexts.a.sensitivity: 'X': expected one of U, C, S, TS"),
            (context.replace(" A", " -A"), "contexts.a.compartment: '-A': expected letters, digits"),
            (context.replace(" A", f" {'A' * 59}"), "at most 63 characters"),
            (context.replace(", kubeContext: k", ""), "contexts.a.kubeContext: missing: expected a value"),
            (context.replace(": k", ": ''"), "contexts.a.kubeContext: '': expected a text without control"),
            (context.replace(": k", ': "a\\n"'), "expected a text without control characters"),
            (context.replace("k}", "k, namespace: A}"), "contexts.a.namespace: 'A': expected the name of a namespace"),
            (context.replace("k}", f"k, namespace: {'a' * 64}}}"), "expected the name of a namespace"),
            ("defaultUserGroups: admins", "defaultUserGroups: 'admins': expected a list"),
            ("defaultUserGroups: [1]", "defaultUserGroups[0]: 1: expected text"),
            ("defaultUserGroups: ['']", "defaultUserGroups[0]: '': expected a text without control"),
            ("kubeconfig: [a]", "kubeconfig: a list: expected text"),
            ("requireExplicitContextSwitch: 'yes'", "requireExplicitContextSwitch: 'yes': expected true or false"),
            ("auditLog: true", "auditLog: true: expected a mapping"),
            ("auditLog: {enabled: 1}", "auditLog.enabled: 1: expected true or false"),
            ("auditLog: {path: 1}", "auditLog.path: 1: expected text"),
            ("podTemplates: {rollout: [a]}", "'rollout': expected a kind with its group, such as Rollout.argoproj.io"),
            ("podTemplates: {R.: [a]}", "expected a kind with its group"),
            ("podTemplates: {R: spec}", "podTemplates.R: 'spec': expected a list"),
            ("podTemplates: {R: [a..b]}", "podTemplates.R[0]: 'a..b': expected keys separated by dots"),
            ("podTemplates: {R: ['**']}", "podTemplates.R[0]: '**': expected keys separated by dots"),
            ("auditLog: {level: trace}", "auditLog.level: 'trace': expected 'debug', 'info', 'warn' or 'error'"),
        ):
            self.assertIn(expected, defect(text), text)
        self.assertEqual("", defect(context.replace("k}", f"k, namespace: {'a' * 63}}}")))

    def test_unknown_keys(self) -> None:
        """Keys that nothing reads are accepted, and named with their places."""
        text = FULL.replace("namespace: team-a", "color: red") + "editor: vi\n"
        self.assertEqual(["editor", "contexts.de-s-alpha.color"], read_config(text, "p")[1])


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.text("ab~1", max_size=3), below, max_size=3),
    max_leaves=4,
)
NAMES = st.text("abcDE019.-_", min_size=1, max_size=10).filter(lambda text: text[0].isalnum() and text[-1].isalnum())


class ChangeTests(SynchronousTestCase):
    """Changes of the text."""

    @given(st.dictionaries(st.text("xyz", min_size=1, max_size=3), VALUES, max_size=3), NAMES, NAMES)
    def test_any_change(self, extra: dict[str, Any], name: str, kube_context: str) -> None:
        """A context that is added is read back as it was, whatever text its parts have, and all else stays."""
        context = Context(Compartment.parse("no", "s", name), kube_context)

        def write(document: Any) -> None:
            document.update(extra)

        def add(document: Any) -> None:
            document["contexts"] = {context.compartment.context_name: context_mapping(context)}

        before = changed("", write)
        after = changed(before, add)
        config, unknown = read_config(after, "p")
        self.assertEqual({context.compartment.context_name: context}, config.contexts)
        document = strictyaml.loads(after)
        assert isinstance(document, dict)
        self.assertEqual(list(extra), unknown)
        self.assertEqual(extra, {key: document[key] for key in extra})
