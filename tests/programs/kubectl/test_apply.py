"""``svc apply`` with a program in place of kubectl, which reads files of JSON only."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.cli.compartments_kit import CONFIG, PassedCase

#: Writes its words, its environment and its standard input into numbered files. ``patch`` prints the file that it is
#: given, ``get`` what is in a file, ``apply`` exits with a status of its own.
_KUBECTL: Final = """\
#!/bin/sh
cd "$(dirname "$0")"
n=$(ls run-*.words 2>/dev/null | wc -l)
echo "$*" > run-$n.words
echo "$KUBECONFIG $KUBERC" > run-$n.environ
case "$*" in
patch*)
    for word; do case "$word" in --filename=*) file=${word#*=} ;; esac; done
    if [ "$file" = - ]; then cat; elif [ -s "$file" ]; then cat "$file"; else
        echo "error: no objects passed to patch" >&2; echo more >&2; exit 1; fi ;;
get*) cat > run-$n.stdin; if [ -e live ]; then cat live; else exit 1; fi ;;
*--filename=-*) cat > run-$n.stdin; echo applied; exit 7 ;;
esac
"""
_MARKS: Final = {
    "labels": {"svc.internal/compartment": "DE-S-ALPHA"},
    "annotations": {"mls.svc.internal/level": "de:s", "mls.svc.internal/compartment": "de:alpha"},
}


def job(name: str, namespace: str = "", **template: Any) -> dict[str, Any]:
    """A Job."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


class ApplyCase(PassedCase):
    """A home folder with contexts and that program."""

    def setUp(self) -> None:
        """Write both."""
        super().setUp()
        self.kubectl.write_text(_KUBECTL)
        self.configure()

    def write(self, *documents: dict[str, Any]) -> None:
        """Write the file of objects, as kubectl prints them."""
        (self.home / "objects").write_text("\n".join(json.dumps(each, indent=4) for each in documents) + "\n")

    def words(self) -> list[str]:
        """The words of each run of kubectl."""
        return [(self.home / f"run-{n}.words").read_text().strip() for n in range(len(list(self.home.glob("*.words"))))]

    def applied(self) -> list[dict[str, Any]]:
        """What the last run of kubectl got."""
        text = (self.home / f"run-{len(self.words()) - 1}.stdin").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def refused(self, *words: str) -> str:
        """What is said where nothing is applied."""
        ran = self.process("apply", *words)
        self.assertEqual((1, ""), (ran.returncode, ran.stdout))
        self.assertEqual([], [each for each in self.words() if each.startswith("apply")])
        return ran.stderr


class ApplyTests(ApplyCase):
    """What kubectl gets."""

    def test_runs(self) -> None:
        """One run reads, without kubeconfig and preferences; the other one is the process, with its output."""
        self.write({"kind": "A", "metadata": {"namespace": "b"}}, {"kind": "B"})
        ran = self.process("apply", "-Rf", "objects", "--server-side", "-o", "name", KUBECONFIG="k", KUBERC="r")
        self.assertEqual((7, "applied\n", ""), (ran.returncode, ran.stdout, ran.stderr))
        read = "patch --local --type=merge --patch={} --output=json --show-managed-fields"
        applied = "apply --context=prod --filename=- --server-side --output=name"
        self.assertEqual([f"{read} --recursive --filename=objects", applied], self.words())
        environs = [(self.home / f"run-{n}.environ").read_text() for n in (0, 1)]
        self.assertEqual(["/dev/null off\n", "k r\n"], environs)
        self.assertEqual(
            [
                {"kind": "A", "metadata": {"namespace": "b", **_MARKS}},
                {"kind": "B", "metadata": {"namespace": "team-a", **_MARKS}},
            ],
            self.applied(),
        )

    def test_typed(self) -> None:
        """With a namespace or a context that is typed, none is added to the objects."""
        self.write({"kind": "A"})
        for typed, added, passed in (
            ("-n=x", "--context=prod ", "--namespace=x"),
            ("--context=stage", "", "--context=stage"),
            ("--namespace=x", "--context=prod ", "--namespace=x"),
        ):
            self.process("apply", "-f", "objects", typed)
            self.assertEqual(f"apply {added}--filename=- {passed}", self.words()[-1])
            self.assertEqual([{"kind": "A", "metadata": _MARKS}], self.applied())

    def test_large(self) -> None:
        """More objects than a pipe holds; and kubectl may end before it has read them."""
        documents = [{"kind": "A", "metadata": {"name": str(n)}, "data": {"x": "y" * 1000}} for n in range(1000)]
        self.write(*documents)
        self.assertEqual(7, self.process("apply", "-f", "objects").returncode)
        self.assertEqual([str(n) for n in range(1000)], [each["metadata"]["name"] for each in self.applied()])
        self.kubectl.write_text(_KUBECTL.replace("*--filename=-*) cat", "*--filename=-*) exit 3; cat"))
        ran = self.process("apply", "-f", "objects")
        self.assertEqual((3, ""), (ran.returncode, ran.stderr))

    def test_not_applied(self) -> None:
        """Commands below apply and words without files are passed on, and so is everything without a configuration."""
        for words in (("view-last-applied", "-f", "objects"), ("--prune",), ("-f", "objects", "--help")):
            self.process("apply", *words)
            leading = f"{words[0]} " if not words[0].startswith("-") else ""
            rest = " ".join(words[1:] if leading else words)
            self.assertEqual(f"apply {leading}--context=prod --namespace=team-a {rest}", self.words()[-1])
        self.file.unlink()
        self.process("apply", "--force", "-f", "objects")
        self.assertEqual("apply --force -f objects", self.words()[-1])

    def test_flags_in_front(self) -> None:
        """Global flags in front of the command are ours."""
        self.write({"kind": "A"})
        ran = self.process("--debug", "apply", "-f", "objects")
        self.assertEqual(f"svc: {self.kubectl} runs apply with --context=prod --filename=-\n", ran.stderr)
        self.assertEqual(7, ran.returncode)

    def test_overridden(self) -> None:
        """The compartment is the one in effect, variables included."""
        self.write({"kind": "A"})
        self.process("apply", "-f", "objects", SVC_COMPARTMENT="bravo")
        self.assertEqual({"svc.internal/compartment": "DE-S-BRAVO"}, self.applied()[0]["metadata"]["labels"])

    def test_configured_templates(self) -> None:
        """``podTemplates`` counts."""
        self.configure(f"{CONFIG}podTemplates: {{R.x: [spec.template]}}\n")
        self.write({"kind": "R", "apiVersion": "x/v1", "spec": {"template": {}}})
        self.process("apply", "-f", "objects")
        self.assertEqual({"template": {"metadata": _MARKS}}, self.applied()[0]["spec"])


class JobTests(ApplyCase):
    """Jobs that may be there."""

    def test_asked(self) -> None:
        """Jobs are asked for in each namespace, by the same connection; of one that is there the template stays."""
        self.write(job("old"), job("new"), job("old", "other"), {"kind": "Job", "apiVersion": "batch/v1"})
        (self.home / "live").write_text(json.dumps(job("old", "team-a")))
        self.process("apply", "-f", "objects", "--prune", "--as=x", "--request-timeout", "3s")
        asked = "get --context=prod --as=x --request-timeout=3s --filename=- --ignore-not-found --output=json"
        self.assertEqual([asked, asked], self.words()[1:3])
        old, new, _other, _unnamed = self.applied()
        self.assertEqual(({}, {"metadata": _MARKS}), (old["spec"]["template"], new["spec"]["template"]))
        self.assertEqual(_MARKS["labels"], old["metadata"]["labels"])

    def test_several(self) -> None:
        """An answer may be a list, or nothing."""
        self.write(job("a"), job("b"))
        for answer, expected in (
            (json.dumps({"kind": "List", "items": [job("a"), job("b")]}), [{}, {}]),
            ("", [{"metadata": _MARKS}] * 2),
        ):
            (self.home / "live").write_text(answer)
            self.process("apply", "-f", "objects")
            self.assertEqual(expected, [each["spec"]["template"] for each in self.applied()])

    def test_no_answer(self) -> None:
        """Where Jobs cannot be asked for, they get the compartment, and kubectl reports what is wrong."""
        self.write(job("a"))
        ran = self.process("apply", "-f", "objects")
        self.assertEqual((7, ""), (ran.returncode, ran.stderr))
        self.assertEqual({"metadata": _MARKS}, self.applied()[0]["spec"]["template"])


class RefusedTests(ApplyCase):
    """Where nothing is applied."""

    def test_other_compartment(self) -> None:
        """Objects of another compartment are named, each on a line; ``--force`` puts them into the current one."""
        labels = {"svc.internal/compartment": "US-TS-BRAVO"}
        self.write({"kind": "A"}, *({"kind": "B", "metadata": {"name": name, "labels": labels}} for name in "xy"))
        self.assertEqual(
            "svc: B x has svc.internal/compartment: US-TS-BRAVO, and the current compartment is DE-S-ALPHA"
            " (compartment_differs)\n"
            "     nothing was applied: switch by svc context use, or give --force,"
            " which puts the objects into DE-S-ALPHA\n"
            "     B y has svc.internal/compartment: US-TS-BRAVO\n",
            self.refused("-f", "objects"),
        )
        self.refused("-f", "objects", "--kubectl-force")
        self.process("apply", "--force", "-f", "objects", "--kubectl-force=true")
        self.assertEqual("apply --context=prod --filename=- --force", self.words()[-1])
        self.assertEqual([_MARKS["labels"]] * 3, [each["metadata"]["labels"] for each in self.applied()])

    def test_unreadable(self) -> None:
        """What kubectl says about files is said, all of it."""
        self.assertEqual(
            "svc: the objects cannot be read: no objects passed to apply (objects_unreadable)\n"
            "     nothing was applied\n     more\n",
            self.refused("-f", "nothing"),
        )
        (self.home / "objects").write_text("[" * 100_000)
        self.assertIn("nested too deeply (objects_unreadable)", self.refused("-f", "objects"))
        (self.home / "objects").write_text("{} x")
        self.assertIn("kubectl printed no JSON", self.refused("-f", "objects"))

    def test_before_anything_runs(self) -> None:
        """A flag with no acceptable value, no context, no kubectl."""
        self.write({"kind": "A"})
        self.assertIn("(flag_value_invalid)", self.refused("--force=maybe", "-f", "objects"))
        self.configure("contexts: {}\n")
        self.assertIn("(context_unset)", self.refused("-f", "objects"))
        self.assertEqual([], self.words())
        self.configure()
        self.kubectl.unlink()
        self.assertIn("(kubectl_missing)", self.refused("-f", "objects"))
