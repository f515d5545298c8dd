"""The memory of roots and their windows."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import (
    AnchorOutsideWindow,
    BundleArchive,
    BundleMalformed,
    BundleSet,
    TrustDomain,
    X509Bundle,
    verify_svid,
)
from svc.identity.archive import MAX_WINDOWS
from svc.testing.ca import TestAuthority

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
ROOTS = [TestAuthority(now=NOW, not_before=NOW - 99 * DAY, not_after=NOW + 99 * DAY)]
ROOTS += [ROOTS[0].rotated() for _ in range(3)]
PQ = TestAuthority(now=NOW, algorithm="ML-DSA-65")
DOMAIN = ROOTS[0].trust_domain


def force(*places: int) -> BundleSet:
    """Bundles with these roots in force."""
    return BundleSet.of(X509Bundle.from_certificates(DOMAIN, [ROOTS[place].certificate for place in places]))


def windows(archive: BundleArchive) -> list[tuple[int, Any, Any]]:
    """Each window as root, days of its start and its end."""
    certificates = [root.certificate for root in ROOTS]
    return [
        (
            certificates.index(anchor.certificate),
            anchor.first_seen and (anchor.first_seen - NOW) / DAY,
            anchor.last_seen and (anchor.last_seen - NOW) / DAY,
        )
        for anchor in archive.bundle_set().bundle_for(DOMAIN).anchors
    ]


class ObserveTests(SynchronousTestCase):
    """Entering bundles."""

    def test_windows_open_close_and_open_again(self) -> None:
        """A root's window opens when it is seen, closes when it is gone, and a second one opens when it is back."""
        archive = BundleArchive().observe(force(0), NOW)
        self.assertEqual(windows(archive), [(0, 0, None)])
        archive = archive.observe(force(0, 1), NOW + DAY)
        self.assertEqual(windows(archive), [(0, 0, None), (1, 1, None)])
        archive = archive.observe(force(1), NOW + 2 * DAY)
        self.assertEqual(windows(archive), [(0, 0, 2), (1, 1, None)])
        archive = archive.observe(force(1, 0), NOW + 3 * DAY)
        self.assertEqual(windows(archive), [(0, 0, 2), (1, 1, None), (0, 3, None)])

    def test_nothing_new_changes_nothing(self) -> None:
        """Seeing the same roots again gives an equal archive, so nobody writes the file."""
        archive = BundleArchive().observe(force(0, 1), NOW)
        self.assertEqual(archive.observe(force(1, 0), NOW + DAY), archive)

    def test_a_domain_that_left(self) -> None:
        """The roots of a domain that is no longer federated are closed, not forgotten."""
        archive = BundleArchive().observe(force(0), NOW).observe(BundleSet(), NOW + DAY)
        self.assertEqual(windows(archive), [(0, 0, 1)])

    def test_kinds_are_apart(self) -> None:
        """Post-quantum roots are entered when they are given and left alone when not."""
        archive = BundleArchive().observe(force(0), NOW, pq=PQ.bundles())
        self.assertEqual(archive.pq.bundle_for(DOMAIN).certificates, (PQ.certificate,))
        self.assertEqual(archive.observe(BundleSet(), NOW).pq, archive.pq)
        self.assertIsNotNone(archive.observe(force(0), NOW, pq=BundleSet()).pq.bundle_for(DOMAIN).anchors[0].last_seen)

    def test_roots_outside_their_own_window_are_not_in_force(self) -> None:
        """A root that the bundle itself lists as retired closes its window."""
        archive = BundleArchive().observe(BundleSet(), NOW, pq=PQ.bundles())
        retired = BundleSet.of(PQ.bundle(last_seen=NOW + DAY))
        later = archive.observe(BundleSet(), NOW + 2 * DAY, pq=retired)
        self.assertEqual(later.pq.bundle_for(DOMAIN).anchors[0].last_seen, NOW + 2 * DAY)

    def test_a_clock_that_was_set_back(self) -> None:
        """A window never ends before it begins."""
        archive = BundleArchive().observe(force(0), NOW).observe(force(), NOW - DAY)
        self.assertEqual(windows(archive), [(0, 0, 0)])

    def test_evidence_outlives_its_root(self) -> None:
        """A retired root vouches for what was made in its window and for nothing later."""
        archive = BundleArchive().observe(force(0), NOW - DAY).observe(force(1), NOW)
        chain = ROOTS[0].svid(not_before=NOW - DAY, not_after=NOW + DAY).chain
        self.assertEqual(verify_svid(chain, archive.bundle_set(), NOW - DAY / 2).leaf, chain[0])
        self.assertRaises(AnchorOutsideWindow, verify_svid, chain, archive.bundle_set(), NOW + DAY / 2)

    def test_number_of_windows(self) -> None:
        """The oldest closed windows are forgotten beyond the limit; open ones never are."""
        archive = BundleArchive()
        for day in range(MAX_WINDOWS - 1):
            archive = archive.observe(force(3, day % 2), NOW + day * DAY)
        self.assertEqual(len(windows(archive)), MAX_WINDOWS)
        self.assertEqual(windows(archive)[:2], [(3, 0, None), (0, 0, 1)])
        last = archive.observe(force(3, 2), NOW + (MAX_WINDOWS - 1) * DAY)
        self.assertEqual(len(windows(last)), MAX_WINDOWS)
        self.assertEqual(windows(last)[0], (3, 0, None))
        self.assertEqual(windows(last)[1], (1, 1, 2))

    @given(st.lists(st.tuples(st.sets(st.integers(0, 3)), st.integers(0, 100_000)), min_size=1, max_size=8))
    def test_a_root_counts_exactly_while_it_stood_in_the_bundle(self, history: list[tuple[set[int], int]]) -> None:
        """After any history, in the middle of each step exactly the roots that stood in the bundle then count."""
        archive, now, steps = BundleArchive(), NOW, []
        for places, seconds in history:
            archive = archive.observe(force(*sorted(places)), now)
            archive = BundleArchive.parse(archive.serialize())
            steps.append((now, places))
            now += timedelta(seconds=seconds + 4)
        for start, places in steps:
            anchors = archive.spiffe.bundle_for(DOMAIN).anchors
            counting = {a.certificate for a in anchors if a.counts_at(start + timedelta(seconds=2))}
            self.assertEqual(counting, {ROOTS[place].certificate for place in places})


class FormatTests(SynchronousTestCase):
    """Reading and writing."""

    ARCHIVE = BundleArchive().observe(force(0), NOW, pq=PQ.bundles()).observe(force(1), NOW + DAY)

    def test_round_trip(self) -> None:
        """What is written is read back, windows included, also of times with fractions of a second."""
        odd = BundleArchive().observe(force(0), NOW + timedelta(microseconds=1)).observe(force(), NOW + DAY / 7)
        for archive in (BundleArchive(), self.ARCHIVE, odd):
            self.assertEqual(BundleArchive.parse(archive.serialize()), archive)
            self.assertEqual(BundleArchive.parse(archive.serialize()).serialize(), archive.serialize())

    def test_members(self) -> None:
        """The file names its type and version, and an open window has no end."""
        document = json.loads(self.ARCHIVE.serialize())
        self.assertEqual((document["v"], document["type"]), (1, "svc-bundle-archive/1"))
        entry = document["trustDomains"]["example.org"]
        self.assertEqual([len(entry["spiffe"]), len(entry["pq"])], [2, 1])
        self.assertEqual(entry["spiffe"][0]["firstSeen"], "2026-11-21T12:00:00Z")
        self.assertEqual(entry["spiffe"][0]["lastSeen"], "2026-11-22T12:00:00Z")
        self.assertNotIn("lastSeen", entry["spiffe"][1])

    def test_a_domain_of_one_kind_is_unknown_to_the_other(self) -> None:
        """A domain with post-quantum roots only has no SPIFFE bundle, not an empty one."""
        archive = BundleArchive.parse(BundleArchive().observe(BundleSet(), NOW, pq=PQ.bundles()).serialize())
        self.assertEqual((archive.spiffe.trust_domains, archive.pq.trust_domains), ((), (DOMAIN,)))

    def test_roots_without_a_beginning_are_not_written(self) -> None:
        """An archive put together by hand from a bundle without windows is our own mistake."""
        self.assertRaises(BundleMalformed, BundleArchive(spiffe=ROOTS[0].bundles()).serialize)

    def test_defects_are_named(self) -> None:
        """Each member of the wrong kind is refused by its name."""
        root = json.loads(self.ARCHIVE.serialize())["trustDomains"]["example.org"]["spiffe"][0]

        def archive(**members: Any) -> bytes:
            changed = {name: value for name, value in {**root, **members}.items() if value is not None}
            domains = {"example.org": {"spiffe": [changed]}}
            return json.dumps({"v": 1, "type": "svc-bundle-archive/1", "trustDomains": domains}).encode()

        self.assertEqual(BundleArchive.parse(archive()).spiffe.trust_domains, (TrustDomain("example.org"),))
        for data, word in (
            (archive(firstSeen=None), "firstSeen is absent"),
            (archive(firstSeen=1), "firstSeen is no instant"),
            (archive(lastSeen="2026-11-20T12:00:00Z"), "before"),
            (archive(lastSeen="yesterday"), "lastSeen is no instant"),
            (archive(x5c=[]), "expected exactly one"),
            (archive(x5c=["AAAA"]), "no certificate"),
            (archive(x5c=None), "x5c is absent"),
            (b'{"v":1,"trustDomains":{}}', "type"),
            (b'{"v":2,"type":"svc-bundle-archive/1"}', "version 2"),
            (b'{"v":1,"type":"svc-bundle-archive/1","trustDomains":{"a":{"spiffe":{}}}}', "spiffe is an object"),
            (b'{"v":1,"type":"svc-bundle-archive/1","trustDomains":{"a":{"pq":[1]}}}', "pq. is a number"),
            (b'{"v":1,"type":"svc-bundle-archive/1","trustDomains":{"/":{}}}', "not a trust domain name"),
            (b"", "character 0"),
        ):
            self.assertIn(word, self.assertRaises(BundleMalformed, BundleArchive.parse, data).defect)
