"""The words of ``kubectl apply``."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.compartments.applyflags import ApplyFlags
from svc.compartments.errors import CompartmentError


def read(text: str) -> ApplyFlags:
    """Read words that apply something."""
    found = ApplyFlags.read(text.split())
    assert found is not None
    return found


class FilesTests(SynchronousTestCase):
    """Which words name the objects."""

    def test_forms(self) -> None:
        """Every form of a flag; all other words stay in their order, arguments behind the flags."""
        for text, files, rest in (
            ("-f a", "--filename=a", ""),
            ("-fa -o yaml", "--filename=a", "--output=yaml"),
            ("-f=a", "--filename=a", ""),
            ("--filename=a,b --filename c", "--filename=a,b --filename=c", ""),
            ("-Rf a", "--recursive --filename=a", ""),
            ("-R=false -f a", "--recursive=false --filename=a", ""),
            ("--recursive=true -f - --prune", "--recursive=true --filename=-", "--prune"),
            ("-k dir --server_side", "--kustomize=dir", "--server-side"),
            ("--kustomize=dir -lx=y", "--kustomize=dir", "--selector=x=y"),
            ("-n x -f a --cascade -v9 --dry-run", "--filename=a", "--namespace=x --cascade --v=9 --dry-run"),
            ("-f a word", "--filename=a", "word"),
            ("-f a -- -f b", "--filename=a", "-f b"),
            ("-f a --help=false", "--filename=a", ""),
            ("--force_conflicts -f a", "--filename=a", "--force-conflicts"),
        ):
            found = read(text)
            self.assertEqual((files, rest), (" ".join(found.files), " ".join(found.rest)), text)

    def test_values_are_no_flags(self) -> None:
        """What stands behind a flag that takes a value is one, whatever it looks like."""
        found = read("--template -f --field-manager --force -f a -o -k")
        self.assertEqual((("--filename=a",), False), (found.files, found.force))
        self.assertEqual(("--template=-f", "--field-manager=--force", "--output=-k"), found.rest)

    def test_unknown_flags(self) -> None:
        """A flag that is not known may take the next word, and decide what is applied: it is refused."""
        for text in (
            "--record -f a",
            "-f a --record",
            "-zf a",
            "--record",
            "--record view-last-applied -f a",
            "-f a --new=1",
        ):
            error = self.assertRaises(CompartmentError, ApplyFlags.read, text.split())
            self.assertEqual("flag_unknown", error.reason, text)
        self.assertIsNone(ApplyFlags.read(["set-last-applied", "--create-annotation", "-f", "a"]))

    def test_nothing_applied(self) -> None:
        """Commands below apply, help and words without a file are kubectl's."""
        for text in (
            "",
            "--prune",
            "x",
            "-R",
            "view-last-applied deploy/web",
            "set-last-applied -f a",
            "-f a set-last-applied",
            "-o json edit-last-applied -f a",
            "-f a -h",
            "-f a --help",
            "-f a -f",
            "-f a --field-manager",
        ):
            self.assertIsNone(ApplyFlags.read(text.split()), text)
        self.assertIsNotNone(ApplyFlags.read(["-f", "a", "--field-manager", "view-last-applied"]))


class OursTests(SynchronousTestCase):
    """The flags that svc reads."""

    def test_force(self) -> None:
        """``--force`` is ours, in every spelling of a boolean; ``--kubectl-force`` is kubectl's."""
        for text, force, rest in (
            ("--force", True, ()),
            ("--force=1", True, ()),
            ("--force --force=f", False, ()),
            ("--kubectl-force", False, ("--force",)),
            ("--kubectl-force=false --force", True, ()),
            ("--force-conflicts", False, ("--force-conflicts",)),
        ):
            found = read(f"{text} -f a")
            self.assertEqual((force, rest), (found.force, found.rest), text)
        error = self.assertRaises(CompartmentError, read, "--force=yes -f a")
        self.assertEqual("flag_value_invalid", error.reason)

    def test_connection(self) -> None:
        """How the API server is reached is known apart, and whether a namespace or a context is typed."""
        found = read("-f a --as x --prune --kubeconfig=k -l y --insecure-skip-tls-verify -s z --request-timeout 3s -R")
        self.assertEqual(
            "--as=x --kubeconfig=k --insecure-skip-tls-verify --server=z --request-timeout=3s",
            " ".join(found.connection),
        )
        self.assertFalse(found.placed)
        for text in ("-n x", "-nx", "--namespace=x", "--context x"):
            self.assertTrue(read(f"{text} -f a").placed, text)
