"""
The layout of help texts, as in kubectl; every word comes from the command and its flags.

The man pages have the same parts (``docs.generator.manpages``).
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import click

from svc.cli.flags import Flag
from svc.cli.pflag import PflagGroup

_GAP = 3


def render_help(ctx: click.Context, width: int) -> str:
    """The help text of a command, in lines of up to ``width`` columns."""
    command = ctx.command
    described = "\n\n".join(textwrap.fill(paragraph, width) for paragraph in paragraphs(command))
    parts = [described, f"Usage:\n  {usage(ctx)}"]
    if isinstance(command, PflagGroup):
        rows = [(name, command.short_text(name)) for name in command.list_commands(ctx)]
        parts.append(_block("Available Commands", _columns(rows, width)))
    parts.append(_block("Flags", _columns(flag_rows(ctx, shared=False), width)))
    parts.append(_block("Global Flags", _columns(flag_rows(ctx, shared=True), width)))
    if isinstance(command, click.Group):
        path = " ".join(["svc help", *ctx.command_path.split()[1:]])
        parts.append(f'Use "{path} [command]" for more information about a command.')
    elif command.epilog:
        parts.append(command.epilog.strip())
    return "\n\n".join(part for part in parts if part) + "\n"


def paragraphs(command: click.Command) -> list[str]:
    """What the help says about a command, each paragraph on one line."""
    return [" ".join(paragraph.split()) for paragraph in (command.help or "").strip().split("\n\n")]


def usage(ctx: click.Context) -> str:
    """The words of a command: its name, where the flags are, its arguments."""
    if isinstance(ctx.command, click.Group):
        return f"{ctx.command_path} [flags] <command>"
    words = " ".join(
        param.metavar for param in ctx.command.params if isinstance(param, click.Argument) and param.metavar
    )
    return f"{ctx.command_path} [flags] {words}".rstrip()


def _block(title: str, lines: Sequence[str]) -> str:
    return "\n".join([f"{title}:", *lines]) if lines else ""


def flag_rows(ctx: click.Context, *, shared: bool) -> list[tuple[str, str]]:
    """
    The names and the texts of the flags that a command shows.

    Args:
        shared: the flags of every command, or those of this one.
    """
    flags = [param for param in ctx.command.get_params(ctx) if isinstance(param, Flag)]
    shown = [flag for flag in flags if flag.shared is shared and not flag.hidden]
    return [(_flag_names(flag), _flag_text(flag)) for flag in sorted(shown, key=lambda flag: flag.long_name)]


def _flag_names(flag: Flag) -> str:
    short = next((f"{name}, " for name in flag.opts if not name.startswith("--")), "    ")
    value = f" {flag.metavar}" if flag.takes_value and flag.metavar else ""
    value = f"[={flag.metavar}]" if flag.implied else value
    return f"{short}{flag.long_name}{value}"


def _flag_text(flag: Flag) -> str:
    default = flag.shown_default
    if not default and not flag.multiple and isinstance(flag.default, str):
        default = flag.default
    if flag.default is True:
        default = "true"
    return f"{flag.help} (default {default})" if default else str(flag.help)


def _columns(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    left = max((len(name) for name, _text in rows), default=0) + _GAP
    lines: list[str] = []
    for name, text in rows:
        wrapped = textwrap.wrap(text, max(20, width - left - 2), break_on_hyphens=False) or [""]
        lines.append(f"  {name:<{left}}{wrapped[0]}".rstrip())
        lines += [" " * (left + 2) + more for more in wrapped[1:]]
    return lines
