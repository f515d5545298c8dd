"""The man pages of the command line, from what its help texts are made of (:mod:`svc.cli.helptext`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from svc import __version__
from svc.cli.globals import SvcGroup
from svc.cli.helptext import flag_rows, paragraphs, usage
from svc.cli.pflag import PflagGroup
from svc.cli.root import make_root

#: Characters that roff interprets, or prints as another one: a line must still work when it is pasted into a shell.
_ESCAPED = str.maketrans({"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"})


def paths() -> list[tuple[str, ...]]:
    """The words of every command that the help shows, ``svc`` first; a page is named after them."""
    return list(_below(("svc",), click.Context(make_root(), info_name="svc")))


def _below(path: tuple[str, ...], ctx: click.Context) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(ctx.command, SvcGroup):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.required_command(ctx, name)
            yield from _below((*path, name), click.Context(command, info_name=name, parent=ctx))


def page(path: tuple[str, ...]) -> str:
    """
    Write the page of a command.

    Args:
        path: its words, as :func:`paths` has them.
    """
    ctx = click.Context(make_root(), info_name="svc")
    summary = "verifiable workload identity and signed receipts, on the command line"
    for name in path[1:]:
        group = ctx.command
        assert isinstance(group, SvcGroup)  # noqa: S101 - paths() has the names of groups
        summary = group.short_text(name)
        ctx = click.Context(group.required_command(ctx, name), info_name=name, parent=ctx)
    command, title = ctx.command, "-".join(path)
    others = ["-".join(each) for each in paths() if each != path]
    parts = [
        f'.TH {escaped(title.upper())} 1 "" "svc {__version__}" "svc manual"',
        _section("NAME", [f"{escaped(title)} \\- {escaped(summary)}"]),
        _section("SYNOPSIS", [f"\\fB{escaped(ctx.command_path)}\\fR{escaped(usage(ctx)[len(ctx.command_path) :])}"]),
        _section("DESCRIPTION", ["\n.PP\n".join(escaped(each) for each in paragraphs(command))]),
    ]
    if isinstance(command, PflagGroup):
        parts.append(_section("COMMANDS", _rows((n, command.short_text(n)) for n in command.list_commands(ctx))))
    parts.append(_section("OPTIONS", _rows(flag_rows(ctx, shared=False))))
    parts.append(_section("GLOBAL OPTIONS", _rows(flag_rows(ctx, shared=True))))
    if command.epilog:
        examples = command.epilog.strip().removeprefix("Examples:\n").splitlines()
        parts.append(_section("EXAMPLES", [".nf", *(escaped(line.strip()) for line in examples), ".fi"]))
    parts.append(_section("SEE ALSO", [",\n".join(f"\\fB{escaped(other)}\\fR(1)" for other in others)]))
    return "\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Text of one line as roff source that prints exactly it."""
    text = text.translate(_ESCAPED)
    return f"\\&{text}" if text.startswith(".") else text


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([f".SH {title}", *lines])


def _rows(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f".TP\n\\fB{escaped(name.strip())}\\fR\n{escaped(text)}" for name, text in rows]
