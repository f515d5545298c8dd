"""
Which context was selected in this login session, for ``requireExplicitContextSwitch``.

A session is that of setsid(2): a terminal, a login, a job of a scheduler. It is known by its leader and the time at
which that started, so that a later process with the same number is another one. Each has a file in ``~/.svc/sessions``.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping

from svc import naming
from svc.compartments.config import Config, at_home
from svc.compartments.errors import CompartmentError


def selected(environ: Mapping[str, str]) -> str:
    """The name of the context that was selected in this session; empty for none."""
    try:
        with open(os.path.join(_folder(environ), _name(os.getsid(0)))) as file:
            return file.read()
    except OSError:
        return ""


def check_selected(config: Config, environ: Mapping[str, str]) -> None:
    """
    Refuse to change something in a context that was selected elsewhere, where switching has to be explicit.

    Raises:
        CompartmentError: ``context_not_switched``.
    """
    if config.explicit_switch and config.current and selected(environ) != config.current:
        raise CompartmentError("context_not_switched", name=config.current, path=config.path)


def select(name: str, environ: Mapping[str, str]) -> None:
    """
    Keep that a context was selected in this session, and forget sessions that have ended.

    Raises:
        OSError: it cannot be kept.
    """
    from svc.workload.files import write_atomically

    folder = _folder(environ)
    os.makedirs(folder, 0o700, exist_ok=True)
    for other in os.listdir(folder):
        leader = other.partition("-")[0]
        if leader.isdecimal() and _name(int(leader)) != other:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, other))
    write_atomically(os.path.join(folder, _name(os.getsid(0))), name.encode(), mode=0o600)


def _folder(environ: Mapping[str, str]) -> str:
    return os.path.join(os.path.dirname(at_home(naming.DEFAULT_CONTEXTS, environ)), "sessions")


def _name(leader: int) -> str:
    """The file of a session; its leader may have ended, and then has no start."""
    try:
        with open(f"/proc/{leader}/stat", "rb") as file:
            # proc_pid_stat(5): the 22nd field; the second one, in parentheses, may contain anything.
            start = file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        start = ""
    return f"{leader}-{start}"
