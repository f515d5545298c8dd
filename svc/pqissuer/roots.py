"""
The post-quantum roots of the trust domain, and the bundle that announces them.

The sequence of the bundle continues across a restart that lost the keys.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

from svc.identity.algorithms import key_algorithm
from svc.identity.bundle import TrustAnchor, X509Bundle
from svc.identity.pqbundle import PqBundles
from svc.identity.spiffeid import TrustDomain
from svc.notary.pqissuer import PqIssuer
from svc.pqissuer.rotation import KeyRing

#: How long a root without a key stays announced: the longest lifetime of its leaves.
LOST_ROOT_LIFETIME: Final = timedelta(hours=24)


class PqRootRing:
    """
    The PQ roots of one trust domain, and the PQ bundle with the roots of federated domains.

    ``before`` is the PQ bundle of an earlier instance; its own roots stay announced for a day.
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
        self._published: dict[x509.Certificate, int] = {}

    @property
    def bundles(self) -> PqBundles:
        """The PQ bundle: own and federated roots."""
        return self._bundles

    def issuer(self, now: datetime) -> PqIssuer:
        """The root that signs at a time."""
        return self.ring.active(now).key

    def advance(self, now: datetime) -> bool:
        """Rotate keys that are due and drop expired roots; returns whether the bundle changed."""
        self.ring.advance(now)
        if self._earlier is None:
            self._earlier = self._lost_roots(now)
        self._earlier = tuple(anchor for anchor in self._earlier if anchor.trusted_at(now))
        own = tuple(
            TrustAnchor(slot.key.certificate, slot.key.certificate.not_valid_before_utc, _second(slot.expires))
            for slot in self.ring.announced
        )
        before = self._bundles
        self._bundles = before.with_bundle(X509Bundle(self._trust_domain, (*self._earlier, *own)))
        sequence = self._bundles.entries[self._trust_domain].sequence
        self._published = {each.certificate: self._published.get(each.certificate, sequence) for each in own}
        return self._bundles != before

    def published(self, now: datetime) -> int:
        """The first sequence with the root that signs at a time, of those that this process has published."""
        return self._published.get(self.issuer(now).certificate, 0)

    def begin_served(self, served: Callable[[int], bool], now: datetime) -> None:
        """Let the newest root sign whose first sequence is ``served`` by all nodes, if it does not yet."""
        for slot in reversed(self.ring.announced):
            if self.ring.signs(slot, now):
                return
            first = self._published.get(slot.key.certificate)
            if first is not None and served(first):
                self.ring.begin(slot, now)
                return

    def ensure_algorithm(self, now: datetime) -> None:
        """Make a successor now if the newest root does not have the configured algorithm."""
        self.ring.ensure(lambda key: key_algorithm(key.certificate.public_key()).name == self._algorithm, now)

    def set_foreign(self, bundle: X509Bundle, sequence: int) -> bool:
        """
        Store the PQ roots of a federated trust domain; returns whether the bundle changed.

        Raises ``SequenceFell`` for an older version than the one in force.
        """
        before = self._bundles
        self._bundles = before.with_bundle(bundle, sequence)
        return self._bundles != before

    def set_peer(self, bundle: X509Bundle, sequence: int) -> None:
        """
        Store the PQ roots of a peer whose package was judged already.

        The sequence in the bundle is at least that of the package; one that has begun anew does not let it fall.
        """
        self._bundles = self._bundles.with_peer(bundle, sequence)

    def keep_federated(self, foreign: frozenset[TrustDomain]) -> None:
        """Drop federated trust domains that are no longer configured."""
        for trust_domain in tuple(self._bundles.entries):
            if trust_domain != self._trust_domain and trust_domain not in foreign:
                self._bundles = self._bundles.without(trust_domain)

    def _lost_roots(self, now: datetime) -> tuple[TrustAnchor, ...]:
        """Announced roots without a key, limited to the time in which leaves signed by them may be valid."""
        entry = self._bundles.entries.get(self._trust_domain)
        end = _second(now + LOST_ROOT_LIFETIME)
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
