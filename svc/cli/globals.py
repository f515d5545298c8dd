"""
The flags that every command takes, before or after its name, and what they mean together.

Owns their rules: ``--debug`` and ``--log-devel`` are one thing and may not contradict each other, an explicit
``--verbose``, ``--log-format`` or ``--log-stacktrace`` wins over what development logging sets, the last of several
values wins, a flag wins over the environment. Knows nothing of how records are written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from svc import naming
from svc.cli.errors import UsageRefused
from svc.cli.flags import Flag, Integer, OneOf, bool_flag, parse_bool, value_flag
from svc.cli.helptext import render_help
from svc.cli.output import Console
from svc.cli.pflag import PflagCommand, PflagGroup

if TYPE_CHECKING:
    from svc.cli.exchange.engine import Engine

DEFAULT_VERBOSITY: Final = -2
_DEVELOPMENT_VERBOSITY: Final = 1
#: The words of ``--log-level`` and their verbosity.
_LEVELS: Final = {"error": -2, "warn": -1, "warning": -1, "info": 0, "debug": 1, "trace": 2}
#: Where the Workload API is, as other SPIFFE tools name it; read when the flag is not given.
ENV_SPIFFE_SOCKET: Final = "SPIFFE_ENDPOINT_SOCKET"
_GIVEN: Final = "svc.globals"


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """
    What the global flags come to.

    Args:
        verbosity: -2 errors, -1 warnings, 0 info, 1 debug, 2 and more trace of the protocol.
        log_format: ``text`` or ``json``.
        stack_traces: whether an error is followed by its stack trace.
        spiffe_socket: where the Workload API is.
        socket_given: whether a person or the environment named that socket.
    """

    verbosity: int = DEFAULT_VERBOSITY
    log_format: str = "text"
    stack_traces: bool = False
    spiffe_socket: str = naming.DEFAULT_SPIFFE_SOCKET
    socket_given: bool = False


@dataclass(frozen=True, slots=True)
class Invocation:
    """
    The surroundings of one run, given to every command as ``ctx.obj``.

    Args:
        console: the standard streams.
        environ: the environment.
        engine: runs exchanges; the reactor does where None is given.
    """

    console: Console
    environ: Mapping[str, str]
    engine: Engine | None = None


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    if value is not None:
        ctx.meta.setdefault(_GIVEN, {})[param.name] = value
    return value


def _shown_help(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        invocation = ctx.find_object(Invocation)
        if invocation is not None:
            invocation.console.write_text(render_help(ctx, invocation.console.width))
        ctx.exit(0)


def _global(flag: Flag, shown_default: str = "") -> Flag:
    flag.shared = True
    flag.shown_default = shown_default
    flag.callback = _remember
    flag.expose_value = False
    return flag


GLOBAL_FLAGS: Final[tuple[Flag, ...]] = (
    _global(bool_flag("--debug", "development logging", default=None)),
    _global(bool_flag("--log-devel", "development logging: console output, debug level", default=None)),
    _global(value_flag("--log-format", "string", 'log format: "text" or "json"', type=OneOf("text", "json")), "text"),
    _global(value_flag("--log-level", "string", "alias of --verbose by name", type=OneOf(*_LEVELS), hidden=True)),
    _global(bool_flag("--log-stacktrace", "stack traces in error logs", default=None)),
    _global(
        value_flag("--spiffe-socket-path", "string", "SPIFFE Workload API socket (SPIFFE_ENDPOINT_SOCKET)"),
        naming.DEFAULT_SPIFFE_SOCKET,
    ),
    _global(
        value_flag("-v --verbose", "int", "higher is more verbose; the default shows errors only", type=Integer()),
        str(DEFAULT_VERBOSITY),
    ),
)


def _help_flag() -> Flag:
    flag = bool_flag("-h --help", "help for the command", is_eager=True, expose_value=False)
    flag.callback = _shown_help
    return flag


HELP_FLAG: Final = _help_flag()


class SvcCommand(PflagCommand):
    """A command of ``svc``: its own flags, ``--help`` and the global flags."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Add the shared flags to the command's own."""
        return [*self.params, HELP_FLAG, *GLOBAL_FLAGS]


class SvcGroup(PflagGroup):
    """A command of ``svc`` that has commands below it."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Add the shared flags to the command's own."""
        return [*self.params, HELP_FLAG, *GLOBAL_FLAGS]


def global_options(ctx: click.Context) -> GlobalOptions:
    """
    Resolve the global flags of a run.

    Args:
        ctx: the command that runs; flags given before its name count too.

    Returns:
        The options.

    Raises:
        UsageRefused: ``--debug`` and ``--log-devel``, or ``--verbose`` and ``--log-level``, contradict each other.
    """
    invocation = ctx.find_object(Invocation)
    environ = invocation.environ if invocation is not None else {}
    return resolve_globals(ctx.meta.get(_GIVEN, {}), environ)


def resolve_globals(given: Mapping[str, Any], environ: Mapping[str, str]) -> GlobalOptions:
    """
    Say what a set of global flags means.

    Args:
        given: the flags that were given, by name with underscores.
        environ: the environment.

    Returns:
        The options.

    Raises:
        UsageRefused: see :func:`global_options`.
    """
    development = _development(given, environ)
    verbosity = _verbosity(given, _DEVELOPMENT_VERBOSITY if development else DEFAULT_VERBOSITY)
    socket = given.get("spiffe_socket_path") or environ.get(ENV_SPIFFE_SOCKET) or ""
    return GlobalOptions(
        verbosity=verbosity,
        log_format=given.get("log_format", "text"),
        stack_traces=given.get("log_stacktrace", development),
        spiffe_socket=socket or naming.DEFAULT_SPIFFE_SOCKET,
        socket_given=bool(socket),
    )


def _development(given: Mapping[str, Any], environ: Mapping[str, str]) -> bool:
    debug, devel = given.get("debug"), given.get("log_devel")
    if debug is not None and devel is not None and debug != devel:
        raise UsageRefused(
            f"--debug={_word(debug)} contradicts --log-devel={_word(devel)}",
            "both switch development logging; give one of them",
        )
    explicit = debug if debug is not None else devel
    if explicit is not None:
        return bool(explicit)
    return env_bool(environ, naming.ENV_DEBUG)


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
    """
    Read a switch from the environment.

    Args:
        environ: the environment.
        name: the variable.

    Returns:
        Its value; False where it is unset or empty.

    Raises:
        UsageRefused: it is set to something that is neither true nor false.
    """
    text = environ.get(name, "")
    value = parse_bool(text) if text else False
    if value is None:
        raise UsageRefused(f'{name} is set to "{text}"', "expected: true or false")
    return value


def _word(value: bool) -> str:
    return "true" if value else "false"
