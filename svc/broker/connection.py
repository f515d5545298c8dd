"""
One client's connection: octets in, packets to the core, octets out.

The Twisted shell around :class:`svc.broker.client.Client`. Owns what takes time or waits for a socket: the wait for
CONNECT, keep alive, congestion, the goodbye.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Flag, auto
from functools import partial
from typing import Any, Final, Protocol

from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.broker.access import Principal
from svc.broker.client import Client, greet, refusal
from svc.broker.errors import BrokerError
from svc.broker.hub import Hub
from svc.errors import SvcError
from svc.transport.evidence import PeerEvidence
from svc.wire.mqtt import (
    DEFAULT_LIMITS,
    ClientIdInvalid,
    Connack,
    Connect,
    Decoder,
    Disconnect,
    Limits,
    MqttError,
    Packet,
    ReasonCode,
    Refused,
    ReturnCode,
    Version,
    VersionUnsupported,
    encode,
)

#: Seconds in which a goodbye may be sent; then the connection is cut.
GOODBYE: Final = 5.0
#: Octets of answers to a client that does not read, beyond what the transport buffers, before it is not read either.
UNREAD: Final = 64 * 1024
#: Answers to a client that may wait until what they speak of is safe; then it is not read until they are sent.
OWED: Final = 1000
#: Octets of a packet that is not whole yet that prove the client alive: a large one may take long to come.
PROGRESS: Final = 1000
#: Packets of one read that are taken without a look at the clock.
FEW: Final = 8
#: Seconds for what one client sent before others have their turn; the largest read with one receiver takes less.
TURN: Final = 0.02
#: The first octet of a client that speaks TLS, which is none of MQTT's first packet.
_TLS: Final = b"\x16"
_NOBODY: Final = Principal(None)


class _Deaf(Flag):
    """Why nothing is read from a client."""

    CONNACK_WAITS = auto()
    ANSWERS_UNREAD = auto()
    ANSWERS_OWED = auto()
    TURN_OVER = auto()


_HEARS: Final = _Deaf(0)


class ConnectionReporter(Protocol):
    """Who tells people about connections."""

    def connected(self, principal: Principal, client_id: str, version: Version) -> None:
        """A client was admitted."""

    def refused(self, principal: Principal, error: SvcError) -> None:
        """A client was not admitted."""

    def broken(self, principal: Principal, client_id: str, error: SvcError) -> None:
        """A client's connection was ended for what it did."""

    def denied(self, principal: Principal, client_id: str, action: str) -> None:
        """Rules of access did not allow something."""


class SilentReporter:
    """A :class:`ConnectionReporter` that does nothing."""

    def connected(self, principal: Principal, client_id: str, version: Version) -> None:
        """Do nothing."""

    def refused(self, principal: Principal, error: SvcError) -> None:
        """Do nothing."""

    def broken(self, principal: Principal, client_id: str, error: SvcError) -> None:
        """Do nothing."""

    def denied(self, principal: Principal, client_id: str, action: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class ConnectionTerms:
    """
    What a connection may use, and for how long.

    Args:
        packet: what one packet may use.
        connect: seconds until CONNECT must have come.
        keep_alive: the longest keep alive in seconds.
    """

    packet: Limits = DEFAULT_LIMITS
    connect: float = 10.0
    keep_alive: int = 1200


@dataclass(frozen=True, slots=True)
class Surroundings:
    """
    What all connections of a broker have in common; each holds it once, and not its parts.

    Args:
        hub: the broker.
        terms: what a connection may use.
        seconds: the monotonic time.
        soon: calls a function when other connections had their turn, never at once.
        reporter: tells people.
        connections: where a connection enters itself while it is open.
    """

    hub: Hub
    terms: ConnectionTerms
    seconds: Callable[[], float]
    soon: Callable[[Callable[[], None]], object]
    reporter: ConnectionReporter
    connections: set[BrokerConnection]


class KeepAliveExceeded(SvcError):
    """nothing came from the client for one and a half times its keep alive of {seconds} s"""

    reason = "mqtt_keep_alive"


class ConnectAwaited(SvcError):
    """no CONNECT came within {seconds} s"""

    reason = "mqtt_connect_timeout"


class TlsAtPlainListener(SvcError):
    """the client speaks TLS, and this listener does not"""

    reason = "mqtt_tls_at_plain_listener"
    hint = "give the client the address of a listener with tls, or take TLS out of its options"


@implementer(IPushProducer)
class BrokerConnection(TwistedProtocol):
    """
    One connection.

    Args:
        around: what it has in common with the others.
        who: says who is at the other end, once connected.

    Attributes:
        congested: whether so much waits to be sent that nothing should be added.
        ended: whether nothing reaches the client any more.
    """

    log = Logger()

    # Of most connections these are never set.
    _held: deque[Packet | Refused] | None = None
    _deaf = _HEARS
    _unread = 0
    _begun = 0
    _will = True

    def __init__(self, around: Surroundings, who: Callable[[Any], Principal]) -> None:
        self._around = around
        self._who = who
        self._decoder = Decoder("client", limits=around.terms.packet)
        # What every connection sets at some time is set here: attributes that come later, when many connections have
        # been made meanwhile, cost each of them a dictionary of its own, 280 octets more.
        self._client: Client | None = None
        self._client_id = ""
        self._principal = _NOBODY
        self._version = Version.V5
        self._greeted = False
        self._last_heard = 0.0
        self.congested = False
        self.ended = False

    # From the transport.

    def connectionMade(self) -> None:
        """Learn who it is and wait for CONNECT."""
        self._principal = self._who(self.transport)
        self._last_heard = self._around.seconds()
        self._around.connections.add(self)
        self._transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        """Take octets; a packet that is whole, or much of one, proves that the client lives, single octets do not."""
        if not self._greeted and not self._begun and data[:1] == _TLS and not self.ended:
            self._refuse(TlsAtPlainListener(), ReasonCode.MALFORMED_PACKET)
            return
        events = self._decoder.feed(data)
        if (events or self._progress(len(data))) and not self.ended:
            self._last_heard = self._around.seconds()
        if len(events) > FEW and self._held is None:
            self._held = deque(events)
            self._work_off()
            return
        for event in events:
            if self.ended:
                return
            if self._held is not None or (self._greeted and self._client is None):
                # CONNACK waits until the session is safe; so does what follows CONNECT.
                self._hold(event)
            else:
                self._take(event)
        self._judge_owed()

    def _judge_owed(self) -> None:
        client = self._client
        if client is not None and client.session.owed > OWED:
            self._listen_not(_Deaf.ANSWERS_OWED)
            self._around.hub.journal.safe(partial(self._listen, _Deaf.ANSWERS_OWED))

    def _progress(self, octets: int) -> bool:
        """Count octets of a packet that is not whole; CONNECT must come as a whole in its time."""
        self._begun += octets
        if self._begun < PROGRESS or not self._greeted:
            return False
        self._begun = 0
        return True

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the core that the client is gone."""
        self.ended = True
        held, self._held = self._held, None
        if held and self._client is not None and isinstance(goodbye := held[-1], Disconnect):
            # It came, although its turn did not.
            with suppress(MqttError):
                self._client.received(goodbye)
                self._will = goodbye.code != 0
        self._around.connections.discard(self)
        self._depart()

    def pauseProducing(self) -> None:
        """
        So much waits to be sent that no messages should be added.

        The client is still heard: its acknowledgements make room, and its PINGREQ says that it is slow and not gone.
        """
        self.congested = True
        self._unread = 0

    def resumeProducing(self) -> None:
        """What waited is sent."""
        self.congested = False
        self._listen(_Deaf.ANSWERS_UNREAD)
        if self._client is not None and not self.ended:
            self._client.eased()

    def stopProducing(self) -> None:
        """The transport is gone; ``connectionLost`` follows."""

    @property
    def _transport(self) -> Any:
        return self.transport

    def _listen(self, reason: _Deaf) -> None:
        """One reason less not to read."""
        if reason not in self._deaf:
            return
        self._deaf &= ~reason
        if not self._deaf and not self.ended:
            self._last_heard = self._around.seconds()
            self._transport.resumeProducing()

    def _listen_not(self, reason: _Deaf) -> None:
        if not self.ended:
            self._deaf |= reason
            self._transport.pauseProducing()

    # Packets.

    def _take(self, event: Packet | Refused) -> None:
        try:
            if isinstance(event, Refused):
                raise event.error
            client = self._client
            if client is not None:
                end = client.received(event)
                if end is not None:
                    self._said_goodbye(end)
            elif isinstance(event, Connect):
                self._greet(event)
        except BrokerError as error:
            self._refuse(error, error.mqtt_reason)
        except MqttError as error:
            self._refuse(error, error.mqtt_reason)

    def _hold(self, event: Packet | Refused) -> None:
        if self._held is None:
            self._held = deque()
        self._held.append(event)

    def _work_off(self) -> None:
        """Take what is held for as long as a turn lasts; until all is taken nothing is read."""
        held, seconds = self._held, self._around.seconds
        if held is None:
            return
        until = seconds() + TURN
        while held and not self.ended and seconds() < until:
            if self._greeted and self._client is None:
                return
            self._take_or_abort(held.popleft())
        if held and not self.ended:
            self._last_heard = seconds()
            self._listen_not(_Deaf.TURN_OVER)
            self._around.soon(self._work_off)
            return
        self._held = None
        self._listen(_Deaf.TURN_OVER)
        self._judge_owed()

    def _take_or_abort(self, event: Packet | Refused) -> None:
        try:
            self._take(event)
        except Exception:  # noqa: BLE001 (what one client's packet does wrong ends its connection, as in a read)
            self.log.failure("what a client sent could not be taken")
            self.abort()

    def _greet(self, packet: Connect) -> None:
        self._greeted = True
        terms = self._around.terms
        self._client_id, self._version = packet.client_id, packet.version
        greet(
            self._around.hub,
            packet,
            self._principal,
            self,
            self._ready,
            packet_limit=terms.packet.packet,
            keep_alive_limit=terms.keep_alive,
        )
        if self._client is None and not self.ended:
            self._listen_not(_Deaf.CONNACK_WAITS)

    def _ready(self, client: Client) -> None:
        self._client = client
        self._client_id = client.session.client_id
        self._around.reporter.connected(self._principal, self._client_id, self._version)
        if _Deaf.CONNACK_WAITS in self._deaf:
            self._work_off()
            self._listen(_Deaf.CONNACK_WAITS)

    def _said_goodbye(self, packet: Disconnect) -> None:
        # Reason 0 takes the will with it [MQTT-3.14.4-3]; any other one leaves it.
        self._will = packet.code != 0
        self._hang_up()

    def _refuse(self, error: SvcError, reason: ReasonCode) -> None:
        """End the connection for what the client did, or because of who it is."""
        self._around.hub.statistics.refused[error.reason] += 1
        if self._client is not None:
            self._around.reporter.broken(self._principal, self._client_id, error)
            self.close(reason)
            return
        self._around.reporter.refused(self._principal, error)
        answer = self._connack(error)
        if answer is not None:
            self.send(answer)
        self._hang_up()

    def _connack(self, error: SvcError) -> Connack | None:
        if isinstance(error, BrokerError):
            return refusal(error, self._version)
        # A client of a version that is not spoken reads at least the return code of the old form.
        self._version = Version.V311
        if isinstance(error, VersionUnsupported):
            return Connack(code=ReturnCode.UNACCEPTABLE_PROTOCOL_VERSION)
        if isinstance(error, ClientIdInvalid):
            return Connack(code=ReturnCode.IDENTIFIER_REJECTED)
        # Anything else that is no CONNECT is not answered [MQTT-3.1.4-1].
        return None

    # What the core writes to: svc.broker.outlet.Outlet.

    def send(self, packet: Packet) -> None:
        """Write a packet."""
        self.write(encode(packet, self._version, "server"))

    def write(self, octets: bytes) -> None:
        """Write octets."""
        if self.ended:
            return
        self.transport.write(octets)  # type: ignore[union-attr]
        if self.congested:
            self._unread += len(octets)
            if self._unread > UNREAD:
                self._listen_not(_Deaf.ANSWERS_UNREAD)

    def close(self, reason: ReasonCode) -> None:
        """Say why, where the version can, and close."""
        if self.ended:
            return
        if self._client is not None and self._version is Version.V5:
            self.send(Disconnect(reason))
        elif self._client is None and self._greeted and self._version is Version.V5:
            self.send(Connack(code=ReasonCode.SERVER_BUSY))
        self._hang_up()

    def _hang_up(self) -> None:
        self.ended = True
        self._depart()
        # TLS says no goodbye while somebody produces, and hears that of the client only while it reads.
        self._transport.unregisterProducer()
        if self._deaf:
            self._transport.resumeProducing()
        self._last_heard = self._around.seconds()
        self._transport.loseConnection()

    def _depart(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.lost(with_will=self._will)

    def reauthorize(self, judge: Callable[[PeerEvidence], None]) -> None:
        """
        Judge again whether the client may stay; one without an identity may.

        Args:
            judge: raises an error where it may not.
        """
        evidence = self._principal.evidence
        if self.ended or evidence is None:
            return
        try:
            judge(evidence)
        except SvcError as error:
            self._refuse(error, ReasonCode.NOT_AUTHORIZED)

    def abort(self) -> None:
        """Cut the connection without a word."""
        self.ended = True
        self._transport.abortConnection()

    # Time.

    def judge(self, now: float) -> None:
        """
        Judge whether the client was heard in time, or has taken its goodbye.

        Args:
            now: the monotonic time.
        """
        silent = now - self._last_heard
        if self.ended:
            if silent >= GOODBYE:
                self._transport.abortConnection()
            return
        if self._client is None:
            if not self._greeted and silent >= self._around.terms.connect:
                self._refuse(ConnectAwaited(seconds=self._around.terms.connect), ReasonCode.UNSPECIFIED_ERROR)
            return
        keep_alive = self._client.keep_alive
        if keep_alive and silent >= keep_alive * 1.5:
            self._refuse(KeepAliveExceeded(seconds=keep_alive), ReasonCode.KEEP_ALIVE_TIMEOUT)
