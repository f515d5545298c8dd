"""As whom kubectl works, with a program in place of kubectl."""

from __future__ import annotations

import json
import os
import stat
import time
from typing import Any, Final

from svc.cli.compartments.impersonation import LIFETIME, MAX_KEPT
from tests.cli.compartments_kit import CONFIG, PassedCase
from tests.programs.kubectl.test_wrapped import pod

_GROUPS: Final = ("svc:country:de", "svc:sensitivity:s", "svc:compartment:alpha", "system:authenticated")
_FLAGS: Final = ["--as=alice", *(f"--as-group={group}" for group in _GROUPS)]
_ADDED: Final = ["--context=prod", "--namespace=team-a"]


class ImpersonationCase(PassedCase):
    """A configuration, and answers of the API server."""

    def choose(self, impersonate: str, more: str = "") -> None:
        """Set the key of both contexts."""
        self.configure(CONFIG.replace("impersonate: never", f"impersonate: {impersonate}") + more)

    def answer(self, allowed: str = "true " * 5, groups: tuple[str, ...] = _GROUPS[3:], user: str = "alice") -> None:
        """Let kubectl answer who the user is and what is permitted; questions and reviews are kept."""
        answer = json.dumps({"status": {"userInfo": {"username": user, "groups": groups}}})
        self.kubectl.write_text(
            f"#!/bin/sh\ncd '{self.home}'\ncase \"$*\" in\n"
            f"*'auth whoami'*) echo \"$*\" >> asked; echo '{answer}' ;;\n"
            f"*' create '*) echo \"$*\" >> asked; cat > reviews; printf '{allowed}' ;;\n"
            '*--output=json*) echo "$*" >> asked; cat objects ;;\n*) echo "ran $*" ;;\nesac\n'
        )

    def asked(self) -> list[str]:
        """The questions since the last call."""
        path = self.home / "asked"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found

    @property
    def kept(self) -> Any:
        """The file with the answers."""
        return json.loads((self.home / ".svc" / "impersonation.json").read_text())


class AutoTests(ImpersonationCase):
    """``auto``."""

    def test_permitted(self) -> None:
        """The user in the groups of the compartment, asked for once; each review is for one of them."""
        self.choose("auto")
        self.answer()
        self.assertEqual(["top", "pods", *_ADDED, *_FLAGS], self.passed("top", "pods"))
        self.assertEqual(
            [
                "--context=prod --request-timeout=5s auth whoami -o json",
                "--context=prod --request-timeout=5s create --filename=- --validate=false "
                "-o jsonpath={.status.allowed} ",
            ],
            self.asked(),
        )
        reviews = [json.loads(line) for line in (self.home / "reviews").read_text().splitlines()]
        wanted = [{"resource": "users", "name": "alice"}, *({"resource": "groups", "name": each} for each in _GROUPS)]
        self.assertEqual(
            [{"verb": "impersonate", **each} for each in wanted],
            [each["spec"]["resourceAttributes"] for each in reviews],
        )
        self.assertEqual(["top", *_ADDED, *_FLAGS], self.passed("top"))
        self.assertEqual([], self.asked())
        self.assertEqual(0o600, stat.S_IMODE(os.stat(self.home / ".svc" / "impersonation.json").st_mode))

    def test_questions_of_ours(self) -> None:
        """Objects are looked at as that user, who also is the one of the command."""
        self.choose("auto")
        self.answer()
        (self.home / "objects").write_text(json.dumps(pod("web")))
        self.assertEqual(
            ["exec", "web", *_ADDED, *_FLAGS, "--namespace=team-a", "--", "sh"], self.passed("exec", "web", "--", "sh")
        )
        self.assertEqual(" ".join(["get", *_ADDED, *_FLAGS, "--output=json", "-- pods web"]), self.asked()[-1])

    def test_typed(self) -> None:
        """A command that says as whom it works is left alone."""
        self.choose("auto")
        self.answer()
        for word in ("--as=x", "--as-group=x", "--token=x", "--user=x", "--kubeconfig=x"):
            self.assertEqual(["top", *_ADDED, word], self.passed("top", word))
        self.assertEqual(["top", "--context=x"], self.passed("top", "--context=x"))
        self.assertEqual(["debug", *_ADDED, *_FLAGS, "--", "--as=x"], self.passed("debug", "--", "--as=x"))
        self.assertEqual(["config", "view"], self.passed("config", "view"))

    def test_not_permitted(self) -> None:
        """What is not permitted in full is not used, and that is kept too."""
        self.choose("auto")
        for allowed in ("true true false true true ", "", "true true true true ", "false " * 5):
            self.answer(allowed)
            self.assertEqual(["top", *_ADDED], self.passed("top"))
            self.assertEqual(2, len(self.asked()))
            self.assertEqual(["top", *_ADDED], self.passed("top"))
            self.assertEqual([], self.asked())
            (self.home / ".svc" / "impersonation.json").unlink()

    def test_lost_groups(self) -> None:
        """Nobody is impersonated who would lose a group, unless it is among the default ones."""
        self.choose("auto")
        self.answer(groups=("ops", *_GROUPS[3:]))
        self.assertEqual(["top", *_ADDED], self.passed("top"))
        self.assertEqual(1, len(self.asked()))
        self.choose("auto", "defaultUserGroups: [ops]\n")
        self.answer("true " * 6, groups=("ops", *_GROUPS[3:]))
        self.assertEqual(
            ["top", *_ADDED, *_FLAGS[:-1], "--as-group=ops", "--as-group=system:authenticated"], self.passed("top")
        )

    def test_service_account(self) -> None:
        """An account is a resource of its own."""
        self.choose("auto")
        self.answer(user="system:serviceaccount:ci:runner")
        self.assertIn("--as=system:serviceaccount:ci:runner", self.passed("top"))
        review = json.loads((self.home / "reviews").read_text().splitlines()[0])
        wanted = {"verb": "impersonate", "resource": "serviceaccounts", "namespace": "ci", "name": "runner"}
        self.assertEqual(wanted, review["spec"]["resourceAttributes"])

    def test_no_answer(self) -> None:
        """Without an answer the command runs as the kubeconfig says, and is not held up each time."""
        self.choose("auto")
        for script in ("echo >> asked; exit 1", "echo >> asked; echo '{}'", "echo >> asked; echo nonsense"):
            self.kubectl.write_text(f"#!/bin/sh\ncd '{self.home}'\n{script}\n")
            self.assertEqual(["top", *_ADDED], self.passed("top"))
            self.assertEqual(1, len(self.asked()))
            self.assertEqual(["top", *_ADDED], self.passed("top"))
            self.assertEqual(0, len(self.asked()))
            (self.home / ".svc" / "impersonation.json").unlink()


class KeptTests(ImpersonationCase):
    """The answers that are kept."""

    def setUp(self) -> None:
        """Keep one."""
        super().setUp()
        self.choose("auto")
        self.answer()
        self.passed("top")
        self.asked()

    def test_what_it_depends_on(self) -> None:
        """Another context, compartment or kubeconfig, and a changed one, is asked anew."""
        kubeconfig = self.home / "kubeconfig"
        for environ in ({"SVC_COMPARTMENT": "x"}, {"KUBECONFIG": str(kubeconfig)}):
            self.passed("top", **environ)
            self.assertEqual(2, len(self.asked()))
            self.passed("top", **environ)
            self.assertEqual([], self.asked())
        kubeconfig.write_text("")
        self.passed("top", KUBECONFIG=str(kubeconfig))
        self.assertEqual(2, len(self.asked()))
        self.passed("top")
        self.assertEqual([], self.asked())

    def rewrite(self, **changes: object) -> None:
        """Change what is kept."""
        kept = {key: {**each, **changes} for key, each in self.kept.items()}
        (self.home / ".svc" / "impersonation.json").write_text(json.dumps(kept))

    def test_lifetime(self) -> None:
        """An answer counts for its lifetime; one from the future does not."""
        now = time.time()
        self.assertTrue(now < next(iter(self.kept.values()))["until"] <= now + LIFETIME)
        for until, questions in ((now + 60, 0), (now - 1, 2), (now + 2 * LIFETIME, 2)):
            self.rewrite(until=until)
            self.passed("top")
            self.assertEqual(questions, len(self.asked()), until - now)

    def test_damaged(self) -> None:
        """A file that is none is replaced; one that cannot be written is done without."""
        path = self.home / ".svc" / "impersonation.json"
        for text in ("", "[]", "{", '{"x": 1}', '{"x": {"until": "y"}}'):
            path.write_text(text)
            self.assertEqual(["top", *_ADDED, *_FLAGS], self.passed("top"))
            self.assertEqual(2, len(self.asked()))
        for changes in ({"lost": 1}, {"denied": None}):
            self.rewrite(**changes)
            self.passed("top")
            self.assertEqual(2, len(self.asked()))
        path.unlink()
        path.mkdir()
        self.assertEqual(["top", *_ADDED, *_FLAGS], self.passed("top"))

    def test_bound(self) -> None:
        """So many are kept, the latest."""
        entry = {"user": "x", "lost": [], "denied": []}
        now = time.time()
        for number, kept in ((MAX_KEPT - 1, MAX_KEPT), (MAX_KEPT, MAX_KEPT), (MAX_KEPT + 1, MAX_KEPT)):
            others = {f"k{each}": {"until": now + 60 + each, **entry} for each in range(number)}
            (self.home / ".svc" / "impersonation.json").write_text(json.dumps(others))
            self.passed("top")
            self.assertEqual(kept, len(self.kept))
            self.assertIn(f"k{number - 1}", self.kept)


class AlwaysTests(ImpersonationCase):
    """``always`` and ``never``."""

    def refused(self, reason: str) -> str:
        """Run a command that is refused."""
        ran = self.process("top", "pods")
        self.assertEqual((1, ""), (ran.returncode, ran.stdout))
        self.assertIn(f"({reason})", ran.stderr)
        self.assertEqual(2, len(ran.stderr.splitlines()))
        return ran.stderr

    def test_denied(self) -> None:
        """What is not permitted is refused with one line that names it, until it is permitted."""
        self.choose("always")
        self.answer("true false true true true ")
        for _again in range(2):
            self.assertIn(
                "svc: alice may not impersonate groups svc:country:de, and the context de-s-alpha has "
                "impersonate: always (impersonation_denied)",
                self.refused("impersonation_denied"),
            )
        self.answer(groups=("ops",))
        self.assertEqual(["top", *_ADDED, *_FLAGS], self.passed("top"))
        self.asked()
        self.assertEqual(["top", *_ADDED, *_FLAGS], self.passed("top"))
        self.assertEqual([], self.asked())

    def test_no_answer(self) -> None:
        """Without an answer nothing runs."""
        self.choose("always")
        self.kubectl.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
        self.refused("kubectl_failed")
        self.kubectl.unlink()
        self.refused("kubectl_missing")

    def test_never(self) -> None:
        """Nothing is asked."""
        self.choose("never")
        self.answer()
        self.assertEqual(["top", *_ADDED], self.passed("top"))
        self.assertEqual([], self.asked())

    def test_audit(self) -> None:
        """The record has as whom; a refusal is recorded."""
        self.choose("always", "auditLog: {enabled: true}\n")
        self.answer()
        self.process("top")
        self.answer("")
        (self.home / ".svc" / "impersonation.json").unlink()
        self.process("top")
        start, end = map(json.loads, (self.home / ".svc" / "audit.log").read_text().splitlines())
        self.assertEqual(_FLAGS, start["identity"])
        self.assertEqual(("command.end", "impersonation_denied"), (end["event"], end["reason"]))


class IdentityTests(ImpersonationCase):
    """What ``svc identity`` says of it."""

    def shown(self) -> str:
        """The line."""
        return self.svc("identity").stdout.decode().splitlines()[-1].removeprefix("Impersonation: ")

    def test_shown(self) -> None:
        """Whether it is used, and why not; it is asked anew each time, and the answer counts for what follows."""
        self.choose("auto")
        self.answer()
        self.assertEqual("yes", self.shown())
        self.answer("true true false true true ")
        self.assertEqual("alice may not impersonate groups svc:sensitivity:s", self.shown())
        self.assertEqual(["top", *_ADDED], self.passed("top"))
        self.answer(groups=("b", "a"))
        self.assertEqual("defaultUserGroups does not have a, b, which would be lost", self.shown())
        self.choose("always")
        self.assertEqual("yes", self.shown())
        self.choose("never")
        self.assertEqual("never", self.shown())
