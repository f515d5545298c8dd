"""
The flags that every command takes, before or after its name, and what they mean together.

Owns their rules: ``--debug`` and ``--log-devel`` are one switch and may not contradict each other, an explicit
``--verbose``, ``--log-format`` or ``--log-stacktrace`` wins over what development logging sets, the last of several
values wins, a flag wins over the environment.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any, BinaryIO, Final, NoReturn

import click

from svc import naming
from svc.cli.errors import UsageRefused
from svc.cli.flags import Flag, Integer, OneOf, bool_flag, parse_bool, value_flag
from svc.cli.helptext import render_help
from svc.cli.output import Console
from svc.cli.pflag import PflagCommand, PflagGroup

DEFAULT_VERBOSITY: Final = -2
_DEVELOPMENT_VERBOSITY: Final = 1
#: The words of ``--log-level`` and their verbosity.
_LEVELS: Final = {"error": -2, "warn": -1, "warning": -1, "info": 0, "debug": 1, "trace": 2}
#: Names the Workload API socket for other SPIFFE tools too; read when the flag is not given.
ENV_SPIFFE_SOCKET: Final = "SPIFFE_ENDPOINT_SOCKET"
#: The key of ``ctx.meta`` for the global flags that were given.
_GIVEN: Final = "svc.globals"


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """
    The values of the global flags.

    Args:
        verbosity: -2 errors, -1 warnings, 0 info, 1 debug, 2 and more trace of the protocol.
        log_format: ``text`` or ``json``.
        stack_traces: whether a failure in a log record, or an internal error, has its stack trace.
        spiffe_socket: the address of the Workload API.
        socket_given: whether a flag or the environment named that socket.
        error_traces: whether any error that ends the command is followed by its stack trace.
    """

    verbosity: int = DEFAULT_VERBOSITY
    log_format: str = "text"
    stack_traces: bool = False
    spiffe_socket: str = naming.DEFAULT_SPIFFE_SOCKET
    socket_given: bool = False
    error_traces: bool = False


@dataclass(frozen=True, slots=True)
class Invocation:
    """
    The streams and the environment of one run, ``ctx.obj`` of every command.

    Args:
        stdin: standard input; None where it is closed.
        run_exchange: replaces :func:`svc.cli.curl.network.run_on_network` in tests of ``svc curl``.
        now: the clock of commands that judge local files.
        execute: replaces the process by kubectl, as :func:`svc.cli.compartments.passthrough.execute`; None for that.
        refused: how that has failed already.
    """

    console: Console
    environ: Mapping[str, str]
    stdin: BinaryIO | None = None
    run_exchange: Callable[..., Any] | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    execute: Callable[[str, list[str], dict[str, str], bool], NoReturn] | None = None
    refused: BaseException | None = None


def _store_given(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value is not None:
        ctx.meta.setdefault(_GIVEN, {})[param.name] = value
    return value


def _print_help(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        invocation = ctx.find_object(Invocation)
        if invocation is not None:
            invocation.console.write_text(render_help(ctx, invocation.console.width))
        ctx.exit(0)


def _global(flag: Flag) -> Flag:
    flag.shared = True
    flag.callback = _store_given
    flag.expose_value = False
    return flag


GLOBAL_FLAGS: Final = tuple(
    _global(flag)
    for flag in (
        bool_flag("--debug", "development logging", default=None),
        bool_flag("--log-devel", "development logging: console output, debug level", default=None),
        value_flag(
            "--log-format", "string", 'log format: "text" or "json"', type=OneOf("text", "json"), shown_default="text"
        ),
        value_flag("--log-level", "string", "alias of --verbose by name", type=OneOf(*_LEVELS), hidden=True),
        bool_flag("--log-stacktrace", "stack traces in error logs", default=None),
        value_flag(
            "--spiffe-socket-path",
            "string",
            "SPIFFE Workload API socket (SPIFFE_ENDPOINT_SOCKET)",
            shown_default=naming.DEFAULT_SPIFFE_SOCKET,
        ),
        value_flag(
            "-v --verbose",
            "int",
            "higher is more verbose; the default shows errors only",
            type=Integer(),
            shown_default=str(DEFAULT_VERBOSITY),
            advice=", such as -v 1",
        ),
    )
)
HELP_FLAG: Final = bool_flag(
    "-h --help", "help for the command", is_eager=True, expose_value=False, callback=_print_help
)


class SvcCommand(PflagCommand):
    """A command of ``svc``: its own flags, ``--help`` and the global flags."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Add the shared flags to the command's own."""
        return [*self.params, HELP_FLAG, *GLOBAL_FLAGS]


class UnparsedCommand(SvcCommand):
    """A command that takes every word as it is, flags included."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        ctx.args = []
        return []


class SvcGroup(PflagGroup):
    """A command of ``svc`` that has commands below it."""

    def required_command(self, ctx: click.Context, name: str) -> click.Command:
        """The command below with this name; UsageRefused where there is none."""
        command = self.get_command(ctx, name)
        if command is None:
            known = self.list_commands(ctx)
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"did you mean {close[0]}? " if close else ""
            raise UsageRefused(f'unknown command "{name}"', f"{guess}the commands are {', '.join(known)}")
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str, click.Command, list[str]]:
        """Find the command that the words name."""
        return args[0], self.required_command(ctx, args[0]), args[1:]

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Add the shared flags to the command's own."""
        return [*self.params, HELP_FLAG, *GLOBAL_FLAGS]


def global_options(ctx: click.Context) -> GlobalOptions:
    """Resolve the global flags of a run, those before the command's name included."""
    invocation = ctx.find_object(Invocation)
    environ = invocation.environ if invocation is not None else {}
    return resolve_globals(ctx.meta.get(_GIVEN, {}), environ)


def run_group(ctx: click.Context) -> None:
    """The callback of a group: without a command of the group its help is printed."""
    if ctx.invoked_subcommand is None:
        global_options(ctx)
        ctx.obj.console.write_text(render_help(ctx, ctx.obj.console.width))


def resolve_globals(given: Mapping[str, Any], environ: Mapping[str, str]) -> GlobalOptions:
    """
    Resolve global flags.

    Args:
        given: the flags that were given, by name with underscores.

    Raises:
        UsageRefused: ``--debug`` and ``--log-devel``, or ``--verbose`` and ``--log-level``, contradict each other.
    """
    development = _development(given, environ)
    verbosity = _verbosity(given, _DEVELOPMENT_VERBOSITY if development else DEFAULT_VERBOSITY)
    socket = given.get("spiffe_socket_path") or environ.get(ENV_SPIFFE_SOCKET) or ""
    return GlobalOptions(
        verbosity=verbosity,
        log_format=given.get("log_format", "text"),
        stack_traces=given.get("log_stacktrace", development),
        error_traces=given.get("log_stacktrace", False),
        spiffe_socket=socket or naming.DEFAULT_SPIFFE_SOCKET,
        socket_given=bool(socket),
    )


def json_wanted(words: Sequence[str]) -> bool:
    """Whether words that are not parsed yet ask for ``--log-format json``; errors of parsing are written so too."""
    wanted = False
    for word, following in pairwise([*words, ""]):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name == "--log-format":
            wanted = (value if equals else following) == "json"
    return wanted


def _development(given: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    debug, devel = given.get("debug"), given.get("log_devel")
    if debug is not None and devel is not None and debug != devel:
        raise UsageRefused(
            f"--debug={str(debug).lower()} contradicts --log-devel={str(devel).lower()}",
            "both switch development logging; give one of them",
        )
    explicit = debug if debug is not None else devel
    return env_bool(environ, naming.ENV_DEBUG) if explicit is None else bool(explicit)


def _verbosity(given: Mapping[str, Any], otherwise: int) -> int:
    verbose, level = given.get("verbose"), given.get("log_level")
    if verbose is not None and level is not None and verbose != _LEVELS[level]:
        raise UsageRefused(
            f"--verbose={verbose} contradicts --log-level={level}", "both set the verbosity; give one of them"
        )
    if verbose is not None:
        return int(verbose)
    return _LEVELS[level] if level is not None else otherwise


def env_bool(environ: Mapping[str, str], name: str) -> bool:
    """Read a boolean environment variable; False where it is unset or empty."""
    text = environ.get(name, "")
    value = parse_bool(text) if text else False
    if value is None:
        raise UsageRefused(f'{name} is set to "{text}"', "expected: true or false")
    return value
