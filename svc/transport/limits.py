"""Bounds on connections, silent connections, handshakes and their times, with the reason of each default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from svc.transport.errors import ConnectionLimitReached, HandshakeLimitReached, TransportError, WaitingLimitReached
from svc.transport.fair_limiter import FairLimiter

#: A handshake is a few round trips; ten seconds allow for a lost packet and a distant peer.
HANDSHAKE_TIMEOUT: Final = 10.0
#: A peer that does not answer our close within this time, while no data moves, is disconnected.
CLOSE_TIMEOUT: Final = 10.0
#: Each handshake blocks the reactor for about half a millisecond: 256 are an eighth of a second of work.
MAX_HANDSHAKES: Final = 256
#: Seconds for which a handshake is not evicted for another one of its source: a few round trips around the world.
HANDSHAKE_GRACE: Final = 1.0
#: A connection without any data costs about 25 KB: 1,024 are 25 MB.
MAX_WAITING: Final = 1024
#: About 34 KB an idle connection: 10,000 are 340 MB.
MAX_CONNECTIONS: Final = 10_000


class Limit:
    """
    A counter with a maximum.

    Args:
        maximum: at least 1.
        error: raised at the maximum, with ``limit=maximum``.
    """

    def __init__(self, maximum: int, error: type[TransportError]) -> None:
        if maximum < 1:
            raise ValueError(f"a limit is at least 1, not {maximum}")
        self.maximum = maximum
        self.held = 0
        self._error = error

    def acquire(self) -> None:
        """
        Take one.

        Raises:
            TransportError: of the class given at construction, at the maximum.
        """
        if self.held >= self.maximum:
            raise self._error(limit=self.maximum)
        self.held += 1

    def release(self) -> None:
        """
        Give one back.

        Raises:
            RuntimeError: none is held, which is a defect of the caller.
        """
        if self.held <= 0:
            raise RuntimeError("released more often than acquired")
        self.held -= 1


def connection_limit(maximum: int = MAX_CONNECTIONS) -> Limit:
    """Bound the open connections of a listener; raises ``ConnectionLimitReached``."""
    return Limit(maximum, ConnectionLimitReached)


def handshake_limit(maximum: int = MAX_HANDSHAKES) -> FairLimiter:
    """Bound concurrent TLS handshakes, counted from the first octet; listeners may share it."""
    return FairLimiter(maximum, HandshakeLimitReached, grace=HANDSHAKE_GRACE)


def waiting_limit(maximum: int = MAX_WAITING) -> FairLimiter:
    """Bound the connections whose peers have not sent any data; listeners may share it."""
    return FairLimiter(maximum, WaitingLimitReached)


@dataclass(frozen=True)
class Timeouts:
    """
    How long a peer may take.

    Attributes:
        handshake: seconds from the TCP connection to the verified peer.
        close: seconds without progress from our close to the peer's.
    """

    handshake: float = HANDSHAKE_TIMEOUT
    close: float = CLOSE_TIMEOUT
