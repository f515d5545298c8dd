"""
The post-quantum issuer: the ML-DSA root of a trust domain, and the leaf that stands beside an SVID.

Owns what root and leaf say, and the checks before a leaf is issued. Names come only out of a verified SVID of the
issuer's own trust domain. Knows no socket, no clock and no file: the time and randomness are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import mldsa
from cryptography.x509.oid import NameOID

from svc.identity.binding import binding_extension
from svc.identity.bundle import BundleSet
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.identity.verification import SvidEvidence, verify_svid
from svc.notary.errors import CallerMismatch, CertificateNotValidAtTime, SignersUnsuitable, WrongTrustDomain
from svc.notary.keys import MlDsaPrivateKey, MlDsaPublicKey
from svc.notary.pqexchange import Challenges, PqLeafRequest, PqLeafResponse
from svc.notary.pqproof import check_proof, claimed_challenge

__all__ = ["Challenges", "PqIssuer", "PqLeafRequest", "PqLeafResponse"]

#: The leaf begins this long before it is issued, for verifiers whose clock is behind.
BACKDATED: Final = timedelta(seconds=60)

_ROOT_KEYS: Final[dict[str, Callable[[bytes], MlDsaPrivateKey]]] = {
    "ML-DSA-65": mldsa.MLDSA65PrivateKey.from_seed_bytes,
    "ML-DSA-87": mldsa.MLDSA87PrivateKey.from_seed_bytes,
}


@dataclass(frozen=True)
class PqIssuer:
    """
    The ML-DSA root of a trust domain.

    Attributes:
        trust_domain: the only one that it issues for.
        certificate: the root, which belongs into the post-quantum bundle.
        private_key: its key.
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
            random: gives that many unpredictable octets.
            algorithm: ``ML-DSA-65``, or ``ML-DSA-87`` for the profile ``cnsa2``.

        Returns:
            The issuer.

        Raises:
            SignersUnsuitable: for another algorithm.
        """
        if algorithm not in _ROOT_KEYS:
            raise SignersUnsuitable(detail=f"a post-quantum root cannot be {algorithm}")
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
            .add_extension(_key_usage(signs_certificates=True), critical=True)
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
        Issue the leaf that stands beside an SVID: a leaf of today cannot sign yesterday, and none outlives its SVID.

        Args:
            svid: the verified SVID; the leaf takes its name, its end and the digest of its key.
            public_key: the ML-DSA key whose possession was proved.
            now: the time, aware.
            random: gives that many unpredictable octets, for the serial number.

        Returns:
            The chain, leaf first, without the root.

        Raises:
            WrongTrustDomain: for an SVID of another trust domain.
            CertificateNotValidAtTime: for an SVID that is not valid at ``now``.
        """
        if svid.spiffe_id.trust_domain != self.trust_domain:
            raise WrongTrustDomain(spiffe_id=svid.spiffe_id, trust_domain=self.trust_domain)
        if not svid.not_before <= now <= svid.not_after:
            cause = f"the SVID is valid from {svid.not_before} to {svid.not_after}"
            raise CertificateNotValidAtTime(chain="classical", issuer=svid.spiffe_id, moment=now, cause=cause)
        start = max(svid.not_before, _whole_second(now) - BACKDATED)
        # No extended key usage: the leaf signs artefacts and never stands in a TLS handshake.
        builder = _builder(x509.Name([]), self.certificate.subject, public_key, _serial(random), start, svid.not_after)
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
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
        audience: SpiffeID,
        peers: Collection[SpiffeID],
        now: datetime,
        random: Callable[[int], bytes],
    ) -> PqLeafResponse:
        """
        Answer a request: SVID, caller, challenge and proof are checked, then the leaf is issued.

        Args:
            request: the request.
            bundles: the SPIFFE bundles that judge the SVID.
            challenges: the outstanding challenges.
            audience: the issuer's own SPIFFE ID.
            peers: the identities that the transport vouches for: the TLS peer, or those of the process at the socket.
            now: the time, aware.
            random: gives that many unpredictable octets.

        Returns:
            The answer.

        Raises:
            SvidInvalid: where the SVID does not verify.
            NotaryError: the subclass that names the first other failed check.
        """
        svid = verify_svid(request.chain, bundles, now)
        if svid.spiffe_id.trust_domain != self.trust_domain:
            raise WrongTrustDomain(spiffe_id=svid.spiffe_id, trust_domain=self.trust_domain)
        if svid.spiffe_id not in peers:
            caller = " or ".join(str(peer) for peer in peers) or "nobody who is known here"
            raise CallerMismatch(spiffe_id=svid.spiffe_id, caller=caller)
        challenge = claimed_challenge(request.proof)
        challenges.consume(challenge, now)
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


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
