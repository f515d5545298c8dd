"""
Completion for shells: the scripts of ``svc completion`` and the answers of ``svc __complete``.

``__complete`` gets the words up to the cursor, the last of them unfinished, and prints one candidate a line as
``value<TAB>description`` and at the end ``:<directive>``, where 0 lets the shell complete file names and 4 does not:
the protocol of kubectl and other programs built on cobra.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import click

from svc.cli.errors import UsageRefused
from svc.cli.flags import Arguments, Flag, OneOf
from svc.cli.globals import SvcCommand, global_options
from svc.cli.pflag import PflagGroup

_FILES: Final = 0
_NO_FILES: Final = 4
SHELLS: Final = ("bash", "fish", "zsh")

_BASH: Final = r"""# bash completion for svc
__svc_complete() {
    local IFS=$'\n' line words=("${COMP_WORDS[@]:1:COMP_CWORD}") directive=4
    COMPREPLY=()
    # bash splits at "=" and ":"; the words are put together again.
    local joined=() word
    for word in "${words[@]}"; do
        if [[ ${#joined[@]} -gt 0 && ( $word == [=:]* || ${joined[${#joined[@]}-1]} == *[=:] ) ]]; then
            joined[${#joined[@]}-1]+=$word
        else
            joined+=("$word")
        fi
    done
    [[ ${#joined[@]} -gt 0 ]] || joined=("")
    local typed=${joined[${#joined[@]}-1]} current=${COMP_WORDS[COMP_CWORD]}
    for line in $("${COMP_WORDS[0]}" __complete "${joined[@]}" 2>/dev/null); do
        case $line in
            :*) directive=${line#:} ;;
            *) line=${line%%$'\t'*}; [[ $line == "$typed"* ]] && COMPREPLY+=("$line") ;;
        esac
    done
    # What is before the last split is not part of the word that bash replaces.
    local prefix=${typed%"${current#[=:]}"} i
    for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]#"$prefix"}; done
    if [[ ${#COMPREPLY[@]} -eq 0 && $directive -eq 0 ]]; then
        COMPREPLY=($(compgen -f -- "${current#[=:]}"))
        compopt -o filenames 2>/dev/null
    fi
}
complete -F __svc_complete svc
"""
_ZSH: Final = r"""#compdef svc
# zsh completion for svc
_svc() {
    local -a lines values shown
    local line directive=4
    lines=("${(@f)$("${words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    for line in "${lines[@]}"; do
        if [[ $line == :* ]]; then
            directive=${line#:}
        elif [[ -n $line ]]; then
            values+=("${line%%$'\t'*}")
            shown+=("${line/$'\t'/  -- }")
        fi
    done
    (( ${#values} )) && compadd -l -d shown -a values
    (( directive == 0 )) && _files
    return 0
}
if [[ $funcstack[1] == _svc ]]; then _svc "$@"; else compdef _svc svc; fi
"""
_FISH: Final = r"""# fish completion for svc
function __svc_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l directive 4
    for line in ($words[1] __complete $words[2..-1] 2>/dev/null)
        if string match -q -r '^:' -- $line
            set directive (string sub -s 2 -- $line)
        else
            echo $line
        end
    end
    if test "$directive" = 0
        __fish_complete_path (commandline -ct)
    end
end
complete -c svc -f -a '(__svc_complete)'
"""
_SCRIPTS: Final = {"bash": _BASH, "fish": _FISH, "zsh": _ZSH}


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
    choices: tuple[str, ...] = () if flag.takes_value else ("true", "false")
    if isinstance(flag.type, OneOf):
        choices = flag.type.choices
    directive = _FILES if flag.metavar == "FILE" else _NO_FILES
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
    if command.name == "completion" and not rest:
        return [(shell, "") for shell in SHELLS if shell.startswith(typed)], _NO_FILES
    argument = next((param for param in command.params if isinstance(param, Arguments)), None)
    files = argument is not None and argument.metavar == "FILE" and not rest
    return [], _FILES if files else _NO_FILES


def _unknown_command(ctx: click.Context, rest: Sequence[str]) -> bool:
    if not rest or ctx.parent is not None or not isinstance(ctx.command, click.Group):
        return False
    return rest[0] not in ctx.command.list_commands(ctx)


def _complete(ctx: click.Context, words: tuple[str, ...]) -> None:
    found, directive = candidates(ctx.find_root(), words)
    lines = [f"{value}\t{text}" if text else value for value, text in found]
    ctx.obj.console.write_text("\n".join([*lines, f":{directive}"]) + "\n")


def _script(ctx: click.Context, words: tuple[str, ...]) -> None:
    global_options(ctx)
    script = _SCRIPTS.get(words[0])
    if script is None:
        raise UsageRefused(f'there is no completion for "{words[0]}"', f"expected: one of {', '.join(SHELLS)}")
    ctx.obj.console.write_text(script)


class _UnparsedCommand(SvcCommand):
    """A command that takes every word as it is, flags included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        ctx.args = []
        return []


command = SvcCommand(
    "completion",
    params=[Arguments("words", "bash|zsh|fish", minimum=1, maximum=1, noun="shell")],
    callback=click.pass_context(_script),
    help="""
    Print a script that lets a shell complete the words of svc.

    bash: source <(svc completion bash). zsh: svc completion zsh > "${fpath[1]}/_svc". fish: svc completion fish >
    ~/.config/fish/completions/svc.fish.
    """,
    add_help_option=False,
)
complete_command = _UnparsedCommand(
    "__complete", callback=click.pass_context(_complete), add_help_option=False, hidden=True
)
