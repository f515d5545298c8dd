"""
The post-quantum roots of all peers as one document, which the agents of the nodes write beside those of the own domain.

They are those of the pinned packages, whatever the continuity is, as the bundles that SPIRE has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

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


def published_roots(
    objects: Iterable[Object], own: TrustDomain, read: Callable[[Object], Pinned | None] = read_pinned
) -> PublishedRoots:
    """
    Return the document for the objects of peers; the oldest come first.

    Args:
        own: the own trust domain, whose roots no peer gives.
        read: returns what an object has pinned.
    """
    found = sorted(objects, key=lambda each: each["metadata"].get("creationTimestamp", ""))
    ignored = duplicates(found)
    counting = [each for each in found if each["metadata"]["uid"] not in ignored]
    roots = [_roots(each, own, read(each)) for each in counting]
    return PublishedRoots.of(each for each in roots if each is not None)


def _roots(found: Object, own: TrustDomain, pinned: Pinned | None) -> PqBundles | None:
    if pinned is None:
        return None
    content = pinned.package.content
    if content.trust_domain == own or content.trust_domain.name != found["spec"]["trustDomain"]:
        return None
    return PqBundles({content.trust_domain: content.pq})
