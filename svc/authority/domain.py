"""The state of the trust domain: own keys, federated domains, and the SVIDs issued from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from svc.authority.jwtsvid import JwtAuthority, JwtBundle
from svc.authority.keyfile import KeysNotStored
from svc.authority.registration import Entry
from svc.authority.x509ca import X509Authority
from svc.identity.bundle import BundleSet, X509Bundle
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.identity.svid import X509Svid


class Changes:
    """A change counter that coroutines can wait for."""

    def __init__(self) -> None:
        self.number = 0
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Count a change and wake all waiting coroutines."""
        self.number += 1
        for event in self._waiting:
            event.set()

    async def wait_beyond(self, number: int, seconds: float) -> bool:
        """Wait until the counter differs from ``number``; False after ``seconds``."""
        if self.number != number:
            return True
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            await asyncio.wait_for(event.wait(), max(seconds, 0.0))
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(event)
        return True


@dataclass(frozen=True)
class ForeignDomain:
    """The X.509 roots and JWT keys of a federated trust domain."""

    x509: X509Bundle
    jwt: JwtBundle = ()


@dataclass(frozen=True, slots=True)
class IssuedSvid:
    """
    An SVID of one Workload API stream; ``clock_steps`` counts how often the clock had been set back when it was issued.
    """

    entry: Entry
    svid: X509Svid
    renew_at: datetime
    clock_steps: int = 0


@dataclass
class LocalDomain:
    """The trust domain that an authority serves; ``changes`` counts changes of bundles and entries."""

    trust_domain: TrustDomain
    x509: X509Authority
    jwt: JwtAuthority
    changes: Changes = field(default_factory=Changes)
    _foreign: dict[TrustDomain, ForeignDomain] = field(default_factory=dict)
    sequence: int = 0
    _clock_steps: int = 0

    def advance(self, now: datetime) -> bool:
        """
        Rotate keys that are due.

        Returns whether an own bundle changed, in which case open streams are notified. Raises :class:`KeysNotStored` if
        a new key could not be stored; the previous keys stay in use.
        """
        changed, failed = False, None
        for keys in (self.x509, self.jwt):
            # A failure of one must not suppress the announcement of the other.
            try:
                changed = keys.advance(now) or changed
            except KeysNotStored as error:
                failed = error
        if changed:
            # Also across restarts a later bundle has a higher number.
            self.sequence = max(self.sequence + 1, int(now.timestamp()))
            self.changes.notify()
        if failed is not None:
            raise failed
        return changed

    def clock_stepped(self, seconds: float) -> None:
        """
        Let open streams check their SVIDs at once, since the clock was set by ``seconds``, negative for back.

        After a step back every SVID is issued anew: its renewal time, by the clock that was set, may be later than its
        expiry for peers whose clocks are right.
        """
        if seconds < 0:
            self._clock_steps += 1
        self.changes.notify()

    def _advance_quietly(self, now: datetime) -> None:
        """Rotate in case the clock was set forward past every root; the next tick reports failures."""
        with suppress(KeysNotStored):
            self.advance(now)

    def set_foreign(self, foreign: ForeignDomain) -> bool:
        """
        Store a bundle of a federated trust domain; returns whether it differs, in which case open streams are notified.
        """
        if self._foreign.get(foreign.x509.trust_domain) == foreign:
            return False
        self._foreign[foreign.x509.trust_domain] = foreign
        self.changes.notify()
        return True

    def drop_foreign(self, trust_domain: TrustDomain) -> None:
        """Forget a federated trust domain, all of whose keys are revoked; open streams are notified."""
        if self._foreign.pop(trust_domain, None) is not None:
            self.changes.notify()

    @property
    def foreign(self) -> Mapping[TrustDomain, ForeignDomain]:
        """The federated trust domains whose bundles have been read."""
        return self._foreign

    def bundles(self) -> BundleSet:
        """The bundles that workloads of this domain verify with: the own one and those of federated domains."""
        return BundleSet.of(self.x509.bundle(), *(each.x509 for each in self._foreign.values()))

    def jwt_bundles(self) -> dict[TrustDomain, JwtBundle]:
        """As :meth:`bundles` for JWT-SVIDs."""
        return {self.trust_domain: self.jwt.bundle()} | {name: each.jwt for name, each in self._foreign.items()}

    def renew(self, entries: tuple[Entry, ...], held: tuple[IssuedSvid, ...], now: datetime) -> tuple[IssuedSvid, ...]:
        """One SVID for each entry: the held one in the first half of its lifetime, else a new one."""
        self._advance_quietly(now)
        before = {each.entry: each for each in held}
        return tuple(self._current(before.get(entry), now) or self._issue(entry, now) for entry in entries)

    def issue_jwt(self, entry: Entry, audience: tuple[str, ...], now: datetime) -> str:
        self._advance_quietly(now)
        return self.jwt.issue(entry.spiffe_id, audience, entry.jwt_ttl, now)

    def own_svid(self, spiffe_id: SpiffeID, ttl: timedelta, now: datetime) -> X509Svid:
        """An SVID for the authority itself."""
        self._advance_quietly(now)
        return self.x509.issue(spiffe_id, ttl, now)

    def _issue(self, entry: Entry, now: datetime) -> IssuedSvid:
        svid = self.x509.issue(entry.spiffe_id, entry.ttl, now)
        return IssuedSvid(entry, svid, now + (svid.not_after - now) / 2, self._clock_steps)

    def _current(self, held: IssuedSvid | None, now: datetime) -> IssuedSvid | None:
        # After the clock was set back, an SVID may not be valid yet: it is replaced too.
        if held is None or held.clock_steps != self._clock_steps or now >= held.renew_at or now < held.svid.not_before:
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
    A trust domain without keys; the first :meth:`LocalDomain.advance` makes them. ``ttl`` is the lifetime of roots and
    JWT keys.
    """
    return LocalDomain(
        trust_domain,
        X509Authority(trust_domain, algorithm=algorithm, leaf_algorithm=leaf_algorithm, ttl=ttl),
        JwtAuthority(trust_domain, ttl=ttl, random=random),
    )
