"""Why a signed envelope is refused, whatever it contains: a reason for each check, with sentence and hint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from svc.errors import Reason, SvcError


class EnvelopeError(SvcError):
    """a signed artifact was refused"""

    reason = "notary_refused"
    http_status = 400
    reasons = {
        "too_large": Reason(
            "the envelope has {size} octets, at most {limit} are accepted",
            "sign a smaller payload or shorter certificate chains",
            413,
        ),
        "wrong_type": Reason(
            "the envelope is of type {found}, expected was {expected}",
            "pass the artifact to the verification of its own kind",
        ),
        "critical_unknown": Reason(
            "the critical header members are {found}, only svc-set is understood",
            "the sender uses an extension that this version does not support; upgrade the verifier",
        ),
        "alg_not_allowed": Reason(
            "the signature algorithm {alg} is not allowed here: {detail}",
            "allowed are ES256, ES384, Ed25519, PS256 and ML-DSA, each by the kind of the key and the profile",
        ),
        "set_mismatch": Reason(
            "the signatures do not match the set they announce: {detail}",
            "a signature was removed, added or taken from another envelope; fetch the artifact again",
        ),
        "hybrid_incomplete": Reason(
            "the profile {profile} needs {missing}, which the envelope lacks",
            "give the signer a post-quantum leaf, or verify with a weaker --profile if your policy allows it",
        ),
        "unsupported_version": Reason(
            "the payload has version {found}, supported is {supported}",
            "upgrade the verifier, or ask the sender for a version that both support",
        ),
        "signature_invalid": Reason(
            "the {alg} signature does not verify",
            "the artifact was changed after it was signed; do not trust it",
        ),
        "signers_unsuitable": Reason(
            "these keys cannot sign one envelope: {detail}",
            "sign with at most one classical and one ML-DSA key",
            500,
        ),
    }
    #: The evidence that completes a reason in the spelling of the formats, as ``alg`` in ``signature_invalid{alg}``.
    parameters: ClassVar[Mapping[str, str]] = {"signature_invalid": "alg"}

    @property
    def detail_reason(self) -> str:
        """The reason with its parameter, in the spelling of the formats: ``signature_invalid{ES256}``."""
        parameter = self.parameters.get(self.reason)
        return f"{self.reason}{{{self.evidence.get(parameter, '')}}}" if parameter else self.reason


class Malformed(EnvelopeError):
    """the envelope is malformed at {where}: {defect}"""

    reason = "malformed"
    hint = "the sender does not follow the svc-jws/1 format; check its version"
    where: str
    defect: str


def detail_reason(error: Exception) -> str:
    """
    Return the precise reason of a failure, with its parameter in braces.

    For example ``request_mismatch{header:3}``, ``signature_invalid{ES256}`` or ``expired``; ``internal_error`` for an
    exception that is not an :class:`svc.errors.SvcError`.
    """
    if isinstance(error, EnvelopeError):
        return error.detail_reason
    return error.reason if isinstance(error, SvcError) else SvcError.reason
