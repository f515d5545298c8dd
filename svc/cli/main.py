"""
The command line behind :mod:`svc.cli.entry`, and the only place that decides how it exits.

Owns the mapping from an outcome to an exit status and lines on standard error.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import BinaryIO

import click

from svc.cli.errors import CommandFailed, InternalError, Interrupted, OutputFailed, UsageRefused
from svc.cli.globals import Invocation, global_options, json_wanted
from svc.cli.output import Console, standard_streams
from svc.cli.root import make_root
from svc.client.errors import RequestInvalid
from svc.errors import SvcError


def main(
    argv: Sequence[str] | None = None,
    stdout: BinaryIO | None = None,
    stderr: BinaryIO | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    invocation: Invocation | None = None,
    refused: BaseException | None = None,
) -> int:
    """
    Run one command with the words after ``svc``; what is not given is taken from the process.

    Args:
        invocation: made by a test, in place of the streams and the environment.
        refused: how the command of kubectl that the words are has failed already.

    Returns:
        The exit status: 0 for success, 1 for any error, other values only where ``svc curl`` was asked for them.
    """
    invocation = invocation or _process_invocation(stdout, stderr, environ, refused)
    console = invocation.console
    words = list(sys.argv[1:] if argv is None else argv)
    console.json = json_wanted(words)
    contexts: list[click.Context] = []
    try:
        status = _run(words, invocation, contexts)
        console.flush()
    except BaseException as error:  # every failure is reported here, as a line and an exit status
        if isinstance(error, SystemExit | GeneratorExit):
            raise
        return _report_failure(error, console, contexts)
    return status


def _process_invocation(
    stdout: BinaryIO | None,
    stderr: BinaryIO | None,
    environ: Mapping[str, str] | None,
    refused: BaseException | None,
) -> Invocation:
    environ = os.environ if environ is None else environ
    process_stdout, process_stderr = standard_streams()
    console = Console(stdout or process_stdout, stderr or process_stderr, environ)
    if not sys.warnoptions:
        # Warnings of libraries about certificates are not meant for the user of a command.
        warnings.simplefilter("ignore")
    return Invocation(console, environ, None if sys.stdin is None else sys.stdin.buffer, refused=refused)


def _run(words: list[str], invocation: Invocation, contexts: list[click.Context]) -> int:
    root = make_root()
    try:
        with root.make_context("svc", words, obj=invocation) as ctx:
            contexts.append(ctx)
            result = root.invoke(ctx)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    return result if isinstance(result, int) else 0


def _report_failure(caught: BaseException, console: Console, contexts: list[click.Context]) -> int:
    error, status = caught, 1
    remarks: tuple[str, ...] = ()
    if isinstance(caught, CommandFailed):
        error, status, remarks = caught.error, caught.status, caught.remarks
    shown = _as_svc_error(error)
    if isinstance(shown, OutputFailed):
        console.discard_stdout()
    reason = "" if isinstance(shown, UsageRefused | RequestInvalid | Interrupted) else shown_reason(shown)
    console.fail(shown, reason, remarks, traced=error if _stack_trace_wanted(contexts, shown) else None)
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


def shown_reason(error: SvcError) -> str:
    """The precise reason of an error, such as ``fetch_failed{404}``, where the error has one."""
    detail = getattr(error, "detail_reason", error.reason)
    return detail if isinstance(detail, str) else error.reason


def _stack_trace_wanted(contexts: list[click.Context], error: SvcError) -> bool:
    if not contexts:
        return False
    try:
        options = global_options(contexts[0])
    except UsageRefused:  # the error that is being reported
        return False
    return options.error_traces or (options.stack_traces and isinstance(error, InternalError))


if __name__ == "__main__":
    sys.exit(main())
