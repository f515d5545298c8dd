"""
The bundle archive: each root that was ever in a bundle, with the window in which it was there.

With it, evidence can be verified after its authority has gone. Owns the format of the archive file and how the current
bundles are recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from svc.identity.bundle import BundleMalformed, BundleSet, TrustAnchor, X509Bundle
from svc.identity.documents import (
    as_object,
    certificate_to_base64,
    format_time,
    load_document,
    member,
    only_certificate,
    parse_trust_domain,
    read_time,
    require_version,
    round_to_second,
)
from svc.identity.spiffeid import TrustDomain
from svc.strictjson import dumps

VERSION: Final = 1
TYPE: Final = "svc-bundle-archive/1"
#: Windows kept for each trust domain and kind; beyond it those that ended first are dropped.
MAX_WINDOWS: Final = 1024


@dataclass(frozen=True)
class BundleArchive:
    """SPIFFE and post-quantum roots with their windows; ``last_seen`` is None for a root that is still trusted."""

    spiffe: BundleSet = field(default_factory=BundleSet)
    pq: BundleSet = field(default_factory=BundleSet)

    @classmethod
    def parse(cls, data: bytes) -> BundleArchive:
        """
        Read the content of the file.

        Raises:
            BundleMalformed: with ``defect`` naming what was found.
        """
        document = load_document(data)
        require_version(document, VERSION)
        if document.get("type") != TYPE:
            raise BundleMalformed(defect=f"type is not {TYPE}")
        bundles: dict[str, list[X509Bundle]] = {"spiffe": [], "pq": []}
        for name, value in member(document, "trustDomains", dict, "").items():
            trust_domain = parse_trust_domain(name)
            where = f"trustDomains.{name}."
            entry = as_object(value, where)
            for kind, found in bundles.items():
                if kind in entry:
                    roots = member(entry, kind, list, where)
                    location = f"{where}{kind}."
                    anchors = tuple(_anchor(as_object(root, location), location) for root in roots)
                    found.append(X509Bundle(trust_domain, anchors))
        return cls(BundleSet.of(*bundles["spiffe"]), BundleSet.of(*bundles["pq"]))

    def serialize(self) -> bytes:
        """The content of the file; equal archives give equal octets."""
        domains: dict[str, dict[str, object]] = {}
        for kind, bundles in (("spiffe", self.spiffe), ("pq", self.pq)):
            for bundle in bundles:
                entry = domains.setdefault(bundle.trust_domain.name, {})
                entry[kind] = [_root(anchor) for anchor in bundle.anchors]
        return dumps({"v": VERSION, "type": TYPE, "trustDomains": dict(sorted(domains.items()))})

    def observe(self, spiffe: BundleSet, now: datetime, *, pq: BundleSet | None = None) -> BundleArchive:
        """
        Return an archive with the current bundles recorded; equal to this one when nothing changed.

        The window of a new root begins now, and that of a root that is absent ends now. A root that is added again gets
        a second window.

        Args:
            spiffe: all current SPIFFE bundles.
            now: the time, aware.
            pq: all current post-quantum bundles; None leaves those of the archive unchanged.
        """
        return BundleArchive(
            _observed(self.spiffe, spiffe, now), self.pq if pq is None else _observed(self.pq, pq, now)
        )


def _observed(archived: BundleSet, seen: BundleSet, now: datetime) -> BundleSet:
    domains: set[TrustDomain] = {*archived.trust_domains, *seen.trust_domains}
    return BundleSet.of(*(_observed_domain(domain, archived, seen, now) for domain in sorted(domains)))


def _observed_domain(domain: TrustDomain, archived: BundleSet, seen: BundleSet, now: datetime) -> X509Bundle:
    current = seen.bundle_for(domain).anchors if domain in seen else ()
    # A dict keeps the order of the bundle.
    missing = dict.fromkeys(anchor.certificate for anchor in current if anchor.trusted_at(now))
    anchors: list[TrustAnchor] = []
    for anchor in archived.bundle_for(domain).anchors if domain in archived else ():
        if anchor.last_seen is not None:
            anchors.append(anchor)
        elif anchor.certificate in missing:
            del missing[anchor.certificate]
            anchors.append(anchor)
        else:
            anchors.append(_closed(anchor, now))
    opened = round_to_second(now, up=False)
    anchors.extend(TrustAnchor(certificate, opened, None) for certificate in missing)
    return X509Bundle(domain, _bounded(anchors))


def _closed(anchor: TrustAnchor, now: datetime) -> TrustAnchor:
    end = round_to_second(now, up=True)
    # After the clock was set back, the window must not end before it begins.
    if anchor.first_seen is not None:
        end = max(end, anchor.first_seen)
    return TrustAnchor(anchor.certificate, anchor.first_seen, end)


def _bounded(anchors: list[TrustAnchor]) -> tuple[TrustAnchor, ...]:
    excess = len(anchors) - MAX_WINDOWS
    if excess <= 0:
        return tuple(anchors)
    closed = [(anchor.last_seen, index) for index, anchor in enumerate(anchors) if anchor.last_seen is not None]
    dropped = {index for _end, index in sorted(closed)[:excess]}
    return tuple(anchor for index, anchor in enumerate(anchors) if index not in dropped)


def _anchor(root: Mapping[str, object], where: str) -> TrustAnchor:
    certificate = only_certificate(root, where)
    first_seen = read_time(root, "firstSeen", where)
    last_seen = read_time(root, "lastSeen", where)
    if first_seen is None:
        raise BundleMalformed(defect=f"{where}firstSeen is absent")
    if last_seen is not None and last_seen < first_seen:
        raise BundleMalformed(defect=f"{where}lastSeen is before firstSeen")
    return TrustAnchor(certificate, first_seen, last_seen)


def _root(anchor: TrustAnchor) -> dict[str, object]:
    if anchor.first_seen is None:
        raise BundleMalformed(defect="a root without the time at which it was first seen does not belong in an archive")
    root: dict[str, object] = {
        "x5c": [certificate_to_base64(anchor.certificate)],
        "firstSeen": format_time(round_to_second(anchor.first_seen, up=False)),
    }
    if anchor.last_seen is not None:
        root["lastSeen"] = format_time(round_to_second(anchor.last_seen, up=True))
    return root
