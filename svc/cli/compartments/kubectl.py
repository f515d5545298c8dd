"""Asks kubectl something; its output is read, never shown."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import Final

from svc import naming
from svc.cli.errors import CliError

#: Seconds for one request to the API server, and for kubectl as a whole.
REQUEST_TIMEOUT: Final = 5
_TIMEOUT: Final = 20


class KubectlFailed(CliError):
    """kubectl {command} failed: {detail}"""

    reason = "kubectl_failed"
    hint = "run it by itself to see more"


class KubectlMissing(CliError):
    """{program} cannot be started: {detail}"""

    reason = "kubectl_missing"
    hint = "install kubectl, or name another one: SVC_KUBECTL"

    @classmethod
    def of(cls, error: OSError, environ: Mapping[str, str]) -> KubectlMissing:
        """The error for what the system said."""
        return cls(program=program(environ), detail=(error.strerror or str(error)).lower())


def program(environ: Mapping[str, str]) -> str:
    """The name or the path of kubectl."""
    return environ.get(naming.ENV_KUBECTL) or "kubectl"


def ask(words: list[str], environ: Mapping[str, str], data: bytes = b"") -> str:
    """
    Run kubectl and return what it prints, without white space at both ends.

    Args:
        data: its standard input.

    Raises:
        KubectlMissing: it cannot be started.
        KubectlFailed: its exit status is not 0, or it takes too long.
    """
    command = " ".join(words)
    try:
        ran = output(words, environ, data, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise KubectlFailed(command=command, detail=f"it has not ended within {_TIMEOUT} s") from error
    if ran.returncode != 0:
        lines = ran.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit status {ran.returncode}"]
        raise KubectlFailed(command=command, detail=lines[-1].removeprefix("error: "))
    return ran.stdout.decode("utf-8", "replace").strip()


def output(
    words: list[str], environ: Mapping[str, str], data: bytes = b"", timeout: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """
    Run kubectl, whatever its exit status.

    Args:
        data: standard input.
        timeout: seconds; None for as long as it takes.

    Raises:
        KubectlMissing: it cannot be started.
        subprocess.TimeoutExpired: it takes too long.
    """
    try:
        return subprocess.run(
            [program(environ), *words], env=environ, input=data, capture_output=True, timeout=timeout, check=False
        )
    except OSError as error:
        raise KubectlMissing.of(error, environ) from error


def started(words: list[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """
    Start kubectl with the own streams, but for its output.

    Raises:
        KubectlMissing: it cannot be started.
    """
    try:
        return subprocess.Popen([program(environ), *words], env=environ, stdout=subprocess.PIPE)
    except OSError as error:
        raise KubectlMissing.of(error, environ) from error


def feed(data: bytes) -> None:
    """Make data the standard input of the process, which may become kubectl; in memory, for it may be secret."""
    with open(os.memfd_create("objects"), "w+b") as file:
        file.write(data)
        file.seek(0)
        os.dup2(file.fileno(), 0)
