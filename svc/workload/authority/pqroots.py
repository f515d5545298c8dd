"""
The post-quantum roots of the trust domain and the bundle that announces them.

Owns their rotation and the sequence of the bundle, also across a restart that lost the keys. Knows no file.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from svc.identity.algorithms import key_algorithm
from svc.identity.bundle import TrustAnchor, X509Bundle
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import TrustDomain
from svc.notary.pqissuer import PqIssuer
from svc.workload.authority.rotation import KeyRing

#: How long the root of an instance that is gone stays announced: as long as a leaf of it may live.
AFTERLIFE: Final = timedelta(hours=24)


class PqRoots:
    """
    The PQ roots of one trust domain, and the PQ bundle with the roots of federated domains.

    Args:
        trust_domain: the trust domain.
        before: the PQ bundle that an earlier instance left; its own roots stay announced for a day.
        ttl: how long a root lives.
        algorithm: ``ML-DSA-65`` or ``ML-DSA-87``.
        random: gives unpredictable octets.
    """

    def __init__(
        self,
        trust_domain: TrustDomain,
        before: PqBundles,
        *,
        ttl: timedelta,
        algorithm: str,
        random: Callable[[int], bytes],
    ) -> None:
        self._trust_domain = trust_domain
        self._algorithm = algorithm
        self._random = random
        self.ring: KeyRing[PqIssuer] = KeyRing(self._make, ttl)
        self._earlier: tuple[TrustAnchor, ...] | None = None
        self._bundles = before

    @property
    def bundles(self) -> PqBundles:
        """The PQ bundle: own and federated roots."""
        return self._bundles

    def issuer(self, now: datetime) -> PqIssuer:
        """
        Find the root that signs.

        Args:
            now: the time.

        Returns:
            The issuer.
        """
        return self.ring.active(now).key

    def advance(self, now: datetime) -> bool:
        """
        Rotate what is due and forget what has ended.

        Args:
            now: the time.

        Returns:
            Whether the bundle changed.
        """
        self.ring.advance(now)
        if self._earlier is None:
            self._earlier = self._left_behind(now)
        self._earlier = tuple(anchor for anchor in self._earlier if anchor.counts_at(now))
        own = tuple(
            TrustAnchor(slot.key.certificate, slot.key.certificate.not_valid_before_utc, _second(slot.expires))
            for slot in self.ring.announced
        )
        before = self._bundles
        self._bundles = before.with_bundle(X509Bundle(self._trust_domain, (*self._earlier, *own)))
        return self._bundles != before

    def want_algorithm(self, now: datetime) -> None:
        """
        See that the roots are of the configured algorithm: one of another kind gets its successor now.

        Args:
            now: the time.
        """
        self.ring.want(lambda key: key_algorithm(key.certificate.public_key()).name == self._algorithm, now)

    def set_foreign(self, bundle: X509Bundle, sequence: int) -> bool:
        """
        Take the PQ roots of a federated trust domain.

        Args:
            bundle: its roots.
            sequence: the number of their version.

        Returns:
            Whether the bundle changed.

        Raises:
            SequenceFell: an older version than the one in force.
        """
        before = self._bundles
        self._bundles = before.with_bundle(bundle, sequence)
        return self._bundles != before

    def keep_only(self, foreign: frozenset[TrustDomain]) -> None:
        """
        Drop federated trust domains that are no longer configured.

        Args:
            foreign: those that are.
        """
        for trust_domain in tuple(self._bundles.entries):
            if trust_domain != self._trust_domain and trust_domain not in foreign:
                self._bundles = self._bundles.without(trust_domain)

    def _left_behind(self, now: datetime) -> tuple[TrustAnchor, ...]:
        """Close the windows of roots whose keys are lost; leaves signed by them go on until their SVIDs end."""
        entry = self._bundles.entries.get(self._trust_domain)
        end = _second(now + AFTERLIFE)
        anchors = entry.bundle.anchors if entry else ()
        kept = {slot.key.certificate for slot in self.ring.announced}
        return tuple(
            TrustAnchor(each.certificate, each.first_seen, min(each.last_seen or end, end))
            for each in anchors
            if each.certificate not in kept
        )

    def _make(self, now: datetime, expires: datetime) -> PqIssuer:
        return PqIssuer.create(self._trust_domain, now, expires - now, self._random, algorithm=self._algorithm)


def _second(moment: datetime) -> datetime:
    return moment.replace(microsecond=0)
