"""The commands below ``svc broker``: the password file of ``svc-broker``."""

from __future__ import annotations

import getpass
import os
from typing import Final

import click

from svc.cli.errors import CliError, UsageRefused
from svc.cli.flags import Arguments, bool_flag
from svc.cli.globals import Invocation, SvcCommand, SvcGroup, global_options, run_group

#: Octets of a password, as many as CONNECT can hold.
MAX_PASSWORD: Final = 65_535


def _run_passwd(
    ctx: click.Context, words: tuple[str, ...], create: bool, delete: bool, stdin: bool, **_shared: object
) -> None:
    global_options(ctx)
    from svc.broker.passwordfile import PasswordFileError, PasswordHash, change_user, name_of_user_defect

    path, name = words
    if delete and (create or stdin):
        raise UsageRefused("--delete goes with no other flag", "it asks for no password")
    if defect := name_of_user_defect(name):
        raise PasswordFileError("password_user_invalid", defect=defect)
    if not create and not os.path.exists(path):
        raise PasswordFileError(path=path, detail="it does not exist")
    password = None if delete else PasswordHash.of(_read_password(ctx.obj, from_stdin=stdin))
    change_user(path, name, password, create=create)


def _read_password(invocation: Invocation, *, from_stdin: bool) -> bytes:
    stdin = invocation.stdin
    if from_stdin:
        read = b"" if stdin is None else stdin.read(MAX_PASSWORD + 2)
        password = read.removesuffix(b"\n")
        if b"\n" in password:
            raise CliError("password_unusable", defect="standard input has more than one line")
    elif stdin is None or not stdin.isatty():
        raise UsageRefused("there is no terminal to ask for the password", "--stdin reads it from standard input")
    else:
        password = os.fsencode(getpass.getpass("Password: "))
        if os.fsencode(getpass.getpass("Again: ")) != password:
            raise CliError("password_unusable", defect="the two are not the same")
    if not 0 < len(password) <= MAX_PASSWORD:
        raise CliError("password_unusable", defect=f"it has no octet, or more than {MAX_PASSWORD}")
    return password


_passwd_command = SvcCommand(
    "passwd",
    params=[
        bool_flag("--create", "create FILE, with mode 0600, where it does not exist"),
        bool_flag("--delete", "remove the user"),
        bool_flag("--stdin", "read the password from standard input, one line, instead of asking for it twice"),
        Arguments("words", "FILE USER", minimum=2, maximum=2, noun="FILE and USER"),
    ],
    callback=click.pass_context(_run_passwd),
    short_help="set the password of a user, or remove the user",
    help="""
    Set the password of a user in a password file, for listeners of svc-broker with passwords: true; a user who is not
    there is added. The file has a line for each user, with a scrypt hash of the password; it is replaced as a whole and
    keeps its owner and group, and its other lines.

    A running broker reads the file again on SIGHUP (systemctl reload svc-broker).
    """,
    epilog="""
Examples:
  svc broker passwd --create /etc/svc/broker-users thermometer-7
  svc broker passwd --stdin /etc/svc/broker-users thermometer-8 < secret
  svc broker passwd --delete /etc/svc/broker-users thermometer-7
""",
    add_help_option=False,
)
command = SvcGroup(
    "broker",
    callback=click.pass_context(run_group),
    commands=[_passwd_command],
    invoke_without_command=True,
    help="""
    Manage the users of svc-broker.
    """,
    add_help_option=False,
)
