"""
Reads, verifies and signs bootstrap packages: envelopes ``svc-bootstrap+jws`` with two members that no payload holds.

``hints`` says where the peer can be reached; nobody signs it. ``previousSignatures`` are the signatures of the roots
before over the same payload: a package whose roots are new has them, so that those who pinned the roots before can
follow (:mod:`svc.federation.succession`).

Owns the order of checks, in which the first failure wins: size, JSON, shape, each protected header, set, algorithms,
key identifiers, payload and version, issuer, the other claims, the endpoint, then the roots that signed, and the
signatures. The time is no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from svc import naming
from svc.envelope.claims import Claims, utc_seconds
from svc.envelope.envelope import Envelope, SignatureEntry, check_headers, check_set, sign_envelope
from svc.envelope.errors import EnvelopeError, Malformed
from svc.envelope.keys import Signer, verify_signature
from svc.envelope.profile import POST_QUANTUM_ALGORITHMS
from svc.federation.endpoint import Endpoint
from svc.federation.errors import PackageRefused
from svc.federation.payload import PackageContent
from svc.federation.reference import FederationReference
from svc.federation.roots import CLASSICAL, POST_QUANTUM, FederationRoots

HINTS: Final = "hints"
PREVIOUS_SIGNATURES: Final = "previousSignatures"
_ENDPOINT: Final = "m2mEndpoint"
#: How far the clock of the peer may be ahead.
CLOCK_LEEWAY: Final = timedelta(seconds=60)


@dataclass(frozen=True)
class BootstrapPackage:
    """
    A package that was read, not verified.

    Attributes:
        previous_signatures: those of the roots before; none where the package does not have them.
        endpoint: the unsigned hint; None where there is none.
    """

    envelope: Envelope = field(repr=False)
    content: PackageContent
    previous_signatures: tuple[SignatureEntry, ...] = field(default=(), repr=False)
    endpoint: Endpoint | None = None

    @classmethod
    def parse(cls, data: bytes) -> BootstrapPackage:
        """
        Read the octets of a package.

        Raises:
            EnvelopeError: with the reason of the first failed check, up to those of the signatures.
        """
        return cls.from_envelope(Envelope.parse(data))

    @classmethod
    def from_envelope(cls, envelope: Envelope) -> BootstrapPackage:
        """Read an envelope; raises as :meth:`parse`."""
        _check_entries(envelope.signatures, "signatures")
        previous = _previous_signatures(envelope.extra)
        content = PackageContent.from_payload(envelope.payload)
        if previous and content.previous is None:
            raise Malformed(where=PREVIOUS_SIGNATURES, defect="the first roots have none before them")
        return cls(envelope, content, previous, _hint(envelope.extra))

    @property
    def reference(self) -> FederationReference:
        """The federation reference of trust domain, roots and hint."""
        return FederationReference(self.content.trust_domain, self.content.fingerprint, self.endpoint)

    def verify(self) -> VerifiedPackage:
        """
        Verify the signatures by the package's own roots.

        Raises:
            PackageRefused: for a signature by another key.
            EnvelopeError: for a signature that is not valid.
        """
        self.check_signatures(self.envelope.signatures, self.content.roots)
        return VerifiedPackage(self)

    def check_signatures(self, entries: Sequence[SignatureEntry], roots: FederationRoots) -> None:
        """Verify signatures over the payload by roots; raises as :meth:`verify`."""
        kids, keys = roots.kids, roots.keys
        for entry in entries:
            expected = kids.get(entry.alg, "of another algorithm")
            if entry.protected.kid != expected:
                raise PackageRefused("root_mismatch", alg=entry.alg, found=entry.protected.kid, expected=expected)
        for entry in entries:
            verify_signature(entry.alg, keys[entry.alg], self.envelope.signing_input(entry), entry.signature)

    def with_endpoint(self, endpoint: Endpoint | None) -> BootstrapPackage:
        """Return a copy with another hint, or with none."""
        extra = {name: value for name, value in self.envelope.extra.items() if name != HINTS}
        if endpoint is not None:
            extra[HINTS] = {_ENDPOINT: str(endpoint)}
        envelope = Envelope(self.envelope.payload, self.envelope.signatures, extra)
        return BootstrapPackage(envelope, self.content, self.previous_signatures, endpoint)

    def serialize(self) -> bytes:
        """
        Write the package; :meth:`parse` reads it back to an equal one.

        Raises:
            EnvelopeError: where it is too large for any reader.
        """
        return self.envelope.serialize()


@dataclass(frozen=True)
class VerifiedPackage:
    """A package whose signatures are valid. :meth:`BootstrapPackage.verify` makes it."""

    package: BootstrapPackage

    @property
    def content(self) -> PackageContent:
        """What it says."""
        return self.package.content

    def check_time(self, now: datetime) -> None:
        """
        Check that the package counts at an aware time.

        Raises:
            PackageRefused: it has expired, or was made in the future.
        """
        found = self.content
        if now >= found.expires:
            raise PackageRefused(
                "package_expired",
                trust_domain=found.trust_domain,
                expires=utc_seconds(found.expires),
                now=utc_seconds(now),
            )
        if found.issued > now + CLOCK_LEEWAY:
            raise PackageRefused(
                "package_not_yet_valid",
                trust_domain=found.trust_domain,
                issued=utc_seconds(found.issued),
                now=utc_seconds(now),
            )


def verify_package(data: bytes) -> VerifiedPackage:
    """
    Read and verify a package, whose roots are not trusted by that.

    Raises:
        EnvelopeError: with the reason of the first failed check.
    """
    return BootstrapPackage.parse(data).verify()


def sign_package(
    content: PackageContent,
    signers: Sequence[Signer],
    *,
    previous: Sequence[Signer] = (),
    endpoint: Endpoint | None = None,
) -> VerifiedPackage:
    """
    Sign a package.

    Args:
        content: what it says.
        signers: both federation roots, as raw keys.
        previous: both roots before, for the package that introduces new ones.
        endpoint: the unsigned hint.

    Raises:
        EnvelopeError: for other keys than those of the content, and for content that no reader accepts.
    """
    payload = content.to_payload()
    envelope = sign_envelope(payload, naming.TYPE_BOOTSTRAP, signers)
    if previous:
        before = sign_envelope(payload, naming.TYPE_BOOTSTRAP, previous)
        envelope = envelope.with_extra(**{PREVIOUS_SIGNATURES: before.to_object()["signatures"]})
    return BootstrapPackage.from_envelope(envelope).with_endpoint(endpoint).verify()


def _check_entries(entries: Sequence[SignatureEntry], where: str) -> None:
    """Check everything of two signatures that does not need their keys."""
    headers = tuple(entry.protected for entry in entries)
    check_headers(headers, naming.TYPE_BOOTSTRAP)
    check_set(headers)
    classical = [entry.alg for entry in entries if entry.alg not in POST_QUANTUM_ALGORITHMS]
    post_quantum = [entry.alg for entry in entries if entry.alg in POST_QUANTUM_ALGORITHMS]
    for found, allowed, missing in (
        (classical, CLASSICAL, "a classical signature"),
        (post_quantum, (POST_QUANTUM,), "an ML-DSA signature"),
    ):
        if not found:
            raise EnvelopeError("hybrid_incomplete", profile="of a bootstrap package", missing=missing)
        if found[0] not in allowed:
            detail = f"a bootstrap package is signed with Ed25519 or ES384, and with {POST_QUANTUM}"
            raise EnvelopeError("alg_not_allowed", alg=found[0], detail=detail)
    for index, entry in enumerate(entries):
        if entry.x5c or entry.protected.thumbprint is not None or entry.protected.kid is None:
            raise Malformed(
                where=f"{where}[{index}]", defect="a bootstrap package has kid in its headers, and no certificates"
            )


def _previous_signatures(extra: Mapping[str, object]) -> tuple[SignatureEntry, ...]:
    if PREVIOUS_SIGNATURES not in extra:
        return ()
    items = extra[PREVIOUS_SIGNATURES]
    if not isinstance(items, list) or len(items) != 2:
        raise Malformed(where=PREVIOUS_SIGNATURES, defect="not an array of 2 signatures")
    entries = tuple(
        SignatureEntry.from_object(item, f"{PREVIOUS_SIGNATURES}[{index}]") for index, item in enumerate(items)
    )
    _check_entries(entries, PREVIOUS_SIGNATURES)
    return entries


def _hint(extra: Mapping[str, object]) -> Endpoint | None:
    if HINTS not in extra:
        return None
    hints = Claims(extra, "the document").member(HINTS)
    text = hints.text_or_null(_ENDPOINT)
    try:
        return None if text is None else Endpoint.parse(text)
    except ValueError as error:
        raise PackageRefused("bad_endpoint", text=text, defect=str(error)) from error
