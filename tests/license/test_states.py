"""The state of a license at any instant, and the choice among several."""

from __future__ import annotations

from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.license.payload import License
from svc.license.states import (
    CLOCK_TOLERANCE,
    MISSING,
    Assessment,
    Change,
    Exceeded,
    LicenseState,
    assess,
    best,
    refused,
    state_at,
)
from svc.license.verification import VerifiedLicense
from tests.license.material import KEYS, LICENSE, NOW, verified
from tests.license.test_payload import licenses

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def instants(made: License) -> list[datetime]:
    """Every instant that a license names, and those around it."""
    named = [made.not_before, made.not_after, made.grace_until]
    named += [made.not_after - days * DAY for days in made.warn_days]
    return sorted({each + offset for each in named for offset in (-SECOND, timedelta(0), SECOND)})


class TimeTests(SynchronousTestCase):
    """States by time."""

    @given(licenses())
    def test_order_in_time(self, made: License) -> None:
        """The states follow each other in one order, and each begins with the instant that the license names."""
        order = [
            LicenseState.NOT_YET_VALID,
            LicenseState.VALID,
            LicenseState.EXPIRING_SOON,
            LicenseState.GRACE,
            LicenseState.EXPIRED,
        ]
        found = [order.index(state_at(made, each)) for each in instants(made)]
        self.assertEqual(found, sorted(found))
        self.assertIs(state_at(made, made.not_before - SECOND), LicenseState.NOT_YET_VALID)
        self.assertIn(state_at(made, made.not_before), (LicenseState.VALID, LicenseState.EXPIRING_SOON))
        ended = LicenseState.GRACE if made.grace_days else LicenseState.EXPIRED
        self.assertIs(state_at(made, made.not_after), ended)
        self.assertIs(state_at(made, made.grace_until), LicenseState.EXPIRED)

    @given(licenses())
    def test_next_change(self, made: License) -> None:
        """The state stays until the next change that is announced, and is the announced one then."""
        known = VerifiedLicense(made, KEYS[0], b"")
        for now in instants(made):
            found = assess(known, now)
            if found.next_change is None:
                self.assertIs(found.state, LicenseState.EXPIRED)
                continue
            at, state = found.next_change
            self.assertGreater(at, now)
            self.assertIs(assess(known, at - SECOND).state, found.state)
            self.assertIs(assess(known, at).state, state)
            self.assertIsNot(state, found.state)

    @given(licenses())
    def test_warnings(self, made: License) -> None:
        """A warning is due exactly while the license will end soon, and its number of days never grows."""
        known, before = VerifiedLicense(made, KEYS[0], b""), 10**9
        for now in instants(made):
            found = assess(known, now)
            self.assertEqual(found.warning is not None, found.state is LicenseState.EXPIRING_SOON)
            if found.warning is not None:
                self.assertIn(found.warning, made.warn_days)
                self.assertGreaterEqual(found.warning * DAY, made.not_after - now)
                self.assertLessEqual(found.warning, before)
                before = found.warning

    def test_changes_of_one(self) -> None:
        """The announced changes of a license, one after the other."""
        now, found = LICENSE.not_before - SECOND, []
        while change := assess(verified(), now).next_change:
            found.append(change)
            now = change.at
        self.assertEqual(
            found,
            [
                Change(LICENSE.not_before, LicenseState.VALID),
                Change(LICENSE.not_after - 60 * DAY, LicenseState.EXPIRING_SOON),
                Change(LICENSE.not_after, LicenseState.GRACE),
                Change(LICENSE.not_after + 30 * DAY, LicenseState.EXPIRED),
            ],
        )

    def test_warning_longer_than_the_license(self) -> None:
        """A license that is shorter than its warnings ends soon from its beginning."""
        short = verified(not_after=LICENSE.not_before + DAY)
        self.assertIs(assess(short, LICENSE.not_before).state, LicenseState.EXPIRING_SOON)
        self.assertEqual(
            assess(short, LICENSE.not_before - SECOND).next_change,
            Change(LICENSE.not_before, LicenseState.EXPIRING_SOON),
        )


class SurroundingsTests(SynchronousTestCase):
    """States by use, place and clock; the vectors have their edges."""

    def test_exceeded_limits(self) -> None:
        """Each limit that is exceeded is named, also where another state is worse."""
        usage = {"workloads": 501, "clusters": 4, "federatedPeers": 4, "unknown": 10**9}
        exceeded = (Exceeded("clusters", 4, 3), Exceeded("workloads", 501, 500))
        self.assertEqual(assess(verified(), NOW, usage=usage).exceeded, exceeded)
        expired = assess(verified(), LICENSE.grace_until, usage=usage)
        self.assertEqual((expired.state, expired.exceeded), (LicenseState.EXPIRED, exceeded))

    @given(licenses(), st.integers(-(10**6), 10**6))
    def test_clock(self, made: License, behind: int) -> None:
        """A clock more than a day behind is suspect, unless the license has expired even so."""
        known, now = VerifiedLicense(made, KEYS[0], b""), made.not_before
        found = assess(known, now, latest_seen=now + timedelta(seconds=behind)).state
        suspect = timedelta(seconds=behind) > CLOCK_TOLERANCE
        self.assertEqual(found is LicenseState.CLOCK_SUSPECT, suspect)

    def test_in_force(self) -> None:
        """A license with a warning counts as a valid one, any other does not."""
        self.assertEqual(
            {state.value for state in LicenseState if state.in_force}, {"Valid", "ExpiringSoon", "Grace", "OverLimit"}
        )


class BestTests(SynchronousTestCase):
    """Which of several licenses counts."""

    def test_none(self) -> None:
        """Without a license it is missing."""
        self.assertEqual(best([]), MISSING)
        self.assertIs(MISSING.state, LicenseState.MISSING)

    def test_the_best_state_counts(self) -> None:
        """A valid one counts, wherever it stands; a refused one only where there is no other."""
        bad = refused(EnvelopeError("signature_invalid", alg="Ed25519"))
        self.assertEqual((bad.state, bad.reason), (LicenseState.INVALID, "signature_invalid{Ed25519}"))
        valid = assess(verified(), NOW)
        expired = assess(verified(not_before=NOW - 99 * DAY, not_after=NOW - 40 * DAY), NOW)
        for given_ in ([bad, expired, valid], [valid, bad, expired], [expired, valid, bad]):
            self.assertIs(best(given_), valid)
        self.assertIs(best([bad, expired]), expired)
        self.assertIs(best([bad]), bad)

    def test_limits_are_not_added(self) -> None:
        """Two licenses of 500 do not allow 501; one of 1000 does, even if it ends earlier."""
        usage = {"workloads": 501}
        small = [assess(verified(id=each), NOW, usage=usage) for each in ("a" * 22, "b" * 22)]
        self.assertIs(best(small).state, LicenseState.OVER_LIMIT)
        large = assess(verified(limits={"workloads": 1000}, not_after=LICENSE.not_after - DAY), NOW, usage=usage)
        self.assertIs(best([*small, large]), large)
        self.assertIs(large.state, LicenseState.VALID)

    def test_equal_states(self) -> None:
        """Of licenses in one state the one that ends last counts, then the one issued last; the order is no matter."""
        early = assess(verified(not_after=LICENSE.not_after - DAY, issued=NOW), NOW)
        old, new = assess(verified(), NOW), assess(verified(issued=LICENSE.issued + DAY), NOW)
        for given_ in ([early, old, new], [new, old, early], [old, new, early]):
            self.assertIs(best(given_), new)

    @given(st.lists(licenses(), min_size=1, max_size=4), st.integers(0, 10**6))
    def test_nothing_is_better(self, made: list[License], seconds: int) -> None:
        """The one that counts is in the best state of all."""
        now = made[0].not_before + timedelta(seconds=seconds)
        found: list[Assessment] = [assess(VerifiedLicense(each, KEYS[0], b""), now) for each in made]
        self.assertEqual(best(found).state.rank, min(each.state.rank for each in found))
