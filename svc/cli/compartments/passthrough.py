"""
Commands of kubectl: with the context that is in effect the process becomes kubectl, some after svc had its part.

Imported by the entry point before anything else: neither click nor Twisted is loaded.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NoReturn

from svc import naming
from svc.cli.compartments.command import Command
from svc.cli.compartments.compiled import load
from svc.cli.compartments.session import selected
from svc.compartments.config import Config, at_home, kubeconfig_of, resolve
from svc.compartments.errors import CompartmentError
from svc.compartments.verbs import is_local, mutates, with_context

if TYPE_CHECKING:
    from svc.cli.output import Console

#: Replaces the process by a program: its name, its words with the name in front, its environment.
Execute = Callable[[str, list[str], dict[str, str]], NoReturn]


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


def execute(program: str, words: list[str], environ: dict[str, str]) -> NoReturn:
    """
    Replace the process by a program.

    Raises:
        OSError: the program cannot be started.
    """
    # The interpreter ignores both, and a program would inherit that: kubectl could not end with its reader.
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    os.execvpe(program, words, environ)  # noqa: S606 - the program that the user names


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
    arguments, variables = prepared(words, environ, config)
    if config is None:
        if mutates(words) and _first_time(environ):
            console().warn(
                f"there is no {naming.DEFAULT_CONTEXTS}: kubectl runs as it is, in no compartment; "
                "svc context create makes one"
            )
    elif not is_local(words):
        _check(config, words, environ)
    program = environ.get(naming.ENV_KUBECTL) or "kubectl"

    def become(words: list[str]) -> NoReturn:
        execute(program, [program, *words], variables)

    if config is not None and words[0] in _OURS:
        module, function = _OURS[words[0]]
        getattr(import_module(module), function)(
            Command(words, config, resolve(config, environ), variables, console, become)
        )
    become(arguments)


def prepared(
    words: Sequence[str], environ: Mapping[str, str], config: Config | None
) -> tuple[list[str], dict[str, str]]:
    """
    Add what is in effect to a command line.

    Returns:
        The words and the environment.

    Raises:
        CompartmentError: no context is in effect.
    """
    variables = dict(environ)
    if config is None:
        return list(words), variables
    if kubeconfig := kubeconfig_of(config, environ):
        variables["KUBECONFIG"] = kubeconfig
    return list(words) if is_local(words) else with_context(words, resolve(config, environ)), variables


def _check(config: Config, words: Sequence[str], environ: Mapping[str, str]) -> None:
    if config.audit.enabled:
        raise CompartmentError("audit_log_absent", path=config.path)
    if config.explicit_switch and config.current and mutates(words) and selected(environ) != config.current:
        raise CompartmentError("context_not_switched", name=config.current, path=config.path)


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
