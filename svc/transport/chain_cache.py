"""
A cache of verified certificate chains.

The result of a verification depends on the certificates, the bundles and the time alone, so a chain that was accepted
needs no second check of its signatures while neither bundles nor validity change. Each handshake still proves that the
peer has the key of its leaf. Refusals are not cached, and neither are certificates that are not part of the path.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from svc.identity.bundle import BundleSet
from svc.identity.certificate import load_presented
from svc.identity.errors import SvidInvalid
from svc.identity.svid import MAX_CHAIN_CERTIFICATES
from svc.identity.verification import SvidEvidence, verify_svid

#: Peers of one proxy; about 5 KB each.
MAX_CHAINS: Final = 512
#: Octets of the certificates of all cached chains: 512 chains of 8 KiB.
MAX_OCTETS: Final = 4 * 1024 * 1024

#: DER, leaf first. The octets are the key of the cache: a cached chain is not parsed.
Chain = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Accepted:
    evidence: SvidEvidence
    intermediates: Chain
    size: int
    not_before: datetime
    not_after: datetime

    def applies_to(self, chain: Chain, now: datetime) -> bool:
        """Whether the peer has sent every certificate of the path, and all are valid."""
        return self.not_before <= now <= self.not_after and all(each in chain for each in self.intermediates)


class VerifiedChainCache:
    """Verifies chains and caches the accepted ones, the least recently used of which is dropped at a limit."""

    def __init__(self, max_chains: int = MAX_CHAINS, max_octets: int = MAX_OCTETS) -> None:
        self._max_chains = max_chains
        self._max_octets = max_octets
        self._held = 0
        self._bundles: BundleSet | None = None
        #: By leaf: one chain for each, the last that was verified.
        self._accepted: OrderedDict[bytes, _Accepted] = OrderedDict()

    def verify(self, chain: Chain, bundles: BundleSet, now: datetime) -> SvidEvidence:
        """
        Verify a chain as :func:`svc.identity.verification.verify_svid` does; a cached chain gives the same evidence.

        Args:
            chain: the certificates as the peer sent them, DER, leaf first.
            bundles: the bundles in force; another object than in the last call clears the cache.
            now: the time of verification, aware.

        Raises:
            SvidInvalid: the chain is not a valid SVID now; ``SvidMalformed`` where the leaf cannot be parsed. Another
                certificate that cannot be parsed is ignored.
        """
        if bundles is not self._bundles:
            self._accepted.clear()
            self._held = 0
            self._bundles = bundles
        if len(chain) > MAX_CHAIN_CERTIFICATES:
            raise SvidInvalid("chain_too_long", found=len(chain), what="certificates", limit=MAX_CHAIN_CERTIFICATES)
        cached = self._accepted.get(chain[0]) if chain else None
        if cached is not None and cached.applies_to(chain, now):
            self._accepted.move_to_end(chain[0])
            return cached.evidence
        evidence = verify_svid(_loaded(chain), bundles, now)
        if not evidence.bundle.windowed:
            self._store(chain[0], evidence)
        return evidence

    def _store(self, leaf: bytes, evidence: SvidEvidence) -> None:
        path = evidence.chain
        not_before = max(certificate.not_valid_before_utc for certificate in path)
        not_after = min(certificate.not_valid_after_utc for certificate in path)
        intermediates = tuple(each.public_bytes(Encoding.DER) for each in path[1:-1])
        size = len(leaf) + sum(map(len, intermediates))
        self._dropped(self._accepted.pop(leaf, None))
        self._accepted[leaf] = _Accepted(evidence, intermediates, size, not_before, not_after)
        self._held += size
        while len(self._accepted) > self._max_chains or self._held > self._max_octets:
            self._dropped(self._accepted.popitem(last=False)[1])

    def _dropped(self, accepted: _Accepted | None) -> None:
        if accepted is not None:
            self._held -= accepted.size


def _loaded(chain: Chain) -> tuple[x509.Certificate, ...]:
    certificates = [load_presented(each) for each in chain[:1]]
    for each in chain[1:]:
        try:
            certificates.append(load_presented(each))
        except SvidInvalid:
            continue
    return tuple(certificates)
