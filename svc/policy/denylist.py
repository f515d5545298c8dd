"""Credentials that are refused whatever a policy allows: until they expire, or until they are issued anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from svc.identity import ExactID, Matcher, SpiffeID, SvidEvidence

#: What others write for attributes that RFC 4514 has no name for.
_NAMES: Final = {"serialNumber": NameOID.SERIAL_NUMBER, "emailAddress": NameOID.EMAIL_ADDRESS}


def plain_issuer(text: str) -> str:
    """The one spelling of a distinguished name (RFC 4514); raises ValueError for what is none."""
    return x509.Name.from_rfc4514_string(text, _NAMES).rfc4514_string()


@dataclass(frozen=True)
class DenyList:
    """
    What is refused.

    Attributes:
        spiffe_ids: identities.
        certificates: SHA-256 of certificates; of a signing certificate all below it are refused.
        serials: issuer, as :func:`plain_issuer` returns it, and serial number of certificates, in the same way.
        statements: identifiers of workload statements, where the statement of a peer is verified.
    """

    name: str
    spiffe_ids: tuple[Matcher, ...] = ()
    certificates: frozenset[bytes] = frozenset()
    serials: frozenset[tuple[str, int]] = frozenset()
    statements: frozenset[str] = frozenset()
    _exact: frozenset[SpiffeID] = field(init=False, repr=False)
    _patterns: tuple[Matcher, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        exact = frozenset(each.spiffe_id for each in self.spiffe_ids if isinstance(each, ExactID))
        object.__setattr__(self, "_exact", exact)
        patterns = tuple(each for each in self.spiffe_ids if not isinstance(each, ExactID))
        object.__setattr__(self, "_patterns", patterns)

    def entry_for_identity(self, identity: SpiffeID) -> str | None:
        """The entry that refuses an identity, None where there is none."""
        if identity in self._exact:
            return f"identity {identity}"
        found = next((each for each in self._patterns if each.matches(identity)), None)
        return None if found is None else f"identity {found}"

    def entry_for(self, evidence: SvidEvidence) -> str | None:
        """The entry that refuses a verified peer, None where there is none."""
        entry = self.entry_for_identity(evidence.spiffe_id)
        if entry is not None:
            return entry
        if self.certificates or self.serials:
            # The root comes from the bundle: a root that is not trusted any more is removed there.
            for certificate in evidence.chain[:-1] or evidence.chain:
                found = self._entry_for_certificate(certificate)
                if found is not None:
                    return found
        return None

    def _entry_for_certificate(self, certificate: x509.Certificate) -> str | None:
        digest = certificate.fingerprint(SHA256())
        if digest in self.certificates:
            return f"certificate {digest.hex()}"
        issued = certificate.issuer.rfc4514_string(), certificate.serial_number
        return f"serial number {issued[1]:x} of {issued[0]}" if issued in self.serials else None
