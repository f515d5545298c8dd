"""The chart as Helm renders it."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Final

from twisted.trial.unittest import SkipTest

from clusters.kubernetes import ToolMissing, folder_of
from svc import strictyaml
from svc.data import FOLDER

NEEDS_TOOLS = ("helm",)
CHART: Final = FOLDER / "chart"
VALUES: Final[dict[str, Any]] = {"trustDomain": "example.org", "images": {"registry": "svc.internal"}}
Document = dict[str, Any]


def merged(below: Document, above: Document) -> Document:
    """Values over values, as Helm merges them; None removes one."""
    found = dict(below)
    for key, value in above.items():
        found[key] = merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return {key: value for key, value in found.items() if value is not None}


def helm(*arguments: str, values: Document) -> subprocess.CompletedProcess[str]:
    """Run Helm with values on its standard input."""
    try:
        program = folder_of("helm") / "helm"
    except ToolMissing as missing:
        raise SkipTest(str(missing)) from missing
    command = [str(program), *arguments, str(CHART), "--values", "-"]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)


def template(values: Document, *, name: str = "svc-core", namespace: str = "svc-system") -> str:
    """
    Render the chart.

    Args:
        values: beside the required ones.
        name: of the release.
        namespace: of the release.

    Raises:
        AssertionError: Helm refused it; carries what it said.
    """
    ran = helm("template", name, "--namespace", namespace, values=merged(VALUES, values))
    if ran.returncode != 0:
        raise AssertionError(ran.stderr)
    return ran.stdout


class Rendered:
    """
    The objects of the chart.

    Args:
        values: beside the required ones.
    """

    def __init__(self, values: Document | None = None) -> None:
        parsed = strictyaml.loads_all(template(values or {}))
        self.objects: list[Document] = [each for each in parsed if isinstance(each, dict)]

    def of(self, *kinds: str) -> list[Document]:
        """Those of these kinds."""
        return [each for each in self.objects if each["kind"] in kinds]

    def one(self, kind: str, name: str, namespace: str = "svc-system") -> Document:
        """The object of this name."""
        [found] = [
            each
            for each in self.of(kind)
            if each["metadata"]["name"] == name and each["metadata"].get("namespace", namespace) == namespace
        ]
        return found

    @property
    def workloads(self) -> dict[str, Document]:
        """What makes pods, by its name."""
        return {each["metadata"]["name"]: each for each in self.of("Deployment", "DaemonSet", "StatefulSet", "Job")}

    def pod(self, name: str) -> Document:
        """The pod of a workload."""
        found: Document = self.workloads[name]["spec"]["template"]
        return found

    def container(self, workload: str, name: str = "") -> Document:
        """A container of a workload; by default the one with its name."""
        containers: list[Document] = self.pod(workload)["spec"]["containers"]
        [found] = [each for each in containers if each["name"] == (name or workload)]
        return found

    def variable(self, workload: str, container: str = "") -> str:
        """The configuration in a container's environment."""
        found = {each["name"]: each.get("value") for each in self.container(workload, container)["env"]}
        return str(found["SVC_CONFIG"])
