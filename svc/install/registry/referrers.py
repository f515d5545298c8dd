"""
Lists of the manifests whose subject is another one (OCI Distribution Specification 1.1, listing referrers).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from svc import strictjson
from svc.install.registry.errors import RegistryError
from svc.install.registry.references import Descriptor, Host, is_digest

#: The media type of an index.
INDEX: Final = "application/vnd.oci.image.index.v1+json"
_MAX_OCTETS: Final = 4 * 1024 * 1024
_NEXT: Final = re.compile(r'<([^<>]+)>\s*;[^,]*\brel="?next"?')


def referrers_tag(digest: str) -> str:
    """Return the tag of the index of referrers where a registry has no list of its own."""
    algorithm, _, value = digest.partition(":")
    return f"{algorithm[:32]}-{value[:64]}"


def next_page(link: str) -> str:
    """Return the address of the next page in a field ``Link``; empty for none."""
    found = _NEXT.search(link)
    return "" if found is None else found[1]


def parse_index(host: Host, data: bytes) -> list[Descriptor]:
    """
    Parse a list of referrers.

    Args:
        host: of the registry, for errors.
        data: the index.

    Raises:
        RegistryError: it is not one.
    """
    document = _document(data)
    manifests = document.get("manifests")
    if not isinstance(manifests, list):
        raise RegistryError("registry_answer_invalid", registry=host, defect="a list of referrers has no manifests")
    return [_descriptor(host, each) for each in manifests]


def referrer_in(data: bytes, media_type: str, digest: str) -> tuple[str, Descriptor] | None:
    """
    Read whether a manifest has a subject.

    Args:
        data: the manifest.
        media_type: of it.
        digest: of it.

    Returns:
        The digest of the subject, and the descriptor of the manifest for the list; None without a subject.
    """
    document = _document(data)
    subject, config = document.get("subject"), document.get("config")
    wanted = subject.get("digest") if isinstance(subject, dict) else None
    if not isinstance(wanted, str) or not is_digest(wanted):
        return None
    kind = document.get("artifactType") or (config.get("mediaType") if isinstance(config, dict) else "") or ""
    notes = document.get("annotations")
    return wanted, Descriptor(media_type, digest, len(data), str(kind), notes if isinstance(notes, dict) else None)


def write_index(descriptors: Iterable[Descriptor]) -> bytes:
    """Write the index of referrers."""
    manifests = [_described(each) for each in descriptors]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}).encode()


def _document(data: bytes) -> dict[str, Any]:
    try:
        document = strictjson.loads(data, max_bytes=_MAX_OCTETS, fractions=True)
    except strictjson.JsonRefused:
        return {}
    return document if isinstance(document, dict) else {}


def _descriptor(host: Host, entry: object) -> Descriptor:
    values: dict[str, Any] = entry if isinstance(entry, dict) else {}
    media_type, digest, size = values.get("mediaType"), values.get("digest"), values.get("size")
    kind, notes = values.get("artifactType", ""), values.get("annotations") or {}
    if (
        not isinstance(media_type, str)
        or not isinstance(digest, str)
        or not is_digest(digest)
        or not isinstance(size, int)
        or not isinstance(kind, str)
        or not isinstance(notes, dict)
    ):
        defect = "a list of referrers has an entry without type, digest or size"
        raise RegistryError("registry_answer_invalid", registry=host, defect=defect)
    return Descriptor(media_type, digest, size, kind, notes or None)


def _described(each: Descriptor) -> dict[str, Any]:
    document: dict[str, Any] = {"mediaType": each.media_type, "digest": each.digest, "size": each.size}
    if each.artifact_type:
        document["artifactType"] = each.artifact_type
    if each.annotations:
        document["annotations"] = dict(each.annotations)
    return document
