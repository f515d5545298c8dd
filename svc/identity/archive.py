"""
The memory of roots: each one that ever stood in a bundle, with the window in which it stood there.

Owns the format of the archive file and how a new bundle is entered. Knows nothing of where the file lies. It lets
evidence outlive the authority that issued it: a root counts inside its window and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from svc.identity.bundle import BundleMalformed, BundleSet, TrustAnchor, X509Bundle
from svc.identity.documents import (
    as_object,
    certificate_from_base64,
    certificate_to_base64,
    instant_from,
    instant_to,
    load_document,
    member,
    require_version,
    trust_domain_named,
    whole_second,
)
from svc.identity.spiffeid import TrustDomain
from svc.strictjson import dumps

VERSION: Final = 1
TYPE: Final = "svc-bundle-archive/1"
#: The most windows kept of one trust domain and kind; beyond it the oldest closed ones are forgotten.
MAX_WINDOWS: Final = 1024


@dataclass(frozen=True)
class BundleArchive:
    """
    SPIFFE roots and post-quantum roots with their windows. An open window (``last_seen`` is None) is a root that
    still counts.
    """

    spiffe: BundleSet = field(default_factory=BundleSet)
    pq: BundleSet = field(default_factory=BundleSet)

    @classmethod
    def parse(cls, data: bytes) -> BundleArchive:
        """
        Read the file.

        Args:
            data: its content.

        Returns:
            The archive.

        Raises:
            BundleMalformed: with ``defect`` naming what was found.
        """
        document = load_document(data)
        require_version(document, VERSION)
        if document.get("type") != TYPE:
            raise BundleMalformed(defect=f"type is not {TYPE}")
        bundles: dict[str, list[X509Bundle]] = {"spiffe": [], "pq": []}
        for name, value in member(document, "trustDomains", dict, "").items():
            trust_domain = trust_domain_named(name)
            where = f"trustDomains.{name}."
            entry = as_object(value, where)
            for kind, found in bundles.items():
                if kind in entry:
                    roots = member(entry, kind, list, where)
                    place = f"{where}{kind}."
                    anchors = tuple(_anchor(as_object(root, place), place) for root in roots)
                    found.append(X509Bundle(trust_domain, anchors))
        return cls(BundleSet.of(*bundles["spiffe"]), BundleSet.of(*bundles["pq"]))

    def serialize(self) -> bytes:
        """
        Write the file.

        Returns:
            Its content; equal archives give equal octets.
        """
        domains: dict[str, dict[str, object]] = {}
        for kind, bundles in (("spiffe", self.spiffe), ("pq", self.pq)):
            for bundle in bundles:
                entry = domains.setdefault(bundle.trust_domain.name, {})
                entry[kind] = [_root(anchor) for anchor in bundle.anchors]
        return dumps({"v": VERSION, "type": TYPE, "trustDomains": dict(sorted(domains.items()))})

    def observe(self, spiffe: BundleSet, now: datetime, *, pq: BundleSet | None = None) -> BundleArchive:
        """
        Enter the bundles that are in force now.

        New roots get a window that opens now; roots that are gone get theirs closed now; one that comes back gets a
        second window.

        Args:
            spiffe: all SPIFFE bundles in force.
            now: the time, aware.
            pq: all post-quantum bundles in force; None leaves what the archive has.

        Returns:
            A new archive; equal to this one when nothing changed.
        """
        return BundleArchive(
            _observed(self.spiffe, spiffe, now), self.pq if pq is None else _observed(self.pq, pq, now)
        )

    def bundle_set(self) -> BundleSet:
        """
        Give the SPIFFE roots to the verification.

        Returns:
            One bundle a trust domain, with windows; the post-quantum ones are ``pq``.
        """
        return self.spiffe


def _observed(archived: BundleSet, seen: BundleSet, now: datetime) -> BundleSet:
    domains: set[TrustDomain] = {*archived.trust_domains, *seen.trust_domains}
    return BundleSet.of(*(_observed_domain(domain, archived, seen, now) for domain in sorted(domains)))


def _observed_domain(domain: TrustDomain, archived: BundleSet, seen: BundleSet, now: datetime) -> X509Bundle:
    in_force = seen.bundle_for(domain).anchors if domain in seen else ()
    # A dict keeps the order in which the bundle lists them.
    missing = dict.fromkeys(anchor.certificate for anchor in in_force if anchor.counts_at(now))
    anchors: list[TrustAnchor] = []
    for anchor in archived.bundle_for(domain).anchors if domain in archived else ():
        if anchor.last_seen is not None:
            anchors.append(anchor)
        elif anchor.certificate in missing:
            del missing[anchor.certificate]
            anchors.append(anchor)
        else:
            anchors.append(_closed(anchor, now))
    opened = whole_second(now, up=False)
    anchors.extend(TrustAnchor(certificate, opened, None) for certificate in missing)
    return X509Bundle(domain, _bounded(anchors))


def _closed(anchor: TrustAnchor, now: datetime) -> TrustAnchor:
    end = whole_second(now, up=True)
    # A clock that was set back must not produce a window that ends before it begins.
    if anchor.first_seen is not None:
        end = max(end, anchor.first_seen)
    return TrustAnchor(anchor.certificate, anchor.first_seen, end)


def _bounded(anchors: list[TrustAnchor]) -> tuple[TrustAnchor, ...]:
    excess = len(anchors) - MAX_WINDOWS
    if excess <= 0:
        return tuple(anchors)
    closed = [(anchor.last_seen, place) for place, anchor in enumerate(anchors) if anchor.last_seen is not None]
    forgotten = {place for _end, place in sorted(closed)[:excess]}
    return tuple(anchor for place, anchor in enumerate(anchors) if place not in forgotten)


def _anchor(root: Mapping[str, object], where: str) -> TrustAnchor:
    chain = member(root, "x5c", list, where)
    if len(chain) != 1:
        raise BundleMalformed(defect=f"{where}x5c has {len(chain)} values, expected exactly one")
    first_seen = instant_from(root, "firstSeen", where)
    last_seen = instant_from(root, "lastSeen", where)
    if first_seen is None:
        raise BundleMalformed(defect=f"{where}firstSeen is absent")
    if last_seen is not None and last_seen < first_seen:
        raise BundleMalformed(defect=f"{where}lastSeen is before firstSeen")
    return TrustAnchor(certificate_from_base64(chain[0], where), first_seen, last_seen)


def _root(anchor: TrustAnchor) -> dict[str, object]:
    if anchor.first_seen is None:
        raise BundleMalformed(defect="a root without the time at which it was first seen does not belong in an archive")
    root: dict[str, object] = {
        "x5c": [certificate_to_base64(anchor.certificate)],
        "firstSeen": instant_to(whole_second(anchor.first_seen, up=False)),
    }
    if anchor.last_seen is not None:
        root["lastSeen"] = instant_to(whole_second(anchor.last_seen, up=True))
    return root
