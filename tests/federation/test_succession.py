"""Successors: an honest peer is always followed, whatever was missed; nothing ever goes back."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.federation.errors import PackageRefused
from svc.federation.package import VerifiedPackage
from svc.federation.succession import MAX_LINKS, check_follows, needed_links
from tests.federation.material import DAY, signed
from tests.vectors.material import NOW

#: On which days the honest peer makes new roots; on all others it signs the same ones anew.
ROTATIONS = (0, 2, 3, 6, 7, 11)
DAYS = st.integers(0, 13)


@cache
def served(day: int, *, bare: bool = False) -> VerifiedPackage:
    """What the honest peer serves on a day; ``bare`` leaves out the signatures of the roots before."""
    sequence = sum(each <= day for each in ROTATIONS)
    introduced = day in ROTATIONS and sequence > 1 and not bare
    return signed(sequence, issued=NOW + day * DAY, introduced=introduced)


def link(sequence: int) -> VerifiedPackage:
    """The package that introduced a set of roots."""
    return served(ROTATIONS[sequence - 1])


class SuccessionTests(SynchronousTestCase):
    """A peer that makes new roots now and then."""

    @given(DAYS, DAYS, st.booleans())
    def test_honest_peer(self, pinned: int, today: int, bare: bool) -> None:
        """Whatever was missed, a later package is followed by way of the links, and an earlier one is not."""
        before, after = served(pinned), served(today, bare=bare)
        links = {each: link(each) for each in needed_links(before, after)}
        if pinned <= today:
            check_follows(before, after, NOW + today * DAY, links)
        else:
            error = self.assertRaises(PackageRefused, check_follows, before, after, NOW + pinned * DAY, links)
            self.assertEqual(error.reason, "package_rolled_back")

    @given(DAYS, DAYS, st.data())
    def test_missing_links(self, pinned: int, today: int, data: st.DataObject) -> None:
        """Without one of the needed links the package is refused, with the number of the missing one."""
        before, after = served(pinned), served(today)
        needed = list(needed_links(before, after))
        if not needed:
            return
        lost = data.draw(st.sampled_from(needed))
        links = {each: link(each) for each in needed if each != lost}
        error = self.assertRaises(PackageRefused, check_follows, before, after, NOW + 20 * DAY, links)
        self.assertEqual((error.reason, error.evidence["missing"]), ("packages_missing", lost))

    @given(DAYS, DAYS, st.permutations(range(2, 7)))
    def test_swapped_links(self, pinned: int, today: int, order: list[int]) -> None:
        """Links in other places than their own are accepted only where none of them is needed."""
        before, after = served(pinned), served(today)
        needed = needed_links(before, after)
        links = {place: link(sequence) for place, sequence in zip(range(2, 7), order, strict=True)}
        right = all(
            links[each].content.sequence == each
            for each in range(before.content.sequence + 1, after.content.sequence + 1)
        )
        if pinned > today or right:
            return
        self.assertRaises(PackageRefused, check_follows, before, after, NOW + 20 * DAY, links)
        self.assertLessEqual(len(needed), 5)

    def test_unneeded_links(self) -> None:
        """A link that is not needed does no harm."""
        check_follows(served(3), served(5), NOW + 5 * DAY, {2: link(2), 3: link(3), 6: link(6)})

    def test_most_links(self) -> None:
        """A peer serves its last 16 sequences: what is before them cannot be followed, and nothing is fetched."""
        first, near, far = signed(1), signed(MAX_LINKS + 1), signed(MAX_LINKS + 2)
        self.assertEqual(needed_links(first, near), range(2, MAX_LINKS + 2))
        error = self.assertRaises(PackageRefused, needed_links, first, far)
        self.assertEqual((error.reason, error.evidence["missing"]), ("packages_missing", 2))
        self.assertEqual(needed_links(first, signed(2, introduced=True)), range(2, 2))
        self.assertEqual(needed_links(far, first), range(MAX_LINKS + 3, 2))
