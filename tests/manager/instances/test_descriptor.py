"""What makes a SPIRE instance the one that it is."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from svc.manager.instances.descriptor import (
    SpireDescriptor,
    StorageDescriptor,
    adopted_descriptor,
    descriptor_hash,
    is_of_helm,
)
from svc.settings import ConfigInvalid, validate
from tests.kube.test_crds import schema

DOMAIN = "prod.example.org"


def server(**storage: Any) -> dict[str, Any]:
    """A StatefulSet as the API server has it."""
    template = {"metadata": {"name": "data"}, "spec": storage}
    return {"metadata": {"labels": {}}, "spec": {"volumeClaimTemplates": [template]}}


def described(**given: Any) -> SpireDescriptor:
    """Read a descriptor."""
    return validate({"trustDomain": DOMAIN, **given}, SpireDescriptor, "descriptor")


class HashTests(SynchronousTestCase):
    """One value for one instance."""

    def test_defaults(self) -> None:
        """What is left out is what its default is, and a duration has one value however it is written."""
        own = descriptor_hash(described())
        for same in ({"keyType": "ec-p256"}, {"caTtl": "1440m"}, {"x509SvidTtl": "1h"}, {"storage": {"size": "1Gi"}}):
            self.assertEqual(own, descriptor_hash(described(**same)), same)
        for other in (
            {"trustDomain": "other.example.org"},
            {"keyType": "rsa-2048"},
            {"caTtl": "25h"},
            {"x509SvidTtl": "2h"},
            {"storage": {"size": "2Gi"}},
            {"storage": {"className": "fast"}},
        ):
            self.assertNotEqual(own, descriptor_hash(described(**other)), other)

    def test_value(self) -> None:
        """It outlives versions of this package: objects of the cluster have it."""
        expected = "859b90508b85c9d4fa07cf32bbf71bd94bf825ab7d272dc16e16d880e40ae716"
        self.assertEqual(expected, descriptor_hash(described()))

    @given(st.integers(1, 10**6), st.sampled_from(["s", "m"]))
    def test_document(self, number: int, unit: str) -> None:
        """A document is read again as the same descriptor."""
        descriptor = described(caTtl=f"{number}{unit}")
        again = validate(descriptor.document(), SpireDescriptor, "descriptor")
        self.assertEqual((descriptor, descriptor_hash(descriptor)), (again, descriptor_hash(again)))

    def test_refused(self) -> None:
        """Parts of a second, as SPIRE would not have them in certificates, and other keys."""
        for wrong in ({"caTtl": "1500ms"}, {"x509SvidTtl": "0s"}, {"keyType": "ed25519"}, {"more": 1}):
            with self.assertRaises(ConfigInvalid):
                described(**wrong)

    def test_schema(self) -> None:
        """The custom resource has the members of the model, and requires all."""
        shown = schema("spireinstances")["properties"]["spec"]["properties"]["descriptor"]
        for model, part in ((SpireDescriptor, shown), (StorageDescriptor, shown["properties"]["storage"])):
            self.assertEqual(list(model.model_fields), list(part["properties"]))
            self.assertEqual(list(model.model_fields), part["required"])
        keys = SpireDescriptor.model_json_schema()["properties"]["keyType"]["enum"]
        self.assertEqual(keys, shown["properties"]["keyType"]["enum"])


class AdoptedTests(SynchronousTestCase):
    """The SPIRE of the chart."""

    def test_storage(self) -> None:
        """The volume is read from the StatefulSet; without a class it is that of the cluster."""
        claim = {"resources": {"requests": {"storage": "5Gi"}}}
        self.assertEqual(described(storage={"size": "5Gi"}), adopted_descriptor(DOMAIN, server(**claim)))
        found = adopted_descriptor(DOMAIN, server(**claim, storageClassName="fast"))
        self.assertEqual(described(storage={"size": "5Gi", "className": "fast"}), found)

    def test_helm(self) -> None:
        """It is told by its label."""
        found = server()
        self.assertFalse(is_of_helm(found))
        found["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
        self.assertTrue(is_of_helm(found))
        self.assertFalse(is_of_helm({"metadata": {}}))
