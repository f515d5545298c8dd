"""
Connections to a PostgreSQL server, each wait of which is bounded.

Owns the settings of each session and the requirements on a server. Contains no tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from svc.errors import printable
from svc.store.errors import ServerUnsupported, StoreError
from svc.store.postgresql.address import DatabaseAddress

#: The oldest server that is supported, as in ``server_version_num``.
OLDEST: Final = 140000
SCHEMA: Final = "svc_notary"
#: Seconds for each address of the server to answer a new connection.
CONNECT_SECONDS: Final = 5
#: Milliseconds after which the server cancels a statement, and a wait for a lock.
STATEMENT_MS: Final = 4000
LOCK_MS: Final = 2000
#: Seconds after which this side gives up a server that does not answer.
ANSWER_SECONDS: Final = 5.0
#: The address can name none of these but ``sslmode``. A network that drops packets is detected within seconds, whether
#: data is in flight or not.
_OWN: Final = {
    "application_name": "svc-proxy",
    "client_encoding": "UTF8",
    "connect_timeout": str(CONNECT_SECONDS),
    "sslmode": "prefer",
    "keepalives": "1",
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",
}

_T = TypeVar("_T")

_SERVER: Final = """
SELECT current_setting('server_version_num')::integer, current_setting('fsync'),
 pg_is_in_recovery(), current_setting('synchronous_commit')
"""
_CONFIGURE: Final = """
SELECT set_config('synchronous_commit', %(synchronous)s, false),
 set_config('statement_timeout', %(statement)s, false),
 set_config('lock_timeout', %(lock)s, false),
 set_config('idle_in_transaction_session_timeout', '10s', false),
 set_config('idle_session_timeout', '0', false),
 set_config('default_transaction_isolation', 'read committed', false),
 set_config('default_transaction_read_only', %(readonly)s, false),
 set_config('default_transaction_deferrable', 'off', false),
 set_config('search_path', %(path)s, false)
"""


class AnswerMissing(psycopg.OperationalError):
    """The server did not answer in time; what it did is unknown."""


class PostgresSession(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose waits for the server are bounded; used by one thread."""

    _until: float | None = None

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """Wait for the server; AnswerMissing at the end of :meth:`within`."""
        until = self._until
        return super().wait(gen if until is None else bounded(gen, until), *args, **kwargs)

    @contextmanager
    def within(self, seconds: float) -> Iterator[Self]:
        """Bound all waits inside together."""
        self._until = time.monotonic() + seconds
        try:
            yield self
        finally:
            self._until = None

    def idle(self) -> bool:
        """Whether the session is neither lost nor within something that failed."""
        return not self.closed and not self.lost() and self.pgconn.transaction_status == pq.TransactionStatus.IDLE

    def lost(self) -> bool:
        """Read what the server sent unsolicited, without waiting; returns whether the connection is lost."""
        try:
            self.pgconn.consume_input()
            self.pgconn.is_busy()
        except psycopg.Error:
            return True
        return self.pgconn.status != pq.ConnStatus.OK


OpenSession = Callable[[], PostgresSession]


def connect(address: DatabaseAddress, *, durable: bool, writes: bool = True) -> PostgresSession:
    """
    Open a session with the settings that the store needs, whatever the defaults of the server and the role are.

    For ``durable`` writes a server that would lose them is refused, and so is a standby. Each statement is its own
    transaction where none is begun; without ``writes`` the server refuses whatever would write.

    Raises:
        psycopg.Error: the server cannot be reached or refuses.
        StoreError: it runs with ``fsync = off``, or is too old.
    """
    session = PostgresSession.connect(conninfo(address), autocommit=True)
    try:
        with session.within(ANSWER_SECONDS):
            _configure(session, address.name, durable=durable, writes=writes)
    except BaseException:
        session.close()
        raise
    return session


def conninfo(address: DatabaseAddress) -> str:
    """The address in the form of the client library."""
    # The address was accepted for its hosts: PGHOSTADDR, or a service of the environment, must not lead elsewhere. A
    # service that the address names may, since its server is verified.
    own = _OWN if "service" in address.parameters else {**_OWN, "hostaddr": ""}
    return make_conninfo("", **{**own, **address.parameters})


def check_server(name: str, found: tuple[Any, ...], *, durable: bool) -> str:
    """
    Check a server by the row of :data:`_SERVER`, and return what ``synchronous_commit`` has to be.

    Raises:
        StoreError: it runs with ``fsync = off``, or is too old.
        psycopg.errors.ReadOnlySqlTransaction: it is a standby.
    """
    version, fsync, standby, synchronous = found
    if version < OLDEST:
        raise ServerUnsupported(path=name, found=version // 10000, needed=OLDEST // 10000)
    if durable and fsync != "on":
        raise StoreError("store_unsafe", path=name, detail=f"fsync = {fsync}")
    if durable and standby:
        raise psycopg.errors.ReadOnlySqlTransaction("the server is a standby and accepts no records")
    # remote_apply is the one setting that promises more than on.
    return "off" if not durable else "remote_apply" if synchronous == "remote_apply" else "on"


def _configure(session: PostgresSession, name: str, *, durable: bool, writes: bool) -> None:
    # Set in each session and not left to defaults, which may change.
    wanted = check_server(name, one(session.execute(_SERVER)), durable=durable)
    session.execute(
        _CONFIGURE,
        {
            "synchronous": wanted,
            "readonly": "off" if writes else "on",
            "statement": f"{STATEMENT_MS}ms",
            "lock": f"{LOCK_MS}ms",
            # Temporary tables last, so that none shadows ours.
            "path": f"{SCHEMA}, pg_temp",
        },
    )


def one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    """The one row of a query that always has one."""
    row = cursor.fetchone()
    if row is None:
        raise psycopg.DataError("the server returned no row")
    return row


def server_message(error: Exception) -> str:
    """One line of what the server reported, without its details, which repeat values of records."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return printable(primary or str(error).strip().partition("\n")[0], 200)


def bounded(gen: Generator[Any, Any, _T], until: float) -> Generator[Any, Any, _T]:
    """Bound a generator of the library, which resumes it at least every tenth of a second, by a monotonic time."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if time.monotonic() >= until:
                raise AnswerMissing("the server did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: _T = end.value
        return result
