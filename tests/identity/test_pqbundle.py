"""The file of post-quantum roots."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import (
    AnchorOutsideWindow,
    BundleMalformed,
    PqBundle,
    PqBundles,
    SequenceFell,
    TrustDomain,
    TrustDomainUnknown,
    X509Bundle,
    parse_pq_bundle_file,
    verify_svid,
)
from svc.testing.ca import TestAuthority

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
PQ = TestAuthority(now=NOW, algorithm="ML-DSA-65")
OTHER = TestAuthority("b.example", now=NOW, algorithm="ML-DSA-87")
BUNDLES = PqBundles().with_bundle(PQ.bundle(first_seen=NOW - DAY, last_seen=NOW + DAY)).with_bundle(OTHER.bundle())
DATA = BUNDLES.serialize()
DOMAIN = PQ.trust_domain


def changed(**members: Any) -> bytes:
    """The file with members of the first key replaced; None removes one."""
    document = json.loads(DATA)
    key = document["trustDomains"]["example.org"]["keys"][0]
    key.update(members)
    for name in [name for name, value in members.items() if value is None]:
        del key[name]
    return json.dumps(document).encode()


class FormatTests(SynchronousTestCase):
    """Reading and writing."""

    def test_round_trip(self) -> None:
        """Serialized bundles are read back, and equal bundles give equal octets."""
        self.assertEqual(PqBundles.parse(DATA), BUNDLES)
        self.assertEqual(PqBundles.parse(DATA).serialize(), DATA)

    def test_members(self) -> None:
        """The file has the members of its format."""
        document = json.loads(DATA)
        self.assertEqual((document["v"], sorted(document["trustDomains"])), (1, ["b.example", "example.org"]))
        entry = document["trustDomains"]["example.org"]
        (key,) = entry["keys"]
        self.assertEqual((entry["sequence"], key["kty"], key["alg"], len(key["x5c"])), (1, "AKP", "ML-DSA-65", 1))
        self.assertEqual((key["from"], key["until"]), ("2026-11-20T12:00:00Z", "2026-11-22T12:00:00Z"))
        self.assertNotIn("from", document["trustDomains"]["b.example"]["keys"][0])

    def test_roots_verify_within_their_window(self) -> None:
        """A post-quantum leaf verifies with the bundle inside the window of the root only."""
        leaf = PQ.svid(algorithm="ML-DSA-65", not_after=NOW + 9 * DAY).chain
        found = verify_svid(leaf, BUNDLES.bundle_set(), NOW)
        self.assertTrue(found.post_quantum)
        self.assertRaises(AnchorOutsideWindow, verify_svid, leaf, BUNDLES.bundle_set(), NOW + 2 * DAY)

    def test_unknown_keys_are_ignored(self) -> None:
        """Keys of an unknown type or algorithm are ignored."""
        for data in (changed(kty="OKP"), changed(alg="SLH-DSA-SHA2-128s")):
            self.assertEqual(PqBundles.parse(data).bundle_set().bundle_for(DOMAIN).anchors, ())

    def test_unknown_members_are_ignored(self) -> None:
        """Unknown members, which a later version may add, are ignored."""
        self.assertEqual(PqBundles.parse(changed(comment="x")), BUNDLES)

    def test_defects_are_named(self) -> None:
        """The error for a member of the wrong type names the member."""
        pub = json.loads(DATA)["trustDomains"]["b.example"]["keys"][0]["pub"]
        chain = json.loads(DATA)["trustDomains"]["b.example"]["keys"][0]["x5c"]
        classical = TestAuthority(now=NOW)
        for data, word in (
            (changed(kty=None), "kty"),
            (changed(alg=1), "alg"),
            (changed(alg="ML-DSA-44"), "alg is ML-DSA-44, the certificate has ML-DSA-65"),
            (changed(pub=pub), "pub is not the key"),
            (changed(pub="===="), "pub"),
            (changed(pub=None), "pub"),
            (changed(x5c=[]), "expected exactly one"),
            (changed(x5c=chain * 2), "expected exactly one"),
            (changed(x5c=chain), "alg is ML-DSA-65, the certificate has ML-DSA-87"),
            (changed(x5c=["AAAA"]), "no certificate"),
            (changed(x5c=["@"]), "no certificate"),
            (changed(x5c=[1]), "x5c holds a number"),
            (changed(x5c="x"), "x5c is text"),
            (changed(**{"from": 1795220731}), "from"),
            (changed(until="2026-02-30T00:00:00Z"), "until"),
            (changed(until="2026-11-21T00:00:00+00:00"), "until"),
            (b"[]", "not an object"),
            (b"{", "character"),
            (b"{}", "version None"),
            (b'{"v":2,"trustDomains":{}}', "version 2"),
            (b'{"v":true,"trustDomains":{}}', "version True"),
            (b'{"v":1}', "trustDomains is absent"),
            (b'{"v":1,"trustDomains":[]}', "trustDomains is an array"),
            (b'{"v":1,"trustDomains":{"A":{}}}', "'A' is not a trust domain name"),
            (b'{"v":1,"trustDomains":{"a":1}}', "trustDomains.a. is a number"),
            (b'{"v":1,"trustDomains":{"a":{"keys":[]}}}', "sequence is absent"),
            (b'{"v":1,"trustDomains":{"a":{"sequence":-1,"keys":[]}}}', "negative"),
            (b'{"v":1,"trustDomains":{"a":{"sequence":true,"keys":[]}}}', "sequence is true or false"),
            (b'{"v":1,"trustDomains":{"a":{"sequence":1}}}', "keys is absent"),
            (b'{"v":1,"trustDomains":{"a":{"sequence":1,"keys":[1]}}}', "keys is a number"),
            (b'{"v":1,"trustDomains":{"a":{"sequence":1,"keys":[]},"a":{}}}', "duplicate"),
        ):
            error = self.assertRaises(BundleMalformed, PqBundles.parse, data)
            self.assertIn(word, error.defect)
        self.assertRaises(BundleMalformed, PqBundles().with_bundle(classical.bundle()).serialize)

    @given(st.integers(0, len(DATA) - 1), st.binary(max_size=3))
    def test_any_octets_are_read_or_refused(self, position: int, noise: bytes) -> None:
        """A damaged file is read or refused with a typed error."""
        try:
            PqBundles.parse(DATA[:position] + noise + DATA[position + 1 :])
        except BundleMalformed as error:
            self.assertTrue(error.defect)

    def test_parse_pq_bundle_file(self) -> None:
        """A bundle file is read directly."""
        self.assertEqual(parse_pq_bundle_file(DATA), BUNDLES.bundle_set())


class SequenceTests(SynchronousTestCase):
    """A sequence never falls."""

    def at(self, sequence: int, authority: TestAuthority = PQ) -> PqBundles:
        return PqBundles({authority.trust_domain: PqBundle(sequence, authority.bundle())})

    def test_higher_sequence(self) -> None:
        """Bundles with a higher sequence and their roots are accepted."""
        found = self.at(1).advanced_to(self.at(7, PQ.rotated()))
        self.assertEqual(found.entries[DOMAIN].sequence, 7)

    def test_lower_sequence(self) -> None:
        """A lower sequence is refused, and so are other roots with the same sequence."""
        self.assertRaises(SequenceFell, self.at(7).advanced_to, self.at(6))
        self.assertRaises(SequenceFell, self.at(7).advanced_to, self.at(7, PQ.rotated()))
        self.assertEqual(self.at(7).advanced_to(self.at(7)), self.at(7))

    def test_after(self) -> None:
        """Whoever continues after a sequence without its roots gives the first ones a higher sequence."""
        begun = PqBundles.after(DOMAIN, 6)
        self.assertEqual({}, begun.entries)
        self.assertEqual(7, begun.with_bundle(PQ.bundle()).entries[DOMAIN].sequence)
        self.assertRaises(SequenceFell, begun.advanced_to, self.at(5))

    def test_one_domain_with_a_lower_sequence(self) -> None:
        """A lower sequence of one trust domain refuses the whole file."""
        both = PqBundles({**self.at(3).entries, **self.at(3, OTHER).entries})
        worse = PqBundles({**self.at(4).entries, **self.at(2, OTHER).entries})
        error = self.assertRaises(SequenceFell, both.advanced_to, worse)
        self.assertEqual(error.evidence["trust_domain"], OTHER.trust_domain)

    def test_removed_domain(self) -> None:
        """A trust domain that was removed cannot be added again with a lower sequence."""
        dropped = self.at(7).advanced_to(PqBundles())
        self.assertNotIn(DOMAIN, dropped.entries)
        self.assertRaises(SequenceFell, dropped.advanced_to(PqBundles()).advanced_to, self.at(6))
        self.assertEqual(dropped.advanced_to(self.at(7)).entries[DOMAIN].sequence, 7)
        self.assertEqual(self.at(7).without(DOMAIN).with_bundle(PQ.bundle()).entries[DOMAIN].sequence, 8)

    def test_with_bundle(self) -> None:
        """New roots increase the sequence by one, the same roots keep it, and a given sequence is used."""
        first = PqBundles().with_bundle(PQ.bundle())
        self.assertEqual(first.entries[DOMAIN].sequence, 1)
        self.assertEqual(first.with_bundle(PQ.bundle()).entries[DOMAIN].sequence, 1)
        self.assertEqual(first.with_bundle(PQ.rotated().bundle()).entries[DOMAIN].sequence, 2)
        self.assertEqual(first.with_bundle(X509Bundle(DOMAIN), 9).entries[DOMAIN].sequence, 9)
        self.assertRaises(SequenceFell, first.with_bundle, X509Bundle(DOMAIN), 1)

    def test_unknown_domain(self) -> None:
        """A trust domain without an entry is unknown, not empty."""
        self.assertRaises(TrustDomainUnknown, BUNDLES.bundle_set().bundle_for, TrustDomain("c.example"))
