"""
The entry of the command line, and the only place that decides how it exits.

Owns the mapping from what happened to exit status and lines on standard error; knows no command.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import click

from svc.cli.errors import CliError, CommandFailed, Interrupted, OutputClosed, OutputFailed, UsageRefused
from svc.cli.globals import Invocation, global_options
from svc.cli.output import Console
from svc.cli.root import make_root
from svc.errors import SvcError


class InternalError(CliError):
    """internal error: {kind}: {detail}"""

    reason = "internal_error"
    hint = "this is a mistake in svc; --log-stacktrace shows where"


def main(
    argv: Sequence[str] | None = None,
    stdout: BinaryIO | None = None,
    stderr: BinaryIO | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    invocation: Invocation | None = None,
) -> int:
    """
    Run one command.

    Args:
        argv: the words after ``svc``; those of the process by default.
        stdout: where data goes; that of the process by default.
        stderr: where lines for people go; that of the process by default.
        environ: the environment; that of the process by default.
        invocation: surroundings built by a test, in place of the three before it.

    Returns:
        The exit status: 0 for success, 1 for any error, other values only where ``svc curl`` was asked for them.
    """
    if invocation is None:
        surroundings = os.environ if environ is None else environ
        console = Console(
            sys.stdout.buffer if stdout is None else stdout,
            sys.stderr.buffer if stderr is None else stderr,
            surroundings,
        )
        invocation = Invocation(console, surroundings)
        if not sys.warnoptions:
            # What a library finds odd about a certificate is no line for the person who runs a command.
            warnings.simplefilter("ignore")
    console = invocation.console
    words = list(sys.argv[1:] if argv is None else argv)
    seen: list[click.Context] = []
    try:
        status = _run(words, invocation, seen)
        console.flush()
    except BaseException as error:  # every failure ends as a line and a status, here alone
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        return _failed(error, console, seen)
    return status


def _run(words: list[str], invocation: Invocation, seen: list[click.Context]) -> int:
    root = make_root()
    try:
        with root.make_context("svc", words, obj=invocation) as ctx:
            seen.append(ctx)
            result = root.invoke(ctx)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    return result if isinstance(result, int) else 0


def _failed(caught: BaseException, console: Console, seen: list[click.Context]) -> int:
    error, status = caught, 1
    remarks: tuple[str, ...] = ()
    if isinstance(caught, CommandFailed):
        error, status, remarks = caught.error, caught.status, caught.remarks
    shown = _as_svc_error(error)
    if isinstance(shown, OutputClosed | OutputFailed):
        console.abandon_stdout()
    console.fail(shown, "" if isinstance(shown, UsageRefused | Interrupted) else detail_reason(shown))
    for remark in remarks:
        console.tell(f"     {remark}")
    if _stack_traces_wanted(seen):
        console.tell("".join(traceback.format_exception(error)).rstrip("\n"))
    return status


def _as_svc_error(error: BaseException) -> SvcError:
    if isinstance(error, SvcError):
        return error
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return Interrupted()
    if isinstance(error, click.ClickException):
        message = error.format_message().rstrip(".")
        return UsageRefused(message[:1].lower() + message[1:])
    return InternalError(kind=type(error).__name__, detail=error)


def detail_reason(error: SvcError) -> str:
    """
    Give the precise reason of an error.

    Args:
        error: any of ours.

    Returns:
        Its reason, with what it names in braces where the class has more to say.
    """
    detail = getattr(error, "detail_reason", error.reason)
    return detail if isinstance(detail, str) else error.reason


def _stack_traces_wanted(seen: list[click.Context]) -> bool:
    if not seen:
        return False
    try:
        return global_options(seen[0]).stack_traces
    except UsageRefused:  # the very error that is being reported
        return False


if __name__ == "__main__":
    sys.exit(main())
