"""
The file of post-quantum roots, and the rule that the sequence of a trust domain never decreases.

The file is separate from SPIFFE bundles because other implementations refuse a whole SPIFFE bundle for one unknown key
type. It is never fetched from the peer that is being verified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric import mldsa

from svc.errors import SvcError
from svc.identity.algorithms import certificate_key_algorithm
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
from svc.identity.errors import KeyNotAllowed
from svc.identity.spiffeid import TrustDomain
from svc.strictjson import Base64Refused, b64u_decode, b64u_encode, dumps

VERSION: Final = 1
#: The key type of RFC 9964.
KEY_TYPE: Final = "AKP"
_PUBLIC_KEYS: Final = (mldsa.MLDSA44PublicKey, mldsa.MLDSA65PublicKey, mldsa.MLDSA87PublicKey)


class SequenceFell(SvcError):
    """the post-quantum bundle of {trust_domain} has sequence {found} after {known}: {defect}"""

    reason = "sequence_fell"
    hint = "an old copy of the file was put in place; restore the newest one"
    defect: str


@dataclass(frozen=True)
class PqBundle:
    """The post-quantum roots of one trust domain and their version number."""

    sequence: int
    bundle: X509Bundle


@dataclass(frozen=True)
class PqBundles:
    """The post-quantum roots of all trusted domains."""

    entries: Mapping[TrustDomain, PqBundle] = field(default_factory=dict)
    #: The last sequence of each trust domain that was dropped.
    _dropped: Mapping[TrustDomain, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def after(cls, trust_domain: TrustDomain, sequence: int) -> PqBundles:
        """No roots yet; the first ones of the trust domain get a higher sequence than this one."""
        return cls({}, {trust_domain: sequence})

    @classmethod
    def parse(cls, data: bytes) -> PqBundles:
        """
        Read the content of the file; keys of an unknown type or algorithm are ignored.

        Raises:
            BundleMalformed: with ``defect`` naming what was found.
        """
        document = load_document(data)
        require_version(document, VERSION)
        entries: dict[TrustDomain, PqBundle] = {}
        for name, value in member(document, "trustDomains", dict, "").items():
            trust_domain = parse_trust_domain(name)
            where = f"trustDomains.{name}."
            entry = as_object(value, where)
            sequence = member(entry, "sequence", int, where)
            if sequence < 0:
                raise BundleMalformed(defect=f"{where}sequence is negative")
            keys = member(entry, "keys", list, where)
            anchors = [_anchor(as_object(key, f"{where}keys"), f"{where}keys.") for key in keys]
            known = tuple(anchor for anchor in anchors if anchor is not None)
            entries[trust_domain] = PqBundle(sequence, X509Bundle(trust_domain, known))
        return cls(entries)

    def serialize(self) -> bytes:
        """The content of the file; equal bundles give equal octets."""
        return dumps(
            {
                "v": VERSION,
                "trustDomains": {
                    trust_domain.name: {
                        "sequence": entry.sequence,
                        "keys": [_key(anchor) for anchor in entry.bundle.anchors],
                    }
                    for trust_domain, entry in sorted(self.entries.items())
                },
            }
        )

    def bundle_set(self) -> BundleSet:
        """The roots with their windows, in the form that the verification takes."""
        return BundleSet.of(*(entry.bundle for entry in self.entries.values()))

    def with_bundle(self, bundle: X509Bundle, sequence: int | None = None) -> PqBundles:
        """
        Return a copy with the roots of one trust domain replaced.

        Args:
            bundle: the roots.
            sequence: their version; by default the next one, or the current one when the roots do not change.

        Raises:
            SequenceFell: when the roots change and the sequence does not increase.
        """
        present = self.entries.get(bundle.trust_domain)
        if sequence is None:
            floor = present.sequence if present else self._dropped.get(bundle.trust_domain, 0)
            sequence = floor if present and present.bundle == bundle else floor + 1
        return self.advanced_to(PqBundles({**self.entries, bundle.trust_domain: PqBundle(sequence, bundle)}))

    def with_peer(self, bundle: X509Bundle, sequence: int) -> PqBundles:
        """
        Return a copy with the roots of a peer that somebody has judged already.

        Its sequence in the copy is at least the given one; one that has begun anew does not let it fall.
        """
        after = self.with_bundle(bundle)
        if after.entries[bundle.trust_domain].sequence < sequence:
            after = self.with_bundle(bundle, sequence)
        return after

    def without(self, trust_domain: TrustDomain) -> PqBundles:
        """Return a copy without a trust domain; the copy keeps its sequence, so that it cannot decrease later."""
        return self.advanced_to(PqBundles({name: e for name, e in self.entries.items() if name != trust_domain}))

    def advanced_to(self, newer: PqBundles) -> PqBundles:
        """
        Return a newer version of the file with the dropped sequences carried over.

        Raises:
            SequenceFell: when a sequence decreases, or is equal although the roots differ.
        """
        for trust_domain, entry in newer.entries.items():
            present = self.entries.get(trust_domain)
            known = present.sequence if present else self._dropped.get(trust_domain, 0)
            if entry.sequence < known:
                raise SequenceFell(
                    trust_domain=trust_domain, found=entry.sequence, known=known, defect="a sequence never falls"
                )
            if present and entry.sequence == known and entry.bundle != present.bundle:
                raise SequenceFell(
                    trust_domain=trust_domain, found=entry.sequence, known=known, defect="other roots, same sequence"
                )
        dropped = dict(self._dropped)
        dropped.update((name, e.sequence) for name, e in self.entries.items() if name not in newer.entries)
        return PqBundles(dict(newer.entries), {n: s for n, s in dropped.items() if n not in newer.entries})


def _anchor(key: Mapping[str, object], where: str) -> TrustAnchor | None:
    if member(key, "kty", str, where) != KEY_TYPE:
        return None
    algorithm = member(key, "alg", str, where)
    if algorithm not in {"ML-DSA-44", "ML-DSA-65", "ML-DSA-87"}:
        return None
    certificate = only_certificate(key, where)
    try:
        found = certificate_key_algorithm(certificate)
        public_key = b64u_decode(key.get("pub"))
    except (KeyNotAllowed, Base64Refused) as error:
        raise BundleMalformed(defect=f"{where}pub or the key of x5c cannot be read ({error})") from error
    in_certificate = certificate.public_key()
    if not isinstance(in_certificate, _PUBLIC_KEYS) or found.jose != algorithm:
        raise BundleMalformed(defect=f"{where}alg is {algorithm}, the certificate has {found}")
    if in_certificate.public_bytes_raw() != public_key:
        raise BundleMalformed(defect=f"{where}pub is not the key of the certificate")
    return TrustAnchor(certificate, read_time(key, "from", where), read_time(key, "until", where))


def _key(anchor: TrustAnchor) -> dict[str, object]:
    public_key = anchor.certificate.public_key()
    if not isinstance(public_key, _PUBLIC_KEYS):
        raise BundleMalformed(defect=f"a root with {certificate_key_algorithm(anchor.certificate)} is not post-quantum")
    key: dict[str, object] = {
        "kty": KEY_TYPE,
        "alg": certificate_key_algorithm(anchor.certificate).jose,
        "pub": b64u_encode(public_key.public_bytes_raw()),
        "x5c": [certificate_to_base64(anchor.certificate)],
    }
    if anchor.first_seen is not None:
        key["from"] = format_time(round_to_second(anchor.first_seen, up=False))
    if anchor.last_seen is not None:
        key["until"] = format_time(round_to_second(anchor.last_seen, up=True))
    return key
