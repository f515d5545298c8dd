"""Programs of the system that tests talk to, and interpreters that an authority can distinguish."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SkipTest

from tests.peers import forked
from tests.peers.daemon import environment
from tests.peers.folders import short_folder

_PACKAGES = {
    "nginx": "nginx-light",
    "curl": "curl",
    "openssl": "openssl",
    "groff": "groff-base",
    "promtool": "prometheus",
    "htpasswd": "apache2-utils",
    "nc.openbsd": "netcat-openbsd",
    "redis-cli": "redis-tools",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "sshd": "openssh-server",
    "mosquitto_pub": "mosquitto-clients",
    "mosquitto_sub": "mosquitto-clients",
}


def find(name: str) -> str:
    """
    Find a program.

    Args:
        name: such as ``nginx``.

    Returns:
        Its path.

    Raises:
        SkipTest: it is not installed; names the Debian package that has it.
    """
    path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        raise SkipTest(f"{name} is missing: apt-get install {_PACKAGES.get(name, name)}")
    return path


def run(
    command: Sequence[str | Path], *, data: bytes = b"", seconds: float = 180.0, **settings: str
) -> subprocess.CompletedProcess[bytes]:
    """
    Run a program to its end.

    Args:
        command: the argument list.
        data: its standard input.
        seconds: the longest run.
        settings: further environment variables.

    Returns:
        Exit status and what it wrote.
    """
    return subprocess.run(
        [str(each) for each in command],
        input=data,
        capture_output=True,
        timeout=seconds,
        check=False,
        env={**environment(), **settings},
    )


def svc(*arguments: str | Path, seconds: float = 180.0, **settings: str) -> subprocess.CompletedProcess[bytes]:
    """
    Run the command line of this checkout.

    Args:
        arguments: behind ``svc``.
        seconds: the longest run.
        settings: further environment variables.

    Returns:
        Exit status and what it wrote.
    """
    given = [str(each) for each in arguments]
    with ExitStack() as stack:
        folder = short_folder(stack)
        out, err = folder / "svc.out", folder / "svc.err"
        process = forked.start(
            "svc", given, cwd=Path.cwd(), out=out, err=err, environment={**environment(), **settings}
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(["svc", *given], status, out.read_bytes(), err.read_bytes())


def other_python(folder: Path) -> Path:
    """
    Make an interpreter that is a program of its own for the kernel, and so for an authority.

    Args:
        folder: where it goes.

    Returns:
        Its path.
    """
    original = Path(sys.executable).resolve()
    program = folder / "bin" / "python3"
    program.parent.mkdir(parents=True)
    shutil.copy2(original, program)
    (folder / "pyvenv.cfg").write_text(f"home = {original.parent}\ninclude-system-site-packages = false\n")
    return program
