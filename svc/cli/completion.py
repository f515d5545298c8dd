"""
Completion for shells: ``svc completion``, with its scripts in ``svc/data/completion``, and ``svc __complete``.

``__complete`` gets the words up to the cursor, the last of them unfinished, and prints one candidate a line as
``value<TAB>description`` and at the end ``:<directive>``, where 0 lets the shell complete file names and 4 does not:
the protocol of kubectl and other programs built on cobra.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from svc.cli.flags import Arguments, Flag, OneOf
from svc.cli.globals import SvcCommand, UnparsedCommand, global_options
from svc.cli.pflag import PflagGroup
from svc.data import FOLDER

_FILES: Final = 0
_NO_FILES: Final = 4
#: Name of a shell: the file of its script.
_SCRIPTS: Final = {"bash": "svc.bash", "fish": "svc.fish", "zsh": "_svc"}


def candidates(root: click.Context, words: Sequence[str]) -> tuple[list[tuple[str, str]], int]:
    """
    Find the completions of the last word.

    Args:
        words: the words after ``svc`` up to the cursor; the last one is unfinished.

    Returns:
        The candidates with their descriptions, all beginning with the unfinished word, and the directive.
    """
    done, typed = list(words[:-1]), words[-1] if words else ""
    ctx, rest, given, waiting = _walk(root, done)
    if waiting is not None:
        return _values(waiting, typed, "")
    if "--" in rest:
        return [], _FILES
    if typed.startswith("-") and "=" in typed:
        name, _equals, value = typed.partition("=")
        flag = _flags(ctx).get(name)
        return _values(flag, value, f"{name}=") if flag is not None else ([], _NO_FILES)
    if typed.startswith("-"):
        return sorted(_flag_candidates(ctx, typed, given)), _NO_FILES
    return _arguments(root, ctx, rest, typed)


def _walk(root: click.Context, words: Sequence[str]) -> tuple[click.Context, list[str], set[str], Flag | None]:
    """Parse the finished words: the command, its arguments, the flags given, the flag whose value is missing."""
    ctx = root
    rest: list[str] = []
    given: set[str] = set()
    waiting: Flag | None = None
    for word in words:
        if waiting is not None:
            waiting = None
        elif "--" in rest or not word.startswith("-") or word in ("-", "--"):
            below = ctx.command.get_command(ctx, word) if isinstance(ctx.command, click.Group) and not rest else None
            if below is None:
                rest.append(word)
            else:
                ctx, rest = click.Context(below, info_name=word, parent=ctx), []
        else:
            flag = _flags(ctx).get(word.partition("=")[0])
            if flag is not None:
                given.add(flag.name or "")
                waiting = flag if flag.takes_value and "=" not in word else None
    return ctx, rest, given, waiting


def _flags(ctx: click.Context) -> dict[str, Flag]:
    params = ctx.command.get_params(ctx)
    return {name: param for param in params if isinstance(param, Flag) for name in param.opts}


def _flag_candidates(ctx: click.Context, typed: str, given: set[str]) -> Iterator[tuple[str, str]]:
    for name, flag in _flags(ctx).items():
        repeated = flag.name in given and not flag.multiple
        if name.startswith(typed) and not flag.hidden and not repeated and (name.startswith("--") or typed != "-"):
            yield name, flag.help or ""


def _values(flag: Flag | None, typed: str, prefix: str) -> tuple[list[tuple[str, str]], int]:
    if flag is None:
        return [], _NO_FILES
    choices: tuple[str, ...] = () if flag.takes_value or flag.implied else ("true", "false")
    if isinstance(flag.type, OneOf):
        choices = flag.type.choices
    directive = _FILES if flag.metavar in ("FILE", "FOLDER") else _NO_FILES
    return [(prefix + choice, "") for choice in choices if choice.startswith(typed)], directive


def _arguments(
    root: click.Context, ctx: click.Context, rest: Sequence[str], typed: str
) -> tuple[list[tuple[str, str]], int]:
    command = ctx.command
    if command.name == "help":
        found, _rest, _given, _waiting = _walk(root, rest)
        command, ctx = found.command, found
    if isinstance(command, PflagGroup):
        names = [] if _unknown_command(ctx, rest) else [n for n in command.list_commands(ctx) if n.startswith(typed)]
        return [(name, command.short_text(name)) for name in names], _NO_FILES
    argument = next((param for param in command.params if isinstance(param, Arguments)), None)
    if argument is None or rest:
        return [], _NO_FILES
    choices = [(choice, "") for choice in argument.choices if choice.startswith(typed)]
    return choices, _FILES if argument.metavar == "FILE" else _NO_FILES


def _unknown_command(ctx: click.Context, rest: Sequence[str]) -> bool:
    if not rest or ctx.parent is not None or not isinstance(ctx.command, click.Group):
        return False
    return rest[0] not in ctx.command.list_commands(ctx)


def _candidates_of_both(ctx: click.Context, words: Sequence[str]) -> tuple[list[tuple[str, str]], int]:
    """Add what kubectl knows: commands beside our own, and everything behind one of its commands."""
    from svc.cli.compartments.kubectlcommand import ask_completion, passes

    root, environ = ctx.find_root(), ctx.obj.environ
    typed = words[-1] if words else ""
    for end in range(1, len(words)):
        below, rest, _given, _waiting = _walk(root, words[:end])
        # The first word that is no global flag and no value of one.
        if below is root and rest and passes(rest[0], environ):
            return ask_completion(words[end - 1 : -1], typed, environ)
    found, directive = candidates(root, words)
    at_root = _walk(root, words[:-1])
    if at_root[0] is root and at_root[3] is None and not at_root[1] and not typed.startswith("-"):
        more, _directive = ask_completion([], typed, environ)
        found = sorted({**dict(more), **dict(found)}.items())
    return found, directive


def _complete(ctx: click.Context, words: tuple[str, ...]) -> None:
    found, directive = _candidates_of_both(ctx, words)
    lines = [f"{value}\t{text}" if text else value for value, text in found]
    ctx.obj.console.write_text("\n".join([*lines, f":{directive}"]) + "\n")


def _script(ctx: click.Context, words: tuple[str, ...]) -> None:
    global_options(ctx)
    ctx.obj.console.write((FOLDER / "completion" / _SCRIPTS[words[0]]).read_bytes())


command = SvcCommand(
    "completion",
    params=[Arguments("words", "bash|zsh|fish", minimum=1, maximum=1, noun="shell", choices=tuple(_SCRIPTS))],
    callback=click.pass_context(_script),
    help="""
    Print a script that lets a shell complete the words of svc.

    bash: source <(svc completion bash). zsh: svc completion zsh > "${fpath[1]}/_svc". fish: svc completion fish >
    ~/.config/fish/completions/svc.fish.
    """,
    add_help_option=False,
)
complete_command = UnparsedCommand(
    "__complete", callback=click.pass_context(_complete), add_help_option=False, hidden=True
)
