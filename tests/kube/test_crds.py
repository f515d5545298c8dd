"""``svc/data/crds``, as far as no API server is needed: names, descriptions, bounds, and what the code says too."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from ruamel.yaml import YAML
from twisted.trial.unittest import SynchronousTestCase

from svc.data import FOLDER
from svc.envelope.envelope import MAX_ENVELOPE
from svc.federation.continuity import Continuity
from svc.federation.reference import MAX_REFERENCE
from svc.kube import kinds
from svc.kube.kinds import (
    CLUSTER_NAME,
    CLUSTERS,
    FOREIGN_CLUSTERS,
    LICENSE_STATUS_NAME,
    LICENSE_STATUSES,
    Kind,
)
from svc.kube.status import MAX_MESSAGE
from svc.license import payload
from svc.license.payload import Enforcement
from svc.license.states import LicenseState
from svc.naming import DOMAIN


def definitions() -> dict[str, Any]:
    """All custom resources by the names of their files."""
    return {path.stem: YAML(typ="safe", pure=True).load(path) for path in sorted((FOLDER / "crds").iterdir())}


def schema(name: str) -> Any:
    """The schema of the one version of a custom resource."""
    (version,) = definitions()[name]["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]


def fields(path: str, given: Any) -> Iterator[tuple[str, Any]]:
    """All fields of a schema, by their paths."""
    yield path, given
    for name, each in given.get("properties", {}).items():
        yield from fields(f"{path}.{name}", each)
    for name in ("items", "additionalProperties"):
        if name in given:
            yield from fields(f"{path}[]", given[name])


class DefinitionTests(SynchronousTestCase):
    """Each file."""

    def test_names(self) -> None:
        """A file is named after the kind, which the code names the same; what the code does not read is not there."""
        known = {each.plural: each for each in vars(kinds).values() if isinstance(each, Kind) and each.group == DOMAIN}
        self.assertEqual(set(known), set(definitions()))
        for name, definition in definitions().items():
            kind, spec = known[name], definition["spec"]
            self.assertEqual(f"{kind.plural}.{kind.group}", definition["metadata"]["name"])
            self.assertEqual(
                (kind.group, kind.plural, kind.name, "Namespaced" if kind.namespaced else "Cluster"),
                (spec["group"], spec["names"]["plural"], spec["names"]["kind"], spec["scope"]),
            )
            self.assertEqual([kind.version], [each["name"] for each in spec["versions"]])

    def test_described(self) -> None:
        """Each field and each column has a description, and each text, list and map a bound."""
        for name, definition in definitions().items():
            described = [(path, each) for path, each in fields(name, schema(name)) if path != f"{name}.metadata"]
            for path, each in described:
                self.assertTrue(each.get("description", "").endswith("."), path)
                if path.split(".")[1:2] == ["status"] or path.split(".")[1:2] == ["spec"]:
                    self.assertTrue(self.bounded(each), path)
            for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]:
                self.assertTrue(column["description"].endswith("."), column)

    def bounded(self, given: Any) -> bool:
        """Whether a value of this schema has a greatest size."""
        if given["type"] == "array":
            return "maxItems" in given
        if given["type"] == "object":
            return "properties" in given or "maxProperties" in given
        return (
            given["type"] != "string" or "maxLength" in given or "enum" in given or given.get("format") == "date-time"
        )


class LicenseStatusTests(SynchronousTestCase):
    """SvcLicenseStatus against the package that evaluates licenses."""

    def test_values(self) -> None:
        """States, enforcement and bounds are those of licenses."""
        status = schema(LICENSE_STATUSES.plural)["properties"]["status"]["properties"]
        states = [each.value for each in LicenseState]
        self.assertEqual(states, status["state"]["enum"])
        # A license that is missing is in no Secret.
        self.assertEqual(states[:-1], status["licenses"]["items"]["properties"]["state"]["enum"])
        self.assertEqual([each.value for each in Enforcement], status["enforcement"]["enum"])
        for name, bound in (
            ("features", payload.MAX_FEATURES),
            ("trustDomains", payload.MAX_TRUST_DOMAINS),
        ):
            self.assertEqual(bound, status[name]["maxItems"])
        self.assertEqual(payload.MAX_LIMITS, status["limits"]["maxProperties"])
        for name in ("issuer", "customer", "licensee", "edition"):
            self.assertEqual(payload.MAX_TEXT, status[name]["maxLength"])
        self.assertEqual(payload.MAX_TEXT, status["features"]["items"]["maxLength"])
        message = status["conditions"]["items"]["properties"]["message"]
        self.assertEqual(MAX_MESSAGE, message["maxLength"])

    def test_name(self) -> None:
        """The rule of the schema and the code name the same object."""
        (rule,) = schema(LICENSE_STATUSES.plural)["x-kubernetes-validations"]
        self.assertEqual(f"self.metadata.name == '{LICENSE_STATUS_NAME}'", rule["rule"])


class FederationTests(SynchronousTestCase):
    """SvcCluster and SvcForeignCluster against the package of federation."""

    def test_name(self) -> None:
        """The rule of the schema and the code name the same object."""
        (rule,) = schema(CLUSTERS.plural)["x-kubernetes-validations"]
        self.assertEqual(f"self.metadata.name == '{CLUSTER_NAME}'", rule["rule"])

    def test_values(self) -> None:
        """States and bounds are those of packages and references; base64 of the largest package fits in."""
        own, foreign = (schema(each.plural)["properties"] for each in (CLUSTERS, FOREIGN_CLUSTERS))
        spec, status = foreign["spec"]["properties"], foreign["status"]["properties"]
        self.assertEqual([each.value for each in Continuity], status["continuity"]["enum"])
        self.assertEqual(MAX_REFERENCE, spec["expectedFingerprint"]["maxLength"])
        self.assertEqual(MAX_REFERENCE, own["status"]["properties"]["reference"]["maxLength"])
        largest = len(base64.b64encode(bytes(MAX_ENVELOPE)))
        for given in (
            spec["bootstrapPackage"],
            status["pinned"]["properties"]["data"],
            own["status"]["properties"]["bootstrapPackage"]["properties"]["data"],
        ):
            self.assertEqual(largest, given["maxLength"])
        for given in (own["status"], foreign["status"]):
            self.assertEqual(
                MAX_MESSAGE, given["properties"]["conditions"]["items"]["properties"]["message"]["maxLength"]
            )
