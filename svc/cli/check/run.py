"""Reads facts, makes the checks and prints their results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from svc.checks.model import Level, Results, make_checks
from svc.cli.check.local import LocalPlan, read_local
from svc.cli.check.rendering import as_document, as_text
from svc.cli.cluster import Choice, on_cluster
from svc.cli.globals import Invocation
from svc.cli.output import Console
from svc.errors import printable

if TYPE_CHECKING:
    from svc.checks.facts import ClusterFacts
    from svc.kube.client import Client


def check_cluster(choice: Choice, output: str, invocation: Invocation, *, preflight: bool) -> int:
    """
    Check a cluster; returns the exit status.

    Args:
        preflight: whether it is to be installed on.

    Raises:
        CliError: ``kubernetes_missing``.
        KubernetesError: ``kubeconfig_unusable``.
    """

    async def work(client: Client) -> ClusterFacts:
        from svc.checks.reading import read_cluster, read_preflight

        return await (read_preflight if preflight else read_cluster)(client, invocation.now)

    facts, cluster = on_cluster(work, choice)
    from svc.checks.cluster import CHECKS
    from svc.checks.preflight import CHECKS as PREFLIGHT

    target = {"kind": "cluster", "server": cluster.server, "context": cluster.context or None, "pre": preflight}
    results = make_checks(PREFLIGHT if preflight else CHECKS, facts)
    return print_results(results, f"cluster {cluster}", target, output, invocation.console)


def check_local(plan: LocalPlan, output: str, invocation: Invocation) -> int:
    """Check this machine; returns the exit status."""
    from svc.checks.local import CHECKS

    facts, socket = read_local(plan, invocation), plan.options.spiffe_socket
    target = {"kind": "machine", "socket": socket}
    text = f"this machine, with the Workload API {printable(socket)}"
    return print_results(make_checks(CHECKS, facts), text, target, output, invocation.console)


def print_results(results: Results, text: str, target: dict[str, Any], output: str, console: Console) -> int:
    """
    Print results; returns the exit status.

    Args:
        text: what was checked.
        target: the same for the document.
        output: ``text`` or ``json``.
    """
    if output == "json":
        console.write_text(json.dumps(as_document(results, target), indent=2) + "\n")
    else:
        console.write_text(as_text(results, text, terminal=console.terminal, colour=console.colour))
    return 1 if results.level is Level.FAILED else 0
