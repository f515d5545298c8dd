"""How the words of a command of kubectl are read, and how a context is added."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.compartment import Compartment
from svc.compartments.config import Active
from svc.compartments.verbs import VERBS, is_local, leading, mutates, with_context


def active(kube_context: str = "prod", namespace: str = "team-a") -> Active:
    """What is in effect."""
    return Active("de-s-alpha", Compartment("DE", "S", "ALPHA"), kube_context, namespace, "", (), ())


ADDED = ["--context=prod", "--namespace=team-a"]


class ContextTests(SynchronousTestCase):
    """Where the flags are added."""

    def test_places(self) -> None:
        """Behind the leading words, in front of flags and of what follows two dashes."""
        for before, after in (
            ("get", ""),
            ("rollout status deploy/web", "--watch=false -n other"),
            ("exec web", "-it -- sh -c --context=x"),
            ("exec web", "-- sh"),
            ("some plugin", "--of krew"),
            ("logs", "-f web"),
        ):
            words = [*before.split(), *after.split()]
            self.assertEqual([*before.split(), *ADDED, *after.split()], with_context(words, active()))

    def test_own_context(self) -> None:
        """A command line with a context of its own stays as it is: the namespace belongs to another one."""
        for words in (["get", "pods", "--context=x"], ["get", "--context", "x", "pods"]):
            self.assertEqual(words, with_context(words, active()))

    def test_what_is_there(self) -> None:
        """Only what the context has is added."""
        self.assertEqual(["get", "--context=prod", "-A"], with_context(["get", "-A"], active(namespace="")))
        self.assertEqual(["get", "-A"], with_context(["get", "-A"], active("", "")))

    @given(st.lists(st.sampled_from(["get", "-n", "x", "--", "--contexts", "-", ""]), min_size=1))
    def test_any_words(self, words: list[str]) -> None:
        """All words stay, in their order."""
        found = with_context(words, active())
        self.assertEqual(len(words) + 2, len(found))
        place = found.index(ADDED[0])
        self.assertEqual(words, found[:place] + found[place + 2 :])
        self.assertEqual(leading(words), found[:place])


class VerbTests(SynchronousTestCase):
    """What a command may change."""

    def test_mutates(self) -> None:
        """Commands that read are known, with their subcommands; plugins are not."""
        for line in (
            "get pods",
            "logs -f x",
            "auth can-i create pods",
            "auth whoami",
            "rollout status x",
            "config view",
        ):
            self.assertFalse(mutates(line.split()), line)
        for line in (
            "apply -f x",
            "auth reconcile",
            "rollout undo x",
            "rollout --watch status",
            "neat get",
            "exec x -- ls",
        ):
            self.assertTrue(mutates(line.split()), line)

    def test_local(self) -> None:
        """Commands without a cluster."""
        self.assertTrue(is_local(["config", "view"]))
        self.assertTrue(is_local(["help", "get"]))
        self.assertFalse(is_local(["get"]))
        self.assertNotIn("help", VERBS)
