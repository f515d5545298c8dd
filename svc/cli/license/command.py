"""The commands below ``svc license``: their flags; what they do is in the modules beside this one."""

from __future__ import annotations

from typing import Any

import click

from svc import naming
from svc.cli.cluster import CLUSTER_FLAGS, CLUSTER_HELP
from svc.cli.flags import Arguments, OneOf, bool_flag, value_flag
from svc.cli.globals import SvcCommand, SvcGroup, global_options, run_group

_OUTPUT = value_flag(
    "-o --output",
    "string",
    "text, or json or yaml for one document",
    type=OneOf("text", "json", "yaml"),
    default="text",
)


def _run_info(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    from svc.cli.license.info import run_info

    return run_info(words[0], values["output"], ctx.obj)


def _run_install(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    from svc.cli.license.install import run_install

    named = (values["kubeconfig"], values["context"])
    return run_install(words[0], values["namespace"], values["dry_run"], named, ctx.obj)


def _run_status(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    global_options(ctx)
    from svc.cli.license.status import run_status

    return run_status(values["output"], (values["kubeconfig"], values["context"]), ctx.obj)


_info_command = SvcCommand(
    "info",
    params=[_OUTPUT, Arguments("words", "FILE", minimum=1, maximum=1, noun="FILE")],
    callback=click.pass_context(_run_info),
    short_help="verify a license file and print what it says",
    help="""
    Verify the signatures of a license file by the vendor's keys that are part of svc, and print what it says and in
    which state it is now. No cluster and no network are needed. What a mail program did to the file is undone.

    A license that is not signed by the vendor, or was changed, is printed as far as it can be read, marked UNVERIFIED,
    and the exit status is 1. One that has ended is printed with its state, and the exit status is 0.
    """,
    epilog="""
Examples:
  svc license info acme.license
  svc license info -o json acme.license | jq -r .state
""",
    add_help_option=False,
)
_install_command = SvcCommand(
    "install",
    params=[
        *CLUSTER_FLAGS,
        bool_flag("-n --dry-run", "print the Secret as YAML, and make nothing"),
        value_flag("--namespace", "string", "where the Secret is made", default=naming.DEFAULT_NAMESPACE),
        Arguments("words", "FILE", minimum=1, maximum=1, noun="FILE"),
    ],
    callback=click.pass_context(_run_install),
    short_help="make a license known to a cluster",
    help=f"""
    Verify a license file as "svc license info" does, and make a Secret of it, which the manager of the cluster finds.
    The same license again is no change. Other licenses stay: the one in the best state counts.
{CLUSTER_HELP}
    --dry-run needs no cluster: what it prints is for "kubectl apply".
    """,
    epilog="""
Examples:
  svc license install acme.license
  svc license install -K prod.kubeconfig --context prod acme.license
  svc license install --dry-run acme.license | kubectl apply -f -
""",
    add_help_option=False,
)
_status_command = SvcCommand(
    "status",
    params=[
        *CLUSTER_FLAGS,
        value_flag(
            "-o --output",
            "string",
            "table, or json or yaml for one document",
            type=OneOf("table", "json", "yaml"),
            default="table",
        ),
        Arguments("words", "", minimum=0, maximum=0, noun="arguments"),
    ],
    callback=click.pass_context(_run_status),
    short_help="print the state of the licenses of a cluster",
    help=f"""
    Print what the manager of a cluster says about its licenses: the state, the license that counts, what is in use of
    its limits, and all licenses that were found. It is the status of the object SvcLicenseStatus.

    The exit status is 0 whatever the state is. It is 1 where there is no status, and where it is printed but cannot be
    relied on, since no manager runs or it does not write.
{CLUSTER_HELP}    """,
    epilog="""
Examples:
  svc license status
  svc license status -o json | jq -r .status.state
""",
    add_help_option=False,
)
command = SvcGroup(
    "license",
    callback=click.pass_context(run_group),
    commands=[_info_command, _install_command, _status_command],
    invoke_without_command=True,
    help="""
    Look at signed license files, install them into a cluster, and look at what it says about them.
    """,
    add_help_option=False,
)
