"""
Commands of kubectl: with the context that is in effect the process becomes kubectl, some after svc had its part.

Imported by the entry point before anything else: neither click nor Twisted is loaded.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

from svc import naming
from svc.cli.compartments.command import Command, KubectlRefused
from svc.cli.compartments.compiled import load
from svc.cli.compartments.impersonation import impersonated
from svc.cli.compartments.recorder import Recorder
from svc.cli.compartments.session import check_selected
from svc.compartments.config import Config, at_home, kubeconfig_of, resolve
from svc.compartments.verbs import is_local, mutates, with_context

if TYPE_CHECKING:
    from svc.cli.output import Console

#: As :func:`execute`.
Execute = Callable[[str, list[str], dict[str, str], bool], NoReturn]

#: The interpreter ignores them, and a program would inherit that: kubectl could not end with its reader.
_IGNORED: Final = (signal.SIGPIPE, signal.SIGXFSZ)
#: What a terminal sends to all processes in its foreground, and what is sent to one.
_TERMINAL: Final = (signal.SIGINT, signal.SIGQUIT)
_PASSED: Final = (signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: Commands of kubectl that svc has a part in: module and function, which gets a :class:`Command`.
_OURS: Final = {
    "apply": ("svc.cli.compartments.apply", "run"),
    "cp": ("svc.cli.compartments.pods", "run_with_warning"),
    "delete": ("svc.cli.compartments.deletion", "run"),
    "describe": ("svc.cli.compartments.description", "run"),
    "exec": ("svc.cli.compartments.pods", "run_exec"),
    "get": ("svc.cli.compartments.listing", "run"),
    "logs": ("svc.cli.compartments.pods", "run_with_warning"),
    "port-forward": ("svc.cli.compartments.pods", "run_with_warning"),
}


def execute(program: str, words: list[str], environ: dict[str, str], supervised: bool) -> NoReturn:
    """
    Replace the process by a program.

    Args:
        words: with the name of the program in front.
        supervised: whether the program runs below this process instead, which then ends with its exit status, or with
            128 and the number of the signal that ended it.

    Raises:
        OSError: the program cannot be started.
    """
    if supervised:
        sys.exit(_supervise(program, words, environ))
    for ignored in _IGNORED:
        signal.signal(ignored, signal.SIG_DFL)
    os.execvpe(program, words, environ)  # noqa: S606 - the program that the user names


def _supervise(program: str, words: list[str], environ: dict[str, str]) -> int:
    """Run a program in the foreground; signals of the terminal reach it directly, and those for us are passed on."""
    heeded = {number for number in (*_TERMINAL, *_PASSED) if signal.getsignal(number) != signal.SIG_IGN}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, heeded)
    try:
        child = os.posix_spawnp(program, words, environ, setsigmask=before, setsigdef=_IGNORED)

        def got_signal(number: int, _frame: object) -> None:
            if number in _PASSED:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)

        for number in heeded:
            signal.signal(number, got_signal)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status if status >= 0 else 128 - status


def run(words: Sequence[str], environ: Mapping[str, str], execute: Execute, console: Callable[[], Console]) -> NoReturn:
    """
    Become kubectl.

    Args:
        words: of kubectl; the first one is a command.
        console: for what has to be said; made only for that.

    Raises:
        CommandFailed, ConfigUnreadable, CompartmentError: the configuration is not valid, no context is in effect, or
            the command is refused.
        OSError: kubectl cannot be started.
    """
    config = load(environ)
    variables = _variables(environ, config)
    program = environ.get(naming.ENV_KUBECTL) or "kubectl"
    if config is None or is_local(words):
        if config is None and mutates(words) and _first_time(environ):
            console().warn(
                f"there is no {naming.DEFAULT_CONTEXTS}: kubectl runs as it is, in no compartment; "
                "svc context create makes one"
            )
        execute(program, [program, *words], variables, False)
    recorder = Recorder(words, config, resolve(config, environ), console)

    def become(words: list[str]) -> NoReturn:
        execute(program, [program, *words], variables, recorder.supervises)

    with recorder.recording():
        active = impersonated(resolve(config, environ), variables)
        recorder.start(active)
        if mutates(words):
            check_selected(config, environ)
        if words[0] in _OURS:
            module, function = _OURS[words[0]]
            command = Command(words, config, active, variables, console, recorder, become)
            try:
                getattr(import_module(module), function)(command)
            except KubectlRefused as refused:
                console().write_stderr(refused.words)
                sys.exit(refused.status)
        become(with_context(words, active))


def prepared(
    words: Sequence[str], environ: Mapping[str, str], config: Config | None
) -> tuple[list[str], dict[str, str]]:
    """
    Add what is in effect to a command line that is to be completed.

    Returns:
        The words and the environment.

    Raises:
        CompartmentError: no context is in effect, or an impersonation that has to be is denied.
        KubectlMissing, KubectlFailed: what such an impersonation needs cannot be asked.
    """
    variables = _variables(environ, config)
    if config is None or is_local(words):
        return list(words), variables
    return with_context(words, impersonated(resolve(config, environ), variables)), variables


def _variables(environ: Mapping[str, str], config: Config | None) -> dict[str, str]:
    kubeconfig = kubeconfig_of(config, environ) if config else ""
    return {**environ, "KUBECONFIG": kubeconfig} if kubeconfig else dict(environ)


def _first_time(environ: Mapping[str, str]) -> bool:
    """Whether it is the first time; always where that cannot be kept."""
    folder = os.path.dirname(at_home(naming.DEFAULT_CONTEXTS, environ))
    try:
        if not os.path.isdir(folder):
            os.mkdir(folder, 0o700)
        os.close(os.open(os.path.join(folder, "without-contexts"), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError as error:
        return not (isinstance(error, FileExistsError) and os.path.isdir(folder))
    return True
