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
        """What is written is read back, and equal bundles give equal octets."""
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
        """A post-quantum leaf verifies to the bundle, inside the window only."""
        leaf = PQ.svid(algorithm="ML-DSA-65", not_after=NOW + 9 * DAY).chain
        found = verify_svid(leaf, BUNDLES.bundle_set(), NOW)
        self.assertTrue(found.post_quantum)
        self.assertRaises(AnchorOutsideWindow, verify_svid, leaf, BUNDLES.bundle_set(), NOW + 2 * DAY)

    def test_unknown_keys_are_passed_over(self) -> None:
        """Keys of a type or algorithm that is not known verify nothing and spoil nothing."""
        for data in (changed(kty="OKP"), changed(alg="SLH-DSA-SHA2-128s")):
            self.assertEqual(PqBundles.parse(data).bundle_set().bundle_for(DOMAIN).anchors, ())

    def test_unknown_members_are_ignored(self) -> None:
        """A member that a later version adds is no fault."""
        self.assertEqual(PqBundles.parse(changed(comment="x")), BUNDLES)

    def test_defects_are_named(self) -> None:
        """Each member of the wrong kind is refused by its name."""
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
    def test_any_octets_are_read_or_refused(self, place: int, noise: bytes) -> None:
        """A damaged file is read or refused with a typed error."""
        try:
            PqBundles.parse(DATA[:place] + noise + DATA[place + 1 :])
        except BundleMalformed as error:
            self.assertTrue(error.defect)

    def test_the_reader_for_either_file(self) -> None:
        """The roots come from the bundle file directly."""
        self.assertEqual(parse_pq_bundle_file(DATA), BUNDLES.bundle_set())


class SequenceTests(SynchronousTestCase):
    """A sequence never falls."""

    def at(self, sequence: int, authority: TestAuthority = PQ) -> PqBundles:
        return PqBundles({authority.trust_domain: PqBundle(sequence, authority.bundle())})

    def test_it_rises(self) -> None:
        """A higher sequence takes effect, with its roots."""
        found = self.at(1).advanced_by(self.at(7, PQ.rotated()))
        self.assertEqual(found.sequence(DOMAIN), 7)

    def test_it_never_falls(self) -> None:
        """A lower sequence is refused, and so are other roots under the same one."""
        self.assertRaises(SequenceFell, self.at(7).advanced_by, self.at(6))
        self.assertRaises(SequenceFell, self.at(7).advanced_by, self.at(7, PQ.rotated()))
        self.assertEqual(self.at(7).advanced_by(self.at(7)), self.at(7))

    def test_each_domain_for_itself(self) -> None:
        """One domain that fell back refuses the file as a whole."""
        both = PqBundles({**self.at(3).entries, **self.at(3, OTHER).entries})
        worse = PqBundles({**self.at(4).entries, **self.at(2, OTHER).entries})
        error = self.assertRaises(SequenceFell, both.advanced_by, worse)
        self.assertEqual(error.evidence["trust_domain"], OTHER.trust_domain)

    def test_a_dropped_domain_is_remembered(self) -> None:
        """A domain that left and comes back must not come back older."""
        dropped = self.at(7).advanced_by(PqBundles())
        self.assertRaises(TrustDomainUnknown, dropped.sequence, DOMAIN)
        self.assertRaises(SequenceFell, dropped.advanced_by(PqBundles()).advanced_by, self.at(6))
        self.assertEqual(dropped.advanced_by(self.at(7)).sequence(DOMAIN), 7)
        self.assertEqual(self.at(7).without(DOMAIN).with_bundle(PQ.bundle()).sequence(DOMAIN), 8)

    def test_setting_roots_counts_up(self) -> None:
        """New roots raise the sequence by one, the same roots leave it, a given sequence is taken."""
        first = PqBundles().with_bundle(PQ.bundle())
        self.assertEqual(first.sequence(DOMAIN), 1)
        self.assertEqual(first.with_bundle(PQ.bundle()).sequence(DOMAIN), 1)
        self.assertEqual(first.with_bundle(PQ.rotated().bundle()).sequence(DOMAIN), 2)
        self.assertEqual(first.with_bundle(X509Bundle(DOMAIN), 9).sequence(DOMAIN), 9)
        self.assertRaises(SequenceFell, first.with_bundle, X509Bundle(DOMAIN), 1)

    def test_an_unknown_domain(self) -> None:
        """A domain without an entry is unknown, never empty."""
        self.assertRaises(TrustDomainUnknown, BUNDLES.bundle_set().bundle_for, TrustDomain("c.example"))
