"""How the words of a kubectl command are read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.argv import ours, read_words
from tests.refusals import assert_refused


class WordsTests(SynchronousTestCase):
    """Flags with their values, and the other words."""

    def test_flags(self) -> None:
        """Long and short flags, together and apart from their values."""
        for text, flags, arguments in (
            ("get pods", [], ["pods"]),
            ("get -A pods", [("all-namespaces", None)], ["pods"]),
            ("get -Aw pods", [("all-namespaces", None), ("watch", None)], ["pods"]),
            ("get -Ao wide pods", [("all-namespaces", None), ("output", "wide")], ["pods"]),
            ("get -Aowide pods", [("all-namespaces", None), ("output", "wide")], ["pods"]),
            ("get -o=wide -n=x pods", [("output", "wide"), ("namespace", "x")], ["pods"]),
            ("get --output wide --watch=false x", [("output", "wide"), ("watch", "false")], ["x"]),
            ("get --watch false", [("watch", None)], ["false"]),
            ("get --all_namespaces --field_selector a=b", [("all-namespaces", None), ("field-selector", "a=b")], []),
            ("get -w=false - x", [("watch", "false")], ["-", "x"]),
            ("get -l --watch pods", [("selector", "--watch")], ["pods"]),
            ("get -n", [("namespace", "")], []),
            ("delete --cascade x --dry-run=client", [("cascade", None), ("dry-run", "client")], ["x"]),
            ("exec -it x -- sh -c y", [("stdin", None), ("tty", None)], ["x", "sh", "-c", "y"]),
        ):
            line = read_words(text.split())
            self.assertEqual(flags, [(each.name, each.value) for each in line.flags], text)
            self.assertEqual((arguments, ()), (line.arguments, line.unknown), text)

    def test_ours(self) -> None:
        """Our flags belong to their commands alone, and are left out with their values."""
        line = read_words(["get", "--compartment", "A", "pods", "--current-compartment=true", "-o", "x", "--", "y"])
        self.assertEqual(["get", "pods", "-o", "x", "--z", "--", "y"], line.without(ours("get"), ["--z"]))
        self.assertEqual(("--compartment",), read_words(["logs", "--compartment", "A"]).unknown)
        self.assertEqual(set(), ours("logs"))

    def test_unknown(self) -> None:
        """Flags that are not known are named; behind a letter nothing is read."""
        line = read_words(["get", "--new=x", "-Zo", "pods", "--newer"])
        self.assertEqual((("--new=x", "-Zo", "--newer"), ["pods"]), (line.unknown, line.arguments))

    def test_rebuilt(self) -> None:
        """Words stay as they were typed, but for those that lose a flag."""
        line = read_words(["exec", "-itf", "file", "--token", "x", "--container=y", "z", "--", "sh"])
        self.assertEqual(
            ["exec", "web", "--stdin", "--tty", "--token", "x", "--container=y", "--n"],
            line.rebuilt(["web"], {"filename"}, ["--n"]),
        )
        self.assertEqual(["exec", "-itf", "file", "--token", "x", "--container=y"], line.rebuilt([], ()))
        self.assertEqual(["--token=x"], line.connection())

    def test_booleans(self) -> None:
        """The last value counts, and each has to be one."""
        for text, wanted in (("", False), ("--force", True), ("--force --force=F", False), ("--force=0 --force", True)):
            self.assertEqual(wanted, read_words(["delete", *text.split()]).is_set("force"), text)
        assert_refused(self, "flag_value_invalid", read_words(["delete", "--force=", "--force"]).is_set, "force")

    @given(
        st.sampled_from(["get", "exec", "logs", "cp", "port-forward", "delete"]),
        st.lists(
            st.sampled_from(["-", "--", "-A", "-n", "-nx", "-itc", "--x=", "--compartment", "a", "", "-=", "--_"])
        ),
    )
    def test_any_words(self, verb: str, words: list[str]) -> None:
        """Each word in front of two dashes is an argument or belongs to a flag, and none is lost."""
        line = read_words([verb, *words])
        self.assertEqual([verb, *words], line.without(()))
        self.assertEqual(line.arguments[len(line.places) :], [verb, *words][line.end + 1 :])
        for each in line.flags:
            self.assertLess(each.start, min(each.stop, line.end))
            self.assertNotIn(each.start, line.places)
        self.assertTrue(set(line.unknown) <= set(words))
        if "--" in words and not line.flags:
            self.assertEqual(words.index("--") + 1, line.end)
