"""
The load generator: built from ``load.c`` for a run, and started for each measurement.

Owns its command line and its results. Independent of the server behind the port.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from benchmarks.peers import Device
from svc.errors import SvcError

SOURCE: Final = Path(__file__).with_name("load.c")
#: What it is linked with.
_LIBRARIES: Final = ("-lssl", "-lcrypto")
#: Group that haproxy's OpenSSL and ours both have, so that both pay for the same key agreement.
CLASSICAL: Final = "X25519"


class LoadFailed(SvcError):
    """the load generator failed: {what}"""

    reason = "load_failed"
    hint = "is the C compiler there, and libssl-dev? as root: apt-get install gcc libssl-dev"


def build(source: Path, folder: Path) -> Path:
    """
    Build a load generator.

    Args:
        source: its one C file.
        folder: where the program goes.

    Returns:
        The program.

    Raises:
        LoadFailed: it does not build.
    """
    program = folder / source.stem
    command = ["gcc", "-O2", "-Wall", "-o", str(program), str(source), *_LIBRARIES]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise LoadFailed(what=getattr(error, "stderr", "") or error) from error
    return program


@dataclass(frozen=True, slots=True)
class Load:
    """
    One kind of load.

    Args:
        path: what is asked for.
        connections: how many clients, each with one request at a time.
        size: octets that each answer must have; anything else is an error.
        seconds: how long is counted.
        warm: seconds before that.
        mode: ``requests`` on connections that stay open, ``connects`` with a new connection for each.
        tls: whether the clients use TLS.
    """

    path: str
    connections: int
    size: int
    seconds: float
    warm: float = 0.3
    mode: str = "requests"
    tls: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """
    What came of one measurement.

    Args:
        answers: complete answers.
        octets: octets of heads and bodies.
        seconds: the time in which they came.
        cpu: seconds of CPU time that the device spent in that time.
        errors: connections that broke, and answers that were not 200 or not of the expected size.
        p50: median seconds from request to complete answer.
        p90: its 90th percentile.
        p99: its 99th percentile.
    """

    answers: int
    octets: int
    seconds: float
    cpu: float
    errors: int
    p50: float
    p90: float
    p99: float


class LoadGenerator:
    """
    The built program.

    Args:
        program: where it is.
        credentials: the folder with ``chain.pem``, ``key.pem`` and ``roots.pem`` of the clients.
    """

    def __init__(self, program: Path, credentials: Path) -> None:
        self._program = program
        self._credentials = credentials

    @classmethod
    def build(cls, folder: Path, credentials: Path) -> LoadGenerator:
        """
        Build the program.

        Args:
            folder: where it goes.
            credentials: see the class.

        Returns:
            The generator.

        Raises:
            LoadFailed: it does not build.
        """
        program = build(SOURCE, folder)
        return cls(program, credentials)

    def run(self, load: Load, device: Device) -> Result:
        """
        Measure.

        Args:
            load: what to do.
            device: to whom.

        Returns:
            The result.

        Raises:
            LoadFailed: it did not run to its end, or nothing was answered.
        """
        command = self._command(device.port, load.mode, load.connections, tls=load.tls)
        command += ["--path", load.path, "--size", str(load.size)]
        command += ["--seconds", str(load.seconds), "--warm", str(load.warm)]
        command += ["--watch", str(device.pid)]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=load.seconds + 60
        )
        if done.returncode != 0:
            raise LoadFailed(what=done.stderr.strip() or f"status {done.returncode}")
        result = Result(**json.loads(done.stdout))
        if result.answers == 0 or result.errors:
            raise LoadFailed(what=done.stderr.strip() or f"{result.answers} answers, {result.errors} errors")
        return result

    def idle(self, port: int, connections: int) -> IdleConnections:
        """
        Open connections that do nothing.

        Args:
            port: where, on 127.0.0.1.
            connections: how many.

        Returns:
            The open connections, all of them through their handshake.

        Raises:
            LoadFailed: they could not all be opened.
        """
        command = self._command(port, "idle", connections, tls=True)
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready = process.stdout.readline() if process.stdout is not None else ""
        if not ready:
            raise LoadFailed(what=f"{connections} connections could not be opened, status {process.wait()}")
        return IdleConnections(process)

    def _command(self, port: int, mode: str, connections: int, *, tls: bool) -> list[str]:
        command = [str(self._program), "--port", str(port), "--mode", mode, "--connections", str(connections)]
        if tls:
            command += ["--tls", str(self._credentials), "--groups", CLASSICAL]
        return command


class IdleConnections:
    """
    Connections that stay open until the end of a ``with`` block.

    Args:
        process: who holds them.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def __enter__(self) -> IdleConnections:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=30)
