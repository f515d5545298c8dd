"""
Arguments by the rules of pflag, on top of click.

Owns how words become flags and arguments: a boolean flag never takes the next word, ``--b=false`` and ``-b=false`` set
it, ``-v -2``, ``-v=-2`` and ``-v-2`` are one thing, short flags combine (``-is``), flags and arguments mix in any
order, ``--`` ends the flags, no name is abbreviated, the last of several values wins. On a group parsing stops at the
name of the command. Knows no flag of the product.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import click

from svc.cli.errors import UsageRefused

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse_bool(text: str) -> bool | None:
    """
    Read a boolean as Go's ``strconv.ParseBool`` does.

    Args:
        text: the value.

    Returns:
        The value, or None where the text is neither true nor false.
    """
    return True if text in _TRUE else False if text in _FALSE else None


class Flag(click.Option):
    """
    A flag; ``metavar`` is the word that stands for its value in the help text.

    ``shared`` marks the flags that every command takes, and ``shown_default`` is the default that the help text names
    where click does not know it.
    """

    shared = False
    shown_default = ""

    @property
    def takes_value(self) -> bool:
        """Whether the next word belongs to the flag when no ``=`` follows it."""
        return not self.is_flag

    @property
    def long_name(self) -> str:
        """The name with two dashes."""
        return next(name for name in self.opts if name.startswith("--"))


def bool_flag(names: str, help: str, *, default: bool | None = False, **more: Any) -> Flag:  # noqa: A002 - click's word
    """
    Declare a boolean flag.

    Args:
        names: its names, separated by blanks, as ``-i --show-headers``.
        help: one line.
        default: the value without the flag; None where nobody set it must be told apart.
        more: what :class:`click.Option` accepts.

    Returns:
        The flag.
    """
    return Flag(names.split(), is_flag=True, default=default, help=help, **more)


def value_flag(names: str, metavar: str, help: str, **more: Any) -> Flag:  # noqa: A002 - click's word
    """
    Declare a flag with a value.

    Args:
        names: its names, separated by blanks.
        metavar: the word for the value in the help text.
        help: one line.
        more: what :class:`click.Option` accepts; ``multiple=True`` makes it repeatable.

    Returns:
        The flag.
    """
    return Flag(names.split(), metavar=metavar, help=help, **more)


class Words(click.Argument):
    """The arguments of a command: as many words as it accepts, counted with a sentence of ours."""

    def __init__(self, name: str, metavar: str, *, least: int, most: int | None, noun: str) -> None:
        super().__init__([name], nargs=-1, metavar=metavar, callback=self._counted)
        self.least = least
        self.most = most
        self.noun = noun

    def _counted(self, ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
        count = len(words)
        if self.least <= count and (self.most is None or count <= self.most):
            return words
        given = "none was given" if count == 0 else "1 was given" if count == 1 else f"{count} were given"
        wanted = f"exactly one {self.noun}" if self.least == self.most == 1 else f"no {self.noun}"
        if self.most != self.least:
            wanted = f"at most {self.most} {self.noun}" if self.most is not None else f"at least one {self.noun}"
        raise UsageRefused(f"{ctx.command.name} takes {wanted}, {given}", help_suggestion(ctx))


class OneOf(click.ParamType[Any]):
    """A value out of a fixed set, spelled exactly."""

    name = "choice"

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in self.choices:
            return value
        raise refused_value(param, value, f"one of {', '.join(self.choices)}")


class Integer(click.ParamType[Any]):
    """A whole number of 64 bits, in decimal."""

    name = "int"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        text = str(value)
        digits = text[1:] if text[:1] in ("-", "+") else text
        if digits.isascii() and digits.isdigit() and len(digits) <= 19 and -(2**63) <= int(text) < 2**63:
            return int(text)
        raise refused_value(param, value, "a whole number")


class Parsed(click.ParamType[Any]):
    """A value that another module parses; that module is imported only when the flag is given."""

    name = "parsed"

    def __init__(self, parse: Callable[[str], object], expected: str) -> None:
        self.parse = parse
        self.expected = expected

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from svc.errors import SvcError

        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except (SvcError, ValueError) as error:
            raise refused_value(param, value, self.expected) from error


def refused_value(param: click.Parameter | None, value: object, expected: str) -> UsageRefused:
    """
    Name a value that a flag does not accept.

    Args:
        param: the flag.
        value: what was given.
        expected: what would have been accepted.

    Returns:
        The error to raise.
    """
    name = param.long_name if isinstance(param, Flag) else getattr(param, "name", "value")
    return UsageRefused(f'{name} does not accept "{value}"', f"expected: {expected}")


def help_suggestion(ctx: click.Context | None) -> str:
    """
    Say where the help is.

    Args:
        ctx: the command that was being parsed.

    Returns:
        A hint.
    """
    return f'"{ctx.command_path if ctx else "svc"} --help" shows what is accepted'


class PflagParser:
    """
    Splits the words of one command into flags and arguments.

    Args:
        flags: every flag of the command.
        argument: the positional parameter, if the command has one.
        interspersed: False for a group: the first argument ends the parsing.
        ctx: the command, for hints.
    """

    #: click asks for it after parsing.
    _opt_prefixes: Final = frozenset({"-", "--"})

    def __init__(
        self,
        flags: Iterable[Flag],
        argument: click.Argument | None = None,
        *,
        interspersed: bool = True,
        ctx: click.Context | None = None,
    ) -> None:
        self._names: dict[str, Flag] = {name: flag for flag in flags for name in flag.opts}
        self._argument = argument
        self._interspersed = interspersed
        self._ctx = ctx

    def parse_args(self, args: Sequence[str]) -> tuple[Mapping[str, Any], list[str], list[click.Parameter]]:
        """
        Parse the words of a command.

        Args:
            args: the words after the command's name.

        Returns:
            The value of each flag by its name, the words left over (those of a group's command), and the order in which
            the flags came.

        Raises:
            UsageRefused: an unknown flag, a flag without its value, a value that is not boolean, bad syntax.
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
            raise UsageRefused(f"unknown flag {name}", self._nearest(name))
        if not flag.takes_value:
            self._set_bool(flag, value if equals else "true")
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
                raise UsageRefused(f"unknown flag -{letter}{where}", help_suggestion(self._ctx))
            if letters.startswith("=") and len(letters) > 1:
                value, letters = letters[1:], ""
                self._set(flag, value) if flag.takes_value else self._set_bool(flag, value)
            elif not flag.takes_value:
                self._set_bool(flag, "true")
            elif letters:
                self._set(flag, letters)
                letters = ""
            else:
                self._set(flag, self._next(flag, f"-{letter}", pending))

    def _next(self, flag: Flag, name: str, pending: list[str]) -> str:
        if pending:
            return pending.pop()
        raise UsageRefused(f"flag {name} needs a value", f"expected: {name} {flag.metavar or 'VALUE'}")

    def _set_bool(self, flag: Flag, text: str) -> None:
        value = parse_bool(text)
        if value is None:
            raise refused_value(flag, text, "true or false")
        self._values[flag.name or ""] = value
        self._order.append(flag)

    def _set(self, flag: Flag, value: str) -> None:
        if flag.multiple:
            self._values.setdefault(flag.name or "", []).append(value)
        else:
            self._values[flag.name or ""] = value
        self._order.append(flag)

    def _nearest(self, name: str) -> str:
        longs = [known for known, flag in self._names.items() if known.startswith("--") and not flag.hidden]
        close = difflib.get_close_matches(name, longs, n=1)
        return f"did you mean {close[0]}" if close else help_suggestion(self._ctx)


class PflagCommand(click.Command):
    """A click command whose words are parsed by :class:`PflagParser`."""

    interspersed = True

    def make_parser(self, ctx: click.Context) -> Any:
        """Build the parser that click uses."""
        params = self.get_params(ctx)
        arguments = [param for param in params if isinstance(param, click.Argument)]
        flags = [param for param in params if isinstance(param, Flag)]
        return PflagParser(flags, arguments[0] if arguments else None, interspersed=self.interspersed, ctx=ctx)


class PflagGroup(PflagCommand, click.Group):
    """A click group whose own flags are parsed by :class:`PflagParser`."""

    interspersed = False

    def short_text(self, name: str) -> str:
        """
        Give the line of a command in the help of the group.

        Args:
            name: the command.

        Returns:
            One line.
        """
        command = self.commands[name]
        return command.get_short_help_str(limit=100)
