"""The audit log of commands of kubectl, with a program in place of kubectl."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

from svc.telemetry.audit import verify_audit_chain
from tests.cli.compartments_kit import CONFIG, PassedCase
from tests.peers.waiting import end_process
from tests.programs.kubectl.test_wrapped import pod


class RecordCase(PassedCase):
    """A configuration with the audit log."""

    def record(self, level: str = "debug", path: str = "~/.svc/audit.log") -> None:
        """Switch it on."""
        self.configure(f"{CONFIG}auditLog: {{enabled: true, level: {level}, path: {path}}}\n")

    def records(self) -> list[dict[str, Any]]:
        """The records, whose chain is unbroken; the file is removed."""
        path = self.home / ".svc" / "audit.log"
        if not path.exists():
            return []
        lines = path.read_bytes().splitlines()
        self.assertEqual((len(lines), min(1, len(lines))), (verify_audit_chain(lines).records, bool(lines)))
        path.unlink()
        return [json.loads(line) for line in lines]

    def events(self) -> list[tuple[str, str, object]]:
        """Level, event, and exit status, reason or decision of each record."""
        return [
            (each["level"], each["event"], each.get("decision") or each.get("reason") or each.get("exitCode"))
            for each in self.records()
        ]


class CommandTests(RecordCase):
    """The records of commands."""

    def test_what_changes(self) -> None:
        """A command that may change something has a start and an end; kubectl's output and status are its own."""
        self.record()
        self.kubectl.write_text('#!/bin/sh\necho "$@"; cat; echo said >&2; exit 7\n')
        ran = self.process("scale", "deploy/web", "--replicas=2", "--token=abc", "-n", "x", data=b"read\n")
        printed = "scale deploy/web --context=prod --namespace=team-a --replicas=2 --token=abc -n x\nread\n"
        self.assertEqual((7, printed, "said\n"), (ran.returncode, ran.stdout, ran.stderr))
        start, end = self.records()
        self.assertRegex(start["ts"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        shared = {
            "uid": os.getuid(),
            "context": "de-s-alpha",
            "compartment": "DE-S-ALPHA",
            "kubeContext": "prod",
            "namespace": "team-a",
            "verb": "scale",
            "argv": ["scale", "deploy/web", "--replicas=2", "--token=***", "-n", "x"],
        }
        for record in (start, end):
            self.assertEqual({**record, **shared}, record)
        self.assertEqual(("command.start", "command.end"), (start["event"], end["event"]))
        self.assertEqual(start["id"], end["id"])
        self.assertEqual(("error", 7), (end["level"], end["exitCode"]))
        self.assertGreaterEqual(end["durationMs"], 0)
        self.kubectl.write_text("#!/bin/sh\n")
        self.assertEqual(0, self.process("cordon", "node").returncode)
        self.assertEqual([("info", "command.start", None), ("info", "command.end", 0)], self.events())

    def test_what_reads(self) -> None:
        """The process becomes kubectl after one record; what uses no cluster has none."""
        self.record()
        self.kubectl.write_text("#!/bin/sh\necho $$; exit 3\n")
        process = subprocess.Popen(
            [sys.executable, "-m", "svc.cli.entry", "get", "pods"], env=self.environ, stdout=subprocess.PIPE, text=True
        )
        self.assertEqual((f"{process.pid}\n", 3), (process.communicate(timeout=60)[0], process.returncode))
        self.assertEqual([("info", "command.start", None)], self.events())
        self.process("config", "view")
        self.assertEqual([], self.records())

    def test_levels(self) -> None:
        """Each level has its records and those above it."""
        every = [("info", "command.start", None), ("debug", "command.decision", "allow"), ("info", "command.end", 0)]
        warned = [*every[:1], ("warn", "command.decision", "forced"), *every[2:]]
        denied = [*every[:1], ("error", "command.end", "context_not_switched")]
        for level, kept in (("debug", 0), ("info", 1), ("warn", 2), ("error", 3)):
            self.record(level)
            self.answer(pod("web", "DE-S-ALPHA"))
            self.process("exec", "web", "--", "true")
            levels = ("debug", "info", "warn", "error")
            self.assertEqual([each for each in every if levels.index(each[0]) >= kept], self.events())
            self.process("delete", "pod", "web", "--force")
            self.assertEqual([each for each in warned if levels.index(each[0]) >= kept], self.events())
            self.file.write_text(f"{self.file.read_text()}requireExplicitContextSwitch: true\n")
            self.assertEqual(1, self.process("create", "ns", "x").returncode)
            self.assertEqual([each for each in denied if levels.index(each[0]) >= kept], self.events())

    def answer(self, *objects: dict[str, Any]) -> None:
        """Let kubectl show objects."""
        (self.home / "objects").write_text(json.dumps({"kind": "List", "items": objects}))
        self.kubectl.write_text(
            f"#!/bin/sh\ncase \"$*\" in *--output=json*) cat '{self.home}/objects' ;; *--local*) cat ;; esac\n"
        )

    def test_decisions(self) -> None:
        """What was denied, warned of and forced, with the objects and their compartments."""
        self.record()
        self.answer(pod("web", "US-TS-BRAVO"))
        start, end = ("info", "command.start", None), ("info", "command.end", 0)
        for words, status, decision in (
            (("exec", "web", "--", "sh", "-c", "secret"), 1, ("error", "command.decision", "deny")),
            (("delete", "pod", "web"), 1, ("error", "command.decision", "deny")),
            (("delete", "pod", "web", "--dry-run=client"), 0, ("warn", "command.decision", "warn")),
        ):
            self.assertEqual(status, self.process(*words).returncode)
            records = self.records()
            self.assertEqual(
                [{"kind": "Pod", "namespace": "team-a", "name": "web", "compartment": "US-TS-BRAVO"}],
                records[1]["targets"],
            )
            self.assertEqual(decision[2], records[1]["decision"])
            self.assertEqual(status, records[2]["exitCode"])
            self.assertNotIn("secret", json.dumps(records))
        self.process("logs", "web")
        self.assertEqual([start, ("warn", "command.decision", "warn")], self.events())
        for typed, decided, ended in (
            ("y\n", ("warn", "command.decision", "warn"), end),
            ("n\n", ("error", "command.decision", "deny"), ("error", "command.end", "delete_declined")),
        ):
            self.on_terminal("delete", "pod", "web", typed=typed)
            self.assertEqual([start, decided, ended], self.events())

    def test_apply(self) -> None:
        """Objects of another compartment that are applied are recorded."""
        self.record()
        self.kubectl.write_text('#!/bin/sh\ncase "$*" in *--local*) cat ;; esac\n')
        text = json.dumps(pod("web", "US-TS-BRAVO")).encode()
        for force, decision in ((False, "deny"), (True, "forced")):
            ran = self.process("apply", "-f", "-", *["--force"] * force, data=text)
            self.assertEqual(not force, bool(ran.returncode))
            decided = self.records()[1]
            self.assertEqual(decision, decided["decision"])
            self.assertEqual(["Pod web has svc.internal/compartment: US-TS-BRAVO"], decided["found"])

    def test_no_kubectl(self) -> None:
        """A program that cannot be started, and a look at objects that fails, end a command."""
        self.record()
        self.kubectl.write_text("#!/bin/sh\nexit 5\n")
        self.assertEqual(5, self.process("exec", "web", "--", "sh").returncode)
        self.assertEqual([("info", "command.start", None), ("error", "command.end", 5)], self.events())
        self.kubectl.unlink()
        for words in (("scale", "x"), ("top",)):
            ran = self.process(*words)
            self.assertIn("(kubectl_missing)", ran.stderr)
            self.assertEqual(
                [("info", "command.start", None), ("error", "command.end", "FileNotFoundError")], self.events()
            )

    def test_debug(self) -> None:
        """Global flags in front change nothing."""
        self.record()
        self.kubectl.write_text('#!/bin/sh\necho "$@"\n')
        ran = self.process("--debug", "scale", "x")
        self.assertEqual("scale x --context=prod --namespace=team-a\n", ran.stdout)
        self.assertIn("runs scale with --context=prod", ran.stderr)
        self.assertEqual([("info", "command.start", None), ("info", "command.end", 0)], self.events())


class UnwritableTests(RecordCase):
    """A log that cannot be written."""

    def test_unwritable(self) -> None:
        """What may change something is refused at every level, and what reads goes on after a warning."""
        self.kubectl.write_text("#!/bin/sh\necho ran\n")
        for level in ("debug", "error"):
            self.record(level, "/proc/nonexistent/audit.log")
            for words in (("scale", "x"), ("exec", "web", "--", "sh"), ("delete", "pod", "x"), ("neat",)):
                ran = self.process(*words)
                self.assertEqual((1, ""), (ran.returncode, ran.stdout))
                self.assertEqual(
                    "svc: the audit log /proc/nonexistent/audit.log cannot be written: no such file or directory "
                    "(audit_log_unwritable)",
                    ran.stderr.splitlines()[0],
                )
            ran = self.process("top", "pods")
            self.assertEqual((0, "ran\n"), (ran.returncode, ran.stdout))
            self.assertEqual(
                "svc: the audit log /proc/nonexistent/audit.log cannot be written: no such file or directory\n",
                ran.stderr,
            )

    def test_later(self) -> None:
        """Where the end cannot be recorded, the exit status stays, and a warning says so."""
        self.record()
        self.kubectl.write_text(f"#!/bin/sh\nchmod 644 '{self.home}/.svc/audit.log'; exit 4\n")
        ran = self.process("scale", "x")
        self.assertEqual(4, ran.returncode)
        self.assertIn("cannot be written: it has to be a file of the own user", ran.stderr)


class SignalTests(RecordCase):
    """kubectl below the process."""

    def started(self, script: str, prefix: str = "") -> subprocess.Popen[str]:
        """Start a command in a session of its own, and wait until its script runs."""
        self.record()
        self.kubectl.write_text(f"#!/bin/sh\n{script}\n")
        command = f'{prefix} exec "{sys.executable}" -m svc.cli.entry scale x'
        process = subprocess.Popen(
            ["sh", "-c", command], env=self.environ, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.addCleanup(end_process, process)
        assert process.stdout is not None
        self.assertEqual("ready\n", process.stdout.readline())
        return process

    def test_passed_on(self) -> None:
        """A signal for the process reaches kubectl, whose way of ending counts."""
        process = self.started("trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done")
        process.terminate()
        self.assertEqual(9, process.wait(60))
        self.assertEqual([("info", "command.start", None), ("error", "command.end", 9)], self.events())
        process = self.started("echo ready; exec sleep 60")
        process.send_signal(signal.SIGHUP)
        self.assertEqual(128 + signal.SIGHUP, process.wait(60))
        self.assertEqual(("error", "command.end", 129), self.events()[-1])

    def test_interrupt(self) -> None:
        """An interrupt at the terminal is kubectl's; the process waits for its end and records that."""
        process = self.started("trap 'exit 0' INT; echo ready; while :; do sleep 0.1; done")
        os.killpg(process.pid, signal.SIGINT)
        self.assertEqual(0, process.wait(60))
        self.assertEqual(("info", "command.end", 0), self.events()[-1])

    def test_ignored(self) -> None:
        """A signal that is ignored stays so for both, and kubectl has no other one ignored or blocked."""
        script = "echo ready; grep -E 'Sig(Ign|Blk)' /proc/self/status"
        masks = {}
        for prefix in ("", "trap '' HUP;"):
            process = self.started(script, prefix)
            assert process.stdout is not None
            # Above them are those that the library of C keeps for itself.
            masks[prefix] = [int(line.split()[1], 16) & 0x7FFFFFFF for line in process.stdout.read().splitlines()]
        self.assertEqual({"": [0, 0], "trap '' HUP;": [0, 1]}, masks)
