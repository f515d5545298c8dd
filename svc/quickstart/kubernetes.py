"""
``bin/quickstart --kubernetes``: the chart on a cluster of its own, an ordinary Deployment, a verified request, and the
removal, after which nothing is left.

Everything is done by the commands that its reader would run: ``bin/cluster``, ``helm`` and ``kubectl``.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from svc.data import FOLDER
from svc.quickstart.processes import QuickstartError, run, uninterrupted

_TOOLS: Final = ("kubernetes", "containerd", "coredns", "helm", "spire")
#: The clusters that runs of this checkout have started and not ended.
_CLUSTERS: Final = Path(".quickstart/clusters")
_EXAMPLE: Final = Path("docs/examples/kubernetes/injected.yaml")
_RELEASE: Final = ("svc-core", "--namespace", "svc-system")
_VALUES: Final = ("trustDomain=example.org", "images.registry=svc.internal", "images.pullPolicy=Never", "purge=true")
_URL: Final = "https://web.mall:8443/"
_PODS: Final = "jsonpath={range .items[*]}{.metadata.name}{' '}{.status.containerStatuses[*].ready}{'\\n'}{end}"
_OBJECTS: Final = "jsonpath={range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
#: What the cluster itself makes at any time.
_OWN: Final = ("Lease kube-node-lease/",)


class KubernetesQuickstart:
    """
    One run.

    Args:
        checkout: the folder of the project.
        shortened: the lines that matter of the reports of ``svc curl``.
    """

    def __init__(self, checkout: Path, shortened: Callable[[str], str]) -> None:
        self._checkout = checkout
        self._shortened = shortened
        self._name = f"quickstart-{secrets.token_hex(4)}"
        self._folder = _folder(self._name)
        self._began = time.monotonic()
        self._steps = 0
        self._kubeconfig = ""
        self._kubectl: list[str] = []
        self._helm = ""

    def run(self, *, keep: bool) -> None:
        """
        Do it all; after an error and an interrupt the cluster is ended too.

        Args:
            keep: leave the cluster running, with everything on it.

        Raises:
            QuickstartError: a step failed; says which, why, and where its whole output is.
        """
        if os.geteuid() != 0:
            raise QuickstartError("root_needed")
        self._folder.mkdir(mode=0o700)
        try:
            self._prepare()
            before = self._inventory()
            self._install()
            self._request()
            if keep:
                self._report_kept()
                return
            self._remove(before)
            end(self._checkout, self._name)
        except KeyboardInterrupt:
            with uninterrupted():
                end(self._checkout, self._name)
                shutil.rmtree(self._folder, ignore_errors=True)
            raise
        except BaseException:
            with uninterrupted():
                self._note_state()
                end(self._checkout, self._name)
                self._report("the cluster is ended")
            raise
        shutil.rmtree(self._folder, ignore_errors=True)
        self._report("the cluster is ended; --keep leaves it running")

    def _prepare(self) -> None:
        tools = str(self._checkout / "bin" / "tools")
        checked = subprocess.run([tools, "--check", *_TOOLS], capture_output=True, check=False)
        if checked.returncode != 0:
            self._report(f"programs: {', '.join(_TOOLS)} are built, which takes some 20 minutes, once")
        folders = self._do("bin/tools", [tools, *_TOOLS]).split()
        self._helm = str(Path(folders[_TOOLS.index("helm")]) / "helm")
        images = self._folder / "images"
        self._report("images: built from this checkout; some minutes at the first time")
        self._do("bin/image", [str(self._checkout / "bin" / "image"), "--output", str(images)])
        marks = self._checkout / _CLUSTERS
        marks.mkdir(parents=True, exist_ok=True)
        (marks / self._name).touch()
        cluster = [str(self._checkout / "bin" / "cluster"), "--name", self._name]
        self._do("bin/cluster up", [*cluster, "up", *map(str, sorted(images.glob("*.tar")))])
        self._kubeconfig = self._do("bin/cluster kubeconfig", [*cluster, "kubeconfig"]).strip()
        kubernetes = folders[_TOOLS.index("kubernetes")]
        self._kubectl = [str(Path(kubernetes) / "kubectl"), "--kubeconfig", self._kubeconfig]
        shutil.rmtree(images)
        # The chart brings its own, as on a cluster that has never seen the product.
        self._run_kubectl("delete", "customresourcedefinitions", "--all", "--wait")
        self._report(f"cluster: Kubernetes of one node, {self._name}")

    def _install(self) -> None:
        chart = FOLDER / "chart"
        self._run_kubectl("create", "namespace", "svc-system")
        self._run_kubectl("label", "namespace", "svc-system", "pod-security.kubernetes.io/enforce=privileged")
        values = [each for value in _VALUES for each in ("--set", value)]
        self._report(f"chart: helm install {' '.join(_RELEASE)} --wait {chart}")
        command = ["install", _RELEASE[0], str(chart), *_RELEASE[1:], *values, "--wait", "--timeout", "240s"]
        self._do("helm install", self._with_helm(*command), meanwhile=self._watch_pods("svc-system"))
        self._report("chart: SPIRE, agents, issuer and manager are ready")
        self._run_kubectl("apply", "-f", str(self._checkout / _EXAMPLE))
        self._report("application: an ordinary Deployment in a namespace with the label svc.internal/injection=enabled")
        self._run_kubectl("-n", "mall", "rollout", "status", "deployment/web", "--timeout=180s")
        for pod in ("pod/client", "pod/guest"):
            self._run_kubectl("-n", "mall", "wait", pod, "--for=condition=Ready", "--timeout=120s")
        pods = self._run_kubectl("-n", "mall", "get", "pods", "-l", "app=web", "-o", _PODS).splitlines()
        ready = [line for line in pods if line.split()[1:] == ["true"] * (len(line.split()) - 1)]
        self._report(f"application: {len(ready)} pods of web are ready, each with the proxy that was injected")

    def _request(self) -> None:
        command = self._curl("client", "-n", "signRequest", "--print-workload", "--print-receipt", "-i")
        self._report(f"request: kubectl {shlex.join(command[3:])}\n")
        status, answer, reports = self._try("svc curl", command)
        print(f"{self._shortened(reports)}\n{answer}", file=sys.stderr, flush=True)
        if status != 0:
            raise QuickstartError("request_failed", status=status, folder=self._folder)
        self._report("verified: the workload's statement and the receipt of this very request")
        _status, answer, _reports = self._try("svc curl", self._curl("guest", "-i", "--validate=false"))
        if not re.match(r"HTTP/\S+ 403\b", answer):
            raise QuickstartError("not_refused", answer=answer[:100], folder=self._folder)
        log = self._run_kubectl("-n", "mall", "logs", "-l", "app=web", "-c", "svc-proxy", "--tail=-1")
        if "svc.proxy.request.denied" not in log or "/ns/mall/sa/guest" not in log:
            raise QuickstartError("refusal_unlogged", folder=self._folder)
        self._report("refused: 403 for /ns/mall/sa/guest, and the proxy's log names policy and rule")

    def _curl(self, pod: str, *flags: str) -> list[str]:
        expected = ["--expect-id", "spiffe://example.org/ns/mall/sa/web"] if pod == "client" else []
        return [*self._kubectl, "-n", "mall", "exec", pod, "--", "svc", "curl", *flags, *expected, _URL]

    def _remove(self, before: set[str]) -> None:
        self._run_kubectl("delete", "namespace", "mall", "--wait")
        self._do("helm uninstall", self._with_helm("uninstall", *_RELEASE, "--wait", "--timeout", "240s"))
        self._run_kubectl("delete", "namespace", "svc-system", "--wait")
        # Kubernetes removes what belonged to an object some moments after it.
        deadline = time.monotonic() + 60.0
        while left := self._inventory() - before:
            if time.monotonic() > deadline:
                raise QuickstartError("left_behind", left=", ".join(sorted(left)[:5]), folder=self._folder)
            time.sleep(1.0)
        self._report("removed: helm uninstall with purge left no object of any kind, and no mount on the node")

    def _inventory(self) -> set[str]:
        """Everything on the cluster that could be left: objects of all kinds, mounts, plugins of the kubelet."""
        listed = self._run_kubectl("api-resources", "--verbs=list", "-o", "name").split()
        kinds = sorted(set(listed) - {"events", "events.events.k8s.io"})
        found = self._run_kubectl("get", ",".join(kinds), "-A", "--ignore-not-found", "-o", _OBJECTS).splitlines()
        node = [str(self._checkout / "bin" / "cluster"), "--name", self._name, "node"]
        mounts = self._do("bin/cluster node", [*node, "cat", "/proc/mounts"]).splitlines()
        plugins = self._do("bin/cluster node", [*node, "ls", "/var/lib/kubelet/plugins_registry"]).split()
        return {
            *(line for line in found if not line.startswith(_OWN)),
            *(f"mount {line.split()[1]}" for line in mounts if "kubernetes.io~csi" in line),
            *(f"plugin {name}" for name in plugins),
        }

    def _report_kept(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._report("everything keeps running; next, to paste:")
        kubectl = shlex.quote(self._kubectl[0])
        for command in (
            f"export KUBECONFIG={shlex.quote(self._kubeconfig)}",
            f"{kubectl} get pods -A",
            f"{kubectl} {shlex.join(self._curl('client', '-n', 'signRequest', '--print-receipt')[3:])}",
            f"{kubectl} -n mall exec deploy/web -c svc-proxy -- svc status",
            f"{shlex.quote(str(self._checkout / 'bin' / 'quickstart'))} --stop",
        ):
            print(f"  {command}", file=sys.stderr, flush=True)

    def _watch_pods(self, namespace: str) -> Callable[[], None]:
        """Names each pod once, as it becomes ready."""
        named: set[str] = set()

        def look() -> None:
            command = [*self._kubectl, "-n", namespace, "get", "pods", "-l", "!job-name", "-o", _PODS]
            ran = subprocess.run(command, capture_output=True, text=True, check=False)
            for line in ran.stdout.splitlines():
                name, *ready = line.split()
                if ready and set(ready) == {"true"} and name not in named:
                    named.add(name)
                    self._report(f"chart: {name} is ready")

        return look

    def _with_helm(self, *arguments: str) -> list[str]:
        return [self._helm, *arguments, "--kubeconfig", self._kubeconfig]

    def _run_kubectl(self, *arguments: str) -> str:
        return self._do(f"kubectl {shlex.join(arguments[:4])}", [*self._kubectl, *arguments])

    def _do(self, what: str, command: Sequence[str], meanwhile: Callable[[], None] | None = None) -> str:
        """Run a command that must succeed; gives what it printed."""
        status, output, errors = self._try(what, command, meanwhile)
        if status != 0:
            raise failed(what, status, errors or output, self._folder)
        return output

    def _try(
        self, what: str, command: Sequence[str], meanwhile: Callable[[], None] | None = None
    ) -> tuple[int, str, str]:
        """Run a command; its output is kept in the folder, and given with its status."""
        self._steps += 1
        name = f"{self._steps:02}-{re.sub(r'[^a-z0-9]+', '-', what.lower())[:40].strip('-')}"
        output, errors = self._folder / f"{name}.out", self._folder / f"{name}.err"
        with output.open("wb") as stdout, errors.open("wb") as stderr:
            status = run(command, stderr, stdout, meanwhile)
        return status, output.read_text(errors="replace"), errors.read_text(errors="replace")

    def _note_state(self) -> None:
        """Keep what an engineer would look at after an error."""
        if self._kubectl:
            for what in (("get", "pods", "-A", "-o", "wide"), ("get", "events", "-A", "--sort-by=.lastTimestamp")):
                with contextlib.suppress(OSError):
                    self._try(f"state {what[1]}", [*self._kubectl, *what, "--request-timeout=10s"])

    def _report(self, text: str) -> None:
        print(f"quickstart {time.monotonic() - self._began:5.1f} s  {text}", file=sys.stderr, flush=True)


def failed(what: str, status: int, output: str, folder: Path) -> QuickstartError:
    """
    The error of a step: the last line that the command wrote, with its own hint where it gave one.

    Args:
        what: the command, as its reader would call it.
        status: its exit status.
        output: what it wrote.
        folder: where the whole output is.
    """
    lines = [line for line in output.splitlines() if line.strip()]
    hint = ""
    if len(lines) > 1 and lines[-1].startswith("     ") and lines[-2].startswith("svc: "):
        hint = f"{lines.pop().strip()}; "
    # Helm lists several causes behind tabs and asterisks.
    last = lines[-1].removeprefix("svc: ").removeprefix("Error: ").lstrip("\t* ")[:300] if lines else "it wrote nothing"
    return QuickstartError("step_failed", what=what, status=status, last=last, advice=hint, folder=folder)


def end(checkout: Path, name: str) -> None:
    """
    End a cluster of an earlier or of this run, if it was begun.

    Args:
        checkout: the folder of the project.
        name: of the cluster.

    Raises:
        QuickstartError: it could not be ended.
    """
    mark = checkout / _CLUSTERS / name
    if not mark.exists():
        return
    command = [str(checkout / "bin" / "cluster"), "--name", name, "down"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    if ran.returncode != 0:
        raise failed("bin/cluster down", ran.returncode, ran.stderr, mark.parent)
    mark.unlink(missing_ok=True)


def stop(checkout: Path) -> list[str]:
    """
    End the clusters of :func:`kept`, and remove the folders that killed runs have left.

    Args:
        checkout: the folder of the project.

    Returns:
        Their names.

    Raises:
        QuickstartError: one could not be ended.
    """
    names = kept(checkout)
    for name in names:
        end(checkout, name)
        shutil.rmtree(_folder(name), ignore_errors=True)
    return names


def kept(checkout: Path) -> list[str]:
    """The names of the clusters that were started from a checkout and not ended."""
    return sorted(path.name for path in (checkout / _CLUSTERS).glob("*"))


def _folder(name: str) -> Path:
    """Where the run that has started a cluster keeps the output of its steps."""
    return Path(tempfile.gettempdir()).absolute() / f"svc-{name}"
