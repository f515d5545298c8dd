"""
Kinds of flags and arguments: whether they take a value, which values they accept, and the sentence for a refused one.

How words become flags is :mod:`svc.cli.pflag`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import click

from svc.cli.errors import UsageRefused
from svc.errors import SvcError

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def parse_bool(text: str) -> bool | None:
    """Read a boolean as Go's ``strconv.ParseBool`` does; None where the text is neither true nor false."""
    return True if text in _TRUE else False if text in _FALSE else None


class Flag(click.Option):
    """A flag; ``metavar`` is the word that stands for its value in the help text."""

    #: Whether every command takes the flag.
    shared = False
    #: The default that the help text names where click has none.
    shown_default = ""
    #: The end of the hint where the value is missing or refused.
    advice = ""
    #: The value without ``=`` of a flag whose value is optional; empty for every other flag.
    implied = ""

    @property
    def destination(self) -> str:
        """The name under which the values of a repeatable flag are collected."""
        return self.name or ""

    def collected(self, value: str) -> object:
        """What is collected for a value."""
        return value

    @property
    def takes_value(self) -> bool:
        """Whether the next word belongs to the flag when no ``=`` follows it."""
        return not self.is_flag and not self.implied

    @property
    def long_name(self) -> str:
        """The name with two dashes."""
        return next(name for name in self.opts if name.startswith("--"))


class DataPiece(NamedTuple):
    """One value of a :class:`DataFlag`: the long name of the flag, and what was typed."""

    flag: str
    text: str


class DataFlag(Flag):
    """A flag that adds to the body of a request; the parameter ``data`` gets the pieces of all such flags, in order."""

    @property
    def destination(self) -> str:
        """All of these flags collect in one list, which keeps their order."""
        return "data"

    def collected(self, value: str) -> DataPiece:
        """The value with the name of its flag."""
        return DataPiece(self.long_name, value)


def bool_flag(names: str, help: str, *, default: bool | None = False, **more: Any) -> Flag:  # noqa: A002 - click's word
    """
    Declare a boolean flag.

    Args:
        names: separated by blanks, as ``-i --show-headers``.
        default: None where an absent flag differs from a false one.
        more: what :class:`click.Option` accepts.
    """
    return Flag(names.split(), is_flag=True, default=default, help=help, **more)


def value_flag(
    names: str,
    metavar: str,
    help: str,  # noqa: A002 - click's word
    *,
    shown_default: str = "",
    advice: str = "",
    implied: str = "",
    **more: Any,
) -> Flag:
    """
    Declare a flag with a value.

    Args:
        implied: the value that the flag has without ``=``, and then it never takes the next word.
        more: what :class:`click.Option` accepts; ``multiple=True`` makes the flag repeatable.
    """
    flag = Flag(names.split(), metavar=metavar, help=help, **more)
    flag.shown_default, flag.advice, flag.implied = shown_default, advice, implied
    return flag


class Arguments(click.Argument):
    """The positional arguments of a command; click's own messages for a wrong count or word are replaced."""

    def __init__(
        self,
        name: str,
        metavar: str,
        *,
        minimum: int,
        maximum: int | None,
        noun: str,
        choices: tuple[str, ...] = (),
    ) -> None:
        super().__init__([name], nargs=-1, metavar=metavar, callback=self._counted)
        self.minimum = minimum
        self.maximum = maximum
        self.noun = noun
        #: The words that are accepted; empty for any.
        self.choices = choices

    def _counted(self, ctx: click.Context, _param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
        count, maximum = len(words), self.maximum
        if self.minimum <= count and (maximum is None or count <= maximum):
            for word in words:
                if self.choices and word not in self.choices:
                    problem = f'{ctx.command.name} takes no {self.noun} "{word}"'
                    raise UsageRefused(problem, f"expected: one of {', '.join(self.choices)}")
            return words
        given = "none was given" if count == 0 else "1 was given" if count == 1 else f"{count} were given"
        wanted = f"exactly one {self.noun}" if self.minimum == maximum == 1 else f"no {self.noun}"
        if maximum == self.minimum and self.minimum > 1:
            wanted = self.noun
        if maximum != self.minimum:
            wanted = f"at most {maximum} {self.noun}" if maximum is not None else f"at least one {self.noun}"
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
    """The error for a value that a flag does not accept."""
    name = param.long_name if isinstance(param, Flag) else getattr(param, "name", "value")
    return UsageRefused(f'{name} does not accept "{value}"', f"expected: {expected}{getattr(param, 'advice', '')}")


def help_suggestion(ctx: click.Context | None) -> str:
    """The hint that names the help of a command."""
    return f'"{ctx.command_path if ctx else "svc"} --help" shows what is accepted'


PROFILE_FLAG: Final = value_flag(
    "--profile",
    "string",
    "signatures demanded: hybrid, pq, classical or cnsa2 (SVC_PROFILE)",
    type=OneOf("hybrid", "pq", "classical", "cnsa2"),
    shown_default="hybrid",
)
ISSUER_FLAG: Final = value_flag(
    "--issuer", "SPIFFE-ID", "central issuer of statements; repeatable (SVC_ISSUERS)", multiple=True
)
