"""Which variant of Kubernetes a cluster is."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.checks.variant import variant_of
from svc.kube.kinds import CUSTOM_RESOURCES, NODES
from tests.checks.test_preflight import REFUSED, both, named, node, objects, on_kind, on_microk8s, version, well

OPENSHIFT = named("clusterversions.config.openshift.io", spec={"group": "config.openshift.io"})
COREOS = {**node(), "metadata": {"name": "one", "labels": {"node.openshift.io/os_id": "rhcos"}}}


class VariantTests(SynchronousTestCase):
    """Facts of clusters, also with one of them missing."""

    def test_variants(self) -> None:
        """Each is recognized by its custom resources, its nodes or its version."""
        no_nodes = objects(NODES)
        for wanted, change in (
            ("eks", version("v1.33.1-eks-595af52")),
            ("eks", both(version("v1.33.1-eks-595af52"), no_nodes)),
            ("kind", on_kind()),
            ("microk8s", on_microk8s()),
            ("openshift", objects(NODES, COREOS)),
            ("openshift", both(no_nodes, objects(CUSTOM_RESOURCES, OPENSHIFT))),
            ("unknown", version("v1.33.1+k3s1")),
            ("unknown", no_nodes),
        ):
            self.assertEqual(wanted, variant_of(change(well())))

    def test_facts_that_cannot_be_read(self) -> None:
        """What could not be read says nothing."""
        facts = well()
        for kind in (NODES, CUSTOM_RESOURCES):
            facts.objects[kind] = REFUSED  # type: ignore[index]
        self.assertEqual("unknown", variant_of(facts))
        self.assertEqual("eks", variant_of(version("v1.33.1-eks-595af52")(facts)))
