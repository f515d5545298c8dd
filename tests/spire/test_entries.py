"""Registration entries and the changes that a server needs, without a server."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID
from svc.spire.entries import MAX_NAMES, MAX_SELECTORS, MAX_TTL, OWN, EntryChanges, RegistrationEntry, changes
from svc.spire.errors import EntryMalformed
from svc.spire.messages import EntryMessage

TD = "spiffe://prod.example"
PARENT = SpiffeID.parse(f"{TD}/svc/node")
API = RegistrationEntry(SpiffeID.parse(f"{TD}/ns/pay/sa/api"), PARENT, frozenset({"k8s:ns:pay", "k8s:sa:api"}))

_SELECTORS = st.frozensets(st.sampled_from(["k8s:ns:a", "k8s:ns:b", "k8s:sa:c"]), min_size=1)
_ENTRIES = st.builds(
    RegistrationEntry,
    st.sampled_from([SpiffeID.parse(f"{TD}/ns/{name}") for name in "ab"]),
    st.just(PARENT),
    _SELECTORS,
    x509_svid_ttl=st.sampled_from([0, 60]),
    federates_with=st.frozensets(st.sampled_from(["one.example", "two.example"])),
    dns_names=st.lists(st.sampled_from(["a.example", "b.example"]), unique=True).map(tuple),
    hint=st.sampled_from(["", "internal"]),
    admin=st.booleans(),
)


class ServerInMemory:
    """What a server stores: it keeps no order of selectors and trust domains, and adds fields of its own."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}

    def apply(self, wanted: EntryChanges, shuffled: random.Random) -> None:
        """Make changes as the server would, which refuses to create twice and to change what is not there."""
        for identifier in wanted.delete:
            del self.stored[identifier]
        for entry in wanted.create:
            assert entry.id not in self.stored
        for entry in wanted.update:
            assert entry.id in self.stored
        for entry in (*wanted.create, *wanted.update):
            message = entry.message()
            for field in (message.selectors, message.federates_with):
                values = list(field)
                shuffled.shuffle(values)
                del field[:]
                field.extend(values)
            # created_at, which is not read.
            message.MergeFromString(b"\x78\x2a")
            self.stored[entry.id] = message


class EntryTests(SynchronousTestCase):
    """What an entry may be."""

    def test_message(self) -> None:
        """Every field is in the message, read back by its number."""
        entry = replace(
            API,
            x509_svid_ttl=60,
            jwt_svid_ttl=30,
            federates_with=frozenset({"two.example", "one.example"}),
            dns_names=("b.example", "a.example"),
            hint="internal",
            admin=True,
        )
        message = EntryMessage.FromString(entry.message().SerializeToString())
        self.assertEqual(("prod.example", "/ns/pay/sa/api"), (message.spiffe_id.trust_domain, message.spiffe_id.path))
        self.assertEqual("/svc/node", message.parent_id.path)
        self.assertEqual(
            [("k8s", "ns:pay"), ("k8s", "sa:api")], [(each.type, each.value) for each in message.selectors]
        )
        self.assertEqual((60, 30), (message.x509_svid_ttl, message.jwt_svid_ttl))
        self.assertEqual(["one.example", "two.example"], message.federates_with)
        self.assertEqual(["b.example", "a.example"], message.dns_names)
        self.assertEqual(("internal", True), (message.hint, message.admin))

    def test_identifier(self) -> None:
        """It depends on what SPIRE does not allow twice, and on nothing else."""
        self.assertTrue(API.id.startswith(OWN))
        self.assertEqual(API.id, replace(API, x509_svid_ttl=60, hint="x").id)
        others = [
            replace(API, selectors=frozenset({"k8s:ns:pay"})),
            replace(API, parent_id=SpiffeID.parse(f"{TD}/other")),
            replace(API, spiffe_id=SpiffeID.parse(f"{TD}/other")),
        ]
        self.assertEqual(4, len({API.id, *(each.id for each in others)}))

    def test_bounds(self) -> None:
        """What SPIRE would refuse is refused with its defect, at the bounds."""
        many = frozenset(f"k8s:pod-label:a:{number}" for number in range(MAX_SELECTORS + 1))
        replace(API, selectors=frozenset(list(many)[1:]), x509_svid_ttl=MAX_TTL, dns_names=("a",) * MAX_NAMES)
        for defect, wrong in (
            ("it has 0 selectors", {"selectors": frozenset()}),
            (f"it has {MAX_SELECTORS + 1} selectors", {"selectors": many}),
            ("the selector 'k8s' is not of the form type:value", {"selectors": frozenset({"k8s"})}),
            ("the selector 'k8s:' is not of the form type:value", {"selectors": frozenset({"k8s:"})}),
            (f"it has more than {MAX_NAMES} names", {"dns_names": ("a",) * (MAX_NAMES + 1)}),
            ("its parent spiffe://b.example/a is of another", {"parent_id": SpiffeID.parse("spiffe://b.example/a")}),
            ("a life is not between 0 and", {"x509_svid_ttl": MAX_TTL + 1}),
            ("a life is not between 0 and", {"jwt_svid_ttl": -1}),
        ):
            error = self.assertRaises(EntryMalformed, lambda wrong=wrong: replace(API, **wrong))
            self.assertIn(defect, str(error))
            self.assertIn("spiffe://prod.example/ns/pay/sa/api", str(error))
            self.assertTrue(error.hint)


class ChangesTests(SynchronousTestCase):
    """What has to change."""

    def test_others_are_not_touched(self) -> None:
        """Entries with other identifiers are neither deleted nor taken for own ones."""
        foreign = API.message()
        foreign.id = "0b6b3f8e"
        self.assertEqual(EntryChanges(create=(API,)), changes([foreign], [API]))
        self.assertFalse(changes([foreign], []))

    def test_trust_domains_with_scheme(self) -> None:
        """A server that names a trust domain with its scheme names the same one."""
        entry = replace(API, federates_with=frozenset({"one.example"}))
        message = entry.message()
        message.federates_with[0] = "spiffe://one.example"
        self.assertFalse(changes([message], [entry]))

    @given(st.lists(st.lists(_ENTRIES, max_size=8), min_size=1, max_size=5), st.randoms(use_true_random=False))
    def test_any_sequence(self, states: list[list[RegistrationEntry]], shuffled: random.Random) -> None:
        """After the changes the server has exactly what is wanted, whatever it had; then nothing has to change."""
        server = ServerInMemory()
        for wanted in states:
            server.apply(changes(server.stored.values(), wanted), shuffled)
            self.assertEqual({each.id for each in wanted}, set(server.stored))
            self.assertFalse(changes(server.stored.values(), wanted))
            last = {each.id: each for each in wanted}
            for identifier, entry in last.items():
                self.assertEqual(entry.hint, server.stored[identifier].hint)
                self.assertEqual(entry.admin, server.stored[identifier].admin)
                self.assertEqual(list(entry.dns_names), server.stored[identifier].dns_names)
