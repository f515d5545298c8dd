"""Commands of kubectl that svc has a part in, with a program in place of kubectl."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from svc.cli.compartments.deletion import MAX_INPUT
from tests.cli.compartments_kit import PassedCase

_COLUMN = "--label-columns=svc.internal/compartment"
_ADDED = ["--context=prod", "--namespace=team-a"]


def pod(name: str, label: str = "", **more: Any) -> dict[str, Any]:
    """A pod in a compartment."""
    labels = {"svc.internal/compartment": label} if label else {}
    metadata = {"name": name, "namespace": "team-a", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, **more}


class WrappedCase(PassedCase):
    """A configuration, and answers of kubectl."""

    def setUp(self) -> None:
        """Write the configuration."""
        super().setUp()
        self.configure()

    def answer(self, *objects: Any) -> None:
        """Let kubectl show objects when it is asked for some, and print its words otherwise."""
        self.keep("objects", *objects)
        self.kubectl.write_text(
            "#!/bin/sh\n"
            f"cd '{self.home}'\n"
            'case "$*" in *--output=json*) echo "$KUBERC $*" >> asked\n'
            'case "$*" in *--selector=*) cat selected ;; *) cat objects ;; esac ;;\n'
            '*) echo "ran $*" ;; esac\n'
        )

    def keep(self, name: str, *objects: Any) -> None:
        """Write objects as kubectl prints them; those of the name ``selected`` are for questions with a selector."""
        document = objects[0] if len(objects) == 1 else {"kind": "List", "items": list(objects)}
        (self.home / name).write_text(json.dumps(document))

    def asked(self) -> list[str]:
        """The words of each question."""
        return (self.home / "asked").read_text().splitlines()


class GetTests(WrappedCase):
    """``svc get``."""

    def test_words(self) -> None:
        """The column and the filters are added behind what was typed, in front of two dashes."""
        self.assertEqual(["get", "pods", *_ADDED, "-o", "wide", _COLUMN], self.passed("get", "pods", "-o", "wide"))
        filtered = self.passed("get", "--compartment", "BRAVO", "-l", "a=b", "--", "pods")
        selector = "--selector=a=b,svc.internal/compartment=DE-S-BRAVO"
        self.assertEqual(["get", *_ADDED, "-l", "a=b", _COLUMN, selector, "--", "pods"], filtered)
        self.assertEqual(["get", *_ADDED, "--raw", "/x"], self.passed("get", "--raw", "/x"))

    def test_named(self) -> None:
        """Named objects are looked at with the credentials of the command, and without preferences of the user."""
        self.answer(pod("a", "DE-S-ALPHA"), pod("b", "US-TS-BRAVO"))
        words = ("get", "pods", "a", "b", "--as=x", "--token", "y", "-o", "name", "--current-compartment")
        shown = self.passed(*words)
        self.assertEqual(["get", "pods", "a", *_ADDED, "--as=x", "--token", "y", "-o", "name"], shown)
        self.assertEqual(
            ["off get --context=prod --namespace=team-a --as=x --token=y --output=json -- pods a b"], self.asked()
        )
        shown = self.passed("get", "pod/a", "pod/b", "--exclude-current-compartment")
        self.assertEqual(["get", "pod.v1./b", *_ADDED, _COLUMN], shown)

    def test_no_objects(self) -> None:
        """An answer that has no objects is refused."""
        for objects in ([1], "x", {"kind": "Pod"}, {"items": [{}]}, {"items": 1}):
            self.answer(objects)
            ran = self.process("get", "pods", "x", "--current-compartment")
            self.assertEqual((1, ""), (ran.returncode, ran.stdout))
            self.assertIn("kubectl get failed: it printed no objects (kubectl_failed)", ran.stderr)

    def test_missing_value(self) -> None:
        """Behind a flag without its value nothing is added, and nothing is looked at: kubectl says what is missing."""
        self.kubectl.write_text("#!/bin/sh\nexit 9\n")
        for line in (
            "get pods -o",
            "get pods --compartment",
            "get pods -AL",
            "delete pod/x -n",
            "exec x -c",
            "logs x -n",
        ):
            verb, name, *flags = line.split()
            self.assertEqual([verb, name, *_ADDED, *flags], self.passed(*line.split()))

    def test_without_configuration(self) -> None:
        """Without a configuration the command is kubectl's."""
        self.file.unlink()
        self.assertEqual(["get", "pods", "--current-compartment"], self.passed("get", "pods", "--current-compartment"))

    def test_debug(self) -> None:
        """What is said of the added words has no value of a flag that was typed."""
        self.answer(pod("a", "DE-S-ALPHA"), pod("b"))
        ran = self.process("--debug", "get", "pods", "a", "b", "--token=abc", "--current-compartment")
        self.assertNotIn("abc", ran.stderr)
        self.assertIn("abc", ran.stdout)


class ExecTests(WrappedCase):
    """``svc exec``."""

    def review(self, answer: str) -> None:
        """Let kubectl answer a review of access; its words and its input are kept."""
        text = self.kubectl.read_text()
        asked = 'case "$*" in "create --context=prod "*) echo "$*" >> asked; cat >> asked'
        self.kubectl.write_text(text.replace("case", f"{asked}; echo '{answer}'; exit ;; esac\ncase", 1))

    def refused(self, reason: str, *words: str) -> str:
        """Run as a process that is refused; returns what it says."""
        ran = self.process(*words)
        self.assertEqual((1, ""), (ran.returncode, ran.stdout), ran.stderr)
        self.assertIn(f"({reason})", ran.stderr)
        return ran.stderr

    def test_own(self) -> None:
        """The command runs in the very pod that was looked at; everything else stays."""
        for label in ("DE-S-ALPHA", ""):
            self.answer(pod("web", label))
            for name in ("web", "pod/web"):
                words = ("exec", "-itc", "app", name, "-n", "x", "--force", "--", "sh", "-c", "--force")
                self.assertEqual(
                    ["exec", "web", *_ADDED, "-itc", "app", "--namespace=team-a", "--", "sh", "-c", "--force"],
                    self.passed(*words),
                )
        question = "off get --context=prod --namespace=team-a --namespace=x --output=json -- "
        self.assertEqual([f"{question}{name}" for name in ("pods web", "pod/web")] * 2, self.asked())

    def test_foreign(self) -> None:
        """A pod of another compartment is refused; the message names both compartments."""
        self.answer(pod("web", "US-TS-BRAVO"))
        for more in ((), ("--force=false",), ("--force", "--force=0"), ("--help=false",)):
            told = self.refused("pod_foreign", "exec", "web", *more, "--", "sh", "--force")
            self.assertEqual(
                'svc: pod "web" is in compartment US-TS-BRAVO, current compartment is DE-S-ALPHA (pod_foreign)',
                told.splitlines()[0],
            )

    def test_force(self) -> None:
        """With the permission, which the API server is asked for, the command runs after a warning."""
        self.answer(pod("web", "US-TS-BRAVO"))
        self.review('{"status": {"allowed": true}}')
        ran = self.process("exec", "--force", "--as", "x", "web", "--", "sh")
        self.assertEqual("ran exec web --context=prod --namespace=team-a --as x --namespace=team-a -- sh\n", ran.stdout)
        self.assertEqual(
            'svc: pod "web" is in compartment US-TS-BRAVO, current compartment is DE-S-ALPHA, and --force is given\n',
            ran.stderr,
        )
        _get, create, review = self.asked()
        self.assertEqual(
            "create --context=prod --namespace=team-a "
            "--raw=/apis/authorization.k8s.io/v1/selfsubjectaccessreviews --filename=- --as=x",
            create,
        )
        attributes = {"group": "svc.internal", "resource": "compartments", "verb": "override"}
        self.assertEqual({"resourceAttributes": attributes}, json.loads(review)["spec"])

    def test_not_permitted(self) -> None:
        """Anything but a clear yes is no."""
        self.answer(pod("web", "US-TS-BRAVO"))
        self.review("{}")
        for answer, reason in (
            ({"status": {"allowed": False}}, "override_denied"),
            ({"status": {"allowed": "true"}}, "override_denied"),
            ({"status": {}}, "kubectl_failed"),
            ([], "kubectl_failed"),
        ):
            self.answer(pod("web", "US-TS-BRAVO"))
            self.review(json.dumps(answer))
            self.refused(reason, "exec", "web", "--force", "--", "sh")

    def test_workload(self) -> None:
        """A command in a workload runs in a pod that was looked at."""
        spec = {"selector": {"matchLabels": {"app": "web"}}}
        workload = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "b"}}
        self.answer({**workload, "spec": spec})
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        self.keep("selected", pod("one", "US-TS-BRAVO"), pod("two", "DE-S-ALPHA", status=ready))
        words = self.passed("exec", "deploy/web", "--", "sh")
        self.assertEqual(["exec", "two", *_ADDED, "--namespace=team-a", "--", "sh"], words)
        self.assertIn("--namespace=b --selector=app=web --output=json -- pods", self.asked()[1])
        self.keep("selected", pod("one", "US-TS-BRAVO", status=ready), pod("two", "DE-S-ALPHA"))
        self.refused("pod_foreign", "exec", "deploy/web", "--", "sh")
        self.keep("selected")
        self.refused("pod_missing", "exec", "deploy/web", "--", "sh")
        self.answer({**workload, "kind": "Service", "spec": {}})
        self.refused("pod_missing", "exec", "svc/web", "--", "sh")

    def test_file(self) -> None:
        """A file names the pod as well, but not on standard input, which is for the command."""
        self.answer(pod("web"))
        words = self.passed("exec", "-itf", "x.yaml", "--", "sh")
        self.assertEqual(["exec", "web", *_ADDED, "--stdin", "--tty", "--namespace=team-a", "--", "sh"], words)
        self.assertIn("--filename=x.yaml --output=json --", self.asked()[0])
        self.refused("target_unclear", "exec", "-f", "-", "--", "sh")
        self.answer(pod("a"), pod("b"))
        self.refused("target_unclear", "exec", "-f", "x", "--", "sh")

    def test_unclear(self) -> None:
        """What kubectl will refuse or print itself goes through; what is not known does not."""
        self.answer(pod("web"))
        for words in (("exec",), ("exec", "--", "web", "sh"), ("exec", "--help", "web", "--", "sh")):
            self.assertEqual(set(words), set(self.passed(*words)) - set(_ADDED))
        self.assertFalse((self.home / "asked").exists())
        self.assertIn("--new", self.refused("flag_unknown", "exec", "--new", "web", "--", "sh"))

    def test_failed(self) -> None:
        """Where the pod cannot be fetched, what kubectl says is all there is, once, with its status."""
        self.kubectl.write_text("#!/bin/sh\necho no such pod >&2\necho more >&2\nexit 3\n")
        ran = self.process("exec", "web", "--", "sh")
        self.assertEqual((3, "", "no such pod\nmore\n"), (ran.returncode, ran.stdout, ran.stderr))
        ran = self.process("exec", "web", "--", "sh", SVC_KUBECTL="/proc/nonexistent")
        self.assertIn("(kubectl_missing)", ran.stderr)


class WarningTests(WrappedCase):
    """``svc logs``, ``cp`` and ``port-forward``."""

    def test_warned(self) -> None:
        """A pod of another compartment brings a warning, and the words stay as they are."""
        for line, asked in (
            ("logs -f web -c app", ["-- pods web"]),
            ("logs pod/web", ["-- pod/web"]),
            ("logs -l app=web", ["--selector=app=web --output=json -- pods"]),
            ("port-forward web 80", ["-- pods web"]),
            ("cp web:/x here", ["-- pods web"]),
            ("cp here other/web:/x", ["--namespace=other --output=json -- pods web"]),
        ):
            self.answer(pod("web", "US-TS-BRAVO"))
            self.keep("selected", pod("web", "US-TS-BRAVO"))
            (self.home / "asked").unlink(missing_ok=True)
            ran = self.process(*line.split())
            self.assertEqual(
                'svc: pod "web" is in compartment US-TS-BRAVO, current compartment is DE-S-ALPHA\n', ran.stderr, line
            )
            self.assertEqual(set(line.split()) | {"ran", *_ADDED}, set(ran.stdout.split()))
            self.assertEqual(len(asked), len(self.asked()))
            for wanted, question in zip(asked, self.asked(), strict=True):
                self.assertTrue(question.endswith(wanted), question)

    def test_silent(self) -> None:
        """Own pods and none bring no warning; nor does what names no pod."""
        self.answer()
        self.keep("selected", pod("a", "DE-S-ALPHA"), pod("b"))
        for line in ("logs -l a=b", "logs", "logs --help", "cp a b", "port-forward"):
            self.assertEqual("", self.process(*line.split()).stderr)
        self.assertEqual(1, len(self.asked()))

    def test_unknown(self) -> None:
        """A flag that is not known is no reason to stop."""
        self.answer(pod("web", "US-TS-BRAVO"))
        ran = self.process("logs", "web", "--new", "x")
        self.assertEqual("svc: --new is not known, and no compartment is compared\n", ran.stderr)
        self.assertIn("ran logs web", ran.stdout)


_COMPARED = 'pod "b" is in compartment US-TS-BRAVO, current compartment is DE-S-ALPHA'


class DeleteTests(WrappedCase):
    """``svc delete``."""

    def setUp(self) -> None:
        """Two objects, one of them of another compartment."""
        super().setUp()
        self.answer(pod("a", "DE-S-ALPHA"), pod("b", "US-TS-BRAVO"))
        self.keep("selected", pod("a", "DE-S-ALPHA"), pod("b", "US-TS-BRAVO"))

    def test_refused(self) -> None:
        """Without a terminal objects of other compartments are refused, and named."""
        for line, asked in (
            ("pods a b", "--ignore-not-found --output=json -- pods a b"),
            ("pod/a pod/b", "-- pod/a pod/b"),
            ("pods -lapp=web -A", "--selector=app=web --all-namespaces --ignore-not-found --output=json -- pods"),
            ("pods --all", "--namespace=team-a --ignore-not-found --output=json -- pods"),
            ("pods --field-selector=a=b", "--field-selector=a=b --ignore-not-found --output=json -- pods"),
            ("-Rf x --filename=y", "--recursive --filename=x --filename=y --ignore-not-found --output=json --"),
            ("-k x --force=false", "--kustomize=x --ignore-not-found --output=json --"),
        ):
            ran = self.process("delete", *line.split())
            self.assertEqual((1, ""), (ran.returncode, ran.stdout), line)
            first, hint, *rest = ran.stderr.splitlines()
            problem = "1 of 2 objects are in other compartments, and there is no terminal to ask at"
            self.assertEqual(f"svc: {problem} (delete_unconfirmed)", first)
            self.assertIn("--force", hint)
            self.assertEqual([f"     {_COMPARED}"], rest)
            self.assertTrue(self.asked()[-1].endswith(asked), self.asked()[-1])

    def test_asked(self) -> None:
        """On a terminal there is a question, once; anything but yes is no."""
        question = f"svc: {_COMPARED}\ndelete 2 objects, 1 of them in other compartments? [y/N] "
        for typed in ("y\n", "YES\n"):
            ran = self.on_terminal("delete", "pods", "a", "b", typed=typed)
            self.assertEqual("ran delete pods a b --context=prod --namespace=team-a\n", ran.stdout)
            self.assertEqual((0, question), (ran.returncode, ran.stderr))
        for typed in ("n\n", "\n", "\x04", "yn\n"):
            ran = self.on_terminal("delete", "pods", "a", "b", typed=typed)
            self.assertEqual((1, ""), (ran.returncode, ran.stdout))
            self.assertTrue(
                ran.stderr.startswith(f"{question}svc: nothing was deleted (delete_declined)\n"), ran.stderr
            )

    def test_interrupted(self) -> None:
        """An interruption is reported in a line."""
        self.kubectl.write_text("#!/bin/sh\nkill -INT $PPID\n")
        ran = self.process("delete", "pods", "a", "b")
        self.assertEqual((1, "svc: interrupted\n"), (ran.returncode, ran.stderr))

    def test_own(self) -> None:
        """Own objects and those of no compartment are deleted without a word."""
        self.answer(pod("a", "DE-S-ALPHA"), pod("b"))
        self.assertEqual(
            ["delete", "pods", "a", "b", *_ADDED, "--now"], self.passed("delete", "pods", "a", "b", "--now")
        )
        (self.home / "objects").write_text("")
        self.assertEqual(["delete", "pods", "gone", *_ADDED], self.passed("delete", "pods", "gone"))

    def test_force(self) -> None:
        """Our flag skips every look and is not kubectl's, which has another name."""
        for line, wanted in (
            ("--force --now", ["--now"]),
            ("--force --kubectl-force --now=true", ["--now=true", "--force"]),
            ("--force --kubectl-force=false", []),
            ("--force=false --force", []),
        ):
            self.assertEqual(
                ["delete", "pods", "b", *_ADDED, *wanted], self.passed("delete", "pods", "b", *line.split())
            )
        self.assertFalse((self.home / "asked").exists())
        self.answer(pod("a"))
        self.assertEqual(
            ["delete", "pods", "a", *_ADDED, "--force"], self.passed("delete", "pods", "a", "--kubectl-force")
        )

    def test_dry_run(self) -> None:
        """Where nothing is deleted, a warning is enough."""
        for value in ("client", "server"):
            ran = self.process("delete", "pods", "a", "b", f"--dry-run={value}")
            self.assertEqual((0, f"svc: {_COMPARED}\n"), (ran.returncode, ran.stderr))
        self.assertEqual(1, self.process("delete", "pods", "a", "b", "--dry-run=none").returncode)

    def test_left_to_kubectl(self) -> None:
        """What names nothing is kubectl's to refuse."""
        for line in ("delete", "delete pods", "delete pods -A", "delete --help pods a b"):
            self.assertEqual(set(line.split()), set(self.passed(*line.split())) - set(_ADDED))
        self.assertFalse((self.home / "asked").exists())

    def test_unclear(self) -> None:
        """What cannot be looked at needs --force."""
        for line, reason in (("--raw /x", "target_unclear"), ("pods a --new", "flag_unknown")):
            self.assertIn(f"({reason})", self.process("delete", *line.split()).stderr)
            self.assertEqual(0, self.process("delete", *line.split(), "--force").returncode)

    def test_standard_input(self) -> None:
        """Objects of standard input are looked at, and are standard input of kubectl again, up to a size."""
        self.answer(pod("a", "DE-S-ALPHA"))
        text = self.kubectl.read_text()
        self.kubectl.write_text(text.replace("\n", "\nmd5sum | cut -c 1-32 >&2\n", 1))
        for data, status in ((b"x" * MAX_INPUT, 0), (b"x" * (MAX_INPUT + 1), 1)):
            ran = self.process("delete", "-f", "-", data=data)
            self.assertEqual(status, ran.returncode, ran.stderr)
            if status == 0:
                self.assertEqual(hashlib.md5(data, usedforsecurity=False).hexdigest() + "\n", ran.stderr)
            else:
                self.assertIn("(target_unclear)", ran.stderr)
        self.answer(pod("b", "US-TS-BRAVO"))
        self.assertIn("(delete_unconfirmed)", self.process("delete", "-f", "-", data=b"x").stderr)


class DescribeTests(WrappedCase):
    """``svc describe``."""

    def setUp(self) -> None:
        """An answer with the label and the annotations."""
        super().setUp()
        self.text = (
            "Labels:       app=web\n"
            "              svc.internal/compartment=US-TS-BRAVO\n"
            "Annotations:  mls.svc.internal/level: de:s\n"
        )
        (self.home / "text").write_text(self.text)
        self.kubectl.write_text(f"#!/bin/sh\necho \"$*\" >&2\ncat '{self.home}/text'\nexit $STATUS\n")

    def test_terminal(self) -> None:
        """A terminal shows the compartment in bold, another one in yellow; the exit status is kubectl's."""
        ran = self.on_terminal("describe", "pod", "web", output=True, STATUS="3")
        wanted = self.text.replace(
            "svc.internal/compartment=US-TS-BRAVO", "\x1b[1;33msvc.internal/compartment=US-TS-BRAVO\x1b[0m"
        )
        wanted = wanted.replace("mls.svc.internal/level: de:s", "\x1b[1mmls.svc.internal/level: de:s\x1b[0m")
        self.assertEqual(wanted, ran.stdout.replace("\r\n", "\n"))
        self.assertEqual((3, "describe pod web --context=prod --namespace=team-a\n"), (ran.returncode, ran.stderr))

    def test_plain(self) -> None:
        """Without a terminal, or where no colour is wanted, the text is kubectl's."""
        ran = self.process("describe", "pod", "web", STATUS="3")
        self.assertEqual((3, self.text), (ran.returncode, ran.stdout))
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            ran = self.on_terminal("describe", "pod", "web", output=True, STATUS="0", **variables)
            self.assertEqual(self.text, ran.stdout.replace("\r\n", "\n"))

    def test_no_kubectl(self) -> None:
        """Without kubectl there is a line with a hint."""
        ran = self.on_terminal("describe", "pod", "web", output=True, SVC_KUBECTL="/proc/nonexistent")
        self.assertIn("(kubectl_missing)", ran.stderr)
