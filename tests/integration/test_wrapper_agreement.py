"""
``svc`` and kubectl agree: output, exit status and what the API server is asked, but for what ``svc`` adds.

Both run the command lines of ``tests/vectors/kubectl-lines.txt``, each as a user and in a namespace of its own. Every
other command of ``svc`` is recorded in an audit log, and then runs below it if it may change something.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from twisted.trial.unittest import SynchronousTestCase

from svc.telemetry.audit import verify_audit_chain
from tests.peers.apiserver import ApiServer, programs
from tests.peers.folders import make_folder
from tests.peers.waiting import PATIENCE, TOP, Shared, end_process, eventually

_LINES: Final = TOP / "tests" / "vectors" / "kubectl-lines.txt"
#: The last object that is asked for.
_END: Final = "end-of-the-lines"
#: Runs a command on a terminal of its own, and ends with its exit status as a shell has it.
_ON_TERMINAL: Final = """
import os, pty, sys
status = os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:]))
sys.exit(status if status >= 0 else 128 - status)
"""
_LABEL: Final = "svc.internal/compartment"
_MARKS: Final = {
    "labels": {_LABEL: "DE-S-ALPHA"},
    "annotations": {"mls.svc.internal/level": "de:s", "mls.svc.internal/compartment": "de:alpha"},
}
#: Everything but what kubectl learns once about the server.
_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "None", "nonResourceURLs": ["/api", "/api/v1", "/apis*", "/openapi*", "/version", "/readyz"]},
        {"level": "Request"},
    ],
}
_CONFIG: Final = """\
currentContext: de-s-alpha
contexts:
  de-s-alpha: {{country: DE, sensitivity: S, compartment: ALPHA, kubeContext: prod, namespace: {namespace}}}
auditLog: {{enabled: {audit}, level: debug}}
"""
#: What differs from run to run, and between the two.
_CHANGING: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000"), "TIME"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"), "TIME"),
    (re.compile(r"(resourceVersion\"?: ?|resourceVersion\", \"value\": )\"\d+\""), r"\1VERSION"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"10\.96\.0\.\d+"), "ADDRESS"),
    (re.compile(r"(continue|resourceVersion|timeoutSeconds)=[\w-]+"), r"\1=N"),
    (re.compile(r"/tmp/(LIVE|MERGED)-\d+"), r"/tmp/\1"),
    (re.compile(r"\b\d+[smh](?:\d+s)?(?= |$|\))", re.MULTILINE), "AGE"),
    (re.compile(r"[ \t-]+"), " "),
)


def _server(stack: contextlib.ExitStack) -> tuple[ApiServer, Path]:
    folder = make_folder("svc-agreement-")
    (folder / "policy.json").write_text(json.dumps(_POLICY))
    log = folder / "requests.json"
    flags = (f"--audit-policy-file={folder / 'policy.json'}", f"--audit-log-path={log}")
    return stack.enter_context(ApiServer(*flags)), log


SERVER: Final = Shared(_server)


@dataclass
class Ran:
    """What a command has done: exit status, both outputs, and its requests."""

    status: int
    stdout: str
    stderr: str
    began: datetime
    requests: Counter[str] = field(default_factory=Counter)


class Side:
    """
    One of the two: a user, a namespace with objects, a folder with files, and how a command is run.

    Args:
        name: ``svc`` or ``ctl``.
    """

    def __init__(self, name: str, home: Path, server: ApiServer) -> None:
        self.name = name
        self.user = f"{name}-{uuid4().hex[:8]}"
        self.namespace = f"t-{uuid4().hex[:8]}"
        self.folder = home / name
        self.folder.mkdir()
        self.kubeconfig = self.folder / "kubeconfig"
        text = server.credentials(self.user, "system:masters").read_text()
        current = re.search(r'"?current-context"?: *"?([^"\s,]+)', text)
        assert current is not None
        self.kubeconfig.write_text(text)
        self.environ = {
            "HOME": str(self.folder / "home"),
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(self.folder / "cache"),
            "SVC_KUBECTL": str(programs() / "kubectl"),
            "PATH": os.defpath,
            "EDITOR": "sed -i s/x/y/",
            "TERM": "xterm",
        }
        subprocess.run(
            [self.environ["SVC_KUBECTL"], "config", "rename-context", current[1], "prod"],
            env=self.environ, check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        for audit in ("false", "true"):
            config = self.folder / f"home-{audit}" / ".svc" / "config.yaml"
            config.parent.mkdir(parents=True)
            config.write_text(_CONFIG.format(namespace=self.namespace, audit=audit))
        write_files(self.folder, self.namespace, marked=name == "ctl")
        server.kubectl("create", "namespace", self.namespace)
        server.kubectl("create", "-n", self.namespace, "-f", str(self.folder / "objects.json"))

    def command(self, words: list[str], *, audit: bool = False) -> tuple[list[str], dict[str, str]]:
        """The program with its words, and its environment."""
        given = [self.filled(word) for word in words]
        if self.name == "ctl":
            leading = next((place for place, word in enumerate(given) if word.startswith("-")), len(given))
            local = not given or given[0] in ("config", "kustomize", "options")
            added = [] if local else ["--context=prod", f"--namespace={self.namespace}"]
            return [self.environ["SVC_KUBECTL"], *given[:leading], *added, *given[leading:]], self.environ
        home = str(self.folder / f"home-{str(audit).lower()}")
        return [sys.executable, "-m", "svc.cli.entry", *given], {**self.environ, "HOME": home}

    def filled(self, word: str) -> str:
        """A word with the values of its placeholders."""
        for name, value in (
            ("{ns}", self.namespace),
            ("{apply}", f"{self.folder}/apply"),
            ("{dir}", f"{self.folder}/files"),
            ("{key}", _LABEL),
        ):
            word = word.replace(name, value)
        return word

    def run(self, words: list[str], *, audit: bool = False) -> Ran:
        """Run a command line."""
        source = os.devnull
        if "<" in words:
            words, [source] = words[: words.index("<")], words[words.index("<") + 1 :]
        command, environ = self.command(words, audit=audit)
        began = datetime.now(UTC)
        with open(self.filled(source), "rb") as given:
            ran = subprocess.run(
                command, env=environ, stdin=given, capture_output=True, cwd=self.folder, check=False, timeout=120
            )
        return Ran(ran.returncode, self.normal(ran.stdout.decode()), self.normal(ran.stderr.decode()), began)

    def normal(self, text: str) -> str:
        """A text without what differs anyway."""
        for value, name in ((self.namespace, "NS"), (str(self.folder), "FOLDER"), (self.user, "USER")):
            text = text.replace(value, name)
        for pattern, name in _CHANGING:
            text = pattern.sub(name, text)
        return text

    def read_requests(self, log: Path, runs: list[Ran]) -> None:
        """Give each run the requests that the server has had from the user while it ran."""
        place = -1
        for line in sorted(
            log.read_text().splitlines(), key=lambda line: str(json.loads(line)["requestReceivedTimestamp"])
        ):
            event = json.loads(line)
            if event["user"]["username"] != self.user:
                continue
            received = datetime.fromisoformat(event["requestReceivedTimestamp"])
            while place + 1 < len(runs) and runs[place + 1].began <= received:
                place += 1
            if place >= 0:
                runs[place].requests[self.request(event)] += 1

    def request(self, event: dict[str, Any]) -> str:
        """A request as text: what it reads begins with ``read``."""
        reads = event["verb"] in ("get", "list", "watch") and "subresource" not in event.get("objectRef", {})
        status = event.get("responseStatus", {}).get("code")
        body = json.dumps(event.get("requestObject"), sort_keys=True)
        # Fields are selected in any order.
        path, _mark, query = event["requestURI"].partition("?")
        query = "&".join(
            ",".join(sorted(each.removeprefix("fieldSelector=").split("%2C"))) for each in query.split("&")
        )
        return self.normal(f"{'read' if reads else 'do'} {event['verb']} {path} {query} {status} {body}")


def write_files(folder: Path, namespace: str, *, marked: bool) -> None:
    """Write the objects of a namespace, and the files of the command lines."""

    def config_map(name: str, **metadata: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"x": name}}

    def workload(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}

    containers = [{"name": name, "image": "none.invalid/x"} for name in ("main", "side")]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    deployment = {"selector": {"matchLabels": {"app": "web"}}, "template": template}
    pods = [workload("v1", "Pod", name, {"containers": containers}) for name in ("web", "d1", "d2")]
    pods[0]["metadata"]["labels"] = {"app": "web"}
    write = lambda path, *objects: (folder / path).write_text("\n".join(map(json.dumps, objects)))  # noqa: E731
    write(
        "objects.json",
        *(config_map(f"d{number}", labels={"app": f"d{number}"}) for number in range(1, 10)),
        *(config_map(name, labels={"app": "web"}) for name in ("a", "b")),
        config_map("own", labels={_LABEL: "DE-S-ALPHA", "app": "web"}),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
        *pods,
        workload("apps/v1", "Deployment", "web", deployment),
        workload("v1", "Service", "web", {"selector": {"app": "web"}, "ports": [{"port": 80}]}),
    )
    files, apply = folder / "files", folder / "apply"
    for place in (files / "folder" / "below", files / "kustomize", apply / "folder" / "below", apply / "kustomize"):
        place.mkdir(parents=True)
    write("files/cm.json", config_map("a"))
    write("files/pod.json", pods[0])
    write("files/folder/a.json", config_map("a"))
    write("files/folder/below/b.json", config_map("b"))
    write("files/two.yaml", config_map("two"))
    write("files/three.yaml", config_map("three"))
    write("files/invalid.json", {**config_map("invalid"), "data": {"x": [1]}})
    write("files/replace.json", {**config_map("b"), "data": {"y": "z"}})
    write("files/gone2.json", config_map("gone2"))
    (files / "patch.json").write_text('{"data": {"p": "q"}}')
    for number in (8, 9):
        write(f"files/d{number}.json", config_map(f"d{number}"))
    resources = '{"resources": ["cm.json"]}'
    for place in (files, apply):
        (place / "kustomize" / "kustomization.yaml").write_text(resources)
    write("files/kustomize/cm.json", config_map("kustomized"))
    marks = _MARKS if marked else {}
    holder = {"metadata": {**template["metadata"], "labels": {"app": "web", **marks.get("labels", {})}}}  # type: ignore[dict-item]
    if marked:
        holder["metadata"]["annotations"] = marks["annotations"]
    write("apply/cm.json", config_map("applied", **marks))
    write("apply/changed.json", {**config_map("applied", **marks), "data": {"x": "changed"}})
    write("apply/folder/a.json", config_map("first", **marks))
    write("apply/folder/below/b.json", config_map("second", **marks))
    write("apply/kustomize/cm.json", config_map("kustomized", **marks))
    applied = workload("apps/v1", "Deployment", "applied", {**deployment, "template": {**template, **holder}})
    applied["metadata"].update(marks)
    write("apply/deployment.json", applied)
    write("apply/invalid.json", {**config_map("invalid", **marks), "data": {"x": [1]}})
    text = "\n---\n".join(json.dumps(config_map(name, **marks)) for name in ("third", "fourth"))
    (apply / "two.yaml").write_text(text)


class AgreementCase(SynchronousTestCase):
    """The two."""

    maxDiff = None

    def setUp(self) -> None:
        """Make them."""
        self.server, self.log = SERVER.get()
        home = Path(self.mktemp()).absolute()
        home.mkdir()
        self.svc, self.kubectl = (Side(name, home, self.server) for name in ("svc", "ctl"))
        for side, words in ((self.kubectl, ["get", "cm"]), (self.svc, ["identity"])):
            for audit in (False, True):
                side.run(words, audit=audit)


class LineTests(AgreementCase):
    """The command lines."""

    def test_lines(self) -> None:
        """Each does the same by both."""
        rows = [line for line in _LINES.read_text().splitlines() if line and not line.startswith("#")]
        self.assertGreater(len(rows), 200)
        parsed = []
        for row in rows:
            mark, rest = (row[0], row[2:]) if row[:2] in ("+ ", "~ ") else ("", row)
            words = shlex.split(rest)
            place = words.index("=>") if "=>" in words else len(words)
            parsed.append((mark, words[:place], words[place + 1 :] or words[:place]))
        runs: dict[str, list[Ran]] = {"svc": [], "ctl": []}

        def run_svc() -> None:
            for number, (_mark, words, _plain) in enumerate(parsed):
                runs["svc"].append(self.svc.run(words, audit=bool(number % 2)))

        def run_kubectl() -> None:
            for _mark, _words, plain in parsed:
                runs["ctl"].append(self.kubectl.run(plain))

        threads = [threading.Thread(target=each) for each in (run_svc, run_kubectl)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([len(rows)] * 2, [len(each) for each in runs.values()])
        for side in (self.svc, self.kubectl):
            runs[side.name].append(side.run(["get", "ns", _END]))
            eventually(lambda user=side.user: self.has_ended(user), 60, "the last request")
            side.read_requests(self.log, runs[side.name])
            self.assertGreater(sum(bool(each.requests) for each in runs[side.name]), len(rows) / 2)
            self.assertEqual(1, sum(runs[side.name].pop().requests.values()))
        found = [
            f"{row}\n{difference}"
            for row, (mark, *_words), ours, theirs in zip(rows, parsed, runs["svc"], runs["ctl"], strict=True)
            if (difference := differs(mark, ours, theirs))
        ]
        self.assertEqual([], found, "\n\n".join(found))
        records = (self.svc.folder / "home-true" / ".svc" / "audit.log").read_bytes().splitlines()
        self.assertGreater(verify_audit_chain(records).records, len(rows) // 2)

    def has_ended(self, user: str) -> bool:
        """Whether the server has logged the last request of a user."""
        return any(_END in line and user in line for line in self.log.read_text().splitlines())


class StreamTests(AgreementCase):
    """What goes on until somebody ends it, and terminals."""

    def started(self, side: Side, words: list[str], *, audit: bool, terminal: bool = False) -> subprocess.Popen[bytes]:
        """Start a command with pipes, or on a terminal that these are connected to."""
        command, environ = side.command(words, audit=audit)
        process = subprocess.Popen(
            [sys.executable, "-c", _ON_TERMINAL, *command] if terminal else command,
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            bufsize=0,
        )
        self.addCleanup(end_process, process)
        limit = threading.Timer(PATIENCE, process.kill)
        limit.start()
        self.addCleanup(limit.cancel)
        return process

    def until(self, process: subprocess.Popen[bytes], text: str) -> str:
        """Read what a process prints until it has printed a text."""
        assert process.stdout is not None
        printed = b""
        while text.encode() not in printed and (read := process.stdout.read(1 << 16)):
            printed += read
        self.assertIn(text, printed.decode())
        return printed.decode()

    def end(self, side: Side, process: subprocess.Popen[bytes], printed: str = "") -> tuple[int, str]:
        """Wait for the end of a process; its exit status as a shell has it, and what it has printed."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        printed += process.stdout.read().decode()
        status = process.wait(60)
        return status if status >= 0 else 128 - status, side.normal(printed)

    def both(self, run: Callable[[Side, bool], object]) -> None:
        """Run something by kubectl, by svc, and by svc with its audit log."""
        wanted = run(self.kubectl, False)
        for audit in (False, True):
            self.assertEqual(wanted, run(self.svc, audit))

    def test_watch(self) -> None:
        """A watch shows each line at once, and ends by a signal as that of kubectl does."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):

            def watch(side: Side, audit: bool, number: signal.Signals = number) -> tuple[int, str]:
                process = self.started(side, ["get", "cm", "-woname"], audit=audit)
                printed = self.until(process, "configmap/own\n")
                self.assertEqual(0, side.run(["create", "cm", "watched"]).status)
                printed += self.until(process, "configmap/watched\n")
                process.send_signal(number)
                ended = self.end(side, process, printed)
                self.assertEqual(0, side.run(["delete", "cm", "watched"]).status)
                return ended

            self.both(watch)

    def test_signals(self) -> None:
        """Servers, and commands that wait for an editor, end as those of kubectl do."""
        editor = self.svc.folder / "editor"
        editor.write_text("#!/bin/sh\necho edited\nexec sleep 3 >/dev/null 2>&1\n")
        editor.chmod(0o755)
        for words, text, number in (
            (["proxy", "--port=0"], "Starting to serve", signal.SIGTERM),
            (["proxy", "--port=0"], "Starting to serve", signal.SIGINT),
            (["edit", "cm", "a"], "edited", signal.SIGTERM),
            (["edit", "cm", "a"], "edited", signal.SIGHUP),
        ):

            def run(side: Side, audit: bool, words: list[str] = words, text: str = text, number: int = number) -> int:
                side.environ["EDITOR"] = str(editor)
                process = self.started(side, words, audit=audit)
                self.until(process, text)
                process.send_signal(number)
                return self.end(side, process)[0]

            self.both(run)

    def on_terminal(self, side: Side, words: list[str], text: str, typed: str, *, audit: bool) -> tuple[int, str]:
        """Run a command on a terminal, and type something once it has printed a text."""
        process = self.started(side, words, audit=audit, terminal=True)
        printed = self.until(process, text) if text else ""
        assert process.stdin is not None
        process.stdin.write(typed.encode())
        return self.end(side, process, printed)

    def test_terminals(self) -> None:
        """A terminal is that of kubectl, and so are interrupts that are typed there."""
        for words, text, typed in (
            (["delete", "cm", "d2", "-i"], "continue?", "n\n"),
            (["delete", "cm", "d3", "-i"], "continue?", "\x03"),
            (["proxy", "--port=0"], "Starting to serve", "\x03"),
            (["exec", "-it", "web", "--", "sh"], "", ""),
            (["describe", "cm", "a"], "", ""),
            (["get", "cm", "a", "-ojson"], "", ""),
            (["edit", "cm", "a"], "", ""),
        ):

            def run(
                side: Side, audit: bool, words: list[str] = words, text: str = text, typed: str = typed
            ) -> tuple[int, str]:
                side.environ["EDITOR"] = "test -t 0 -a -t 1 -a -f"
                return self.on_terminal(side, words, text, typed, audit=audit)

            self.both(run)

    def test_typed(self) -> None:
        """What is typed is read by kubectl, also below svc."""
        manifest = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "typed"}})
        for words, text, typed in (
            (["create", "-f", "-"], "", f"{manifest}\n\x04"),
            (["delete", "cm", "typed", "-i"], "continue?", "y\n"),
        ):
            wanted = self.on_terminal(self.kubectl, words, text, typed, audit=False)
            self.assertEqual(0, wanted[0])
            self.assertEqual(wanted, self.on_terminal(self.svc, words, text, typed, audit=True))


def differs(mark: str, ours: Ran, theirs: Ran) -> str:
    """What differs between two runs; empty for nothing."""
    for name in ("stderr", "stdout", "status"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"{name} of svc:     {getattr(ours, name)!r}\n{name} of kubectl: {getattr(theirs, name)!r}"
    added, missing = ours.requests - theirs.requests, theirs.requests - ours.requests
    if mark:
        added = Counter({each: count for each, count in added.items() if not each.startswith("read")})
    if mark == "~":
        missing = Counter({each: count for each, count in missing.items() if not each.startswith("read")})
    return f"requests of svc: {dict(added)}\nrequests of kubectl: {dict(missing)}" if added or missing else ""
