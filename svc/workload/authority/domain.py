"""
The trust domain as a whole: own keys, federated domains, and what a caller is given of them.

Owns the state that the Workload API serves. Told the time; knows neither gRPC nor files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from svc.identity.bundle import BundleSet, X509Bundle
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.identity.svid import X509Svid
from svc.workload.authority.changes import Changes
from svc.workload.authority.jwtsvid import JwtAuthority, JwtBundle
from svc.workload.authority.keyfile import KeysNotKept
from svc.workload.authority.registration import Entry
from svc.workload.authority.x509ca import X509Authority


@dataclass(frozen=True)
class ForeignDomain:
    """
    What we know of a federated trust domain.

    Args:
        x509: its roots.
        jwt: its JWT keys.
    """

    x509: X509Bundle
    jwt: JwtBundle = ()


@dataclass(frozen=True, slots=True)
class IssuedSvid:
    """
    An SVID as one watch holds it.

    Args:
        entry: what entitled to it.
        svid: the SVID.
        renew_at: half of its life.
        setting: how often the clock had been set back when it was issued.
    """

    entry: Entry
    svid: X509Svid
    renew_at: datetime
    setting: int = 0


@dataclass
class LocalDomain:
    """
    The trust domain that an authority serves.

    Args:
        trust_domain: its name.
        x509: signs X.509-SVIDs.
        jwt: signs JWT-SVIDs.
        changes: moves with every change of a bundle or of the entries.
    """

    trust_domain: TrustDomain
    x509: X509Authority
    jwt: JwtAuthority
    changes: Changes = field(default_factory=Changes)
    _foreign: dict[TrustDomain, ForeignDomain] = field(default_factory=dict)
    sequence: int = 0
    _setting: int = 0

    def advance(self, now: datetime) -> bool:
        """
        Rotate keys that are due.

        Args:
            now: the time.

        Returns:
            Whether an own bundle changed; open watches are told.

        Raises:
            KeysNotKept: a new key could not be kept; those of before go on.
        """
        changed, failed = False, None
        for keys in (self.x509, self.jwt):
            # Whatever happens to the one, what changes of the other is announced.
            try:
                changed = keys.advance(now) or changed
            except KeysNotKept as error:
                failed = error
        if changed:
            # Also across restarts a later bundle has a higher number.
            self.sequence = max(self.sequence + 1, int(now.timestamp()))
            self.changes.bump()
        if failed is not None:
            raise failed
        return changed

    def clock_stepped(self, seconds: float) -> None:
        """
        Hear that the clock of this machine was set: open watches look again at once.

        After a step back every SVID is issued anew: half of its life on the clock that was set may be later than its
        end for peers whose clocks are right.

        Args:
            seconds: by how much, negative for back.
        """
        if seconds < 0:
            self._setting += 1
        self.changes.bump()

    def _catch_up(self, now: datetime) -> None:
        """The clock may have been set forward past every root since the last tick, which tells what fails."""
        with suppress(KeysNotKept):
            self.advance(now)

    def set_foreign(self, foreign: ForeignDomain) -> bool:
        """
        Take a new bundle of a federated trust domain.

        Args:
            foreign: the bundle.

        Returns:
            Whether it differs from the last one; open watches are told.
        """
        if self._foreign.get(foreign.x509.trust_domain) == foreign:
            return False
        self._foreign[foreign.x509.trust_domain] = foreign
        self.changes.bump()
        return True

    @property
    def foreign(self) -> Mapping[TrustDomain, ForeignDomain]:
        """The federated trust domains whose bundles have arrived."""
        return self._foreign

    def bundles(self) -> BundleSet:
        """
        Put together whom workloads of this domain may verify.

        Returns:
            The own bundle and those of the federated domains.
        """
        return BundleSet.of(self.x509.bundle(), *(each.x509 for each in self._foreign.values()))

    def jwt_bundles(self) -> dict[TrustDomain, JwtBundle]:
        """
        As :meth:`bundles` for JWT-SVIDs.

        Returns:
            The JWT keys of each trust domain.
        """
        return {self.trust_domain: self.jwt.bundle()} | {name: each.jwt for name, each in self._foreign.items()}

    def renewed(
        self, entries: tuple[Entry, ...], held: tuple[IssuedSvid, ...], now: datetime
    ) -> tuple[IssuedSvid, ...]:
        """
        Bring the SVIDs of a watch up to date.

        Args:
            entries: what the caller is entitled to.
            held: what it has.
            now: the time.

        Returns:
            One SVID for each entry: the one held while it is in the first half of its life, else a new one.
        """
        self._catch_up(now)
        before = {each.entry: each for each in held}
        return tuple(self._still_good(before.get(entry), now) or self._issue(entry, now) for entry in entries)

    def issue_jwt(self, entry: Entry, audience: tuple[str, ...], now: datetime) -> str:
        """
        Sign a JWT-SVID.

        Args:
            entry: what entitles to it.
            audience: whom it is for.
            now: the time.

        Returns:
            The token.
        """
        self._catch_up(now)
        return self.jwt.issue(entry.spiffe_id, audience, entry.jwt_ttl, now)

    def own_svid(self, spiffe_id: SpiffeID, ttl: timedelta, now: datetime) -> X509Svid:
        """
        Sign an SVID for the authority itself.

        Args:
            spiffe_id: its identity.
            ttl: how long it lives.
            now: the time.

        Returns:
            The SVID.
        """
        self._catch_up(now)
        return self.x509.issue(spiffe_id, ttl, now)

    def _issue(self, entry: Entry, now: datetime) -> IssuedSvid:
        svid = self.x509.issue(entry.spiffe_id, entry.ttl, now)
        return IssuedSvid(entry, svid, now + (svid.not_after - now) / 2, self._setting)

    def _still_good(self, held: IssuedSvid | None, now: datetime) -> IssuedSvid | None:
        # A clock that was set back by more than a moment leaves an SVID that is not valid yet: it is replaced too.
        if held is None or held.setting != self._setting or now >= held.renew_at or now < held.svid.not_before:
            return None
        return held


def make_domain(
    trust_domain: TrustDomain,
    *,
    algorithm: str,
    leaf_algorithm: str,
    ttl: timedelta,
    random: Callable[[int], bytes],
) -> LocalDomain:
    """
    Make an ephemeral trust domain with fresh keys.

    Args:
        trust_domain: its name.
        algorithm: of the X.509 roots.
        leaf_algorithm: of the SVIDs.
        ttl: how long roots and JWT keys live.
        random: gives octets for names of keys.

    Returns:
        The domain, without keys until its first :meth:`LocalDomain.advance`.
    """
    return LocalDomain(
        trust_domain,
        X509Authority(trust_domain, algorithm=algorithm, leaf_algorithm=leaf_algorithm, ttl=ttl),
        JwtAuthority(trust_domain, ttl=ttl, random=random),
    )
