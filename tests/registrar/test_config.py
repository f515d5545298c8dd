"""The configuration of the registrar."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.registrar.config import RegistrarSettings
from svc.settings import ConfigInvalid, parse
from svc.spire.entries import changes

TEXT = """
trustDomain: example.org
entries:
  - {spiffeID: /node, parentID: /spire/server, selectors: ["k8s_psat:cluster:main"]}
  - {spiffeID: "spiffe://example.org/svc/manager", parentID: /node, selectors: ["k8s:ns:a", "k8s:sa:b"], admin: true}
"""


class SettingsTests(SynchronousTestCase):
    """Entries, and what is refused."""

    def refusal(self, old: str, new: str) -> str:
        """The defect of the text with a replacement."""
        self.assertIn(old, TEXT)
        error = self.assertRaises(ConfigInvalid, parse, TEXT.replace(old, new), RegistrarSettings)
        return "; ".join(str(each) for each in error.problems)

    def test_entries(self) -> None:
        """Paths are completed by the trust domain; identifiers are the registrar's, which the manager leaves alone."""
        node, manager = parse(TEXT, RegistrarSettings).wanted
        self.assertEqual("spiffe://example.org/node", str(node.spiffe_id))
        self.assertEqual("spiffe://example.org/spire/server", str(node.parent_id))
        self.assertEqual((manager.parent_id, True), (node.spiffe_id, manager.admin))
        self.assertTrue(node.id.startswith("svc-registrar."))
        self.assertFalse(changes([node.message()], []))
        self.assertEqual((node.id,), changes([node.message()], [], owner="svc-registrar.").delete)

    def test_refused(self) -> None:
        """Each defect is named with its value."""
        self.assertIn("'k8s' is not of the form type:value", self.refusal('"k8s:ns:a"', '"k8s"'))
        self.assertIn("another trust domain", self.refusal("parentID: /node", "parentID: 'spiffe://b.example/x'"))
        twice = '/node, parentID: /spire/server, selectors: ["k8s_psat:cluster:main"]}'
        self.assertIn("twice", self.refusal(twice, f"{twice}\n  - {{spiffeID: {twice}"))
        self.assertIn("at least one entry", self.refusal(TEXT[TEXT.index("entries:") :], "entries: []"))
        self.assertIn("/no de", self.refusal("spiffeID: /node", "spiffeID: '/no de'"))
