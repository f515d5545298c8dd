"""
The facts about a workload in its statement: pod, containers, labels and annotations.

Owns the values, the text format of the Kubernetes downward API and the list of labels and annotations that may be
published. Reads no file: names and texts are arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from svc import naming
from svc.errors import SvcError, printable
from svc.strictjson import JsonRefused, loads

#: Labels and annotations that are published by default: the compartment and the level.
DEFAULT_ALLOWED: Final = frozenset({naming.LABEL_COMPARTMENT, naming.ANNOTATION_LEVEL, naming.ANNOTATION_COMPARTMENT})
#: The files of a downward-API folder that are read; all others are ignored.
FACT_FILES: Final = (
    "namespace",
    "serviceAccount",
    "podName",
    "podUID",
    "node",
    "containers",
    "labels",
    "annotations",
)
#: A file larger than this is refused; Kubernetes itself allows 256 KiB of annotations.
MAX_FILE_CHARACTERS: Final = 300 * 1024
#: The longest value in a statement, which every client fetches.
MAX_VALUE_CHARACTERS: Final = 1024
MAX_CONTAINERS: Final = 64
#: The most names in ``truncated``.
MAX_TRUNCATED: Final = 128
_PLAIN: Final = ("namespace", "serviceAccount", "podName", "podUID", "node")
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?\Z")
_IMAGE_DIGEST: Final = re.compile(r"[a-z0-9]+(?:[+._-][a-z0-9]+)*:[0-9a-f]{32,128}\Z")


class FactsInvalid(SvcError):
    """the workload fact {name} is not acceptable: {defect}"""

    reason = "workload_facts_invalid"
    hint = "look at workload: in the configuration, or at the files of the downward-API folder"
    name: str
    defect: str


@dataclass(frozen=True, slots=True)
class Container:
    """
    One container of the pod; ``image`` is the reference that was configured, ``image_digest`` the digest that runs,
    ``sha256:...``.

    Raises:
        FactsInvalid: for an empty name or image, a value that is too long, or a malformed digest.
    """

    name: str
    image: str
    image_digest: str | None = None
    init: bool = False

    def __post_init__(self) -> None:
        for field_name, value in (("containers.name", self.name), ("containers.image", self.image)):
            if not value:
                raise FactsInvalid(name=field_name, defect="it is empty")
            _check_value(field_name, value)
        if self.image_digest is not None and not _IMAGE_DIGEST.match(self.image_digest):
            raise FactsInvalid(name="containers.imageDigest", defect=f"{printable(self.image_digest)} is no digest")

    def claim(self) -> dict[str, object]:
        """Return the element of ``svc.containers``."""
        return {"name": self.name, "image": self.image, "imageDigest": self.image_digest, "init": self.init}


@dataclass(frozen=True)
class WorkloadFacts:
    """
    The facts in a statement; absent ones are None.

    ``pod_name`` may be the host name. ``containers`` is empty where they are not known. ``truncated`` lists the facts
    that are absent and the labels and annotations that are withheld, as ``podUID``,
    ``containers/<name>/imageDigest``, ``labels/<name>``, ``annotations/<name>``.
    """

    namespace: str | None = None
    service_account: str | None = None
    pod_name: str | None = None
    pod_uid: str | None = None
    node: str | None = None
    containers: tuple[Container, ...] = ()
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    truncated: tuple[str, ...] = field(default=())

    @classmethod
    def explicit(
        cls,
        *,
        host_name: str | None = None,
        namespace: str | None = None,
        service_account: str | None = None,
        pod_name: str | None = None,
        pod_uid: str | None = None,
        node: str | None = None,
        containers: Iterable[Container] | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        allow: Iterable[str] = DEFAULT_ALLOWED,
    ) -> WorkloadFacts:
        """
        Take facts from a configuration; ``truncated`` lists what is absent or withheld.

        Args:
            host_name: used where the pod name is absent.
            labels: all labels; those not allowed are withheld.
            annotations: all annotations; those not allowed are withheld.
            allow: names of the labels and annotations that may be published.

        Raises:
            FactsInvalid: for a value that is too long or not valid Unicode, or too many containers.
        """
        plain = dict(zip(_PLAIN, (namespace, service_account, pod_name, pod_uid, node), strict=True))
        for name, value in plain.items():
            if value is not None:
                _check_value(name, value)
        listed = None if containers is None else tuple(containers)
        if listed is not None and len(listed) > MAX_CONTAINERS:
            raise FactsInvalid(
                name="containers", defect=f"{len(listed)} of them, at most {MAX_CONTAINERS} are accepted"
            )
        allowed = frozenset(allow)
        kept_labels, cut_labels = _filtered("labels", labels, allowed)
        kept_annotations, cut_annotations = _filtered("annotations", annotations, allowed)
        absent = [name for name, value in plain.items() if not value]
        absent += [
            name
            for name, value in (("containers", listed), ("labels", labels), ("annotations", annotations))
            if value is None
        ]
        absent += [f"containers/{each.name}/imageDigest" for each in listed or () if each.image_digest is None]
        return cls(
            namespace=namespace or None,
            service_account=service_account or None,
            pod_name=pod_name or host_name or None,
            pod_uid=pod_uid or None,
            node=node or None,
            containers=listed or (),
            labels=kept_labels,
            annotations=kept_annotations,
            truncated=_bounded(absent + cut_labels + cut_annotations),
        )

    @classmethod
    def from_files(
        cls, files: Mapping[str, str], *, host_name: str | None = None, allow: Iterable[str] = DEFAULT_ALLOWED
    ) -> WorkloadFacts:
        """
        Take facts from the files of a downward-API folder.

        Args:
            files: text by file name; only those in ``FACT_FILES`` are read. ``labels`` and ``annotations`` have lines
                ``name="escaped value"``, ``containers`` is a JSON array of ``{name, image, imageDigest, init}``, the
                others are plain text.
            host_name: used where the pod name is absent.
            allow: names of the labels and annotations that may be published.

        Raises:
            FactsInvalid: with the file and its defect.
        """
        for name in FACT_FILES:
            if len(files.get(name, "")) > MAX_FILE_CHARACTERS:
                raise FactsInvalid(name=name, defect=f"more than {MAX_FILE_CHARACTERS} characters")
        plain = {name: files[name].strip() or None for name in _PLAIN if name in files}
        return cls.explicit(
            host_name=host_name,
            namespace=plain.get("namespace"),
            service_account=plain.get("serviceAccount"),
            pod_name=plain.get("podName"),
            pod_uid=plain.get("podUID"),
            node=plain.get("node"),
            containers=_parse_containers(files["containers"]) if "containers" in files else None,
            labels=parse_downward_map(files["labels"], name="labels") if "labels" in files else None,
            annotations=parse_downward_map(files["annotations"], name="annotations")
            if "annotations" in files
            else None,
            allow=allow,
        )

    def claims(self) -> dict[str, object]:
        """Return the members of ``svc`` from ``namespace`` to ``annotations``, in the order of the format."""
        return {
            "namespace": self.namespace,
            "serviceAccount": self.service_account,
            "podName": self.pod_name,
            "podUID": self.pod_uid,
            "node": self.node,
            "containers": [container.claim() for container in self.containers],
            "labels": None if self.labels is None else dict(self.labels),
            "annotations": None if self.annotations is None else dict(self.annotations),
        }


def parse_downward_map(text: str, *, name: str) -> dict[str, str]:
    """
    Read labels or annotations as the Kubernetes downward API writes them.

    Each line is ``key="value"`` with the value quoted as Go's ``strconv.Quote`` does. ``name`` is the file, for the
    error.

    Raises:
        FactsInvalid: for a line of another form or a repeated key.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        key, equals, quoted = line.partition("=")
        if not equals or not _LABEL_NAME.match(key):
            raise FactsInvalid(name=name, defect=f'line {number} is not key="value"')
        if key in found:
            raise FactsInvalid(name=name, defect=f"line {number} repeats a key")
        found[key] = _unquote(quoted.rstrip("\r"), name, number)
    return found


_GO_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"\Z', re.DOTALL)
_GO_ESCAPE: Final = re.compile(
    r"\\(?:x(?P<byte>[0-9a-f]{2})|u(?P<short>[0-9a-f]{4})|U(?P<long>[0-9a-f]{8})|(?P<letter>[abfnrtv\\\"])|(?P<bad>.))",
    re.DOTALL,
)
_GO_LETTERS: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\", '"': '"',
}  # fmt: skip


def _unquote(quoted: str, name: str, number: int) -> str:
    if not _GO_STRING.match(quoted):
        raise FactsInvalid(name=name, defect=f"line {number} has a value without its quotes")

    def escaped(match: re.Match[str]) -> str:
        if match["bad"] is not None:
            raise FactsInvalid(name=name, defect=f"line {number} has an unknown escape")
        if match["letter"] is not None:
            return _GO_LETTERS[match["letter"]]
        code = int(match["byte"] or match["short"] or match["long"], 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            raise FactsInvalid(name=name, defect=f"line {number} escapes what is no character")
        # A \x escape above 7f is an octet that was not UTF-8; it is kept as the replacement character.
        return "\ufffd" if match["byte"] is not None and code > 0x7F else chr(code)

    return _GO_ESCAPE.sub(escaped, quoted[1:-1])


def _parse_containers(text: str) -> list[Container]:
    try:
        value = loads(text.encode("utf-8", "surrogatepass"))
    except JsonRefused as error:
        raise FactsInvalid(name="containers", defect=error.defect) from error
    if not isinstance(value, list):
        raise FactsInvalid(name="containers", defect="it is not a JSON array")
    return [_parse_container(item) for item in value]


def _parse_container(item: object) -> Container:
    if not isinstance(item, dict):
        raise FactsInvalid(name="containers", defect="an item is not an object")
    name, image, digest, init = item.get("name"), item.get("image"), item.get("imageDigest"), item.get("init", False)
    if not isinstance(name, str) or not isinstance(image, str):
        raise FactsInvalid(name="containers", defect="an item lacks the text name or image")
    if not (digest is None or isinstance(digest, str)) or not isinstance(init, bool):
        raise FactsInvalid(name="containers", defect="imageDigest must be a text or null, init true or false")
    return Container(name=name, image=image, image_digest=digest or None, init=init)


def _filtered(
    kind: str, values: Mapping[str, str] | None, allowed: frozenset[str]
) -> tuple[dict[str, str] | None, list[str]]:
    if values is None:
        return None, []
    kept: dict[str, str] = {}
    cut: list[str] = []
    for name in sorted(values):
        if name in allowed:
            _check_value(f"{kind}/{name}", values[name])
            kept[name] = values[name]
        else:
            cut.append(f"{kind}/{name}")
    return kept, cut


def _bounded(names: list[str]) -> tuple[str, ...]:
    if len(names) <= MAX_TRUNCATED:
        return tuple(names)
    return (*names[: MAX_TRUNCATED - 1], f"+{len(names) - MAX_TRUNCATED + 1}")


def _check_value(name: str, value: str) -> None:
    if len(value) > MAX_VALUE_CHARACTERS:
        raise FactsInvalid(name=name, defect=f"more than {MAX_VALUE_CHARACTERS} characters")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in value):
        raise FactsInvalid(name=name, defect="a lone surrogate")
