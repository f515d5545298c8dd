"""Challenges of registries."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.install.registry.challenges import Challenge, choose_challenge, parse_challenges, scopes_for

_NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=8)


class ChallengeTests(SynchronousTestCase):
    """``WWW-Authenticate``."""

    def test_forms(self) -> None:
        """Several challenges in one field or several, quoted and plain values, values of other schemes between."""
        realm, basic = {"realm": "https://a/t"}, Challenge("basic", {"realm": "r"})
        for fields, wanted in (
            (['Bearer realm="https://a/t",service="s"'], [Challenge("bearer", {**realm, "service": "s"})]),
            (['BASIC Realm = r , Bearer realm="https://a/t"'], [basic, Challenge("bearer", realm)]),
            (["Basic realm=r", "Bearer realm=a"], [basic, Challenge("bearer", {"realm": "a"})]),
            (["Negotiate, Basic realm=r"], [Challenge("negotiate", {}), basic]),
            (["Negotiate YWJj==, Basic realm=r"], [Challenge("negotiate", {}), basic]),
            ([r'Basic realm="a\"b, Bearer realm=c"'], [Challenge("basic", {"realm": 'a"b, Bearer realm=c'})]),
            (["Basic realm=a, realm=b"], []),
            (['"'], []),
            ([], []),
        ):
            self.assertEqual(wanted, parse_challenges(fields), fields)

    @given(st.lists(st.tuples(_NAMES, st.dictionaries(_NAMES, st.text('ab"\\ ,=', max_size=8), min_size=1))))
    def test_round_trip(self, given_challenges: list[tuple[str, dict[str, str]]]) -> None:
        """What is written is read."""

        def quoted(value: str) -> str:
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

        written = [
            f"{scheme} " + ", ".join(f"{name}={quoted(value)}" for name, value in parameters.items())
            for scheme, parameters in given_challenges
        ]
        wanted = [Challenge(scheme, parameters) for scheme, parameters in given_challenges]
        self.assertEqual(wanted, parse_challenges(written))
        self.assertEqual(wanted, parse_challenges([", ".join(written)]))

    @given(st.lists(st.text(max_size=60), max_size=3))
    def test_any_text(self, fields: list[str]) -> None:
        """Any text gives some challenges or none."""
        parse_challenges(fields)

    def test_long_text(self) -> None:
        """A long text that is no challenge is read in time that grows with its length."""
        for text in ("Basic " + 'a="' + "\\" * 100_000, " " * 100_000, "Basic " + "a=b," * 50_000, "a" * 100_000):
            parse_challenges([text])

    def test_choice(self) -> None:
        """Bearer with a realm comes before Basic; others cannot be answered."""
        basic, bearer = Challenge("basic", {}), Challenge("bearer", {"realm": "r"})
        self.assertIs(bearer, choose_challenge([basic, bearer]))
        self.assertIs(basic, choose_challenge([Challenge("bearer", {}), basic]))
        self.assertIsNone(choose_challenge([Challenge("negotiate", {})]))

    def test_scopes(self) -> None:
        """The scope of the challenge stands; repositories that it does not name are added."""
        challenge = Challenge("bearer", {"realm": "r", "scope": "repository:a:pull,push"})
        wanted = ["repository:a:pull", "repository:b:pull"]
        self.assertEqual(["repository:a:pull,push", "repository:b:pull"], scopes_for(challenge, wanted))
        self.assertEqual(wanted, scopes_for(Challenge("bearer", {"realm": "r"}), wanted))
