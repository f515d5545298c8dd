"""
Chains that were judged before.

A verdict follows from the certificates, the bundles and the time alone, so a peer that connects again with the same
chain needs no second search and no second check of the same signatures. Owns which acceptances are remembered and how
long they hold; that the peer has the key of its leaf is proved by each handshake anew. Refusals are not remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from svc.identity.bundle import BundleSet
from svc.identity.certificate import load_certificate
from svc.identity.verification import SvidEvidence, verify_svid

#: Peers of one proxy; about 5 KB each.
MOST_CHAINS: Final = 512

#: DER, leaf first. The octets are what is remembered: a chain that is known need not be parsed.
Chain = tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _Accepted:
    evidence: SvidEvidence
    not_before: datetime
    not_after: datetime


class RememberedChains:
    """
    Judges chains, those that it has accepted under the same bundles without looking at them again.

    Args:
        most: how many are remembered; the one not seen for longest goes.
    """

    def __init__(self, most: int = MOST_CHAINS) -> None:
        self._most = most
        self._bundles: BundleSet | None = None
        self._accepted: OrderedDict[Chain, _Accepted] = OrderedDict()

    def judge(self, chain: Chain, bundles: BundleSet, now: datetime) -> SvidEvidence:
        """
        Verify a chain; see :func:`svc.identity.verification.verify_svid`.

        Args:
            chain: the certificates as the peer sent them.
            bundles: the bundles in force; another object than before forgets everything.
            now: the time of judgement, aware.

        Returns:
            The evidence, which for a chain that was accepted before is the same object.

        Raises:
            SvidInvalid: the chain is not a valid SVID now; ``SvidMalformed`` where a certificate is no DER for the
                stricter of the two parsers.
        """
        if bundles is not self._bundles:
            self._accepted.clear()
            self._bundles = bundles
        known = self._accepted.get(chain)
        if known is not None and known.not_before <= now <= known.not_after:
            self._accepted.move_to_end(chain)
            return known.evidence
        evidence = verify_svid(tuple(map(load_certificate, chain)), bundles, now)
        if _holds_while_valid(evidence, bundles):
            self._remember(chain, evidence)
        return evidence

    def _remember(self, chain: Chain, evidence: SvidEvidence) -> None:
        path = evidence.chain
        not_before = max(certificate.not_valid_before_utc for certificate in path)
        not_after = min(certificate.not_valid_after_utc for certificate in path)
        self._accepted[chain] = _Accepted(evidence, not_before, not_after)
        if len(self._accepted) > self._most:
            self._accepted.popitem(last=False)


def _holds_while_valid(evidence: SvidEvidence, bundles: BundleSet) -> bool:
    """Whether nothing but the validity of the certificates ends the verdict: no root counts for a window only."""
    anchors = bundles.bundle_for(evidence.spiffe_id.trust_domain).anchors
    return all(anchor.first_seen is None and anchor.last_seen is None for anchor in anchors)
