"""
Logins with a user name and a password.

Owns how many passwords are verified at once, in threads, how many logins wait for that, and the cache of those that
were verified. What a hash is, is in :mod:`svc.broker.passwordfile`.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from svc.broker.access import ClientName
from svc.broker.errors import BrokerError, LoginLimitReached
from svc.broker.passwordfile import PasswordHash, Users, usual_cost
from svc.policyfiles.watch import InThread
from svc.transport.errors import TransportError
from svc.transport.fair_limiter import FairLimiter

#: Passwords that are verified at once; each takes a core, and 32 MiB with the usual cost.
THREADS: Final = 2
#: Credentials that are cached, and for how many seconds after they were verified.
CACHED: Final = 10_000
CACHE_SECONDS: Final = 3600.0


class UserEvidence(NamedTuple):
    """A user whose password was verified, and by which hash."""

    name: ClientName
    password: PasswordHash


class _Login:
    """A login that waits for the verification of its password."""

    def __init__(self, logins: PasswordLogins, name: str, password: bytes, key: bytes) -> None:
        self._logins = logins
        self.name = name
        self.password = password
        self.key = key
        self.ended = False
        self.result: Deferred[UserEvidence] = Deferred(self._cancelled)

    def evicted(self, error: TransportError) -> None:
        """Refuse it in favour of one of a source that has fewer; see ``LimitedConnection``."""
        self._logins.withdraw(self)
        self.end(error)

    def end(self, result: UserEvidence | Exception) -> None:
        if not self.ended:
            self.ended = True
            if isinstance(result, Exception):
                self.result.errback(result)
            else:
                self.result.callback(result)

    def _cancelled(self, result: Deferred[UserEvidence]) -> None:
        self.ended = True
        self._logins.withdraw(self)


class PasswordLogins:
    """
    Verifies user names and passwords.

    Args:
        users: those of the password file.
        seconds: the monotonic time.
        in_thread: runs the verification of one password; is called for at most :data:`THREADS` at once.
        waiting: how many logins may wait for a thread; beyond it one of the source with most is refused.
    """

    log = Logger()

    def __init__(self, users: Users, *, seconds: Callable[[], float], in_thread: InThread, waiting: int) -> None:
        self._seconds = seconds
        self._in_thread = in_thread
        self._limiter = FairLimiter(waiting, LoginLimitReached, grace=inf)
        self._waiting: dict[_Login, None] = {}
        self._running = 0
        #: Of the keyed hashes by which credentials are cached: a plain hash would be as good as a weak password file.
        self._cache_key = secrets.token_bytes(32)
        self._cache: OrderedDict[bytes, tuple[float, UserEvidence]] = OrderedDict()
        self.replace(users)

    def replace(self, users: Users) -> None:
        """Use other users from now on, also for logins whose password is being verified."""
        self._users = users
        self._nobody = PasswordHash.of_nobody(usual_cost(users))
        self._cache.clear()

    def check(self, name: str, password: PasswordHash | None) -> None:
        """
        Check that a user is still there; with a hash, that it is still that of its password.

        Raises:
            BrokerError: ``mqtt_user_withdrawn``.
        """
        found = self._users.get(name)
        if found is None or (password is not None and found != password):
            raise BrokerError("mqtt_user_withdrawn", user=name)

    def login(self, name: str | None, password: bytes | None, source: str) -> Deferred[UserEvidence]:
        """
        Verify the credentials of a CONNECT.

        Args:
            source: the network that they came from.

        Returns:
            Fails with ``BrokerError``: ``mqtt_login_refused`` for a wrong password as for an unknown user,
            ``mqtt_login_limit`` where too many wait. Cancelling withdraws the login.
        """
        if not name or not password:
            return fail(BrokerError("mqtt_login_refused"))
        octets = name.encode()
        key = hmac.digest(self._cache_key, len(octets).to_bytes(4, "big") + octets + password, "sha256")
        cached = self._cached(key)
        if cached is not None:
            return succeed(cached)
        login = _Login(self, name, password, key)
        if self._running < THREADS:
            self._verify(login)
            return login.result
        try:
            self._limiter.acquire(login, source, self._seconds())
        except LoginLimitReached as error:
            return fail(error)
        self._waiting[login] = None
        return login.result

    def withdraw(self, login: _Login) -> None:
        """Remove a login from those that wait."""
        self._waiting.pop(login, None)
        self._limiter.release(login)

    def _verify(self, login: _Login) -> None:
        self._running += 1
        found = self._users.get(login.name)
        hashed = self._nobody if found is None else found
        verified = self._in_thread(partial(hashed.verify, login.password))
        verified.addBoth(self._verified, login, found)

    def _verified(self, result: bool | Failure, login: _Login, expected: PasswordHash | None) -> None:
        self._running -= 1
        if isinstance(result, Failure):
            self.log.failure("a password could not be verified; the login is refused", result)
        if result is True and expected is not None and self._users.get(login.name) == expected:
            evidence = UserEvidence(ClientName("user", login.name), expected)
            self._remember(login.key, evidence)
            login.end(evidence)
        else:
            login.end(BrokerError("mqtt_login_refused"))
        self._verify_next()

    def _verify_next(self) -> None:
        while self._waiting and self._running < THREADS:
            login = next(iter(self._waiting))
            self.withdraw(login)
            # The same credentials may have been verified while this one waited.
            cached = self._cached(login.key)
            if cached is None:
                self._verify(login)
            else:
                login.end(cached)

    def _cached(self, key: bytes) -> UserEvidence | None:
        found = self._cache.get(key)
        if found is None:
            return None
        if self._seconds() >= found[0]:
            del self._cache[key]
            return None
        return found[1]

    def _remember(self, key: bytes, evidence: UserEvidence) -> None:
        if len(self._cache) >= CACHED:
            self._cache.popitem(last=False)
        self._cache[key] = (self._seconds() + CACHE_SECONDS, evidence)
