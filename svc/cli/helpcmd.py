"""The command ``svc help [command path]``."""

from __future__ import annotations

import click

from svc.cli.errors import UsageRefused
from svc.cli.flags import Words
from svc.cli.globals import SvcCommand, global_options
from svc.cli.helptext import render_help
from svc.cli.root import unknown_command


def _run(ctx: click.Context, words: tuple[str, ...]) -> None:
    global_options(ctx)
    found = ctx.find_root()
    for word in words:
        if not isinstance(found.command, click.Group):
            raise UsageRefused(f'{found.command_path} has no command "{word}"', "it takes no command below it")
        command = found.command.get_command(found, word)
        if command is None:
            raise unknown_command(word, found.command.list_commands(found))
        found = click.Context(command, info_name=word, parent=found)
    ctx.obj.console.write_text(render_help(found, ctx.obj.console.width))


command = SvcCommand(
    "help",
    params=[Words("words", "[command path]", least=0, most=None, noun="command")],
    callback=click.pass_context(_run),
    help="Help about any command: give its name, or the names on the way to it.",
    add_help_option=False,
)
