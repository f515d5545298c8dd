"""The bundle archive: roots and their windows."""

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


def bundles_of(*positions: int) -> BundleSet:
    """A bundle set with these roots."""
    return BundleSet.of(X509Bundle.from_certificates(DOMAIN, [ROOTS[position].certificate for position in positions]))


def windows(archive: BundleArchive) -> list[tuple[int, Any, Any]]:
    """Each window as the number of its root and the days of its beginning and end."""
    certificates = [root.certificate for root in ROOTS]
    return [
        (
            certificates.index(anchor.certificate),
            anchor.first_seen and (anchor.first_seen - NOW) / DAY,
            anchor.last_seen and (anchor.last_seen - NOW) / DAY,
        )
        for anchor in archive.spiffe.bundle_for(DOMAIN).anchors
    ]


class ObserveTests(SynchronousTestCase):
    """Recording bundles."""

    def test_windows_of_a_root(self) -> None:
        """A window begins when a root is added and ends when it is removed; adding it again begins a second window."""
        archive = BundleArchive().observe(bundles_of(0), NOW)
        self.assertEqual(windows(archive), [(0, 0, None)])
        archive = archive.observe(bundles_of(0, 1), NOW + DAY)
        self.assertEqual(windows(archive), [(0, 0, None), (1, 1, None)])
        archive = archive.observe(bundles_of(1), NOW + 2 * DAY)
        self.assertEqual(windows(archive), [(0, 0, 2), (1, 1, None)])
        archive = archive.observe(bundles_of(1, 0), NOW + 3 * DAY)
        self.assertEqual(windows(archive), [(0, 0, 2), (1, 1, None), (0, 3, None)])

    def test_no_change(self) -> None:
        """Observing the same roots again gives an equal archive, so that the file is not written."""
        archive = BundleArchive().observe(bundles_of(0, 1), NOW)
        self.assertEqual(archive.observe(bundles_of(1, 0), NOW + DAY), archive)

    def test_removed_trust_domain(self) -> None:
        """The windows of the roots of a removed trust domain end; the roots stay in the archive."""
        archive = BundleArchive().observe(bundles_of(0), NOW).observe(BundleSet(), NOW + DAY)
        self.assertEqual(windows(archive), [(0, 0, 1)])

    def test_pq_roots_are_optional(self) -> None:
        """Post-quantum roots are recorded when they are given and unchanged when they are not."""
        archive = BundleArchive().observe(bundles_of(0), NOW, pq=PQ.bundles())
        self.assertEqual(archive.pq.bundle_for(DOMAIN).certificates, (PQ.certificate,))
        self.assertEqual(archive.observe(BundleSet(), NOW).pq, archive.pq)
        self.assertIsNotNone(
            archive.observe(bundles_of(0), NOW, pq=BundleSet()).pq.bundle_for(DOMAIN).anchors[0].last_seen
        )

    def test_retired_roots_of_a_bundle(self) -> None:
        """The window of a root ends when the bundle lists it with a window that has ended."""
        archive = BundleArchive().observe(BundleSet(), NOW, pq=PQ.bundles())
        retired = BundleSet.of(PQ.bundle(last_seen=NOW + DAY))
        later = archive.observe(BundleSet(), NOW + 2 * DAY, pq=retired)
        self.assertEqual(later.pq.bundle_for(DOMAIN).anchors[0].last_seen, NOW + 2 * DAY)

    def test_clock_set_back(self) -> None:
        """A window never ends before it begins."""
        archive = BundleArchive().observe(bundles_of(0), NOW).observe(bundles_of(), NOW - DAY)
        self.assertEqual(windows(archive), [(0, 0, 0)])

    def test_verification_with_retired_root(self) -> None:
        """With a retired root, chains verify at times inside its window only."""
        archive = BundleArchive().observe(bundles_of(0), NOW - DAY).observe(bundles_of(1), NOW)
        chain = ROOTS[0].svid(not_before=NOW - DAY, not_after=NOW + DAY).chain
        self.assertEqual(verify_svid(chain, archive.spiffe, NOW - DAY / 2).leaf, chain[0])
        self.assertRaises(AnchorOutsideWindow, verify_svid, chain, archive.spiffe, NOW + DAY / 2)

    def test_number_of_windows(self) -> None:
        """Beyond the limit the windows that ended first are dropped, never those that have not ended."""
        archive = BundleArchive()
        for day in range(MAX_WINDOWS - 1):
            archive = archive.observe(bundles_of(3, day % 2), NOW + day * DAY)
        self.assertEqual(len(windows(archive)), MAX_WINDOWS)
        self.assertEqual(windows(archive)[:2], [(3, 0, None), (0, 0, 1)])
        last = archive.observe(bundles_of(3, 2), NOW + (MAX_WINDOWS - 1) * DAY)
        self.assertEqual(len(windows(last)), MAX_WINDOWS)
        self.assertEqual(windows(last)[0], (3, 0, None))
        self.assertEqual(windows(last)[1], (1, 1, 2))

    @given(st.lists(st.tuples(st.sets(st.integers(0, 3)), st.integers(0, 100_000)), min_size=1, max_size=8))
    def test_any_history(self, history: list[tuple[set[int], int]]) -> None:
        """After any history, at a time within each step exactly the roots in the bundle at that step are trusted."""
        archive, now, steps = BundleArchive(), NOW, []
        for positions, seconds in history:
            archive = archive.observe(bundles_of(*sorted(positions)), now)
            archive = BundleArchive.parse(archive.serialize())
            steps.append((now, positions))
            now += timedelta(seconds=seconds + 4)
        for start, positions in steps:
            anchors = archive.spiffe.bundle_for(DOMAIN).anchors
            counting = {a.certificate for a in anchors if a.trusted_at(start + timedelta(seconds=2))}
            self.assertEqual(counting, {ROOTS[position].certificate for position in positions})


class FormatTests(SynchronousTestCase):
    """Reading and writing."""

    ARCHIVE = BundleArchive().observe(bundles_of(0), NOW, pq=PQ.bundles()).observe(bundles_of(1), NOW + DAY)

    def test_round_trip(self) -> None:
        """Serialized archives are read back with their windows, also for times with fractions of a second."""
        odd = (
            BundleArchive().observe(bundles_of(0), NOW + timedelta(microseconds=1)).observe(bundles_of(), NOW + DAY / 7)
        )
        for archive in (BundleArchive(), self.ARCHIVE, odd):
            self.assertEqual(BundleArchive.parse(archive.serialize()), archive)
            self.assertEqual(BundleArchive.parse(archive.serialize()).serialize(), archive.serialize())

    def test_members(self) -> None:
        """The file has its type and version; the window of a trusted root has no end."""
        document = json.loads(self.ARCHIVE.serialize())
        self.assertEqual((document["v"], document["type"]), (1, "svc-bundle-archive/1"))
        entry = document["trustDomains"]["example.org"]
        self.assertEqual([len(entry["spiffe"]), len(entry["pq"])], [2, 1])
        self.assertEqual(entry["spiffe"][0]["firstSeen"], "2026-11-21T12:00:00Z")
        self.assertEqual(entry["spiffe"][0]["lastSeen"], "2026-11-22T12:00:00Z")
        self.assertNotIn("lastSeen", entry["spiffe"][1])

    def test_domain_with_pq_roots_only(self) -> None:
        """A domain with post-quantum roots only has no SPIFFE bundle, not an empty one."""
        archive = BundleArchive.parse(BundleArchive().observe(BundleSet(), NOW, pq=PQ.bundles()).serialize())
        self.assertEqual((archive.spiffe.trust_domains, archive.pq.trust_domains), ((), (DOMAIN,)))

    def test_roots_without_first_seen(self) -> None:
        """An archive of roots without the beginning of their window is not serialized."""
        self.assertRaises(BundleMalformed, BundleArchive(spiffe=ROOTS[0].bundles()).serialize)

    def test_defects_are_named(self) -> None:
        """The error for a member of the wrong type names the member."""
        root = json.loads(self.ARCHIVE.serialize())["trustDomains"]["example.org"]["spiffe"][0]

        def archive(**members: Any) -> bytes:
            changed = {name: value for name, value in {**root, **members}.items() if value is not None}
            domains = {"example.org": {"spiffe": [changed]}}
            return json.dumps({"v": 1, "type": "svc-bundle-archive/1", "trustDomains": domains}).encode()

        self.assertEqual(BundleArchive.parse(archive()).spiffe.trust_domains, (TrustDomain("example.org"),))
        first, last = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
        whole = BundleArchive.parse(archive(firstSeen=first, lastSeen=last))
        self.assertEqual(BundleArchive.parse(whole.serialize()), whole)
        observed = whole.observe(bundles_of(1), NOW)
        self.assertEqual(BundleArchive.parse(observed.serialize()), observed)
        for data, word in (
            (archive(firstSeen=None), "firstSeen is absent"),
            (archive(firstSeen=1), "firstSeen is no instant"),
            (archive(lastSeen="2026-11-20T12:00:00Z"), "before"),
            (archive(lastSeen="yesterday"), "lastSeen is no instant"),
            (archive(firstSeen="0000-01-01T00:00:00Z"), "firstSeen is no instant"),
            (archive(lastSeen="9999-12-31T23:59:60Z"), "lastSeen is no instant"),
            (archive(lastSeen="10000-01-01T00:00:00Z"), "lastSeen is no instant"),
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
