"""
Arguments by the rules of pflag, on top of click.

Owns how words become flags and arguments: a boolean flag never takes the next word, nor does one whose value is
optional, ``--b=false`` and ``-b=false`` set it, ``-v -2``, ``-v=-2`` and ``-v-2`` are one thing, short flags combine
(``-is``), flags and arguments mix in any order, ``--`` ends the flags, no name is abbreviated, the last of several
values wins. On a group parsing stops at the name of the command.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import click

from svc.cli.errors import UsageRefused
from svc.cli.flags import Flag, help_suggestion, parse_bool, refused_value


class PflagParser:
    """
    Splits the words of one command into flags and arguments.

    Args:
        interspersed: False for a group: the first argument ends the parsing.
        hints: for flags of another program that users try here, by name.
    """

    #: Read by click after parsing.
    _opt_prefixes: Final = frozenset({"-", "--"})

    def __init__(
        self,
        flags: Iterable[Flag],
        argument: click.Argument | None = None,
        *,
        interspersed: bool = True,
        ctx: click.Context | None = None,
        hints: Mapping[str, str] | None = None,
    ) -> None:
        self._names: dict[str, Flag] = {name: flag for flag in flags for name in flag.opts}
        self._argument = argument
        self._interspersed = interspersed
        self._ctx = ctx
        self._hints = hints or {}

    def parse_args(self, args: Sequence[str]) -> tuple[Mapping[str, Any], list[str], list[click.Parameter]]:
        """
        Parse the words after a command's name; click's own parser has this method.

        Returns:
            The value of each flag by its name, the words left over (those of a group's command), and the flags in the
            order in which they came.
        """
        self._values: dict[str, Any] = {}
        self._order: list[click.Parameter] = []
        rest: list[str] = []
        pending = list(reversed(args))
        while pending:
            word = pending.pop()
            if word == "--":
                rest += reversed(pending)
                break
            if word.startswith("--"):
                self._long(word, pending)
            elif word.startswith("-") and len(word) > 1:
                self._short(word, pending)
            else:
                rest.append(word)
                if not self._interspersed:
                    rest += reversed(pending)
                    break
        if self._argument is not None:
            self._values[self._argument.name or ""] = tuple(rest)
            self._order.append(self._argument)
            rest = []
        return self._values, rest, self._order

    def _long(self, word: str, pending: list[str]) -> None:
        name, equals, value = word.partition("=")
        if len(name) == 2 or name[2] == "-":
            raise UsageRefused(f'bad flag syntax "{word}"', help_suggestion(self._ctx))
        flag = self._names.get(name)
        if flag is None:
            raise UsageRefused(f"unknown flag {name}", self._hint(name))
        if not flag.takes_value:
            self._set_alone(flag, value if equals else None)
        elif equals:
            self._set(flag, value)
        else:
            self._set(flag, self._next(flag, name, pending))

    def _short(self, word: str, pending: list[str]) -> None:
        letters = word[1:]
        while letters:
            letter, letters = letters[0], letters[1:]
            flag = self._names.get(f"-{letter}")
            if flag is None:
                where = "" if word == f"-{letter}" else f" in {word}"
                raise UsageRefused(f"unknown flag -{letter}{where}", self._hint(f"-{letter}"))
            if letters.startswith("=") and len(letters) > 1:
                value, letters = letters[1:], ""
                self._set(flag, value) if flag.takes_value else self._set_alone(flag, value)
            elif not flag.takes_value:
                self._set_alone(flag, None)
            elif letters:
                self._set(flag, letters)
                letters = ""
            else:
                self._set(flag, self._next(flag, f"-{letter}", pending))

    def _next(self, flag: Flag, name: str, pending: list[str]) -> str:
        if pending:
            return pending.pop()
        raise UsageRefused(f"flag {name} needs a value", f"expected: {name} {flag.metavar or 'VALUE'}{flag.advice}")

    def _set_alone(self, flag: Flag, text: str | None) -> None:
        """Set a flag that does not take the next word; ``text`` follows its ``=``, None without one."""
        if flag.implied:
            self._set(flag, flag.implied if text is None else text)
            return
        value = True if text is None else parse_bool(text)
        if value is None:
            raise refused_value(flag, text, "true or false")
        self._values[flag.name or ""] = value
        self._order.append(flag)

    def _set(self, flag: Flag, value: str) -> None:
        if flag.multiple:
            self._values.setdefault(flag.destination, []).append(flag.collected(value))
        else:
            self._values[flag.name or ""] = value
        self._order.append(flag)

    def _hint(self, name: str) -> str:
        if name in self._hints:
            return self._hints[name]
        longs = [known for known, flag in self._names.items() if known.startswith("--") and not flag.hidden]
        close = difflib.get_close_matches(name, longs, n=1)
        return f"did you mean {close[0]}" if close else help_suggestion(self._ctx)


class PflagCommand(click.Command):
    """A click command whose words are parsed by :class:`PflagParser`."""

    interspersed = True
    #: See :class:`PflagParser`.
    unknown_flag_hints: Mapping[str, str] = {}

    def make_parser(self, ctx: click.Context) -> Any:
        """Build the parser that click uses."""
        params = self.get_params(ctx)
        arguments = [param for param in params if isinstance(param, click.Argument)]
        flags = [param for param in params if isinstance(param, Flag)]
        argument = arguments[0] if arguments else None
        return PflagParser(flags, argument, interspersed=self.interspersed, ctx=ctx, hints=self.unknown_flag_hints)


class PflagGroup(PflagCommand, click.Group):
    """A click group whose own flags are parsed by :class:`PflagParser`."""

    interspersed = False

    def short_text(self, name: str) -> str:
        """The line of a command in the help of the group."""
        return self.commands[name].get_short_help_str(limit=100)
