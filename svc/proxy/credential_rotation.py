"""
Credential rotation: SVID, post-quantum leaf and statement are replaced together, when all are available.

Owns when a new credential set is made and how long old ones are kept. Until the new one is complete the old one serves;
a new trust bundle is used at once. A withdrawn identity ends all its credential sets. Listeners subscribe.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from datetime import datetime
from typing import Final, Protocol

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.envelope.profile import Profile
from svc.errors import SvcError
from svc.identity import BundleSet, SpiffeID, X509Svid
from svc.notary.credentials import CredentialSet
from svc.notary.facts import WorkloadFacts
from svc.notary.pqleaf import PqLeaf
from svc.notary.statement import Statement
from svc.store.interface import INotaryStore
from svc.transport.evidence import PeerEvidence
from svc.workload.errors import CredentialsMissing, IdentityWithdrawn
from svc.workload.interface import WITHDRAWAL_GRACE_SECONDS, CredentialSource

#: Seconds between two checks of the facts, and of statements that are not in the store yet.
CHECK_EVERY: Final = 10.0
#: Attempts to make a credential set that may follow one another at once; after them one a second, whether they succeed
#: or not. Of updates that arrive more often, only the last is used.
BURST: Final = 5
_FIRST_RETRY: Final = 1.0
_LAST_RETRY: Final = 30.0


class CredentialsUnmade(SvcError):
    """new credentials could not be made: {what}"""

    reason = "internal_error"


class CredentialObserver(Protocol):
    """Receives what operators should see of the rotation."""

    def credentials_issued(self, credentials: CredentialSet) -> None:
        """New credentials are in use."""

    def credentials_failed(self, error: SvcError) -> None:
        """New credentials could not be made; the old ones serve as long as they are valid."""

    def leaf_obtained(self, leaf: PqLeaf) -> None:
        """The post-quantum issuer gave a leaf."""

    def leaf_failed(self, error: SvcError) -> None:
        """The post-quantum issuer could not be reached, or gave no leaf."""

    def identity_ended(self, error: IdentityWithdrawn) -> None:
        """The identity was withdrawn: nothing serves until there are credentials again."""


class CredentialRotation(Service):
    """
    Makes credential sets from a source and keeps them while they are valid.

    ``obtain_leaf`` is None where the profile needs no post-quantum leaf, ``store`` where there is no notary.
    ``obtain_statement`` returns the statement of a central issuer about an SVID, or None while there is none.
    ``withdrawal_grace`` is for how many seconds credentials of a former identity serve at most, while those of the
    identity that replaced it cannot be made.
    """

    log = Logger()

    def __init__(
        self,
        source: CredentialSource,
        *,
        profile: Profile,
        facts: Callable[[], WorkloadFacts],
        obtain_leaf: Callable[[X509Svid], Deferred[PqLeaf]] | None,
        store: INotaryStore | None,
        observer: CredentialObserver,
        clock: IReactorTime,
        wall: Callable[[], datetime],
        random: Callable[[int], bytes],
        jitter: Callable[[], float] = lambda: 1.0,
        withdrawal_grace: float = WITHDRAWAL_GRACE_SECONDS,
        obtain_statement: Callable[[X509Svid], Deferred[Statement | None]] | None = None,
    ) -> None:
        self._source = source
        self._profile = profile
        self._facts = facts
        self._obtain_leaf = obtain_leaf
        self._obtain_statement = obtain_statement
        self._store = store
        self._observer = observer
        self._clock = clock
        self._wall = wall
        self._random = random
        self._jitter = jitter
        self._withdrawal_grace = withdrawal_grace
        #: Why the last attempt failed; None after a success.
        self.last_error: SvcError | None = None
        self._valid: list[CredentialSet] = []
        self._unsaved: list[CredentialSet] = []
        self._subscribers: list[Callable[[], None]] = []
        self._waiting: list[Deferred[None]] = []
        self._bundles_in_use: BundleSet | None = None
        self._making: Deferred[None] | None = None
        self._busy = False
        self._again = False
        self._pause = _FIRST_RETRY
        self._retry: IDelayedCall | None = None
        self._credit = float(BURST)
        self._credited = clock.seconds()
        self._later: IDelayedCall | None = None
        self._check_call: IDelayedCall | None = None
        #: Ends a former identity whose successor has no credentials yet.
        self._former: IDelayedCall | None = None
        self._ended: IdentityWithdrawn | None = None
        self._unsubscribe: Callable[[], None] = lambda: None

    # -- For transport, connections and endpoints --------------------------------------------------------------------

    @property
    def current(self) -> CredentialSet | None:
        """The credential set for new connections."""
        return self._valid[-1] if self._valid else None

    @property
    def valid(self) -> tuple[CredentialSet, ...]:
        """All credential sets that open connections may have, newest first."""
        return tuple(reversed(self._valid))

    @property
    def svid(self) -> X509Svid:
        """What TLS presents: the SVID of the current credentials."""
        if self._valid:
            return self._valid[-1].svid
        if self._ended is not None:
            # A copy: each time that one error is raised it keeps the frames of another connection.
            raise copy(self._ended)
        raise CredentialsMissing(socket="the source of credentials")

    @property
    def identity(self) -> SpiffeID | None:
        """The identity of this proxy; None where it has no credentials."""
        return self._valid[-1].spiffe_id if self._valid else None

    @property
    def bundles(self) -> BundleSet:
        """The newest bundles, also before a credential set is made for them."""
        return self._source.bundles

    def of_evidence(self, evidence: PeerEvidence) -> CredentialSet | None:
        """Return the newest credential set with the SVID that this side presented on a connection."""
        own = evidence.own_svid
        for credentials in reversed(self._valid):
            # Mostly it is the very object: comparing certificates takes microseconds.
            if credentials.svid is own or credentials.svid.leaf == own.leaf:
                return credentials
        return None

    def statement(self, statement_id: str) -> bytes | None:
        """Return the serialized statement of a valid credential set, or None."""
        for credentials in self._valid:
            if credentials.statement.id == statement_id:
                return credentials.statement.envelope.serialize()
        return None

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Have a function called after each change of credentials or bundles."""
        self._subscribers.append(callback)

    def when_ready(self) -> Deferred[None]:
        """Fires when there is a credential set."""
        if self._valid:
            return succeed(None)
        ready: Deferred[None] = Deferred(self._waiting.remove)
        self._waiting.append(ready)
        return ready

    # -- Service -----------------------------------------------------------------------------------------------------

    def startService(self) -> None:
        """Subscribe to the source."""
        super().startService()
        self._unsubscribe = self._source.subscribe(self._changed)
        self._check_call = self._clock.callLater(CHECK_EVERY, self._check_again)
        self._changed()

    def stopService(self) -> None:
        """Unsubscribe, and stop attempts that are under way."""
        super().stopService()
        self._unsubscribe()
        for call in (self._retry, self._check_call, self._former, self._later):
            if call is not None and call.active():
                call.cancel()
        self._retry = self._check_call = self._former = self._later = None
        if self._making is not None:
            self._making.cancel()

    # -- Making credential sets ---------------------------------------------------------------------------------------

    def _changed(self) -> None:
        try:
            svid, bundles = self._source.svid, self._source.bundles
        except IdentityWithdrawn as error:
            self._end(error)
            return
        except CredentialsMissing:
            return
        self._limit_former(svid)
        if bundles != self._bundles_in_use:
            self._bundles_in_use = bundles
            if self._valid:
                self._notify()
        self._refresh()

    def _limit_former(self, svid: X509Svid) -> None:
        """Limit for how long credentials of a former identity serve; those of its successor end them sooner."""
        differs = self.identity is not None and self.identity != svid.spiffe_id
        if differs and self._former is None:
            self._former = self._clock.callLater(self._withdrawal_grace, self._end_former)
        elif not differs and self._former is not None:
            self._former.cancel()
            self._former = None

    def _end_former(self) -> None:
        self._former = None
        if self._valid:
            what = f"it issues {self._source.svid.spiffe_id} instead, for which no credentials could be made"
            socket = "the source of credentials"
            self._end(IdentityWithdrawn(socket=socket, spiffe_id=self._valid[-1].spiffe_id, what=what))

    def _end(self, error: IdentityWithdrawn) -> None:
        """Present and admit nothing any more; admitted exchanges are recorded, and statements stay in the store."""
        self._ended = self.last_error = error
        if self._former is not None:
            self._former.cancel()
            self._former = None
        self._valid.clear()
        self._observer.identity_ended(error)
        self._notify()

    def _check_again(self) -> None:
        self._check_call = self._clock.callLater(CHECK_EVERY, self._check_again)
        now = self._wall()
        current = self._valid[-1:]
        self._valid = [each for each in self._valid if each.expires > now or each in current]
        self._save()
        # After a failure the next attempt waits for its pause.
        if self._valid and self._retry is None:
            self._refresh()

    def _refresh(self) -> None:
        """Make a credential set where the inputs changed; one attempt at a time, another one after it if asked for."""
        if self._busy:
            self._again = True
            return
        if self._later is not None or self._must_wait():
            return
        if self._retry is not None:
            if self._retry.active():
                self._retry.cancel()
            self._retry = None
        self._busy = True
        self._credit -= 1.0
        made = self._making = Deferred.fromCoroutine(self._make())
        made.addErrback(self._failed)
        made.addCallback(self._attempted)

    def statement_changed(self) -> None:
        """Use another statement of the central issuer."""
        if self.running and self._retry is None:
            self._refresh()

    def retry(self) -> None:
        """Make the next attempt now, where one has failed and the next waits for its time: its cause is gone."""
        if self._retry is not None and self._retry.active():
            self._pause = _FIRST_RETRY
            self._refresh()

    def _must_wait(self) -> bool:
        """Postpone a refresh after too many attempts."""
        now = self._clock.seconds()
        self._credit, self._credited = min(float(BURST), self._credit + now - self._credited), now
        if self._credit > 0.999:
            return False
        self._later = self._clock.callLater(1.0 - self._credit, self._refresh_now)
        return True

    def _refresh_now(self) -> None:
        self._later = None
        self._refresh()

    async def _make(self) -> None:
        svid, facts, current = self._source.svid, self._facts(), self.current
        leaf: PqLeaf | None = None
        asked = False
        if self._obtain_leaf is not None:
            if current is not None and current.svid.leaf == svid.leaf and not self._leaf_expires_early(current):
                leaf = current.pq_leaf
            else:
                asked = True
                leaf = await self._obtained(self._obtain_leaf, svid)
        central = None if self._obtain_statement is None else await self._obtain_statement(svid)
        if self._source.svid.spiffe_id != svid.spiffe_id:
            # The identity was replaced meanwhile and another attempt follows; a withdrawn one raises.
            return
        current = self.current
        if current is None or not current.is_built_from(svid, leaf, facts, self._profile, central):
            self._use(CredentialSet.issue(svid, leaf, facts, self._profile, self._wall(), self._random, central))
        elif not asked:
            # A check that finds the credentials current does not count as an attempt.
            self._credit += 1.0
        self._pause = _FIRST_RETRY
        self.last_error = None

    async def _obtained(self, obtain: Callable[[X509Svid], Deferred[PqLeaf]], svid: X509Svid) -> PqLeaf:
        try:
            leaf = await obtain(svid)
        except SvcError as error:
            if self.running:
                self._observer.leaf_failed(error)
            raise
        self._observer.leaf_obtained(leaf)
        return leaf

    def _leaf_expires_early(self, current: CredentialSet) -> bool:
        """Whether the post-quantum leaf ends before the SVID beside it, and soon."""
        leaf = current.pq_leaf
        return leaf is None or (
            leaf.not_after < current.svid.not_after and self._wall() >= current.renew_connections_at
        )

    def _use(self, credentials: CredentialSet) -> None:
        if not self.running:
            return
        # Credentials of another identity end, however long they would be valid.
        self._valid = [each for each in self._valid if each.spiffe_id == credentials.spiffe_id]
        self._valid.append(credentials)
        self._ended = None
        self._limit_former(credentials.svid)
        self._unsaved.append(credentials)
        self._save()
        self._observer.credentials_issued(credentials)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.callback(None)
        self._notify()

    def _failed(self, failure: Failure) -> None:
        if not self.running:
            return
        error = failure.value
        if isinstance(error, CredentialsMissing):
            return
        if not isinstance(error, SvcError):
            # Rotation continues after any error: without it all credentials would expire.
            self.log.failure("making credentials failed unexpectedly", failure)
            error = CredentialsUnmade(what=type(error).__name__)
        self.last_error = error
        self._observer.credentials_failed(error)
        self._retry = self._clock.callLater(self._pause * self._jitter(), self._refresh)
        self._pause = min(self._pause * 2, _LAST_RETRY)

    def _attempted(self, _result: None) -> None:
        self._making, self._busy = None, False
        if self._again:
            self._again = False
            if self.running:
                self._refresh()

    def _save(self) -> None:
        """Store statements, so that they can be fetched after this process ends; retried later on failure."""
        if self._store is None:
            self._unsaved.clear()
            return
        for credentials in list(self._unsaved):
            self._unsaved.remove(credentials)
            put = maybeDeferred(self._store.put_statement, credentials.statement)
            put.addErrback(self._not_saved, credentials)

    def _not_saved(self, failure: Failure, credentials: CredentialSet) -> None:
        if not failure.check(SvcError):
            self.log.failure("storing a statement failed unexpectedly", failure)
        if self.running and credentials.expires > self._wall():
            self._unsaved.append(credentials)

    def _notify(self) -> None:
        for callback in list(self._subscribers):
            try:
                callback()
            except Exception:  # noqa: BLE001 (an error in one listener must not keep the others on old credentials)
                self.log.failure("a subscriber of the credentials failed")
