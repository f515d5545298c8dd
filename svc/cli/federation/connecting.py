"""Which clusters ``svc federation connect`` is to connect: what its words and flags mean together. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from svc.cli.errors import FederationRefused, UsageRefused
from svc.cli.federation.peers import OwnCluster

_SHAPES = "a reference with one cluster, or two clusters: two --kubeconfig, two --context, or both"


class Named(NamedTuple):
    """A cluster as the flags name it; empty for what is in effect without them."""

    kubeconfig: str = ""
    context: str = ""


class Plan(NamedTuple):
    """
    Who is to trust whom.

    Args:
        first: the cluster that trusts the peer.
        second: the other cluster; None where a reference names the peer.
        mutual: whether the second trusts the first too.
    """

    first: Named
    second: Named | None = None
    mutual: bool = False


def plan(reference: str, kubeconfigs: Sequence[str], contexts: Sequence[str], unidirectional: bool) -> Plan:
    """
    Find out what is to be connected.

    Args:
        reference: the positional argument; empty for none.
        kubeconfigs: the values of ``--kubeconfig``, in order.
        contexts: the values of ``--context``, in order; number n belongs to kubeconfig n, and to the only kubeconfig
            where there is one.
        unidirectional: whether the first alone is to trust the second.

    Raises:
        UsageRefused: they do not fit together.
    """
    for flag, values in (("--kubeconfig", kubeconfigs), ("--context", contexts)):
        if len(values) > 2:
            raise UsageRefused(f"{flag} is given {len(values)} times", f"expected: {_SHAPES}")
        if reference and len(values) == 2:
            raise UsageRefused(
                f"a reference and two {flag} are given", "a reference names the peer: name the one cluster alone"
            )
    if reference and unidirectional:
        raise UsageRefused(
            "a reference and --unidirectional are given",
            "with a reference only the selected cluster is changed: leave --unidirectional out",
        )
    files = [*kubeconfigs, *kubeconfigs][:2] if len(kubeconfigs) == 1 else [*kubeconfigs, "", ""][:2]
    first, second = (Named(file, context) for file, context in zip(files, [*contexts, "", ""][:2], strict=True))
    if reference:
        return Plan(first)
    if max(len(kubeconfigs), len(contexts)) < 2:
        given = "one cluster is named" if kubeconfigs or contexts else "no cluster is named"
        raise UsageRefused(f"who is the peer? no reference is given, and {given}", f"expected: {_SHAPES}")
    return Plan(first, second, not unidirectional)


def check_apart(first: tuple[str, OwnCluster], second: tuple[str, OwnCluster]) -> None:
    """
    Check that two clusters, each with its UID, are two and have trust domains of their own.

    Raises:
        FederationRefused: ``same_cluster`` or ``same_trust_domain``.
    """
    if first[0] == second[0]:
        raise FederationRefused("same_cluster", uid=first[0])
    if first[1].trust_domain == second[1].trust_domain:
        raise FederationRefused("same_trust_domain", trust_domain=first[1].trust_domain)
