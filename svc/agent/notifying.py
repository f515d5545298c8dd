"""How a program learns that its files have changed: it gets a signal, or a command is run."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from twisted.internet.defer import Deferred

from svc.agent.config import FilesSettings
from svc.errors import SvcError

_PID: Final = re.compile(rb"\s*([1-9][0-9]{0,9})\s*(?:\n|\Z)")
#: Octets of a file with a process ID that are read; further lines have other facts.
_MAX_PID_FILE: Final = 64


class NotifyFailed(SvcError):
    """{program} could not be told of its new files: {why}"""

    reason = "notify_failed"
    hint = "it may go on with the files that it has read before; look at its log, then reload it"


class ProgramNotRunning(NotifyFailed):
    """the program of {program} does not run, or has not written that file yet: {why}"""

    reason = "program_not_running"
    hint = "it reads the new files when it starts; it is told of them when it is there"


def notifier(settings: FilesSettings, in_thread: Callable[..., Deferred[Any]]) -> Callable[[], Deferred[None]] | None:
    """
    Make what tells the program of an entry that its files are new; None where nothing is configured.

    Args:
        settings: of the entry.
        in_thread: calls a function that blocks.

    Returns:
        A function whose Deferred fails with :class:`NotifyFailed`. For a command it needs the asyncio reactor.
    """
    if settings.pidFile is not None:
        path, number = settings.pidFile, signal.Signals[settings.signal]
        return lambda: in_thread(send_signal, path, number)
    if settings.command:
        command, seconds = settings.command, settings.commandTimeout
        return lambda: Deferred.fromFuture(asyncio.ensure_future(run_command(command, seconds)))
    return None


def send_signal(path: str, number: signal.Signals) -> None:
    """
    Send a signal to the process whose ID is in a file.

    Where the file is not root's, the process has to be one of its owner, who could otherwise have any process
    signalled.

    Raises:
        ProgramNotRunning: there is no such file or process.
        NotifyFailed: the file is not usable, or the signal is not permitted.
    """
    try:
        pid, owner = _read_pid(path)
        if owner not in (0, _user_of(pid)):
            raise NotifyFailed(program=path, why=f"process {pid} is not one of user {owner}, who owns the file")
        os.kill(pid, number)
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProgramNotRunning(program=path, why=error.strerror or str(error)) from error
    except OSError as error:
        raise NotifyFailed(program=path, why=error.strerror or str(error)) from error


def _read_pid(path: str) -> tuple[int, int]:
    """The process ID in a file, and the user whom the file belongs to."""
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise NotifyFailed(program=path, why="it is not a regular file")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise NotifyFailed(program=path, why=f"it has mode {stat.S_IMODE(status.st_mode):04o}, writable by others")
        found = _PID.match(file.read(_MAX_PID_FILE))
    if found is None:
        raise NotifyFailed(program=path, why="its first line is no process ID")
    return int(found[1]), status.st_uid


def _user_of(pid: int) -> int:
    """The user of a process; the owner of its folder in ``/proc`` may be root instead (proc(5))."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("Uid:"):
            return int(line.split()[1])
    return -1


async def run_command(command: Sequence[str], seconds: float) -> None:
    """
    Run a command to its end, in a session of its own; it writes where this process writes its errors.

    Args:
        command: the path of the program and its arguments.
        seconds: then it is killed with all that it has started.

    Raises:
        NotifyFailed: it cannot be started, took too long, or did not end with status 0.
    """
    program = command[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=2,
            # Neither the socket of the service manager nor variables that are meant for this process.
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )
    except OSError as error:
        raise NotifyFailed(program=program, why=error.strerror or str(error)) from error
    try:
        status = await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError as error:
        raise NotifyFailed(program=program, why=f"it did not end within {seconds:g} s") from error
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if status:
        raise NotifyFailed(program=program, why=_ending(status))


def _ending(status: int) -> str:
    if status > 0:
        return f"it ended with status {status}"
    return f"it was ended by signal {-status}"
