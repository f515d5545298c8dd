"""
The root command, the table of commands below it, and the commands ``help`` and ``version``.

The module of another command is imported when the command runs, never for the help of the root: its line there is in
the table.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import click

from svc import __version__
from svc.cli.commands import COMMANDS
from svc.cli.errors import UsageRefused
from svc.cli.flags import Arguments, bool_flag
from svc.cli.globals import Invocation, SvcCommand, SvcGroup, global_options
from svc.cli.helptext import render_help

_HELP: Final = """
svc gives every workload a verifiable, quantum-safe identity and gives every request a receipt.

Every other command is one of kubectl, which runs with the context that is in effect (svc context).
"""


class RootGroup(SvcGroup):
    """The command ``svc`` itself."""

    unknown_flag_hints = dict.fromkeys(
        ("-n", "--namespace", "--context", "--kubeconfig"),
        "flags of kubectl stand behind its command: svc get pods -n NAMESPACE",
    )

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands that the help shows."""
        return sorted(name for name, (_place, _text, shown) in COMMANDS.items() if shown)

    def short_text(self, name: str) -> str:
        """The help line of a command, which is not imported for it."""
        return COMMANDS[name][1]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str, click.Command, list[str]]:
        """Find the command that the words name; it may be one of kubectl."""
        if args[0] not in COMMANDS:
            from svc.cli.compartments.kubectlcommand import kubectl_command, passes

            if passes(args[0], ctx.obj.environ):
                return args[0], kubectl_command(args[0]), args[1:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _colon, attribute = entry[0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


def _print_version(ctx: click.Context) -> None:
    invocation = ctx.find_object(Invocation)
    if invocation is not None:
        invocation.console.write_text(f"svc {__version__}\n")


def _version_flag(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        _print_version(ctx)
        ctx.exit(0)


def _run_version(ctx: click.Context, words: tuple[str, ...]) -> None:
    global_options(ctx)
    _print_version(ctx)


def _run_help(ctx: click.Context, words: tuple[str, ...]) -> None:
    global_options(ctx)
    found = ctx.find_root()
    if words and words[0] not in COMMANDS:
        from svc.cli.compartments.kubectlcommand import pass_on, passes

        if passes(words[0], ctx.obj.environ):
            pass_on(ctx, ["help", *words])
    for word in words:
        if not isinstance(found.command, SvcGroup):
            raise UsageRefused(f'{found.command_path} has no command "{word}"', "it takes no command below it")
        found = click.Context(found.command.required_command(found, word), info_name=word, parent=found)
    ctx.obj.console.write_text(render_help(found, ctx.obj.console.width))


def _run_root(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        global_options(ctx)
        invocation: Any = ctx.obj
        invocation.console.write_text(render_help(ctx, invocation.console.width))


def make_root() -> RootGroup:
    """Build the root command."""
    version = bool_flag("--version", "print the version", is_eager=True, expose_value=False)
    version.callback = _version_flag
    return RootGroup(
        "svc",
        params=[version],
        callback=click.pass_context(_run_root),
        invoke_without_command=True,
        help=_HELP,
        add_help_option=False,
    )


help_command = SvcCommand(
    "help",
    params=[Arguments("words", "[command path]", minimum=0, maximum=None, noun="command")],
    callback=click.pass_context(_run_help),
    help="Help about any command: give its name, or the names on the way to it.",
    add_help_option=False,
)
version_command = SvcCommand(
    "version",
    params=[Arguments("words", "", minimum=0, maximum=0, noun="argument")],
    callback=click.pass_context(_run_version),
    help="Print the version of the command line; the same as svc --version.",
    add_help_option=False,
)
