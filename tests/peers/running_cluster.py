"""A cluster of ``bin/cluster`` for tests."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SkipTest

from clusters.cluster import Cluster, NotPossible

NEEDS_TOOLS = ("kubernetes", "containerd", "coredns")


def cluster_up(name: str, **how: Any) -> Cluster:
    """
    Start a cluster.

    Args:
        name: of the cluster.
        how: see :meth:`clusters.cluster.Cluster.up`.

    Raises:
        SkipTest: this machine cannot run one; names what is missing.
    """
    try:
        return Cluster.up(name, **how)
    except NotPossible as error:
        raise SkipTest(str(error)) from error
