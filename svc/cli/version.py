"""The command ``svc version``."""

from __future__ import annotations

import click

from svc.cli.flags import Words
from svc.cli.globals import SvcCommand, global_options
from svc.cli.root import version_line


def _run(ctx: click.Context, words: tuple[str, ...]) -> None:
    global_options(ctx)
    ctx.obj.console.write_text(version_line())


command = SvcCommand(
    "version",
    params=[Words("words", "", least=0, most=0, noun="argument")],
    callback=click.pass_context(_run),
    help="Print the version of the command line; the same as svc --version.",
    add_help_option=False,
)
