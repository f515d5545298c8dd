"""
Every way in which a signature envelope, its chains or a post-quantum proof is refused.

Owns the failure words of the envelope format: one class a reason, none shared. Knows nothing of when each is raised;
the order of checks belongs to the modules that verify. Statements and receipts derive their own errors from
:class:`NotaryError`.
"""

from __future__ import annotations

from typing import ClassVar

from svc.errors import SvcError


class NotaryError(SvcError):
    """a signed artefact was refused"""

    reason = "notary_refused"
    http_status = 400
    #: Name of the evidence that completes the reason, as ``alg`` in ``signature_invalid{alg}``; empty for a plain word.
    parameter: ClassVar[str] = ""

    @property
    def detail_reason(self) -> str:
        """
        The reason with its parameter, in the spelling of the format: ``signature_invalid{ES256}``.

        Returns:
            The word for logs, vectors and reports.
        """
        if not self.parameter:
            return self.reason
        return f"{self.reason}{{{self.evidence.get(self.parameter, '')}}}"


class TooLarge(NotaryError):
    """the envelope has {size} octets, at most {limit} are accepted"""

    reason = "too_large"
    http_status = 413
    hint = "sign a smaller payload or shorter certificate chains"


class Malformed(NotaryError):
    """the envelope is malformed at {where}: {defect}"""

    reason = "malformed"
    hint = "the sender does not follow the svc-jws/1 format; check its version"
    where: str
    defect: str


class WrongType(NotaryError):
    """the envelope is of type {found}, expected was {expected}"""

    reason = "wrong_type"
    hint = "pass the artefact to the verification of its own kind"


class CriticalUnknown(NotaryError):
    """the critical header members are {found}, only svc-set is understood"""

    reason = "critical_unknown"
    hint = "the sender uses an extension that this version does not know; upgrade the verifier"


class AlgNotAllowed(NotaryError):
    """the signature algorithm {alg} is not allowed here: {detail}"""

    reason = "alg_not_allowed"
    hint = "allowed are ES256, ES384, Ed25519, PS256 and ML-DSA, each by the kind of the key and the profile"


class SetMismatch(NotaryError):
    """the signatures do not match the set they announce: {detail}"""

    reason = "set_mismatch"
    hint = "a signature was removed, added or taken from another envelope; fetch the artefact again"


class HybridIncomplete(NotaryError):
    """the profile {profile} needs {missing}, which the envelope lacks"""

    reason = "hybrid_incomplete"
    hint = "give the signer a post-quantum leaf, or judge with a weaker --profile if your policy allows it"


class UnsupportedVersion(NotaryError):
    """the payload has version {found}, supported is {supported}"""

    reason = "unsupported_version"
    hint = "upgrade the verifier, or ask the sender for a version that both know"


class IssuerMismatch(NotaryError):
    """the certificate behind the {alg} signature names {found}, the payload claims {issuer}"""

    reason = "issuer_mismatch"
    hint = "the artefact was signed by another workload than it says; do not trust it"


class TrustDomainUnknown(NotaryError):
    """there is no {bundle} bundle for the trust domain {trust_domain}"""

    reason = "trust_domain_unknown"
    hint = "federate with {trust_domain}, or name its bundles with --trust-bundle and --pq-bundle"


class ChainUntrusted(NotaryError):
    """the {chain} certificate chain of {issuer} is not trusted: {cause}"""

    reason = "chain_untrusted"
    parameter = "chain"
    hint = "check that the trust bundle of the signer's trust domain is current"


class ChainBindingMismatch(NotaryError):
    """the post-quantum certificate of {issuer} is not bound to its SVID: {detail}"""

    reason = "chain_binding_mismatch"
    hint = "the post-quantum leaf belongs to another SVID; the signer has to fetch a new leaf after each rotation"


class CertificateNotValidAtTime(NotaryError):
    """the {chain} certificate chain of {issuer} is not valid at {moment}: {cause}"""

    reason = "certificate_not_valid_at_time"
    hint = "check the clocks of both sides, and that the signer still renews its certificates"


class SignatureInvalid(NotaryError):
    """the {alg} signature does not verify"""

    reason = "signature_invalid"
    parameter = "alg"
    hint = "the artefact was changed after it was signed; do not trust it"


class SignersUnsuitable(NotaryError):
    """these keys cannot sign one envelope: {detail}"""

    reason = "signers_unsuitable"
    http_status = 500
    hint = "sign with at most one classical and one ML-DSA key"


class ProofMismatch(NotaryError):
    """the proof of possession names another {member} than expected"""

    reason = "proof_mismatch"
    parameter = "member"
    hint = "make a new proof for this issuer and this challenge"


class CallerMismatch(NotaryError):
    """a post-quantum leaf for {spiffe_id} was asked for by {caller}"""

    reason = "caller_mismatch"
    http_status = 403
    hint = "ask over a connection or socket of the workload itself"


class ProofStale(NotaryError):
    """the proof of possession was made at {moment}, outside {seconds} s of the issuer's clock"""

    reason = "time_skew"
    hint = "synchronise the clocks of workload and issuer"


class ChallengeUnknown(NotaryError):
    """the challenge was not issued here, has been used, or is older than {seconds} s"""

    reason = "challenge_unknown"
    hint = "ask for a new challenge and use it once"


class ChallengesExhausted(NotaryError):
    """{limit} challenges are outstanding"""

    reason = "notary_rate"
    http_status = 429
    hint = "try again in a few seconds"


class WrongTrustDomain(NotaryError):
    """{spiffe_id} is not of the issuer's own trust domain {trust_domain}"""

    reason = "wrong_trust_domain"
    http_status = 403
    hint = "ask the post-quantum issuer of your own trust domain"
