"""The packaged chart: its version and the schema of its values. Pure."""

from __future__ import annotations

import difflib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from svc import strictyaml
from svc.errors import SvcError
from svc.install.deployment.errors import DeploymentError

#: Octets of a file of the chart that is read, and of the chart.
_MOST: Final = 4 << 20
MOST_CHART: Final = 16 << 20
#: Values that follow from the release and the registry, and what to use instead.
OWNED: Final = {
    "images.registry": "name it with --qhx-registry, or --mirror-registry for an installation from a package",
    "images.svc": "name the release with --version",
    "images.svcManager": "name the release with --version",
    "images.spireServer": "name the release with --version",
    "images.spireAgent": "name the release with --version",
    "kubernetesVariant": "name it with --kubernetes-variant",
}


@dataclass(frozen=True, slots=True)
class Chart:
    """
    A chart.

    Args:
        schema: of its values, a JSON Schema.
    """

    version: str
    schema: Mapping[str, Any]


def read_chart(content: bytes, path: str) -> Chart:
    """
    Read a packaged chart.

    Args:
        content: of a ``.tgz``.
        path: for errors.

    Raises:
        DeploymentError: ``chart_unusable``.
    """
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            about = strictyaml.loads(_member(archive, "svc-core/Chart.yaml"))
            schema = json.loads(_member(archive, "svc-core/values.schema.json"))
    except (tarfile.TarError, OSError, EOFError, KeyError, ValueError, SvcError) as error:
        raise DeploymentError("chart_unusable", path=path, defect=f"it cannot be read: {error}") from error
    if not isinstance(about, dict) or about.get("name") != "svc-core" or not isinstance(about.get("version"), str):
        raise DeploymentError("chart_unusable", path=path, defect="its Chart.yaml names another chart, or no version")
    return Chart(about["version"], schema)


def _member(archive: tarfile.TarFile, name: str) -> str:
    member = archive.getmember(name)
    if not member.isfile() or member.size > _MOST:
        raise ValueError(f"{name} is no file, or too large")
    file = archive.extractfile(member)
    assert file is not None  # noqa: S101 - a file has one
    return file.read().decode("utf-8")


def check_values(values: Mapping[str, Any], chart: Chart) -> None:
    """
    Check that values of a user are values of the chart, and for the user to set; their types are for Helm.

    Raises:
        DeploymentError: ``value_unknown`` or ``value_owned``.
    """
    for path, near in _unknown(values, chart.schema, chart.schema):
        suggestion = f"did you mean {near}?" if near else "svc files chart prints the folder with its values.yaml"
        raise DeploymentError("value_unknown", path=".".join(path), suggestion=suggestion)
    for owned, instead in OWNED.items():
        if _has(values, owned.split(".")):
            raise DeploymentError("value_owned", path=owned, instead=instead)


def check_trust_domain(*values: Mapping[str, Any]) -> None:
    """
    Check that some of the values name the trust domain, which has no default.

    Raises:
        DeploymentError: ``trust_domain_missing``.
    """
    if not any(each.get("trustDomain") for each in values):
        raise DeploymentError("trust_domain_missing")


def known_values(values: Mapping[str, Any], chart: Chart) -> tuple[dict[str, Any], list[str]]:
    """Return the values of an earlier release without those that the chart does not have any more, and their paths."""
    kept: dict[str, Any] = json.loads(json.dumps(values))
    gone = [path for path, _near in _unknown(values, chart.schema, chart.schema)]
    for path in gone:
        parent = kept
        for each in path[:-1]:
            parent = parent[each]
        del parent[path[-1]]
    return kept, [".".join(path) for path in gone]


def _unknown(
    values: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the paths of values that the schema does not have, each with the nearest that it has, or an empty text."""
    name = str(schema.get("$ref") or "").removeprefix("#/$defs/")
    properties = (root["$defs"][name] if name else schema).get("properties")
    if not isinstance(properties, Mapping):
        return
    for key, value in values.items():
        if key not in properties:
            names = {each.lower(): each for each in properties}
            near = difflib.get_close_matches(key.lower(), names, 1)
            yield (*above, key), ".".join((*above, names[near[0]])) if near else ""
        elif isinstance(value, Mapping):
            yield from _unknown(value, properties[key], root, (*above, key))


def _has(values: object, path: list[str]) -> bool:
    if not path:
        return True
    return isinstance(values, Mapping) and path[0] in values and _has(values[path[0]], path[1:])
