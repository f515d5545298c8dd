"""
A process that has imported what daemons and command line need, and forks for each process that a test starts.

A process starts in a few hundredths of a second this way, where an interpreter needs a second to import its modules.
Orders are lines of JSON on standard input, see :mod:`tests.peers.forked`; the answer is the process identifier of the
fork, which is reparented to the test so that the test can wait for it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import threading
from functools import partial
from typing import Any

_PRELOADED = (
    "asyncio",
    "psycopg",
    "service_identity",
    "spiffe",
    "svc.broker.service",
    "svc.broker.tap",
    "svc.cli.curl.command",
    "svc.cli.main",
    "svc.cli.verify",
    "svc.proxy.assembly",
    "svc.proxy.tap",
    "svc.authority.tap",
    "svc.workload.source",
    "twisted.scripts.twistd",
)


class Stopper:
    """
    Stops the process, with all its threads, when a step is passed for the n-th time.

    Args:
        step: the step's name.
        after: n.
    """

    def __init__(self, step: str, after: int) -> None:
        from svc.proxy.records.release_points import ReleasePoint

        self._step = ReleasePoint(step)
        self._left = after

    def __call__(self, step: object) -> None:
        """Count; stop the process where it is time."""
        if step is self._step:
            self._left -= 1
            if self._left == 0:
                # This call does not release the interpreter, and what is sent to one's own thread is handled before the
                # call returns: neither this thread nor another does anything between the step and the stop.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _become(order: dict[str, Any]) -> None:
    """Take over what an executed process would be given, then run it to its end."""
    append = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    opened = (
        os.open(os.devnull, os.O_RDONLY),
        os.open(order["out"], append, 0o600),
        os.open(order["err"], append, 0o600),
    )
    for standard, descriptor in enumerate(opened):
        os.dup2(descriptor, standard)
    os.closerange(3, max(opened) + 1)
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    sys.argv = [order["program"], *order["arguments"]]
    if order["step"] is not None:
        _run_proxy(order["arguments"][-1], Stopper(*order["step"]))
    elif order["program"] == "svc":
        from svc.cli.main import main

        sys.exit(main())
    else:
        from twisted.scripts.twistd import run

        run()


def _run_proxy(config: str, stopper: Stopper) -> None:
    """Do what ``twistd svc-proxy`` does, with an observer of steps that no configuration could name."""
    from twisted.application import app
    from twisted.application.service import Application

    from svc.process.daemon import daemon_tree
    from svc.proxy import tap

    options = tap.Options()
    options.parent = {"nodaemon": True}  # type: ignore[assignment]
    options.parseOptions(["--config", config])
    application = Application("svc-proxy")
    daemon_tree(options, "proxy", partial(tap.proxy, released=stopper)).setServiceParent(application)
    app.AppLogger({}).start(application)
    app.startApplication(application, False)
    from twisted.internet import reactor

    reactor.run()


def _fork(order: dict[str, Any]) -> int:
    """Fork twice, so that the process in between can end; returns 0 in the new process."""
    reader, writer = os.pipe()
    between = os.fork()
    if between:
        os.close(writer)
        with open(reader, "rb") as pipe:
            pid = int(pipe.read())
        os.waitpid(between, 0)
        return pid
    os.close(reader)
    pid = os.fork()
    if pid:
        os.write(writer, b"%d" % pid)
        os._exit(0)
    os.close(writer)
    return 0


def serve() -> None:
    """Fork as ordered until standard input ends; in a fork, be that process."""
    for name in _PRELOADED:
        importlib.import_module(name)
    from twisted.application.service import IServiceMaker
    from twisted.plugin import getPlugins

    assert list(getPlugins(IServiceMaker))
    assert "twisted.internet.reactor" not in sys.modules, "each process installs a reactor of its own"
    answers = os.dup(1)
    gc.collect()
    gc.freeze()
    os.write(answers, b"0\n")
    for line in sys.stdin.buffer:
        order = json.loads(line)
        pid = _fork(order)
        if pid == 0:
            os.close(answers)
            return _become(order)
        os.write(answers, b"%d\n" % pid)
    return None


if __name__ == "__main__":
    serve()
