"""
Connections to a PostgreSQL server, each wait of which ends.

Owns what every session is told before it is used and what a server must be to be believed. Must not know tables.
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
from svc.store.errors import DatabaseUnsafe, ServerUnsupported
from svc.store.postgresql.address import DatabaseAddress

#: The oldest server that is supported, as ``server_version_num`` says it.
OLDEST: Final = 140000
SCHEMA: Final = "svc_notary"
#: Seconds for each address of the server to answer a new connection.
CONNECT_SECONDS: Final = 5
#: Milliseconds after which the server gives a statement up, and a wait for a lock.
STATEMENT_MS: Final = 4000
LOCK_MS: Final = 2000
#: Seconds after which this side gives up a server that does not answer at all.
ANSWER_SECONDS: Final = 5.0
#: The address cannot name these but ``sslmode``. A network that swallows packets is noticed within seconds, with and
#: without octets on their way.
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

_Result = TypeVar("_Result")

_BELIEVE: Final = """
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
 set_config('default_transaction_read_only', 'off', false),
 set_config('default_transaction_deferrable', 'off', false),
 set_config('search_path', %(path)s, false)
"""


class AnswerMissing(psycopg.OperationalError):
    """The server did not answer in time; what it did is unknown."""


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose waits for the server end; used by one thread."""

    _until: float | None = None

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        """
        Wait for the server.

        Args:
            gen: the library's generator; it is resumed at least every tenth of a second.
            args: as the library gives them.
            kwargs: the same.

        Returns:
            The generator's result.

        Raises:
            AnswerMissing: where :meth:`within` ends first.
        """
        until = self._until
        return super().wait(gen if until is None else bounded(gen, until), *args, **kwargs)

    @contextmanager
    def within(self, seconds: float) -> Iterator[Self]:
        """
        Bound all that is asked of the server inside.

        Args:
            seconds: for the whole of it.

        Yields:
            The session.
        """
        self._until = time.monotonic() + seconds
        try:
            yield self
        finally:
            self._until = None

    def idle(self) -> bool:
        """
        Say whether the session can be used for something new.

        Returns:
            False where it is lost, or in the middle of something that failed.
        """
        return not self.closed and not self.lost() and self.pgconn.transaction_status == pq.TransactionStatus.IDLE

    def lost(self) -> bool:
        """
        Take what the server said unasked, such as its farewell; never waits.

        Returns:
            Whether the connection is gone.
        """
        try:
            self.pgconn.consume_input()
            self.pgconn.is_busy()
        except psycopg.Error:
            return True
        return self.pgconn.status != pq.ConnStatus.OK


Connect = Callable[[], Session]


def connect(address: DatabaseAddress, *, durable: bool) -> Session:
    """
    Connect and make the session what the store needs, whatever the server's and the role's own settings are.

    Args:
        address: where.
        durable: whether records will be written: then a server that would lose them is refused, and so is a standby.

    Returns:
        The session; each statement is its own transaction where none is begun.

    Raises:
        psycopg.Error: where the server cannot be reached or refuses.
        DatabaseUnsafe: where it runs with ``fsync = off``.
        ServerUnsupported: where it is too old.
    """
    session = Session.connect(conninfo(address), autocommit=True)
    try:
        with session.within(ANSWER_SECONDS):
            _configure(session, address.name, durable=durable)
    except BaseException:
        session.close()
        raise
    return session


def conninfo(address: DatabaseAddress) -> str:
    """
    Say to the library where to connect to.

    Args:
        address: where.

    Returns:
        Its own form of an address.
    """
    # The address was judged by its hosts: PGHOSTADDR, or a service that the environment names, must not lead elsewhere.
    # A service that the address names may, since its server has to prove who it is.
    own = _OWN if "service" in address.parameters else {**_OWN, "hostaddr": ""}
    return make_conninfo("", **{**own, **address.parameters})


def believe(name: str, found: tuple[Any, ...], *, durable: bool) -> str:
    """
    Judge a server by what it says of itself.

    Args:
        name: of the database, for errors.
        found: ``server_version_num``, ``fsync``, whether it is in recovery, and ``synchronous_commit``.
        durable: whether records will be written.

    Returns:
        What ``synchronous_commit`` has to be.

    Raises:
        DatabaseUnsafe: where the server runs with ``fsync = off``.
        ServerUnsupported: where it is too old.
        psycopg.errors.ReadOnlySqlTransaction: where it is a standby.
    """
    version, fsync, standby, synchronous = found
    if version < OLDEST:
        raise ServerUnsupported(path=name, found=version // 10000, needed=OLDEST // 10000)
    if durable and fsync != "on":
        raise DatabaseUnsafe(path=name, detail=f"fsync = {fsync}")
    if durable and standby:
        raise psycopg.errors.ReadOnlySqlTransaction("the server is a standby and takes no records")
    # remote_apply is the one setting that promises more than on.
    return "off" if not durable else "remote_apply" if synchronous == "remote_apply" else "on"


def _configure(session: Session, name: str, *, durable: bool) -> None:
    # Said to each session and not left to defaults, which may change.
    wanted = believe(name, one(session.execute(_BELIEVE)), durable=durable)
    session.execute(
        _CONFIGURE,
        {
            "synchronous": wanted,
            "statement": f"{STATEMENT_MS}ms",
            "lock": f"{LOCK_MS}ms",
            # Temporary tables last: nobody shadows ours.
            "path": f"{SCHEMA}, pg_temp",
        },
    )


def one(cursor: psycopg.Cursor[tuple[Any, ...]]) -> tuple[Any, ...]:
    """
    Take the one row of an answer.

    Args:
        cursor: of a query that always has one.

    Returns:
        The row.

    Raises:
        psycopg.DataError: where there is none.
    """
    row = cursor.fetchone()
    if row is None:
        raise psycopg.DataError("the server gave no row")
    return row


def told(error: Exception) -> str:
    """
    Say what the server said without what it quotes: its details repeat values of records.

    Args:
        error: of the library, or another.

    Returns:
        One line.
    """
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return printable(primary or str(error).strip().partition("\n")[0], 200)


def bounded(gen: Generator[Any, Any, _Result], until: float) -> Generator[Any, Any, _Result]:
    """
    Let a generator of the library end in time.

    Args:
        gen: it is resumed at least every tenth of a second, ready or not.
        until: the monotonic time.

    Returns:
        A generator that does the same until then.

    Raises:
        AnswerMissing: at the first resumption after that.
    """
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if time.monotonic() >= until:
                raise AnswerMissing("the server did not answer in time")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: _Result = end.value
        return result
