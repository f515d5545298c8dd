"""
The workload statement: its payload, how it is issued and how it is verified.

Owns the payload of format ``svc-statement/1`` and the order of the checks that accept or refuse a statement. Does
not depend on HTTP or on where statements are stored; the time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final

from svc import naming
from svc.envelope.claims import Claims, seconds, utc_seconds
from svc.envelope.envelope import Envelope, sign_envelope
from svc.envelope.errors import Malformed
from svc.envelope.ids import NONCE_BYTES, new_nonce, statement_id
from svc.envelope.keys import Signer
from svc.envelope.profile import Profile
from svc.identity import SpiffeID, SvidEvidence, TrustDomain, X509Svid, certificate_sha256, spki_sha256
from svc.notary.errors import IdentityUnexpected, SignerChainUntrusted, StatementRefused
from svc.notary.facts import WorkloadFacts
from svc.notary.verification import Anchors, EnvelopeEvidence, verify_envelope
from svc.strictjson import b64u_encode, dumps

#: How far two clocks may be apart.
CLOCK_LEEWAY: Final = timedelta(seconds=60)
#: How long before its issue a statement is valid, for verifiers whose clock is behind.
_BACKDATED: Final = timedelta(seconds=30)
#: Path of the central issuer that each trust domain has by default.
_DEFAULT_ISSUER_PATH: Final = "/svc/manager"


class SelfIssued(Enum):
    """Whether statements that a workload issues for itself are accepted; a local choice."""

    ACCEPT = "accept"
    REFUSE = "refuse"


@dataclass(frozen=True)
class Statement:
    """
    A statement that was issued here.

    ``issued`` is ``iat``; ``expires`` is ``exp``, the earliest end among the subject's SVID and all signing leaves.
    """

    id: str
    envelope: Envelope
    claims: Mapping[str, object] = field(repr=False, hash=False)
    issued: datetime
    expires: datetime

    @property
    def payload(self) -> bytes:
        """The signed octets."""
        return self.envelope.payload


@dataclass(frozen=True)
class StatementEvidence:
    """
    A verified statement.

    Attributes:
        id: its identifier, computed from the payload.
        subject: the workload.
        issuer: who signed it.
        self_issued: whether the workload issued it for itself; then no other party confirms its pod facts.
        bound: whether it was tied to the current TLS connection.
        post_quantum: whether its signatures resist a quantum computer under the local profile.
        spki_sha256: base64url of the digest of the workload's public key.
        issued: ``iat``.
        not_before: ``nbf``.
        expires: ``exp``.
        claims: the payload as an object.
        envelope_evidence: what the signatures proved.
    """

    id: str
    subject: SpiffeID
    issuer: SpiffeID
    self_issued: bool
    bound: bool
    post_quantum: bool
    spki_sha256: str
    issued: datetime
    not_before: datetime
    expires: datetime
    claims: Mapping[str, object] = field(repr=False, hash=False)
    envelope_evidence: EnvelopeEvidence = field(repr=False)


def issue_statement(
    subject: X509Svid | SvidEvidence,
    facts: WorkloadFacts,
    signers: Sequence[Signer],
    now: datetime,
    random: Callable[[int], bytes],
    issuer: SpiffeID | None = None,
    life: timedelta | None = None,
) -> Statement:
    """
    Issue and sign a statement.

    Args:
        subject: the workload's SVID; a central issuer has that of the handshake.
        facts: the other facts about it.
        signers: the keys of the issuer with their leaves.
        now: the time of issue.
        random: returns that many secure random octets.
        issuer: the central issuer's identity; None where the workload issues its own.
        life: how long it is valid at most; None for as long as its certificates are.

    Raises:
        EnvelopeError: where the signers cannot make one envelope.
    """
    leaves = [subject.leaf] + [signer.chain[0] for signer in signers if signer.chain]
    issued = now.astimezone(UTC).replace(microsecond=0)
    expires = min(leaf.not_valid_after_utc for leaf in leaves)
    if life is not None:
        expires = min(expires, issued + life)
    not_before = max([issued - _BACKDATED, *(leaf.not_valid_before_utc for leaf in leaves)])
    claims: dict[str, object] = {
        "iss": str(issuer or subject.spiffe_id),
        "sub": str(subject.spiffe_id),
        "aud": naming.AUDIENCE_STATEMENT,
        "iat": seconds(issued),
        "nbf": seconds(min(not_before, issued)),
        "exp": seconds(expires),
        "jti": new_nonce(random(NONCE_BYTES)),
        "svc": {
            "v": 1,
            "trustDomain": str(subject.spiffe_id.trust_domain),
            **facts.claims(),
            "svid": {
                "x5t#S256": b64u_encode(certificate_sha256(subject.leaf)),
                "spki-sha256": b64u_encode(spki_sha256(subject.leaf)),
                "notAfter": utc_seconds(subject.leaf.not_valid_after_utc),
            },
            "truncated": list(facts.truncated),
        },
    }
    payload = dumps(claims)
    envelope = sign_envelope(payload, naming.TYPE_STATEMENT, signers)
    return Statement(id=statement_id(payload), envelope=envelope, claims=claims, issued=issued, expires=expires)


def verify_statement(
    envelope: Envelope | bytes,
    *,
    expected_id: str | None,
    profile: Profile,
    anchors: Anchors,
    now: datetime,
    peer: SvidEvidence | None,
    at_iat: bool = False,
    unbound_ok: bool = False,
    issuers: Sequence[SpiffeID] = (),
    self_issued: SelfIssued | None = None,
    expectations: Sequence[SpiffeID] = (),
    stale_since: datetime | None = None,
) -> StatementEvidence:
    """
    Verify a statement, in the order of the format; the first failure counts.

    Args:
        envelope: what was fetched.
        expected_id: the identifier it was fetched by, already parsed; None where there is none to compare (evidence).
        profile: the local profile.
        anchors: the local trust anchors.
        now: the time, aware.
        peer: the verified other end of the connection; None where there is none.
        at_iat: verify chains and validity at the statement's own ``iat`` (evidence) instead of ``now``.
        unbound_ok: accept a statement without a connection to tie it to; the evidence then has ``bound`` False.
        issuers: the central issuers; none given means ``spiffe://<trust domain>/svc/manager``.
        self_issued: whether a workload may issue its own; by default only where ``issuers`` is empty.
        expectations: the identities that are expected; empty means any.
        stale_since: when the trust bundles were last refreshed, where their source cannot be reached.

    Raises:
        EnvelopeError: with the reason.
    """
    parsed = envelope if isinstance(envelope, Envelope) else Envelope.parse(envelope)
    found_id = statement_id(parsed.payload)
    if expected_id is not None and found_id != expected_id:
        raise StatementRefused("id_mismatch", expected=expected_id, found=found_id)
    moment = verification_time(parsed, now) if at_iat else now
    signed = _verify_signatures(parsed, profile, anchors, moment, stale_since)
    claims = _StatementClaims.read(signed)
    is_self_issued = _check_issuer(signed, claims, issuers, self_issued)
    if claims.audience != naming.AUDIENCE_STATEMENT:
        raise StatementRefused("audience_mismatch", audience=claims.audience, expected=naming.AUDIENCE_STATEMENT)
    _check_time(claims, now, moment)
    _check_binding(claims, signed, peer, unbound_ok)
    if expectations and claims.subject not in expectations:
        expected = " or ".join(map(str, expectations))
        raise IdentityUnexpected(subject=claims.subject, expected=expected)
    return StatementEvidence(
        id=found_id,
        subject=claims.subject,
        issuer=signed.issuer,
        self_issued=is_self_issued,
        bound=peer is not None,
        post_quantum=signed.post_quantum,
        spki_sha256=claims.spki,
        issued=claims.issued,
        not_before=claims.not_before,
        expires=claims.expires,
        claims=signed.claims,
        envelope_evidence=signed,
    )


def verification_time(envelope: Envelope, now: datetime) -> datetime:
    """
    Return the time for which evidence is verified: the payload's own ``iat``, at most ``now`` plus the leeway of
    clocks.

    For a payload without one it is ``now``; the check of its claims refuses it.
    """
    issued = Claims.peek_time(envelope.payload, "iat")
    return now if issued is None else min(issued, now + CLOCK_LEEWAY)


@dataclass(frozen=True, slots=True)
class _StatementClaims:
    subject: SpiffeID
    audience: str
    issued: datetime
    not_before: datetime
    expires: datetime
    trust_domain: TrustDomain
    spki: str

    @classmethod
    def read(cls, signed: EnvelopeEvidence) -> _StatementClaims:
        claims = Claims(signed.claims)
        svc = claims.member("svc")
        svid = svc.member("svid")
        claims.nonce("jti")
        svid.digest("x5t#S256")
        svid.text("notAfter")
        _check_facts(svc)
        return cls(
            subject=claims.spiffe_id("sub"),
            audience=claims.text("aud"),
            issued=claims.time("iat"),
            not_before=claims.time("nbf"),
            expires=claims.time("exp"),
            trust_domain=svc.trust_domain("trustDomain"),
            spki=svid.digest("spki-sha256"),
        )


def _check_facts(svc: Claims) -> None:
    for name in ("namespace", "serviceAccount", "podName", "podUID", "node"):
        svc.text_or_null(name)
    for container in svc.objects("containers"):
        container.text("name")
        container.text("image")
        container.text_or_null("imageDigest")
        container.flag("init")
    for name in ("labels", "annotations"):
        svc.text_map_or_null(name)
    svc.texts("truncated")


def _verify_signatures(
    envelope: Envelope, profile: Profile, anchors: Anchors, moment: datetime, stale_since: datetime | None
) -> EnvelopeEvidence:
    try:
        return verify_envelope(envelope, typ=naming.TYPE_STATEMENT, profile=profile, anchors=anchors, now=moment)
    except SignerChainUntrusted as error:
        if stale_since is None:
            raise
        issuer = Claims.peek_text(envelope.payload, "iss")
        raise StatementRefused("bundle_stale", trust_domain=issuer, since=utc_seconds(stale_since)) from error


def _check_issuer(
    signed: EnvelopeEvidence,
    claims: _StatementClaims,
    issuers: Sequence[SpiffeID],
    self_issued: SelfIssued | None,
) -> bool:
    own_domain = claims.subject.trust_domain
    central = tuple(issuers) or (SpiffeID(own_domain, _DEFAULT_ISSUER_PATH),)
    is_self_issued = signed.issuer == claims.subject and signed.issuer not in central
    if is_self_issued:
        choice = self_issued or (SelfIssued.REFUSE if issuers else SelfIssued.ACCEPT)
        if choice is SelfIssued.REFUSE:
            raise StatementRefused("issuer_not_authorised", issuer=signed.issuer, subject=claims.subject)
    elif signed.issuer not in central:
        raise StatementRefused("issuer_not_authorised", issuer=signed.issuer, subject=claims.subject)
    for domain in (signed.issuer.trust_domain, claims.trust_domain):
        if domain != own_domain:
            raise StatementRefused("trust_domain_mismatch", claimed=domain, expected=own_domain)
    return is_self_issued


def _check_time(claims: _StatementClaims, now: datetime, moment: datetime) -> None:
    # Differences of times, never sums: the year 9999 plus the leeway would overflow.
    if claims.issued > claims.expires:
        raise Malformed(where="payload.exp", defect=f"{utc_seconds(claims.expires)} is before iat")
    if claims.issued - now > CLOCK_LEEWAY:
        start = f"was issued at {utc_seconds(claims.issued)}"
        raise StatementRefused("not_yet_valid", start=start, now=utc_seconds(now))
    if claims.not_before - moment > CLOCK_LEEWAY:
        start = f"is valid from {utc_seconds(claims.not_before)}"
        raise StatementRefused("not_yet_valid", start=start, now=utc_seconds(moment))
    if moment - claims.expires > CLOCK_LEEWAY:
        raise StatementRefused("expired", expires=utc_seconds(claims.expires), now=utc_seconds(moment))


def _check_binding(
    claims: _StatementClaims, signed: EnvelopeEvidence, peer: SvidEvidence | None, unbound_ok: bool
) -> None:
    if signed.issuer == claims.subject and signed.leaf_spki_sha256 != claims.spki:
        raise StatementRefused("key_mismatch", expected="the key that signed it")
    if peer is None:
        if not unbound_ok:
            raise StatementRefused("transport_unbound")
        return
    if peer.spiffe_id != claims.subject:
        raise StatementRefused("subject_mismatch", subject=claims.subject, peer=peer.spiffe_id)
    if b64u_encode(spki_sha256(peer.leaf)) != claims.spki:
        raise StatementRefused("key_mismatch", expected="the key of this connection")
