"""
The helper of :mod:`tests.peers.forks`: a process that has imported everything and becomes proxies by forking.

Orders are lines of JSON on standard input, answers and what the proxies tell are lines of JSON on standard output.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import traceback
from functools import partial
from typing import Any, NoReturn

# What the proxy imports when it first needs it; in every fork anew that would take most of its start.
import service_identity  # noqa: F401
import spiffe  # noqa: F401
from twisted.application import app
from twisted.application.service import Application

from svc.proxy import tap
from svc.proxy.assembly import Assembly
from svc.proxy.steps import Step


class Stopper:
    """
    Stops the process at the n-th passing of a step, all threads at once.

    Args:
        step: the step's name.
        after: n.
    """

    def __init__(self, step: str, after: int) -> None:
        self._step = Step(step)
        self._left = after

    def __call__(self, step: Step) -> None:
        """Count; stop where it is time."""
        if step is self._step:
            self._left -= 1
            if self._left == 0:
                # This call gives no other thread the interpreter: what they do later is not done yet.
                os.kill(os.getpid(), signal.SIGSTOP)


def be_a_proxy(order: dict[str, Any]) -> NoReturn:
    """
    Become a proxy, in a fresh fork.

    Args:
        order: of :meth:`tests.peers.forks.Forks.start`.
    """
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for standard, descriptor in ((0, os.open(os.devnull, os.O_RDONLY)), (1, log), (2, log)):
        os.dup2(descriptor, standard)
    options = tap.Options()
    options.parent = {"nodaemon": True}
    options.parseOptions(["--config", order["config"]])
    given: dict[str, Any] = {}
    if order["step"]:
        given["step"] = Stopper(order["step"], order["after"])
    application = Application("svc-proxy")
    tap.service_tree(options, partial(Assembly, **given)).setServiceParent(application)
    app.AppLogger({}).start(application)
    app.startApplication(application, False)
    from twisted.internet import reactor

    reactor.run()  # type: ignore[attr-defined]
    os._exit(0)


def main() -> None:
    """Fork proxies, wait for them, signal them, as the test orders; returns when the test is gone."""
    answers = os.dup(1)

    def answer(message: dict[str, object]) -> None:
        os.write(answers, json.dumps(message).encode() + b"\n")

    gc.collect()
    gc.freeze()
    answer({"ready": True})
    for line in sys.stdin:
        order = json.loads(line)
        if "wait" in order:
            if order["signal"]:
                os.kill(order["wait"], order["signal"])
            _pid, status = os.waitpid(order["wait"], os.WUNTRACED)
            answer({"stopped": True} if os.WIFSTOPPED(status) else {"ended": os.waitstatus_to_exitcode(status)})
            continue
        pid = os.fork()
        if pid == 0:
            try:
                be_a_proxy(order)
            except BaseException:  # noqa: BLE001 (the fork must not go on as the helper)
                traceback.print_exc()
                os._exit(70)
        answer({"started": pid})


if __name__ == "__main__":
    main()
