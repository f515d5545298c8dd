"""
The post-quantum issuer: the ML-DSA root of a trust domain, its challenges, and the leaf that is issued beside an SVID.

Owns the content of root and leaf, and the checks before a leaf is issued. Names come only out of a verified SVID of the
issuer's own trust domain. No socket, clock or file: the time and randomness are arguments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import mldsa
from cryptography.x509.oid import NameOID

from svc.envelope.errors import EnvelopeError
from svc.envelope.keys import MlDsaPrivateKey, MlDsaPublicKey
from svc.identity.binding import binding_extension
from svc.identity.bundle import BundleSet
from svc.identity.rules import key_usage
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.identity.verification import SvidEvidence, verify_svid
from svc.notary.errors import NotaryRefused
from svc.notary.pqleaf import PqLeafRequest, PqLeafResponse, check_proof, claimed_challenge
from svc.strictjson import b64u_encode

#: How long a challenge is valid.
CHALLENGE_TTL: Final = timedelta(seconds=60)
#: A workload needs one for each rotation; 1,024 within a minute are a thousand workloads at once, in 220 kB.
MAX_CHALLENGES: Final = 1024


class Challenges:
    """
    The challenges that were issued and not yet used, shared between callers.

    Only the caller that a challenge was issued to can use it, once. When the limit is reached, the oldest challenge of
    the caller that holds most is evicted, the new one counted: no caller loses one to a caller that holds more.

    Args:
        random: returns that many unpredictable octets.
        ttl: how long a challenge is valid.
        limit: the most that may be outstanding.
    """

    def __init__(
        self,
        random: Callable[[int], bytes],
        *,
        ttl: timedelta = CHALLENGE_TTL,
        limit: int = MAX_CHALLENGES,
    ) -> None:
        self._random = random
        self._ttl = ttl
        self._limit = limit
        #: Caller and expiry, in the order of issue, which is the order of expiry.
        self._issued: dict[str, tuple[Hashable, datetime]] = {}

    def __len__(self) -> int:
        return len(self._issued)

    def issue(self, caller: Hashable, now: datetime) -> str:
        """Issue a challenge, base64url of 32 octets, to a caller that the transport attests."""
        self._drop_expired(now)
        if len(self._issued) >= self._limit:
            self._evict(caller)
        challenge = b64u_encode(self._random(32))
        self._issued[challenge] = (caller, now + self._ttl)
        return challenge

    def consume(self, challenge: str, caller: Hashable, now: datetime) -> None:
        """
        Mark the challenge of a proof as used.

        Raises:
            EnvelopeError: where it was not issued to this caller, was consumed or evicted before, or is too old.
        """
        self._drop_expired(now)
        found = self._issued.get(challenge)
        if found is not None and found[0] == caller:
            del self._issued[challenge]
            if self._is_valid(found[1], now):
                return
        raise NotaryRefused("challenge_unknown", seconds=int(self._ttl.total_seconds()))

    def _evict(self, caller: Hashable) -> None:
        held = Counter(holder for holder, _expiry in self._issued.values())
        held[caller] += 1
        most = max(held.values())
        del self._issued[next(each for each, (holder, _expiry) in self._issued.items() if held[holder] == most)]

    def _drop_expired(self, now: datetime) -> None:
        while self._issued:
            oldest = next(iter(self._issued))
            if self._is_valid(self._issued[oldest][1], now):
                return
            del self._issued[oldest]

    def _is_valid(self, expiry: datetime, now: datetime) -> bool:
        """Return whether a challenge counts; a clock that was set back does not prolong it."""
        return now <= expiry <= now + self._ttl


#: How long before its issue a leaf is valid, for verifiers whose clock is behind.
BACKDATED: Final = timedelta(seconds=60)

_ROOT_KEYS: Final[dict[str, Callable[[bytes], MlDsaPrivateKey]]] = {
    "ML-DSA-65": mldsa.MLDSA65PrivateKey.from_seed_bytes,
    "ML-DSA-87": mldsa.MLDSA87PrivateKey.from_seed_bytes,
}


@dataclass(frozen=True)
class PqIssuer:
    """
    The ML-DSA root of a trust domain, for which alone it issues; ``certificate`` belongs into the post-quantum bundle.
    """

    trust_domain: TrustDomain
    certificate: x509.Certificate
    private_key: MlDsaPrivateKey = field(repr=False, compare=False)

    @classmethod
    def create(
        cls,
        trust_domain: TrustDomain,
        now: datetime,
        ttl: timedelta,
        random: Callable[[int], bytes],
        *,
        algorithm: str = "ML-DSA-65",
    ) -> PqIssuer:
        """
        Make a new root.

        Args:
            trust_domain: whose root it is.
            now: the time, aware.
            ttl: how long the root is valid.
            random: returns that many unpredictable octets.
            algorithm: ``ML-DSA-65``, or ``ML-DSA-87`` for the profile ``cnsa2``.

        Raises:
            EnvelopeError: for another algorithm.
        """
        if algorithm not in _ROOT_KEYS:
            raise EnvelopeError("signers_unsuitable", detail=f"a post-quantum root cannot be {algorithm}")
        private_key = _ROOT_KEYS[algorithm](random(32))
        public_key = private_key.public_key()
        serial = _serial(random)
        name = x509.Name(
            [
                x509.NameAttribute(NameOID.COMMON_NAME, "svc post-quantum root"),
                x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{serial:x}"),
            ]
        )
        builder = _builder(name, name, public_key, serial, _whole_second(now) - BACKDATED, _whole_second(now + ttl))
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=True), critical=True)
            .add_extension(_names(trust_domain.id), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        )
        return cls(trust_domain, builder.sign(private_key, None), private_key)

    def issue(
        self,
        svid: SvidEvidence,
        public_key: MlDsaPublicKey,
        now: datetime,
        random: Callable[[int], bytes],
    ) -> tuple[x509.Certificate, ...]:
        """
        Issue the leaf beside an SVID, leaf first, without the root; it is not valid before ``now`` nor after the end of
        the SVID.

        Args:
            svid: the verified SVID; the leaf takes its name, its end and the digest of its key.
            public_key: the ML-DSA key whose possession was proved.
            now: the time, aware.
            random: returns that many unpredictable octets, for the serial number.

        Raises:
            EnvelopeError: for an SVID of another trust domain, or one that is not valid at ``now``.
        """
        if svid.spiffe_id.trust_domain != self.trust_domain:
            raise NotaryRefused("wrong_trust_domain", spiffe_id=svid.spiffe_id, trust_domain=self.trust_domain)
        if not svid.not_before <= now <= svid.not_after:
            cause = f"the SVID is valid from {svid.not_before} to {svid.not_after}"
            raise NotaryRefused(
                "certificate_not_valid_at_time", chain="classical", issuer=svid.spiffe_id, moment=now, cause=cause
            )
        start = max(svid.not_before, _whole_second(now) - BACKDATED)
        # No extended key usage: the leaf signs artifacts and is never used in a TLS handshake.
        builder = _builder(x509.Name([]), self.certificate.subject, public_key, _serial(random), start, svid.not_after)
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=False), critical=True)
            .add_extension(_names(svid.spiffe_id), critical=True)
            .add_extension(_authority_key(self.certificate), critical=False)
            .add_extension(binding_extension(svid.spki_sha256), critical=False)
        )
        return (builder.sign(self.private_key, None),)

    def answer(
        self,
        request: PqLeafRequest,
        *,
        bundles: BundleSet,
        challenges: Challenges,
        caller: Hashable,
        audience: SpiffeID,
        peers: Collection[SpiffeID],
        now: datetime,
        random: Callable[[int], bytes],
    ) -> PqLeafResponse:
        """
        Answer a request: check SVID, caller, challenge and proof, then issue the leaf.

        Args:
            request: the request.
            bundles: the SPIFFE bundles that verify the SVID.
            challenges: the outstanding challenges.
            caller: the one that its challenge was issued to.
            audience: the issuer's own SPIFFE ID.
            peers: the identities that the transport attests: the TLS peer, or those of the process at the socket.
            now: the time, aware.
            random: returns that many unpredictable octets.

        Raises:
            SvidInvalid: where the SVID does not verify.
            EnvelopeError: with the reason of the first other failed check.
        """
        svid = verify_svid(request.chain, bundles, now)
        if svid.spiffe_id.trust_domain != self.trust_domain:
            raise NotaryRefused("wrong_trust_domain", spiffe_id=svid.spiffe_id, trust_domain=self.trust_domain)
        if svid.spiffe_id not in peers:
            known = " or ".join(str(peer) for peer in peers) or "nobody who is known here"
            raise NotaryRefused("caller_mismatch", spiffe_id=svid.spiffe_id, caller=known)
        challenge = claimed_challenge(request.proof)
        challenges.consume(challenge, caller, now)
        public_key = check_proof(request.proof, challenge=challenge, audience=audience, svid=svid, now=now)
        return PqLeafResponse(self.issue(svid, public_key, now, random))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: MlDsaPublicKey,
    serial: int,
    start: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(public_key)
    return builder.serial_number(serial).not_valid_before(start).not_valid_after(end)


def _serial(random: Callable[[int], bytes]) -> int:
    """A positive number of at most 20 octets (RFC 5280, 4.1.2.2)."""
    return int.from_bytes(random(16), "big") | 1


def _whole_second(moment: datetime) -> datetime:
    return moment.astimezone(UTC).replace(microsecond=0)


def _names(spiffe_id: SpiffeID) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(str(spiffe_id))])


def _authority_key(root: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    identifier = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
