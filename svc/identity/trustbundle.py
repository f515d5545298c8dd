"""Reads trust bundle files of any supported format: PEM, SPIFFE bundle, SPIFFE bundle map, bundle archive."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography import x509

from svc.identity.archive import TYPE as ARCHIVE_TYPE
from svc.identity.archive import BundleArchive
from svc.identity.bundle import BundleMalformed, BundleSet, X509Bundle
from svc.identity.documents import (
    MAX_BUNDLE_OCTETS,
    as_object,
    certificate_from_base64,
    load_document,
    member,
    parse_trust_domain,
)
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import TrustDomain

_PEM_MARK = b"-----BEGIN"


class BundleNeedsTrustDomain(BundleMalformed):
    """the trust bundle does not say whose roots it holds"""

    reason = "bundle_needs_trust_domain"
    hint = "name the trust domain beside the file; PEM files and single SPIFFE bundles do not contain it"


def parse_bundle_file(data: bytes, trust_domain: TrustDomain | None) -> BundleSet:
    """
    Read SPIFFE roots; those of an archive have windows.

    Args:
        data: PEM certificates, a SPIFFE bundle, a SPIFFE bundle map (SPIFFE Trust Domain and Bundle, sections 4 and 5)
            or a bundle archive.
        trust_domain: the trust domain of PEM certificates or a SPIFFE bundle; other formats contain it.

    Raises:
        BundleNeedsTrustDomain: when the format does not contain the trust domain and none is given.
        BundleMalformed: with ``defect`` naming what was found.
    """
    if _PEM_MARK in data[:4096]:
        return BundleSet.of(_pem_bundle(data, trust_domain))
    document = load_document(data)
    if document.get("type") == ARCHIVE_TYPE:
        return BundleArchive.parse(data).spiffe
    if "trust_domains" in document:
        domains = member(document, "trust_domains", dict, "")
        return BundleSet.of(
            *(_spiffe_bundle(as_object(value, name), parse_trust_domain(name)) for name, value in domains.items())
        )
    if "keys" in document:
        if trust_domain is None:
            raise BundleNeedsTrustDomain(defect="no trust domain")
        return BundleSet.of(_spiffe_bundle(document, trust_domain))
    if "trustDomains" in document:
        raise BundleMalformed(defect="it is a post-quantum bundle, which is never used as a SPIFFE bundle")
    raise BundleMalformed(defect="it has neither keys nor trust_domains")


def parse_pq_bundle_file(data: bytes) -> BundleSet:
    """
    Read post-quantum roots with their windows, from a post-quantum bundle or from a bundle archive.

    Raises:
        BundleMalformed: with ``defect`` naming what was found.
    """
    document = load_document(data)
    if document.get("type") == ARCHIVE_TYPE:
        return BundleArchive.parse(data).pq
    return PqBundles.parse(data).bundle_set()


def _pem_bundle(data: bytes, trust_domain: TrustDomain | None) -> X509Bundle:
    if trust_domain is None:
        raise BundleNeedsTrustDomain(defect="no trust domain")
    if len(data) > MAX_BUNDLE_OCTETS:
        raise BundleMalformed(defect=f"{len(data)} octets, at most {MAX_BUNDLE_OCTETS} are accepted")
    try:
        certificates = x509.load_pem_x509_certificates(data)
    except (ValueError, x509.InvalidVersion) as error:
        raise BundleMalformed(defect="it is not a sequence of PEM certificates") from error
    return X509Bundle.from_certificates(trust_domain, certificates)


def _spiffe_bundle(document: Mapping[str, object], trust_domain: TrustDomain) -> X509Bundle:
    where = f"{trust_domain}: "
    certificates: list[x509.Certificate] = []
    for value in member(document, "keys", list, where):
        key = as_object(value, f"{where}keys")
        chain = key.get("x5c")
        # X.509-SVID 6.2: entries of another use and entries without x5c are ignored, and so are later values.
        if key.get("use") == "x509-svid" and isinstance(chain, list) and chain:
            certificates.append(certificate_from_base64(chain[0], f"{where}keys."))
    return X509Bundle.from_certificates(trust_domain, certificates)
