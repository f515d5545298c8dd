"""
What a bootstrap package says: the claims of its payload as values, and their bounds.

Owns reading and writing of the payload, version 1. There is no secret in it: a private key in a bundle is refused.
Unknown members and unknown kinds of chains are ignored, so that a newer peer can add some.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from svc.envelope.claims import Claims, seconds
from svc.envelope.errors import Malformed
from svc.envelope.profile import Profile, ProfileUnknown
from svc.envelope.x5c import decode_certificate, encode_x5c, texts_of_x5c
from svc.errors import SvcError
from svc.federation.errors import PackageRefused
from svc.federation.fingerprint import Fingerprint
from svc.federation.roots import FederationRoots
from svc.identity import SpiffeID, TrustDomain
from svc.identity.bundle import X509Bundle
from svc.identity.pqbundle import VERSION as PQ_BUNDLE_VERSION
from svc.identity.pqbundle import PqBundle, PqBundles
from svc.identity.trustbundle import parse_bundle_file
from svc.strictjson import b64u_decode, b64u_encode, dumps, loads_object

VERSION: Final = 1
#: What a package is made for; a longer life is refused.
LIFETIME: Final = timedelta(days=30)
MAX_CHAINS: Final = 16
#: Roots and JWT keys in the bundle.
MAX_KEYS: Final = 64
MAX_PROFILES: Final = 8
MAX_PATH: Final = 256
#: A week, in seconds.
MAX_REFRESH_HINT: Final = 7 * 86_400
#: The kind of endpoint at which packages and bundles are fetched (SPIFFE Federation, section 5.2.2).
HTTPS_SPIFFE: Final = "https_spiffe"
PURPOSES: Final = ("x509-svid", "svc-pq", "m2m")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)+\Z")
#: Members of a JWK that hold a private or a symmetric key (RFC 7518, section 6; RFC 9964, section 3).
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"})


@dataclass(frozen=True)
class Previous:
    """The roots before: their sequence, and their fingerprint."""

    sequence: int
    fingerprint: Fingerprint


@dataclass(frozen=True)
class Chain:
    """Certificates that lead to a root of a bundle, which is the last of them; ``purpose`` is one of ``PURPOSES``."""

    purpose: str
    certificates: tuple[x509.Certificate, ...] = field(repr=False)


@dataclass(frozen=True)
class PeerBundle:
    """
    The SPIFFE bundle of the peer (SPIFFE Trust Domain and Bundle, section 4).

    Attributes:
        sequence: ``spiffe_sequence``.
        refresh_hint: how often it is to be fetched, in seconds.
        keys: the JWK set as it was received, JWT keys among it.
        roots: the X.509 roots in it; none where all are revoked.
    """

    sequence: int
    refresh_hint: int
    keys: tuple[Mapping[str, object], ...] = field(repr=False, hash=False)
    roots: X509Bundle = field(repr=False)

    def to_document(self) -> dict[str, object]:
        """Return the bundle as its JSON document."""
        return {
            "spiffe_sequence": self.sequence,
            "spiffe_refresh_hint": self.refresh_hint,
            "keys": [dict(each) for each in self.keys],
        }


@dataclass(frozen=True)
class M2MEndpoint:
    """Who answers at the peer's endpoint, by which protocols, and at which paths."""

    spiffe_id: SpiffeID
    bundle_path: str = "/v1/bundle"
    package_path: str = "/v1/bootstrap-package"
    profiles: tuple[str, ...] = (HTTPS_SPIFFE,)


@dataclass(frozen=True)
class PackageContent:
    """
    The content of a bootstrap package; whether it is signed is :class:`svc.federation.package.VerifiedPackage`.

    Attributes:
        issuer: who made it, of its trust domain.
        issued: ``iat``; the same sequence is signed anew with a later one.
        expires: the first instant at which it does not count any more.
        sequence: counts sets of roots, from 1.
        roots: the federation roots, which sign it.
        previous: those before; None for the first sequence.
        chains: of the known purposes.
        bundle: its SPIFFE bundle.
        pq: its post-quantum roots, as in the file of post-quantum bundles.
        m2m: where it is renewed.
        min_profile: what the peer demands of whom it verifies.
    """

    issuer: SpiffeID
    issued: datetime
    expires: datetime
    trust_domain: TrustDomain
    sequence: int
    roots: FederationRoots
    previous: Previous | None
    chains: tuple[Chain, ...]
    bundle: PeerBundle
    pq: PqBundle
    m2m: M2MEndpoint
    min_profile: Profile = Profile.HYBRID

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of roots and trust domain."""
        return self.roots.fingerprint(self.trust_domain)

    @classmethod
    def from_payload(cls, payload: bytes) -> PackageContent:
        """
        Read a payload; no signature is verified here.

        Raises:
            EnvelopeError: for another version.
            Malformed: for JSON that is not strict, and for a claim that is missing, mistyped or beyond its bound.
            PackageRefused: for an issuer of another trust domain.
        """
        claims = Claims.of_version(payload, VERSION)
        inner = claims.member("svc")
        trust_domain = inner.trust_domain("trustDomain")
        issuer = claims.spiffe_id("iss")
        if issuer.trust_domain != trust_domain:
            raise PackageRefused("issuer_mismatch", trust_domain=trust_domain, found=issuer)
        bundle, pq = _bundle(inner, trust_domain), _pq_bundle(inner, trust_domain)
        found = cls(
            issuer=issuer,
            issued=claims.time("iat"),
            expires=claims.time("exp"),
            trust_domain=trust_domain,
            sequence=_at_least_one(inner, "sequence"),
            roots=FederationRoots.from_claims(inner),
            previous=_previous(inner),
            chains=_chains(inner, bundle.roots, pq.bundle),
            bundle=bundle,
            pq=pq,
            m2m=_m2m(inner, trust_domain),
            min_profile=_profile(inner.member("policy")),
        )
        if not timedelta(0) < found.expires - found.issued <= LIFETIME:
            raise claims.mistyped("exp", f"a time after iat, at most {LIFETIME.days} days")
        if inner.text("fingerprint") != found.fingerprint.grouped:
            raise inner.mistyped("fingerprint", "that of the roots and the trust domain, in groups of 4")
        return found

    def to_payload(self) -> bytes:
        """Write the payload; :meth:`from_payload` reads it back to equal content."""
        previous = self.previous
        inner: dict[str, object] = {
            "trustDomain": self.trust_domain.name,
            "sequence": self.sequence,
            "roots": self.roots.to_claims(),
        }
        if previous is not None:
            inner["previous"] = {
                "sequence": previous.sequence,
                "digest": b64u_encode(previous.fingerprint.octets),
            }
        inner |= {
            "fingerprint": self.fingerprint.grouped,
            "chains": [
                {"purpose": chain.purpose, "x5c": list(encode_x5c(chain.certificates))} for chain in self.chains
            ],
            "bundle": self.bundle.to_document(),
            "pqBundle": _pq_entry(self.trust_domain, self.pq),
            "m2m": {
                "spiffeID": str(self.m2m.spiffe_id),
                "profiles": list(self.m2m.profiles),
                "paths": {"bundle": self.m2m.bundle_path, "package": self.m2m.package_path},
            },
            "policy": {"minProfile": self.min_profile.value},
        }
        return dumps(
            {
                "v": VERSION,
                "iss": str(self.issuer),
                "iat": seconds(self.issued),
                "exp": seconds(self.expires),
                "svc": inner,
            }
        )


def _at_least_one(claims: Claims, name: str) -> int:
    value = claims.integer(name)
    if value < 1:
        raise claims.mistyped(name, "an integer of at least 1")
    return value


def _previous(claims: Claims) -> Previous | None:
    sequence = claims.integer("sequence")
    if claims.members.get("previous") is None:
        if sequence != 1:
            raise claims.mistyped("previous", "the roots before")
        return None
    inner = claims.member("previous")
    before = inner.integer("sequence")
    if before != sequence - 1 or before < 1:
        raise inner.mistyped("sequence", "the sequence before, and none before the first")
    return Previous(before, Fingerprint(b64u_decode(inner.digest("digest"))))


def _chains(claims: Claims, roots: X509Bundle, pq_roots: X509Bundle) -> tuple[Chain, ...]:
    items = claims.objects("chains")
    if len(items) > MAX_CHAINS:
        raise claims.mistyped("chains", f"at most {MAX_CHAINS} chains")
    found = []
    for item in items:
        purpose = item.text("purpose")
        if purpose not in PURPOSES:
            continue
        texts = texts_of_x5c(item.members.get("x5c"), f"{item.where}.x5c")
        certificates = tuple(decode_certificate(text, f"{item.where}.x5c[{index}]") for index, text in enumerate(texts))
        if certificates[-1] not in (pq_roots if purpose == "svc-pq" else roots):
            raise item.mistyped("x5c", "certificates of which the last is a root of the bundle")
        found.append(Chain(purpose, certificates))
    return tuple(found)


def _bundle(claims: Claims, trust_domain: TrustDomain) -> PeerBundle:
    inner = claims.member("bundle")
    keys = _public_keys(inner)
    hint = _at_least_one(inner, "spiffe_refresh_hint")
    if hint > MAX_REFRESH_HINT:
        raise inner.mistyped("spiffe_refresh_hint", f"at most {MAX_REFRESH_HINT} seconds")
    document = dumps({"keys": [each.members for each in keys]})
    try:
        roots = parse_bundle_file(document, trust_domain).bundle_for(trust_domain)
    except SvcError as error:
        raise Malformed(where=inner.where, defect=str(error)) from error
    return PeerBundle(inner.integer("spiffe_sequence"), hint, tuple(dict(each.members) for each in keys), roots)


def _pq_bundle(claims: Claims, trust_domain: TrustDomain) -> PqBundle:
    inner = claims.member("pqBundle")
    _public_keys(inner)
    try:
        document = {"v": PQ_BUNDLE_VERSION, "trustDomains": {trust_domain.name: inner.members}}
        return PqBundles.parse(dumps(document)).entries[trust_domain]
    except SvcError as error:
        raise Malformed(where=inner.where, defect=str(error)) from error


def _pq_entry(trust_domain: TrustDomain, pq: PqBundle) -> object:
    """The entry of one trust domain, as the file of post-quantum bundles has it."""
    document = Claims(loads_object(PqBundles({trust_domain: pq}).serialize()))
    return document.member("trustDomains").member(trust_domain.name).members


def _public_keys(claims: Claims) -> tuple[Claims, ...]:
    keys = claims.objects("keys")
    if len(keys) > MAX_KEYS:
        raise claims.mistyped("keys", f"at most {MAX_KEYS} keys")
    for key in keys:
        if not _PRIVATE.isdisjoint(key.members):
            raise Malformed(where=key.where, defect="a private key, which is in no package")
    return keys


def _m2m(claims: Claims, trust_domain: TrustDomain) -> M2MEndpoint:
    inner = claims.member("m2m")
    spiffe_id = inner.spiffe_id("spiffeID")
    if spiffe_id.trust_domain != trust_domain or not spiffe_id.path:
        raise inner.mistyped("spiffeID", "an identity of the trust domain of the package")
    profiles = inner.texts("profiles")
    if len(profiles) > MAX_PROFILES or HTTPS_SPIFFE not in profiles:
        raise inner.mistyped("profiles", f"at most {MAX_PROFILES} names, {HTTPS_SPIFFE} among them")
    paths = inner.member("paths")
    return M2MEndpoint(spiffe_id, _path(paths, "bundle"), _path(paths, "package"), profiles)


def _path(claims: Claims, name: str) -> str:
    text = claims.text(name)
    if len(text) > MAX_PATH or not _PATH.match(text):
        raise claims.mistyped(name, f"a path of at most {MAX_PATH} characters without dot segments")
    return text


def _profile(claims: Claims) -> Profile:
    try:
        return Profile.parse(claims.text("minProfile"))
    except ProfileUnknown as error:
        raise claims.mistyped("minProfile", "the name of a profile") from error
