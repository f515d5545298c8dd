"""
Flags and arguments as values: what each is called, whether it takes a value, and which values it accepts.

Owns the kinds of flags and the sentence for a value that is refused. How words become flags is :mod:`svc.cli.pflag`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from svc.cli.errors import UsageRefused
from svc.errors import SvcError

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
