"""Commands of kubectl that are passed on by processes, with a program in place of kubectl."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Final

from tests.cli.compartments_kit import CONFIG, PassedCase

#: What a command that is passed on must not wait for.
_SLOW: Final = ("click", "cryptography", "kubernetes", "pydantic", "ruamel", "shutil", "subprocess", "twisted", "zope")
#: Prints its words, the kubeconfig and the signals that it ignores.
_KUBECTL: Final = """\
#!/bin/sh
printf '<%s>' "$@"
echo " $KUBECONFIG"
sed -n 's/^SigIgn:\\t//p' /proc/self/status
exit 7
"""
#: A pod of another compartment.
_FOREIGN: Final = json.dumps(
    {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web",
            "namespace": "a",
            "uid": "1",
            "labels": {"svc.internal/compartment": "US-TS-BRAVO"},
        },
    }
)
_NOTICE: Final = (
    "svc: there is no ~/.svc/config.yaml: kubectl runs as it is, in no compartment; svc context create makes one\n"
)


class ProcessTests(PassedCase):
    """The process that becomes kubectl."""

    def test_becomes_kubectl(self) -> None:
        """The words arrive as they are, the exit status is kubectl's, and no signal is ignored."""
        self.configure()
        self.kubectl.write_text(_KUBECTL)
        words = ("debug", "web", "-i", "--", "sh", "-c", "a 'b'  $c", "", "*")
        ran = self.process(*words)
        line, ignored = ran.stdout.splitlines()
        self.assertEqual("<debug><web><--context=prod><--namespace=team-a><-i><--><sh><-c><a 'b'  $c><><*> ", line)
        self.assertEqual((0, 7, ""), (int(ignored, 16), ran.returncode, ran.stderr))

    def test_imports(self) -> None:
        """No slow module is loaded, with and without a configuration."""
        self.kubectl.write_text("#!/bin/sh\n")
        for configured in (False, True):
            if configured:
                self.configure()
            self.process("rollout", "status")
            for words in (
                ("rollout", "status", "deploy/web"),
                ("get", "pods", "--current-compartment")[: 2 + configured],
            ):
                ran = self.process(*words, options=("-X", "importtime"))
                loaded = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.stderr.splitlines()}
                self.assertIn("svc", loaded)
                self.assertEqual(set(), loaded & set(_SLOW))
                self.assertEqual(0, ran.returncode)

    def test_debug(self) -> None:
        """What is added is said, and what was typed is not: it may contain a password."""
        self.configure()
        cases: list[tuple[tuple[str, ...], dict[str, Any]]] = [
            (("--debug", "top", "--token=abc"), {}),
            (("top", "--token=abc"), {"SVC_DEBUG": "true"}),
        ]
        for words, environ in cases:
            ran = self.process(*words, **environ)
            self.assertEqual(
                f"svc: {self.kubectl} runs top with --context=prod --namespace=team-a\n"
                "unexpected: top --context=prod --namespace=team-a --token=abc\n",
                ran.stderr,
            )


class RefusedTests(PassedCase):
    """What does not get as far as kubectl."""

    def refused(self, reason: str, *words: str, **environ: Any) -> str:
        """Run as a process; two lines, and the reason."""
        ran = self.process(*words, **environ)
        self.assertEqual((1, ""), (ran.returncode, ran.stdout))
        self.assertEqual(2, len(ran.stderr.splitlines()), ran.stderr)
        self.assertIn(reason, ran.stderr.splitlines()[0])
        return ran.stderr

    def test_no_kubectl(self) -> None:
        """Without kubectl there is a line with a hint; a word that kubectl need not know is an unknown command."""
        self.configure()
        told = self.refused("(kubectl_missing)", "get", "pods", SVC_KUBECTL="/proc/nonexistent/kubectl")
        self.assertIn("install kubectl, or name another one: SVC_KUBECTL", told)
        self.refused("(kubectl_missing)", "get", "pods", SVC_KUBECTL="", PATH=str(self.file.parent))
        self.refused("(kubectl_missing)", "help", "get", SVC_KUBECTL="/proc/nonexistent/kubectl")
        self.refused('unknown command "neat"', "neat", SVC_KUBECTL="/proc/nonexistent/kubectl")

    def test_environment_alone(self) -> None:
        """Without a file the variables put a compartment in force, for filters, exec and apply; two are an error."""
        named: dict[str, Any] = {"SVC_COUNTRY": "DE", "SVC_SENSITIVITY": "S", "SVC_COMPARTMENT": "alpha"}
        self.assertNotIn("-l", " ".join(self.passed("get", "pods")))
        words = " ".join(self.passed("get", "pods", "--current-compartment", **named))
        self.assertIn("svc.internal/compartment=DE-S-ALPHA", words)
        self.kubectl.write_text(f"#!/bin/sh\necho '{_FOREIGN}'\n")
        self.refused("US-TS-BRAVO", "exec", "web", "--", "id", **named)
        self.refused("(compartment_unset)", "exec", "web", "--", "id", SVC_COUNTRY="DE", SVC_SENSITIVITY="S")
        self.refused("(flag_unknown)", "apply", "--record", "-f", "x", **named)

    def test_no_context(self) -> None:
        """With a configuration nothing runs without a context."""
        self.configure("contexts: {}\n")
        self.refused("(context_unset)", "get", "pods")
        self.configure("currentContext: gone\n")
        self.refused("context not found: gone", "get", "pods")

    def test_defects(self) -> None:
        """A configuration with defects stops even reading commands."""
        self.configure("currentContext: [x]\n")
        ran = self.process("get", "pods")
        self.assertIn("currentContext: a list: expected text (config_invalid)", ran.stderr)
        self.file.unlink()
        self.file.mkdir()
        self.refused("(config_unreadable)", "config", "view")

    def test_not_absent(self) -> None:
        """A configuration that cannot be reached is not one that is absent."""
        folder = self.file.parent
        folder.symlink_to(folder)
        self.refused("(config_unreadable)", "get", "pods")
        folder.unlink()
        folder.mkdir()
        self.file.symlink_to(self.home / "gone")
        self.refused("(config_unreadable)", "get", "pods")
        self.file.unlink()
        self.file.write_bytes(b"\xff")
        self.refused("(config_unreadable)", "get", "pods")


class SessionTests(PassedCase):
    """``requireExplicitContextSwitch``: what changes something needs a context that was selected in this session."""

    def in_session(self, script: str) -> list[str]:
        """Run commands of a shell in a session of their own; returns the lines of both outputs."""
        command = f'svc() {{ "{sys.executable}" -m svc.cli.entry "$@" 2>&1; }}\n{script}\n:'
        ran = subprocess.run(
            ["sh", "-c", command],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            start_new_session=True,
            timeout=120,
        )
        return ran.stdout.splitlines()

    def test_session(self) -> None:
        """Reading needs nothing; changing needs the switch, which holds for the session and the context."""
        self.configure(f"{CONFIG}requireExplicitContextSwitch: true\n")
        self.kubectl.write_text('#!/bin/sh\necho "ran $*"\n')
        refused = "svc: de-s-alpha is the current context, and was not selected in this session (context_not_switched)"
        changed = "ran create --context=prod --namespace=team-a"
        lines = self.in_session("svc top; svc create; svc context use de-s-alpha; svc create")
        self.assertEqual(["ran top --context=prod --namespace=team-a", refused], lines[:2])
        self.assertEqual(['Switched to context "de-s-alpha".', changed], lines[3:])
        [first] = os.listdir(self.file.parent / "sessions")
        self.assertEqual(refused, self.in_session("svc create")[0])
        lines = self.in_session("svc context use us-ts-bravo; svc context use de-s-alpha; svc create")
        self.assertEqual(changed, lines[2])
        # The first session has ended.
        self.assertNotIn(first, os.listdir(self.file.parent / "sessions"))
        apart = "import os, sys; os.setsid(); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        elsewhere = f'"{sys.executable}" -c "{apart}" -m svc.cli.entry context use us-ts-bravo'
        lines = self.in_session(f"svc context use de-s-alpha; {elsewhere}; svc create")
        self.assertIn("us-ts-bravo is the current context, and was not selected in this session", lines[2])

    def test_not_required(self) -> None:
        """Without the key no session is kept."""
        self.configure()
        self.svc("context", "use", "de-s-alpha")
        self.assertFalse((self.file.parent / "sessions").exists())


class PlainTests(PassedCase):
    """Without a configuration."""

    def test_once(self) -> None:
        """The first command that may change something brings a line, no other one does; all are plain."""
        told = [self.process(*words.split()).stderr for words in ("get pods", "create ns x", "delete ns x", "get ns")]
        self.assertEqual(
            ["unexpected: get pods\n", f"{_NOTICE}unexpected: create ns x\n"]
            + ["unexpected: delete ns x\n", "unexpected: get ns\n"],
            told,
        )

    def test_silenced(self) -> None:
        """SVC_NO_WARNINGS silences the line, and a folder that cannot be made repeats it."""
        (self.home / ".svc").write_text("")
        self.assertEqual("unexpected: create ns\n", self.process("create", "ns", SVC_NO_WARNINGS="1").stderr)
        for _again in range(2):
            self.assertEqual(f"{_NOTICE}unexpected: create ns\n", self.process("create", "ns").stderr)


class CompletionTests(PassedCase):
    """Completion by asking kubectl."""

    def offered(self, *words: str) -> tuple[list[str], int]:
        """What is printed, with the directive."""
        *lines, directive = self.svc("__complete", *words).stdout.decode().splitlines()
        return lines, int(directive.removeprefix(":"))

    def answer(self, text: str) -> None:
        """Let kubectl print its words into a file, and an answer."""
        self.kubectl.write_text(f"#!/bin/sh\nprintf '<%s>' \"$@\" > '{self.home}/asked'\nprintf '{text}'\n")

    def asked(self) -> str:
        """The words that kubectl got."""
        return (self.home / "asked").read_text()

    def test_commands(self) -> None:
        """Commands of kubectl are offered beside ours, which win."""
        self.answer("config\\tModify\\ncordon\\tMark\\ncompletion\\tnot ours\\n:4\\n")
        found, directive = self.offered("co")
        self.assertEqual(4, directive)
        self.assertEqual(["completion", "config", "context", "cordon"], [each.partition("\t")[0] for each in found])
        self.assertIn("completion\tprint a shell completion script", found)
        self.assertEqual("<__complete><co>", self.asked())

    def test_behind_a_command(self) -> None:
        """kubectl gets the words behind global flags, with the context; its files directive counts."""
        self.configure()
        self.answer("web-1\\nweb-2\\tx\\nother\\n:4\\n")
        self.assertEqual((["web-1", "web-2\tx"], 4), self.offered("-v", "1", "--debug", "get", "pods", "-n", "x", "we"))
        self.assertEqual("<__complete><get><pods><--context=prod><--namespace=team-a><-n><x><we>", self.asked())
        for directive, files in ((0, 0), (2, 0), (8, 0), (6, 4), (1, 4)):
            self.answer(f":{directive}\\n")
            self.assertEqual(([], files), self.offered("apply", "-f", ""))

    def test_our_flags(self) -> None:
        """Flags of ours are offered with a configuration; kubectl is asked without them."""
        self.answer("x\\n--context\\n--cluster\\n:4\\n")
        words = ("get", "--compartment", "x", "--current-compartment", "--c")
        self.assertEqual((["--context", "--cluster"], 4), self.offered("get", "--c"))
        self.configure()
        offered = ["--context", "--cluster", "--compartment\tof svc", "--current-compartment\tof svc"]
        self.assertEqual((offered, 4), self.offered(*words))
        self.assertEqual("<__complete><get><--context=prod><--namespace=team-a><--c>", self.asked())

    def test_not_ours(self) -> None:
        """Words of our own commands are not kubectl's."""
        self.answer("web\\n:4\\n")
        for words in (("curl", "x", ""), ("context", "use", ""), ("-v", ""), ("--",)):
            self.offered(*words)
            self.assertFalse((self.home / "asked").exists(), words)

    def test_no_answer(self) -> None:
        """No kubectl, one that fails, one that prints nothing, and a bad configuration offer nothing."""
        for script in ("exit 1", "echo x; exit 1", "true"):
            self.kubectl.write_text(f"#!/bin/sh\n{script}\n")
            self.assertEqual(([], 4), self.offered("get", ""))
        self.configure("x: [\n")
        self.assertEqual(([], 4), self.offered("get", ""))
        self.configure("contexts: {}\n")
        self.assertEqual(([], 4), self.offered("get", ""))
        self.kubectl.unlink()
        self.assertEqual(([], 4), self.offered("get", ""))
