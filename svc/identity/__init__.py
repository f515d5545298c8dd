"""
SPIFFE identities: SPIFFE IDs, X.509-SVIDs, trust bundles, and the verification of our own and of peers' SVIDs.

No module reads a clock or a socket, or logs: the time is an argument, the result is evidence, and a failure is an error
with one reason.
"""

from __future__ import annotations

from svc.identity.algorithms import (
    ALGORITHMS,
    ECDSA_P256,
    ECDSA_P384,
    ED25519,
    ML_DSA_44,
    ML_DSA_65,
    ML_DSA_87,
    RSA,
    KeyAlgorithm,
    SvidPrivateKey,
    SvidPublicKey,
    certificate_key_algorithm,
    certificate_sha256,
    key_algorithm,
    spki_der,
    spki_sha256,
)
from svc.identity.archive import BundleArchive
from svc.identity.binding import binding_extension, binding_of
from svc.identity.bundle import BundleMalformed, BundleSet, TrustAnchor, X509Bundle
from svc.identity.certificate import CertificateFacts, load_certificate, split_der
from svc.identity.errors import (
    AnchorOutsideWindow,
    ChainUntrusted,
    KeyNotAllowed,
    NotValidAtTime,
    SvidExpired,
    SvidInvalid,
    SvidMalformed,
    SvidNotYetValid,
    TrustDomainUnknown,
)
from svc.identity.matchers import AnyOf, ExactID, Matcher, MatcherMalformed, MemberOf, PathPrefix, parse_matcher
from svc.identity.pqbundle import PqBundle, PqBundles, SequenceFell
from svc.identity.spiffeid import SpiffeID, SpiffeIdMalformed, TrustDomain, TrustDomainMalformed
from svc.identity.svid import X509Svid, load_private_key
from svc.identity.trustbundle import BundleNeedsTrustDomain, parse_bundle_file, parse_pq_bundle_file
from svc.identity.verification import SvidEvidence, verify_svid

__all__ = [
    "ALGORITHMS",
    "ECDSA_P256",
    "ECDSA_P384",
    "ED25519",
    "ML_DSA_44",
    "ML_DSA_65",
    "ML_DSA_87",
    "RSA",
    "AnchorOutsideWindow",
    "AnyOf",
    "BundleArchive",
    "BundleMalformed",
    "BundleNeedsTrustDomain",
    "BundleSet",
    "CertificateFacts",
    "ChainUntrusted",
    "ExactID",
    "KeyAlgorithm",
    "KeyNotAllowed",
    "Matcher",
    "MatcherMalformed",
    "MemberOf",
    "NotValidAtTime",
    "PathPrefix",
    "PqBundle",
    "PqBundles",
    "SequenceFell",
    "SpiffeID",
    "SpiffeIdMalformed",
    "SvidEvidence",
    "SvidExpired",
    "SvidInvalid",
    "SvidMalformed",
    "SvidNotYetValid",
    "SvidPrivateKey",
    "SvidPublicKey",
    "TrustAnchor",
    "TrustDomain",
    "TrustDomainMalformed",
    "TrustDomainUnknown",
    "X509Bundle",
    "X509Svid",
    "binding_extension",
    "binding_of",
    "certificate_key_algorithm",
    "certificate_sha256",
    "key_algorithm",
    "load_certificate",
    "load_private_key",
    "parse_bundle_file",
    "parse_matcher",
    "parse_pq_bundle_file",
    "spki_der",
    "spki_sha256",
    "split_der",
    "verify_svid",
]
