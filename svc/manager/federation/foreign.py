"""
The post-quantum roots of all peers as one document, which the agents of the nodes write beside those of the own domain.

They are those of the pinned packages, whatever the continuity is, as the bundles that SPIRE has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from svc.errors import SvcError
from svc.identity import TrustDomain
from svc.identity.pqbundle import PqBundle, PqBundles
from svc.kube.client import Object
from svc.manager.federation.peers import Pinned, duplicates, read_pinned
from svc.naming import MAX_FOREIGN_PQ
from svc.strictjson import b64u_encode


class RootsTooLarge(SvcError):
    """the post-quantum roots of {left_out} are not on the nodes: those of all peers have more than {limit} octets"""

    reason = "foreign_roots_large"
    hint = "delete the SvcForeignClusters of peers that are not needed any more"


@dataclass(frozen=True)
class PublishedRoots:
    """
    The document, in the format of the file of post-quantum bundles.

    Attributes:
        version: the digest of its octets.
        left_out: the names of the trust domains that have no place in it.
    """

    data: bytes
    version: str
    left_out: tuple[str, ...] = ()

    @classmethod
    def of(cls, peers: Iterable[PqBundles], *, limit: int = MAX_FOREIGN_PQ) -> Self:
        """Write the roots of peers, one each, as long as there is room; who comes first has it."""
        entries: dict[TrustDomain, PqBundle] = {}
        left_out: list[str] = []
        size = len(PqBundles().serialize())
        for peer in peers:
            size += len(peer.serialize())
            if size <= limit:
                entries.update(peer.entries)
            else:
                left_out += (each.name for each in peer.entries)
        data = PqBundles(entries).serialize()
        return cls(data, b64u_encode(hashlib.sha256(data).digest()), tuple(left_out))


class ForeignRoots:
    """
    Reads the objects of peers, each pinned package once.

    Args:
        own: the own trust domain, whose roots no peer gives.
    """

    def __init__(self, own: TrustDomain) -> None:
        self._own = own
        #: By the UID of the object: what its status has pinned, and what that says.
        self._read: dict[str, tuple[Any, PqBundles | None]] = {}

    def published(self, objects: Iterable[Object]) -> PublishedRoots:
        """Return the document for the objects of now; the oldest come first."""
        found = sorted(objects, key=lambda each: each["metadata"].get("creationTimestamp", ""))
        ignored = duplicates(found)
        former, self._read = self._read, {}
        for each in found:
            uid, data = each["metadata"]["uid"], _data(each)
            if uid in ignored:
                continue
            known = former.get(uid)
            self._read[uid] = known if known is not None and known[0] == data else (data, self._roots(each))
        return PublishedRoots.of(roots for _data, roots in self._read.values() if roots is not None)

    def _roots(self, found: Object) -> PqBundles | None:
        pinned: Pinned | None = read_pinned(found)
        if pinned is None:
            return None
        content = pinned.package.content
        if content.trust_domain == self._own or content.trust_domain.name != found["spec"]["trustDomain"]:
            return None
        return PqBundles({content.trust_domain: content.pq})


def _data(found: Object) -> Any:
    return ((found.get("status") or {}).get("pinned") or {}).get("data")
