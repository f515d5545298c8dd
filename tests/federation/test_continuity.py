"""The table of continuity."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.envelope.errors import EnvelopeError
from svc.federation.continuity import TABLE, Continuity, Poll, after_poll, poll_of
from svc.federation.errors import PackageRefused

STATES = st.sampled_from(Continuity)
POLLS = st.sampled_from(Poll)


class ContinuityTests(SynchronousTestCase):
    """States after polls."""

    def test_complete(self) -> None:
        """The table has each poll, with and without a pinned package that has expired."""
        self.assertEqual(set(TABLE), set(itertools.product(Poll, (False, True))))

    def test_polls(self) -> None:
        """Only what says nothing about the signer is less than a refusal."""
        self.assertIs(poll_of(None), Poll.VERIFIED)
        for error, expected in (
            (EnvelopeError("signature_invalid", alg="Ed25519"), Poll.REFUSED),
            (EnvelopeError("unsupported_version", found=2, supported=1), Poll.UNKNOWN),
            (PackageRefused("packages_missing", sequence=4, trust_domain="a", missing=3), Poll.UNKNOWN),
            (PackageRefused("package_expired", trust_domain="a", expires="b", now="c"), Poll.STALE),
            (PackageRefused("package_rolled_back", trust_domain="a", defect="b"), Poll.REFUSED),
        ):
            self.assertIs(poll_of(error), expected, error.reason)

    @given(STATES, st.lists(st.tuples(POLLS, st.booleans()), max_size=12))
    def test_any_polls(self, state: Continuity, polls: list[tuple[Poll, bool]]) -> None:
        """It works from a verified poll until one with another result; silence before the end changes nothing."""
        works = state is Continuity.WORKING
        for poll, expired in polls:
            before, state = state, after_poll(state, poll, pinned_expired=expired)
            if (poll, expired) == (Poll.UNREACHABLE, False):
                self.assertIs(state, before)
            else:
                works = poll is Poll.VERIFIED
            self.assertEqual(state is Continuity.WORKING, works)
