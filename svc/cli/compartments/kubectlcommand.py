"""Commands of kubectl as commands of ``svc``: with global flags in front, with errors that are reported, completed."""

from __future__ import annotations

import difflib
import shutil
from collections.abc import Mapping, Sequence
from typing import NoReturn

import click

from svc.cli.commands import COMMANDS
from svc.cli.compartments.compiled import load
from svc.cli.compartments.kubectl import KubectlMissing, ask
from svc.cli.compartments.passthrough import execute, prepared, run
from svc.cli.errors import CommandFailed
from svc.cli.globals import Invocation, SvcGroup, UnparsedCommand, global_options
from svc.compartments.argv import ours, without_ours
from svc.compartments.verbs import VERBS
from svc.errors import SvcError

#: From which verbosity on is said what kubectl gets.
_DEBUG = 1
#: The directive of a completion that lets no files be completed, and the one that does.
_NO_FILES, _FILES = 4, 0


def passes(name: str, environ: Mapping[str, str]) -> bool:
    """
    Whether a command that is none of ours is passed on.

    All are, but a word that is nearly the name of one of ours, and of no plugin of kubectl, is taken for a mistake.
    """
    if name in VERBS or shutil.which(f"kubectl-{name.replace('-', '_')}", path=environ.get("PATH")):
        return True
    return not difflib.get_close_matches(name, COMMANDS, n=1)


def pass_on(ctx: click.Context, words: list[str]) -> NoReturn:
    """
    Become kubectl.

    Raises:
        UsageRefused: there is no kubectl, and the command is none that it is known to have.
        KubectlMissing: there is no kubectl.
        CommandFailed, ConfigUnreadable, CompartmentError: as :func:`svc.cli.compartments.passthrough.run`.
    """
    options = global_options(ctx)
    invocation: Invocation = ctx.obj

    def announced(program: str, arguments: list[str], environ: dict[str, str], supervised: bool) -> NoReturn:
        if options.verbosity >= _DEBUG:
            # What was typed may contain a password.
            added = " ".join(word for word in arguments[1:] if word not in words)
            invocation.console.notice(f"{program} runs {words[0]} with {added or 'nothing added'}")
        (invocation.execute or execute)(program, arguments, environ, supervised)

    try:
        if invocation.refused is not None:
            raise invocation.refused
        run(words, invocation.environ, announced, lambda: invocation.console)
    except OSError as error:
        root = ctx.find_root().command
        name = words[1] if words[0] == "help" else words[0]
        if name not in VERBS and isinstance(root, SvcGroup):
            root.required_command(ctx, name)
        raise KubectlMissing.of(error, invocation.environ) from error


def kubectl_command(name: str) -> UnparsedCommand:
    """The command of kubectl with this name."""

    def call(ctx: click.Context, words: tuple[str, ...]) -> NoReturn:
        pass_on(ctx, [name, *words])

    return UnparsedCommand(name, callback=click.pass_context(call), add_help_option=False)


def ask_completion(done: Sequence[str], typed: str, environ: Mapping[str, str]) -> tuple[list[tuple[str, str]], int]:
    """
    Ask kubectl for completions.

    Args:
        done: the finished words, its command first; none for its commands.

    Returns:
        As :func:`svc.cli.completion.candidates`; nothing where kubectl is missing or refuses.
    """
    try:
        config = load(environ)
        words = without_ours(done) if done and config else done
        arguments, variables = prepared(words, environ, config) if done else ([], dict(environ))
        lines = ask(["__complete", *arguments, typed], variables).splitlines()
    except (SvcError, CommandFailed):
        return [], _NO_FILES
    directive = lines.pop().removeprefix(":") if lines else ""
    found = [(value, text) for value, _tab, text in (line.partition("\t") for line in lines)]
    if done and config and typed.startswith("-"):
        found += [(f"--{name}", "of svc") for name in sorted(ours(done[0]))]
    files = directive.isdecimal() and not int(directive) & (_NO_FILES | 1)
    return [each for each in found if each[0].startswith(typed)], _FILES if files else _NO_FILES
