"""
The bounds on connections: how many, how many that say nothing, how many handshakes at once, and how long a handshake
or a close may take.

Owns the counting and the defaults with their reasons. Knows nothing of sockets or TLS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from svc.transport.errors import ConnectionLimitReached, HandshakeLimitReached, TransportError, WaitingLimitReached
from svc.transport.places import Places

#: A handshake is a few round trips; ten seconds allow for a lost packet and a distant peer.
HANDSHAKE_TIMEOUT: Final = 10.0
#: A peer that does not answer our close within this time, while nothing flows, is cut off.
CLOSE_TIMEOUT: Final = 10.0
#: Each handshake blocks the reactor for about half a millisecond: 256 are an eighth of a second of work.
MAX_HANDSHAKES: Final = 256
#: So long a handshake keeps its place against others of its address: a few round trips around the world.
HANDSHAKE_PATIENCE: Final = 1.0
#: A connection that has said nothing costs about 25 KB: 1,024 are 25 MB.
MAX_WAITING: Final = 1024
#: About 34 KB an idle connection: 10,000 are 340 MB.
MAX_CONNECTIONS: Final = 10_000


class Limit:
    """
    A counter with a ceiling.

    Args:
        maximum: how many may be held at once; at least 1.
        error: what is raised when one more is asked for; gets ``limit=maximum``.

    Attributes:
        maximum: the ceiling.
        held: how many are held now.
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
            TransportError: of the class given at construction, when all are held.
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
    """
    Bound the connections of a listener.

    Args:
        maximum: how many may be open at once.

    Returns:
        A limit that raises ``ConnectionLimitReached``.
    """
    return Limit(maximum, ConnectionLimitReached)


def handshake_limit(maximum: int = MAX_HANDSHAKES) -> Places:
    """
    Bound the TLS handshakes that run at once, from the first octet on; may be shared between listeners.

    Args:
        maximum: how many may run.

    Returns:
        Places that raise ``HandshakeLimitReached``.
    """
    return Places(maximum, HandshakeLimitReached, patience=HANDSHAKE_PATIENCE)


def waiting_limit(maximum: int = MAX_WAITING) -> Places:
    """
    Bound the connections whose peers have said nothing yet; may be shared between listeners.

    Args:
        maximum: how many may wait.

    Returns:
        Places in which somebody gives way to everybody who comes, for ``WaitingLimitReached``.
    """
    return Places(maximum, WaitingLimitReached)


@dataclass(frozen=True)
class Timeouts:
    """
    How long the peer may take.

    Attributes:
        handshake: seconds from the TCP connection to the verified peer.
        close: seconds without progress from our close to the peer's.
    """

    handshake: float = HANDSHAKE_TIMEOUT
    close: float = CLOSE_TIMEOUT
