"""The commands below ``svc federation``: their flags; what they do is in the modules beside this one."""

from __future__ import annotations

from typing import Any

import click

from svc.cli.errors import UsageRefused
from svc.cli.flags import Arguments, bool_flag, help_suggestion, value_flag
from svc.cli.globals import SvcCommand, SvcGroup, global_options, run_group


def _run_inspect(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    if not values["file"]:
        raise UsageRefused("flag --file is missing", help_suggestion(ctx))
    from svc.cli.federation.inspect import run_inspect

    return run_inspect(values["file"], values["full"], ctx.obj)


_inspect_package_command = SvcCommand(
    "bootstrap-package",
    params=[
        value_flag("-f --file", "FILE", "the bootstrap package; required"),
        bool_flag("--full", "certificates, long keys and signatures in full, which are elided otherwise"),
        Arguments("words", "", minimum=0, maximum=0, noun="arguments"),
    ],
    callback=click.pass_context(_run_inspect),
    short_help="print what is in a bootstrap package, and verify its signatures",
    help="""
    Print the content of a bootstrap package as YAML, its fingerprint in three spellings, and whether its signatures are
    valid. Only the file is read; no cluster and no network are needed.

    Valid signatures prove that the package was not changed since the holder of its keys signed it. Whose keys they are
    is proved by the fingerprint alone: compare it with what the administrator of the peer reads aloud.

    The exit status is 1 where a signature is not valid, or the file is no bootstrap package. A package that has expired
    is printed with its state, and the exit status is 0.
    """,
    epilog="""
Examples:
  svc federation inspect bootstrap-package -f partner.json
  svc federation inspect bootstrap-package -f partner.json --full
""",
    add_help_option=False,
)
_inspect_command = SvcGroup(
    "inspect",
    callback=click.pass_context(run_group),
    commands=[_inspect_package_command],
    invoke_without_command=True,
    short_help="look at what another trust domain has sent",
    help="""
    Look at what another trust domain has sent, before anything of it is trusted.
    """,
    add_help_option=False,
)
command = SvcGroup(
    "federation",
    callback=click.pass_context(run_group),
    commands=[_inspect_command],
    invoke_without_command=True,
    help="""
    Look at the signed packages by which trust domains get to know each other.
    """,
    add_help_option=False,
)
