"""
The root command and the table of commands below it.

A command's module is imported when the command runs, never for the help of the root: its line there stands in the
table.
"""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import Any, Final

import click

from svc import __version__
from svc.cli.errors import UsageRefused
from svc.cli.flags import bool_flag
from svc.cli.globals import Invocation, SvcGroup, global_options
from svc.cli.helptext import render_help

#: Name of a command: its module, its line in the help of the root, whether it is shown there.
COMMANDS: Final[dict[str, tuple[str, str, bool]]] = {
    "completion": ("svc.cli.completion", "print a shell completion script", True),
    "curl": ("svc.cli.curl", "send one HTTP request and verify who answered and the signed receipt", True),
    "help": ("svc.cli.helpcmd", "help about any command", True),
    "verify": ("svc.cli.verify", "verify saved evidence offline", True),
    "version": ("svc.cli.version", "print the version", True),
    "__complete": ("svc.cli.completion", "answer a shell's question", False),
}
_HELP: Final = """
svc gives every workload a verifiable, quantum-safe identity and gives every request a receipt.
"""


class RootGroup(SvcGroup):
    """The command ``svc`` itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands that the help shows."""
        return sorted(name for name, (_module, _text, shown) in COMMANDS.items() if shown)

    def short_text(self, name: str) -> str:
        """
        Give the help line of a command without importing it.

        Args:
            name: the command.

        Returns:
            One line.
        """
        return COMMANDS[name][1]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        attribute = "complete_command" if cmd_name == "__complete" else "command"
        command: click.Command = getattr(import_module(entry[0]), attribute)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str, click.Command, list[str]]:
        """Find the command that the words name, or say which there are."""
        command = self.get_command(ctx, args[0])
        if command is None:
            raise unknown_command(args[0], self.list_commands(ctx))
        return args[0], command, args[1:]


def unknown_command(name: str, known: list[str]) -> UsageRefused:
    """
    Name a command that does not exist.

    Args:
        name: what was typed.
        known: the commands there are.

    Returns:
        The error to raise.
    """
    close = difflib.get_close_matches(name, known, n=1)
    guess = f"did you mean {close[0]}? " if close else ""
    return UsageRefused(f'unknown command "{name}"', f"{guess}the commands are {', '.join(known)}")


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        invocation = ctx.find_object(Invocation)
        if invocation is not None:
            invocation.console.write_text(version_line())
        ctx.exit(0)


def version_line() -> str:
    """
    Give the line of ``--version`` and ``version``.

    Returns:
        The line with its end.
    """
    return f"svc {__version__}\n"


def _run(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        global_options(ctx)
        invocation: Any = ctx.obj
        invocation.console.write_text(render_help(ctx, invocation.console.width))


def make_root() -> RootGroup:
    """
    Build the root command.

    Returns:
        A group whose commands are imported on use.
    """
    version = bool_flag("--version", "print the version", is_eager=True, expose_value=False)
    version.callback = _version
    return RootGroup(
        "svc",
        params=[version],
        callback=click.pass_context(_run),
        invoke_without_command=True,
        help=_HELP,
        add_help_option=False,
    )
