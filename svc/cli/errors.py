"""
The errors that belong to the command line itself.

Owns what is wrong with arguments, with the standard streams and with local files; what goes wrong on the network stands
in :mod:`svc.cli.exchange.errors`, and what a verification refuses in the packages that verify.
"""

from __future__ import annotations

from svc.errors import SvcError


class CliError(SvcError):
    """the command failed"""

    reason = "failed"


class UsageRefused(CliError):
    """{problem}"""

    reason = "usage"
    hint = "{suggestion}"
    problem: str
    suggestion: str

    def __init__(self, problem: str, suggestion: str = "") -> None:
        super().__init__(problem=problem, suggestion=suggestion)


class OutputClosed(CliError):
    """standard output was closed before everything was written"""

    reason = "output_closed"


class OutputFailed(CliError):
    """standard output cannot be written: {detail}"""

    reason = "output_failed"


class FileUnreadable(CliError):
    """{path} cannot be read: {detail}"""

    reason = "file_unreadable"
    hint = "check the path and its permissions"


class FileNotWritten(CliError):
    """{path} cannot be written: {detail}"""

    reason = "file_not_written"
    hint = "choose another path"


class CommandFailed(Exception):
    """
    Carries an error to the one place that prints errors, with what belongs to it.

    Args:
        error: what went wrong.
        status: what the process exits with.
        remarks: further lines for people, below the hint.
    """

    def __init__(self, error: SvcError, status: int = 1, remarks: tuple[str, ...] = ()) -> None:
        super().__init__(error)
        self.error = error
        self.status = status
        self.remarks = remarks


class Interrupted(CliError):
    """interrupted"""

    reason = "interrupted"
