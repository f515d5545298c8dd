"""
Helm 3 or 4 as a program: where it is, how it differs, and its runs.

It gets its cluster and its namespace by flags alone: ``HELM_*`` of the environment, which can send it elsewhere, is
left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from svc.errors import printable
from svc.install.deployment.errors import DeploymentError
from svc.naming import DEFAULT_NAMESPACE

RELEASE: Final = "svc-core"
_VERSION: Final = re.compile(r"v?[34]\.\d+\.\d+")
#: Runs that ask nothing of a cluster end within this many seconds.
_LOCAL_SECONDS: Final = 60.0
_PROBE: Final = {
    "Chart.yaml": "apiVersion: v2\nname: values\nversion: 0.0.0\n",
    "templates/values.yaml": "{{ toJson .Values }}\n",
}


def find_helm(environ: Mapping[str, str], packaged: str = "") -> str:
    """
    Return the path of Helm: that of ``SVC_HELM``, one of ``PATH``, or the one of a package.

    Raises:
        DeploymentError: ``helm_missing``.
    """
    found = environ.get("SVC_HELM") or shutil.which("helm", path=environ.get("PATH", os.defpath)) or packaged
    if not found:
        raise DeploymentError("helm_missing")
    return found


class Helm:
    """
    One Helm for one cluster.

    Args:
        program: its path.
        kubeconfig: a file, or several as in ``KUBECONFIG``; empty for those of the environment.
        context: of the kubeconfig; empty for its current one.

    Raises:
        DeploymentError: ``helm_unusable``.
    """

    def __init__(self, program: str, environ: Mapping[str, str], kubeconfig: str = "", context: str = "") -> None:
        self._program = program
        self._environ = {name: value for name, value in environ.items() if not name.startswith("HELM_")}
        if kubeconfig:
            self._environ["KUBECONFIG"] = kubeconfig
        self._cluster = ["--namespace", DEFAULT_NAMESPACE]
        if context:
            self._cluster += ["--kube-context", context]
        ran = self._run(["version", "--template", "{{.Version}}"], _LOCAL_SECONDS)
        match = _VERSION.match(ran.stdout.strip())
        if match is None:
            said = printable(ran.stdout.strip() or _complaint(ran.stderr))
            raise DeploymentError("helm_unusable", program=program, detail=f"its version is: {said}")

    def values(self, flags: Sequence[str]) -> dict[str, Any]:
        """
        Return what ``--set``, ``--set-string`` and ``--values`` say, merged as Helm merges them.

        Args:
            flags: such as ``--set``, ``a.b=1``.

        Raises:
            DeploymentError: ``values_refused``.
        """
        with TemporaryDirectory(prefix="svc-values-") as folder:
            for name, text in _PROBE.items():
                path = Path(folder) / name
                path.parent.mkdir(exist_ok=True)
                path.write_text(text)
            ran = self._run(["template", "values", folder, *flags], _LOCAL_SECONDS)
        if ran.returncode != 0:
            raise DeploymentError("values_refused", detail=_complaint(ran.stderr))
        found = json.loads(next((line for line in ran.stdout.splitlines() if line.startswith("{")), "{}"))
        return found if isinstance(found, dict) else {}

    def rendered(self, chart: str, values: Sequence[str], *, upgrade: bool, cluster: bool) -> str:
        """
        Render the chart.

        Args:
            values: files, of which later ones count more.
            cluster: whether the templates may look things up.

        Raises:
            DeploymentError: ``chart_not_rendered``, also for values that the schema of the chart refuses.
        """
        arguments = ["template", RELEASE, chart, *_files(values)]
        arguments += ["--is-upgrade"] * upgrade
        arguments += ["--dry-run=server", *self._cluster] if cluster else ["--namespace", DEFAULT_NAMESPACE]
        ran = self._run(arguments, None)
        if ran.returncode != 0:
            raise DeploymentError("chart_not_rendered", detail=_complaint(ran.stderr))
        return ran.stdout

    def deploy(self, chart: str, values: Sequence[str], timeout: float) -> None:
        """
        Install or upgrade the release, and wait until it is ready.

        Interrupts are passed on to Helm, which then ends the release as failed; it is waited for.

        Args:
            values: files, of which later ones count more.
            timeout: seconds.

        Raises:
            DeploymentError: ``helm_failed`` or ``helm_interrupted``.
        """
        arguments = ["upgrade", "--install", RELEASE, chart, *self._cluster, *_files(values), "--reset-values"]
        arguments += ["--wait", "--timeout", f"{timeout:.0f}s"]
        self._watched("upgrade", arguments)

    def roll_back(self, revision: int, timeout: float) -> None:
        """
        Bring the release back to a revision, and wait until it is ready.

        Helm would leave the release pending if it were interrupted here: interrupts count when it has ended.

        Args:
            timeout: seconds.

        Raises:
            DeploymentError: ``helm_failed`` or ``helm_interrupted``.
        """
        arguments = ["rollback", RELEASE, str(revision), *self._cluster, "--wait", "--timeout", f"{timeout:.0f}s"]
        self._watched("rollback", arguments, interruptible=False)

    def _run(self, arguments: Sequence[str], seconds: float | None) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                [self._program, *arguments],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                check=False,
            )
        except OSError as error:
            raise DeploymentError("helm_unusable", program=self._program, detail=error.strerror) from error
        except subprocess.TimeoutExpired as error:
            detail = f"it did not end within {seconds:.0f} s"
            raise DeploymentError("helm_unusable", program=self._program, detail=detail) from error

    def _watched(self, verb: str, arguments: Sequence[str], *, interruptible: bool = True) -> None:
        # In a session of its own: a terminal would send the interrupt to both, and the second one kills Helm at once.
        process = subprocess.Popen(
            [self._program, *arguments],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        with _interrupts_to(process.pid if interruptible else None) as interrupted:
            _said, complaint = process.communicate()
        if process.returncode == 0 and (interruptible or not interrupted()):
            return
        if interrupted():
            raise DeploymentError("helm_interrupted", verb=verb, detail=_complaint(complaint))
        raise DeploymentError("helm_failed", verb=verb, detail=_complaint(complaint))


def _files(values: Sequence[str]) -> Iterator[str]:
    for path in values:
        yield from ("--values", path)


def _complaint(text: str) -> str:
    """What Helm said on its standard error, as one line: its error alone where there is one, without hooks."""
    text = text[max(text.rfind("\nError: ") + 1, 0) :]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("WARNING", "level="))]
    return printable(" ".join(lines).removeprefix("Error: ") or "it said nothing", 2000)


@contextmanager
def _interrupts_to(pid: int | None) -> Iterator[Callable[[], bool]]:
    """Pass the first interrupt on, once, where there is a process to get it; the caller goes on waiting."""
    seen: list[int] = []

    def passed_on(number: int, _frame: object) -> None:
        if not seen:
            seen.append(number)
            if pid is not None:
                os.kill(pid, signal.SIGINT)

    before = {each: signal.signal(each, passed_on) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(seen)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
