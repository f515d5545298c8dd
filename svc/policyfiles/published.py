"""
Policies as a manager publishes them for one namespace: ``{"v":1,"documents":[…]}``, with a version.

Owns the format, its limit and the version, which is the digest of the octets.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from svc.errors import Reason, SvcError
from svc.policyfiles.document import DenyListDocument, PolicyDocument
from svc.policyfiles.files import KINDS, PodLabels, PolicyFiles, policy_files
from svc.settings import validate_all
from svc.strictjson import JsonRefused, b64u_encode, dumps, loads_object

#: Octets; what a ConfigMap can hold.
MAX_PUBLISHED: Final = 1024 * 1024
#: A document of 1 MiB with the shortest values that mean something has fewer.
_MAX_NODES: Final = 256 * 1024


class PublishedRefused(SvcError):
    """published policies are not usable"""

    reason = "policies_malformed"
    hint = "is the manager of another version? the policies in force stay"
    reasons = {
        "policies_malformed": Reason("the policies of {origin} are not usable: {defect}"),
        "policies_large": Reason(
            "the policies of the namespace {namespace} have {size} octets, at most {limit} are published",
            "use path prefixes, templates and several values in one rule",
        ),
    }


@dataclass(frozen=True, slots=True)
class PublishedPolicies:
    """The documents of one namespace as they are sent, and their version."""

    data: bytes
    version: str

    @classmethod
    def of(cls, namespace: str, documents: Sequence[Mapping[str, object]]) -> Self:
        """Write documents; raises :class:`PublishedRefused` if they are too large."""
        data = dumps({"v": 1, "documents": list(documents)})
        if len(data) > MAX_PUBLISHED:
            raise PublishedRefused("policies_large", namespace=namespace, size=len(data), limit=MAX_PUBLISHED)
        return cls(data, b64u_encode(hashlib.sha256(data).digest()))


def read_published(data: bytes, version: str, origin: str, labels: PodLabels) -> PolicyFiles:
    """
    Read published policies as those of files are read, whole or not at all.

    Args:
        data: the octets.
        version: under which the manager published them.
        origin: names the manager.
        labels: read where a ``podSelector`` selects by them.

    Raises:
        PublishedRefused: they are not of this format.
        ConfigInvalid, ConfigUnreadable, PolicyFilesRefused: a document is not valid, or they do not fit together.
    """
    try:
        document = loads_object(data, max_bytes=MAX_PUBLISHED, max_nodes=_MAX_NODES)
    except JsonRefused as error:
        raise PublishedRefused("policies_malformed", origin=origin, defect=error.defect) from error
    found = document.get("documents")
    if document.get("v") != 1 or not isinstance(found, list):
        raise PublishedRefused("policies_malformed", origin=origin, defect="no list of documents of version 1")
    documents: list[PolicyDocument | DenyListDocument] = validate_all(found, KINDS, origin)
    return policy_files([(origin, each) for each in documents], (), version, labels, origin=origin)
