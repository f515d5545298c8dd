"""The command ``svc check``: its flags; the run itself is :mod:`svc.cli.check.run`."""

from __future__ import annotations

from typing import Any

import click

from svc.cli.cluster import CLUSTER_FLAGS, CLUSTER_HELP
from svc.cli.errors import UsageRefused
from svc.cli.flags import Arguments, OneOf, bool_flag, value_flag
from svc.cli.globals import SvcCommand, global_options


def _run(ctx: click.Context, words: tuple[str, ...], **values: Any) -> int:
    options = global_options(ctx)
    named = (values["kubeconfig"], values["context"])
    files, preflight = values["config"], values["pre"]
    local = values["local"] or bool(words or files or values["pq_bundle"])
    if local and (preflight or any(named)):
        other = "--pre" if preflight else "--kubeconfig" if named[0] else "--context"
        raise UsageRefused(
            f"{other} is for a cluster, and --local, --config, --pq-bundle and an ADDRESS are for this machine",
            "leave one of them out",
        )
    from svc.cli.check.local import LocalPlan
    from svc.cli.check.run import check_cluster, check_local
    from svc.cli.cluster import choose, cluster_named
    from svc.cli.status.addresses import read_addresses

    if not local:
        choice = choose(*named, ctx.obj.environ, changes=False)
        if preflight or cluster_named(choice):
            return check_cluster(choice, values["output"], ctx.obj, preflight=preflight)
    addresses = read_addresses(words, files)
    plan = LocalPlan(addresses, bool(words or files), options, values["pq_bundle"])
    return check_local(plan, values["output"], ctx.obj)


command = SvcCommand(
    "check",
    params=[
        *CLUSTER_FLAGS,
        bool_flag("--pre", "check whether the cluster is ready for an installation"),
        bool_flag("--local", "check this machine, not a cluster"),
        value_flag("--config", "FILE", "ask at the adminAddr of this configuration; repeatable", multiple=True),
        value_flag("--pq-bundle", "FILE", "post-quantum roots of this machine (SVC_PQ_BUNDLE)"),
        value_flag(
            "-o --output", "string", "text, or json for one document", type=OneOf("text", "json"), default="text"
        ),
        Arguments("words", "[ADDRESS...]", minimum=0, maximum=None, noun="ADDRESS"),
    ],
    callback=click.pass_context(_run),
    help=f"""
    Find what is wrong between workloads and their identities, and print what to do about each finding. Nothing is
    changed.

    Of a cluster the API server, the custom resources, the parts of the installation, the webhook and its certificate,
    the pods of enabled namespaces, the license, policies and federated clusters are checked; with --pre, whether the
    cluster is ready for an installation.
{CLUSTER_HELP}
    Where there is no kubeconfig, and with --local, --config, --pq-bundle or an ADDRESS, this machine is checked: the
    Workload API, the SVID that it gives this user, the PQ bundle file, the clock, and the processes that "svc status"
    would show.

    The exit status is 0 where all is well or there are only warnings, and 1 otherwise. What could not be read counts
    as failed.
    """,
    epilog="""
Examples:
  svc check --pre
  svc check --context prod
  svc check --local
  svc check --config /etc/svc/proxy.yaml
  svc check -o json | jq -r '.checks[].findings[] | .message, .remedy'
""",
    add_help_option=False,
)
