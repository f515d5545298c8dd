"""The example of docs/kubernetes.md and the chart describe one platform."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc import strictyaml
from tests.chart.rendering import Document, Rendered
from tests.peers.waiting import TOP

EXAMPLES = Path(TOP) / "docs" / "examples" / "kubernetes"
#: What the chart has in another way: configurations in the environment, flags and ports of metrics, amounts.
KNOWN = (
    *(r"volumes\[configuration\]$", r"volumeMounts\[configuration\]$", r"env\[SVC_CONFIG\]", r"\.command: \['twistd',"),
    *(r"\.ports: ", r"\.limits\.memory: ", r"svc-manager\]\.startupProbe\.failureThreshold: "),
)


def example() -> dict[tuple[str, str], Document]:
    """The objects of the platform by kind and name; not those of applications."""
    found = {}
    for name in ("spire", "agent", "authority", "manager"):
        # Modes of files are octal there, as people write them.
        for each in strictyaml.loads_all((EXAMPLES / f"{name}.yaml").read_text().replace("0440", "288")):
            if isinstance(each, dict):
                found[each["kind"], each["metadata"]["name"]] = each
    return found


def lacking(wanted: Any, given: Any, path: str = "") -> Iterator[str]:
    """What of a document is not in another one; items of lists are matched by name."""
    if isinstance(wanted, dict) and isinstance(given, dict):
        for key, value in wanted.items():
            if key in given:
                yield from lacking(value, given[key], f"{path}.{key}")
            else:
                yield f"{path}.{key} = {value}"
    elif (
        isinstance(wanted, list)
        and isinstance(given, list)
        and all(isinstance(x, dict) and "name" in x for x in wanted)
    ):
        named = {each.get("name"): each for each in given}
        for each in wanted:
            if each["name"] in named:
                yield from lacking(each, named[each["name"]], f"{path}[{each['name']}]")
            else:
                yield f"{path}[{each['name']}]"
    elif wanted != given:
        yield f"{path}: {wanted!r} != {given!r}"


class ExampleTests(SynchronousTestCase):
    def test_configuration_of_spire(self) -> None:
        """Servers and agents of SPIRE are configured alike; the chart has its telemetry beside it."""
        chart = Rendered()
        for (kind, name), wanted in example().items():
            if kind == "ConfigMap" and name in ("spire-server", "spire-agent"):
                file = f"{name.removeprefix('spire-')}.conf"
                given = chart.one("ConfigMap", name)["data"][file]
                self.assertEqual(_settings(wanted["data"][file]), _settings(given.partition("telemetry {")[0]), name)

    def test_pods(self) -> None:
        """Whatever a pod of the example has, that of the chart has as well."""
        chart = Rendered()
        found = [
            f"{name}{each}"
            for (kind, name), wanted in example().items()
            if kind in ("Deployment", "DaemonSet", "StatefulSet")
            for each in lacking(wanted["spec"]["template"]["spec"], chart.pod(name)["spec"])
            if not re.search("|".join(KNOWN), f"{name}{each}")
        ]
        self.assertEqual([], found)


def _settings(text: str) -> list[str]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]
