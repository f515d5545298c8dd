"""Registration entries for service accounts."""

from __future__ import annotations

from dataclasses import replace

from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID
from svc.manager.identities.entries import (
    AccountsTooMany,
    due_changes,
    federated_domains,
    m2m_entry,
    wanted_entries,
    written_bundles,
)
from svc.naming import ENTRY_OWNER
from svc.registrar.config import OWNER as REGISTRAR
from svc.spire.entries import MAX_NAMES
from svc.spire.messages import BundleMessage

NODES = SpiffeID.parse("spiffe://example.org/node")
ACCOUNTS = [("pay", "api"), ("pay", "web.v2"), ("shop", "api")]


class WantedEntriesTests(SynchronousTestCase):
    """Which entries there should be."""

    def test_enabled_namespaces(self) -> None:
        """Each service account of an enabled namespace has one, and only these."""
        api, web = wanted_entries({"pay", "empty"}, ACCOUNTS, NODES)
        self.assertEqual("spiffe://example.org/ns/pay/sa/api", str(api.spiffe_id))
        self.assertEqual(frozenset({"k8s:ns:pay", "k8s:sa:api"}), api.selectors)
        self.assertEqual((NODES, False), (api.parent_id, api.admin))
        self.assertEqual("/ns/pay/sa/web.v2", web.spiffe_id.path)
        self.assertTrue(api.id.startswith(ENTRY_OWNER), api.id)
        self.assertEqual([], wanted_entries((), ACCOUNTS, NODES))
        self.assertEqual([30, 30], [each.x509_svid_ttl for each in wanted_entries({"pay"}, ACCOUNTS, NODES, ttl=30)])

    def test_longest_names(self) -> None:
        """The longest names that Kubernetes has make a SPIFFE ID."""
        (found,) = wanted_entries({"n" * 63}, [("n" * 63, "a" * 253)], NODES)
        self.assertTrue(found.spiffe_id.path.endswith("/a" + "a" * 252))

    def test_entry_for_peers(self) -> None:
        """The manager's own pods get the identity that peers see, without rights at the server."""
        found = m2m_entry("svc-system", NODES)
        self.assertEqual("spiffe://example.org/svc/m2m", str(found.spiffe_id))
        self.assertEqual(frozenset({"k8s:ns:svc-system", "k8s:sa:svc-manager"}), found.selectors)
        self.assertEqual((NODES, False), (found.parent_id, found.admin))
        self.assertTrue(found.id.startswith(ENTRY_OWNER), found.id)

    def test_federated(self) -> None:
        """Entries federate where the bundle was written and is there; the manager's own one forgets none before."""
        peers = [
            {"spec": {"trustDomain": name}, "status": {"conditions": [{"type": "BundleSynced", "status": status}]}}
            for name, status in (("a.example", "True"), ("b.example", "True"), ("c.example", "False"))
        ]
        written = written_bundles([*peers, {"spec": {"trustDomain": "new.example"}}])
        self.assertEqual({"a.example", "b.example"}, written)
        bundles = [BundleMessage(trust_domain=f"{name}.example") for name in ("a", "c", "former", "foreign")]
        own = m2m_entry("svc-system", NODES, frozenset({"a.example", "former.example", "gone.example"}))
        theirs = replace(own, owner=REGISTRAR, federates_with=frozenset({"foreign.example"}))
        found = federated_domains(written, bundles, [own.message(), theirs.message()])
        self.assertEqual(({"a.example"}, {"a.example", "former.example"}), found)
        (entry,) = wanted_entries({"pay"}, ACCOUNTS[:1], NODES, federates_with=found[0])
        self.assertEqual({"a.example"}, entry.federates_with)
        many = [BundleMessage(trust_domain=f"p{number}.example") for number in range(MAX_NAMES + 1)]
        for each in federated_domains(frozenset(each.trust_domain for each in many), many, []):
            self.assertEqual(MAX_NAMES, len(each))

    def test_limit(self) -> None:
        """Accounts of other namespaces do not count, and one more than the limit is refused."""
        self.assertEqual(2, len(wanted_entries({"pay"}, ACCOUNTS, NODES, limit=2)))
        error = self.assertRaises(AccountsTooMany, wanted_entries, {"pay", "shop"}, ACCOUNTS, NODES, limit=2)
        self.assertEqual((3, 2), (error.evidence["count"], error.evidence["limit"]))


class DueChangesTests(SynchronousTestCase):
    """What has to change at the server."""

    def setUp(self) -> None:
        """What is wanted."""
        self.api, self.web = wanted_entries({"pay"}, ACCOUNTS, NODES)

    def test_made_equal(self) -> None:
        """What is missing is created, what is not wanted deleted, and what somebody has changed is changed back."""
        stored = [self.api.message(), replace(self.web, spiffe_id=self.api.spiffe_id, hint="x").message()]
        todo = due_changes(stored, [self.api, self.web])
        self.assertEqual(((self.web,), ()), (todo.create, todo.update))
        self.assertEqual((stored[1].id,), todo.delete)
        changed = self.api.message()
        changed.admin = True
        self.assertEqual((self.api,), due_changes([changed], [self.api]).update)
        self.assertFalse(due_changes([self.api.message()], [self.api]))

    def test_entries_of_others_stay(self) -> None:
        """Those of a registrar and of an operator are not deleted, whatever they are for."""
        others = [replace(self.web, owner=REGISTRAR).message(), replace(self.api, owner="0f3a").message()]
        self.assertFalse(due_changes(others, []))

    def test_same_entry_of_another_owner(self) -> None:
        """It is as good as an own one; another parent or other selectors make it another entry."""
        same = replace(self.api, owner=REGISTRAR).message()
        self.assertFalse(due_changes([same], [self.api]))
        for different in (
            {"parent_id": SpiffeID.parse("spiffe://example.org/other")},
            {"selectors": frozenset({"k8s:ns:pay"})},
        ):
            other = replace(self.api, owner=REGISTRAR, **different).message()
            self.assertEqual((self.api,), due_changes([other], [self.api]).create)
