"""The JSON Schemas of the configuration files against the validator that the processes use."""

from __future__ import annotations

import copy
import json
from typing import Annotated, Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter, ValidationError
from twisted.trial.unittest import SynchronousTestCase

from docs.generator.configuration import FILES, models
from svc import strictyaml
from svc.data import FOLDER
from svc.settings import format_duration, format_size, parse_duration, parse_size
from tests.test_docs import PAGES, file_of, yaml_blocks

SCHEMAS = FOLDER / "schemas"
PROXY: dict[str, Any] = {
    "trustDomain": "prod.example.org",
    "notary": {"profile": "classical", "retention": "90d", "readers": ["spiffe://prod.example.org/ns/audit/*"]},
    "listeners": [
        {
            "name": "web",
            "protocol": "http",
            "direction": "inbound",
            "listen": "0.0.0.0:8443",
            "upstream": "127.0.0.1:8080",
            "limits": {"head": "16KiB", "connections": 10},
        }
    ],
}
#: Where, what, and whether it is taken. Rules between keys are not the schema's.
CHANGES: list[tuple[tuple[str | int, ...], Any, bool]] = [
    (("trustDomain",), "Prod.example.org", False),
    (("trustDomain",), 7, False),
    (("spiffeSocketPath",), "unix:///run/agent.sock", True),
    (("spiffeSocketPath",), "/run/agent.sock", False),
    (("spiffeHint",), None, True),
    (("metricsAddr",), "0", True),
    (("metricsAddr",), "", True),
    (("metricsAddr",), 0, True),
    (("metricsAddr",), ":9092", True),
    (("metricsAddr",), "9092", False),
    (("accessLog",), "on", True),
    (("accessLog",), True, False),
    (("startTimeout",), "10", False),
    (("startTimeout",), "1.5s", True),
    (("startTimeout",), 10, False),
    (("notary", "retention"), "1w", False),
    (("notary", "queue"), 65536, True),
    (("notary", "queue"), 65537, False),
    (("notary", "queue"), 0, False),
    (("notary", "queue"), "5", False),
    (("notary", "redactQuery"), "yes", False),
    (("notary", "readers"), "spiffe://prod.example.org/x", False),
    (("notary", "readers", 0), "https://prod.example.org/x", False),
    (("notary", "unknown"), 1, False),
    (("policy",), {"default": "allow"}, True),
    (("policy",), {"files": ["policy.yaml"]}, False),
    (("listeners",), [], False),
    (("listeners", 0, "protocol"), "amqp", False),
    (("listeners", 0, "name"), "-web", False),
    (("listeners", 0, "listen"), "[::1]:8443", True),
    (("listeners", 0, "listen"), 8443, False),
    (("listeners", 0, "upstream"), "unix:///run/app.sock", True),
    (("listeners", 0, "upstream"), "app", False),
    (("listeners", 0, "limits", "head"), "16K", False),
    (("listeners", 0, "limits", "body"), "16MiB", True),
    (("listeners", 0, "limits", "connections"), 0, False),
    (("workload",), {"labels": {"a": "b"}, "containers": [{"name": "a", "image": "b"}]}, True),
    (("workload",), {"containers": [{"name": "a"}]}, False),
    (("workload",), {"labels": {"a": 1}}, False),
]
BROKER: dict[str, Any] = {
    "trustDomain": "prod.example.org",
    "persistence": {"path": "broker.db"},
    "limits": {"packet": "256KiB"},
    "listeners": [
        {
            "name": "devices",
            "listen": "0.0.0.0:8883",
            "tls": {"spiffe": True},
            "acl": [{"who": "spiffe://prod.example.org/*", "publish": ["a/+"], "subscribe": ["#"]}],
        }
    ],
}
BROKER_CHANGES: list[tuple[tuple[str | int, ...], Any, bool]] = [
    (("listeners",), [], False),
    (("listeners", 0, "name"), "-x", False),
    (("listeners", 0, "connections"), 0, False),
    (("listeners", 0, "proxyProtocol"), "v1", False),
    (("listeners", 0, "proxyProtocol"), "v2", True),
    (("listeners", 0, "tls", "keyExchange"), "require", True),
    (("listeners", 0, "tls", "keyExchange"), "always", False),
    (("listeners", 0, "tls", "cert"), "x.pem", False),
    (("listeners", 0, "acl", 0, "who"), "https://x", False),
    (("listeners", 0, "acl", 0, "publish"), "a", False),
    (("listeners", 0, "acl", 0, "publish", 0), "", False),
    (("limits", "packet"), 262144, False),
    (("limits", "aliases"), 0, True),
    (("limits", "received"), 65536, False),
    (("limits", "keepAlive"), "10", False),
    (("persistence",), None, True),
    (("persistence",), {}, False),
    (("adminAddr",), "", True),
    (("users",), [], False),
]


def accepts(document: dict[str, Any], value: Any) -> bool:
    """Whether a schema accepts a value."""
    return bool(Draft202012Validator(document).is_valid(value))


def schema(name: str) -> dict[str, Any]:
    """Read a schema."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{name}.config.json").read_text())
    return found


def changed(whole: dict[str, Any], keys: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    """Change one value of a whole configuration."""
    document: Any = copy.deepcopy(whole)
    here = document
    for step in keys[:-1]:
        here = here[step]
    here[keys[-1]] = value
    return document


class SchemaTests(SynchronousTestCase):
    """Schema and validator accept the same values."""

    def test_same_values(self) -> None:
        """For each key the schema accepts the same values as the validator."""
        for file, whole, changes in (("proxy", PROXY, CHANGES), ("broker", BROKER, BROKER_CHANGES)):
            for keys, value, good in [((), whole, True), *changes]:
                document = changed(whole, keys, value) if keys else whole
                self.assertEqual(self.valid(file, document), good, f"validator: {keys} {value!r}")
                self.assertEqual(accepts(schema(file), document), good, f"schema: {keys} {value!r}")

    def valid(self, file: str, document: dict[str, Any]) -> bool:
        """Whether the validator accepts a document."""
        try:
            FILES[file].model_validate(document)
        except ValidationError:
            return False
        return True

    def test_examples_of_the_pages_pass(self) -> None:
        """The complete examples of the documentation are valid by the schema."""
        checked = []
        for path in PAGES:
            for text in yaml_blocks(path.read_text()):
                if name := file_of(text):
                    self.assertTrue(accepts(schema(name), strictyaml.loads(text)), f"{path.name}: {text}")
                    checked.append(name)
        self.assertEqual(set(checked), set(FILES))

    def test_defaults_are_written_as_in_the_file(self) -> None:
        """A default of the schema is valid and equals the default of the model."""
        seen = 0
        for file, root in FILES.items():
            for model in models(root):
                document = schema(file)
                part = document if model is root else document["$defs"][model.__name__]
                for name, field in part["properties"].items():
                    if "default" in field:
                        self.assertEqual(self.read(model, name, field["default"]), model.model_fields[name].default)
                        seen += 1
        self.assertGreater(seen, 30)

    def read(self, model: type[BaseModel], name: str, value: Any) -> Any:
        """Validate one value."""
        field = model.model_fields[name]
        return TypeAdapter(Annotated[field.annotation, field]).validate_python(value, strict=True)  # type: ignore[arg-type]

    def test_every_key_is_described(self) -> None:
        """Each key has a description."""
        for file, root in FILES.items():
            document = schema(file)
            parts = [document, *document["$defs"].values()]
            self.assertEqual(len(parts), len(models(root)))
            for part in parts:
                for name, field in part["properties"].items():
                    self.assertTrue(field["description"], name)


class WrittenTests(SynchronousTestCase):
    """Formatted durations and sizes are read back."""

    @given(st.sampled_from([1, 60, 3600, 86400]), st.integers(1, 400))
    def test_durations(self, unit: int, number: int) -> None:
        """A formatted duration is read back unchanged."""
        self.assertEqual(parse_duration(format_duration(float(unit * number))), unit * number)

    @given(st.integers(1, 10**9 - 1))
    def test_seconds(self, number: int) -> None:
        """So is one of many digits."""
        self.assertEqual(parse_duration(format_duration(float(number))), number)

    @given(st.integers(0, 2**40))
    def test_sizes(self, octets: int) -> None:
        """A formatted size is read back unchanged."""
        self.assertEqual(parse_size(format_size(octets)), octets)

    def test_the_largest_unit_is_taken(self) -> None:
        """The largest unit without a fraction is used: 90d, not 7776000s."""
        self.assertEqual(
            [format_duration(each) for each in (7776e3, 3600.0, 90.0, 0.25)], ["90d", "1h", "90s", "250ms"]
        )
        self.assertEqual([format_size(each) for each in (32768, 2**20, 1000, 0)], ["32KiB", "1MiB", "1000B", "0B"])
