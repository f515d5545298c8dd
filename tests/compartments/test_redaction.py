"""Which words of a kubectl command are kept."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.redaction import MAX_WORD, MAX_WORDS, redacted
from svc.compartments.verbs import VERBS

#: Command lines and what is kept of them.
_CASES: Final = (
    ("get pods -n team-a -owide --watch=false", "get pods -n team-a -owide --watch=false"),
    ("get -Awl app=web deploy/web --output=json", "get -Awl app=web deploy/web --output=json"),
    ("get pods --token abc --password=abc --username abc", "get pods --token *** --password=*** --username ***"),
    ("get pods --server https://u:p@x -s https://u:p@x", "get pods --server *** -*** ***"),
    ("get pods --token --password abc", "get pods --token *** ***"),
    ("get -n --token abc", "get -n --token ***"),
    ("exec --token -- sh secret", "exec --token -- sh"),
    ("create secret generic x --from-literal=a=b", "create secret generic x --from-literal=***"),
    ("create secret generic x --from-literal a=b", "create secret generic x --from-literal ***"),
    ("set env deploy/web KEY=value", "set env deploy/web KEY=***"),
    ("patch secret x -p {} --patch={}", "patch secret x -*** *** --patch=***"),
    ("patch secret x -p{}", "patch secret x -***"),
    ("run x --env=A=b --image=i --no-such word", "run x --env=*** --image=i --*** ***"),
    ("run x --no-such --token t", "run x --*** --token ***"),
    ("apply -f https://u:p@x/y --filename=https://u:p@x", "apply -f *** --filename=***"),
    ("apply -fhttps://u:p@x -f web.yaml -f -", "apply -f*** -f web.yaml -f -"),
    ("exec -itc main web -- sh -c secret", "exec -itc main web -- sh"),
    ("exec web -- KEY=secret sh", "exec web -- KEY=***"),
    ("exec web --", "exec web --"),
    ("exec -ix web", "exec -i*** ***"),
    ("exec -i=true web", "exec -*** web"),
    ("login secret --token=x", "login ***"),
    ("login", "login"),
)  # fmt: skip


class RedactionTests(SynchronousTestCase):
    """Words of commands."""

    def test_cases(self) -> None:
        """What is not known to be harmless is left out."""
        for words, kept in _CASES:
            self.assertEqual(kept.split(), redacted(words.split()), words)

    def test_bounds(self) -> None:
        """The number of words and their size are limited."""
        self.assertEqual(["get", "x" * MAX_WORD], redacted(["get", "x" * MAX_WORD]))
        self.assertEqual(["get", f"{'x' * MAX_WORD}***"], redacted(["get", "x" * (MAX_WORD + 1)]))
        words = ["get", *("x" for _each in range(MAX_WORDS - 1))]
        self.assertEqual(words, redacted(words))
        self.assertEqual([*words, "***"], redacted([*words, "y"]))

    @given(
        st.sampled_from(sorted(VERBS)),
        st.lists(st.sampled_from(["-i", "-n", "-p", "-", "--watch", "--output", "--odd", "web", "a=b"])),
        st.sampled_from(["--token", "--password", "--from-literal", "--docker-password", "--env"]),
        st.sampled_from([" ", "="]),
    )
    def test_secret(self, verb: str, words: list[str], flag: str, separator: str) -> None:
        """The value of such a flag is left out whatever stands around it."""
        line = [verb, *words, *f"{flag}{separator}SECRET".split(" "), *words]
        self.assertNotIn("SECRET", " ".join(redacted(line)))
