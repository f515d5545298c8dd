"""
The messages of one session that are recorded, and their acknowledgements, which wait for that.

PUBACK and PUBREC are sent in the order of the broker, each type by itself, each when it and all before it are recorded.

A client of either version is not read while as many messages wait as its Receive Maximum is. It is closed neither for
more, nor for what it has not released, up to :data:`MAX_IN_USE` (docs/decisions/0039-admission-and-back-pressure.md).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

from svc.notary.exchange import ExchangeOutcome
from svc.notary.level import Level
from svc.notary.publish import AckedBy
from svc.proxy.errors import ProxyError
from svc.proxy.mqtt.recorder import PublishExchange, PublishRecorder
from svc.wire.mqtt import (
    Acknowledgement,
    PacketType,
    ProtocolViolation,
    Publish,
    ReasonCode,
    ReceiveMaximumExceeded,
)

#: Encodes a response with the identifier of a receipt, or without one.
Encode = Callable[[str | None], bytes]
#: PUBLISH with DUP under one packet identifier that the broker has not acknowledged.
_MAX_REPETITIONS: Final = 4
#: Messages whose packet identifiers may be in use at once, some 200 octets each: PUBREL may never come. It may also
#: come behind all that a client had buffered, which is many more messages than wait for PUBREC at a time.
MAX_IN_USE: Final = 16_384
_ACKNOWLEDGED_QOS: Final = {PacketType.PUBACK: 1, PacketType.PUBREC: 2}


class RecordedMessages:
    """
    The messages of one session, from the first one that is recorded.

    Args:
        recorder: records them.
        limit: messages of the client that may wait: for PUBACK or PUBREC, or with QoS 0 for their record.
        release: sends octets to the client.
        written: called when a message is recorded, after which there may be room.
        failed: called when a record could not be made.
    """

    def __init__(
        self,
        recorder: PublishRecorder,
        limit: int,
        release: Callable[[bytes], None],
        written: Callable[[], None],
        failed: Callable[[], None],
    ) -> None:
        self._recorder: Final = recorder
        self._limit: Final = limit
        self._release = release
        self._written = written
        self._failed = failed
        #: What the broker has not acknowledged yet by packet identifier, in order; None for a message without record.
        self._expected: dict[int, list[PublishExchange | None]] = {}
        #: Digests of messages whose packet identifiers are in use: with QoS 2 until PUBREL, since the broker answers
        #: another one under such an identifier without publishing it.
        self._in_use: dict[int, bytes] = {}
        #: With QoS 0, not sent yet.
        self._unsent: list[PublishExchange] = []
        #: Messages with QoS 0 whose records are not durable; those with QoS 1 and 2 that are not acknowledged.
        self._unrecorded = self._unacknowledged = 0
        #: Each entry holds the octets once they may be sent.
        self._waiting: dict[PacketType, deque[list[bytes]]] = {
            PacketType.PUBACK: deque(),
            PacketType.PUBREC: deque(),
        }
        self._ended = False

    @property
    def waiting(self) -> bool:
        """Whether responses wait for records."""
        return any(self._waiting.values())

    @property
    def full(self) -> bool:
        """Whether so many messages wait that no other one is read."""
        return self._load >= self._limit or (self._used_up and self._load > 0)

    @property
    def has_room(self) -> bool:
        """Whether messages are read again."""
        return self._load <= (0 if self._used_up else self._limit // 2)

    @property
    def _load(self) -> int:
        return self._unrecorded + len(self._unsent) + self._unacknowledged

    @property
    def _used_up(self) -> bool:
        """Whether a further message ends the connection, behind the acknowledgements that its client is owed."""
        return len(self._in_use) >= MAX_IN_USE

    @property
    def may_repeat(self) -> bool:
        """See :attr:`PublishRecorder.may_repeat`."""
        return self._recorder.may_repeat

    def expects(self, packet_id: int) -> bool:
        """Whether the broker is to acknowledge a message that was sent since messages are recorded."""
        return packet_id in self._expected

    def check(self, packet: Publish) -> None:
        """
        Refuse a packet identifier in use, unless the message is repeated: another one would be acknowledged with its
        record. The topic is that of the alias. Raises MqttError.
        """
        former = self._in_use.get(packet.packet_id) if packet.qos else None
        repeated = packet.dup and former == _digest(packet) if former is not None else True
        if not repeated or len(self._expected.get(packet.packet_id, ())) >= _MAX_REPETITIONS:
            raise ProtocolViolation(packet="PUBLISH", defect="its packet identifier is in use")
        if packet.qos and former is None and len(self._in_use) >= MAX_IN_USE:
            raise ReceiveMaximumExceeded(limit=MAX_IN_USE)

    def begin(
        self, packet: Publish, level: Level, nonce: str | None, done: Callable[[ProxyError | None], object]
    ) -> None:
        """
        Admit a message before it is sent, as :meth:`PublishRecorder.begin`; ``done`` gets the refusal, or None where it
        is to be sent now.
        """

        def begun(result: PublishExchange | ProxyError) -> None:
            if isinstance(result, ProxyError):
                done(result)
                return
            if packet.qos:
                self._expect(packet, result)
            else:
                self._unsent.append(result)
            done(None)

        self._recorder.begin(packet, level, nonce, begun)

    def passed(self, packet: Publish) -> None:
        """A message without record is sent now."""
        if packet.qos:
            self._expect(packet, None)

    def _expect(self, packet: Publish, exchange: PublishExchange | None) -> None:
        self._expected.setdefault(packet.packet_id, []).append(exchange)
        self._in_use[packet.packet_id] = _digest(packet)
        self._unacknowledged += 1

    def sent(self) -> None:
        """Record the messages with QoS 0, which have been sent."""
        exchanges, self._unsent = self._unsent, []
        self._unrecorded += len(exchanges)
        for each in exchanges:
            self._recorder.complete(each, None, AckedBy.UPSTREAM, self._sent_recorded)

    def _sent_recorded(self, result: object) -> None:
        self._unrecorded -= 1
        if self._recorded(result):
            self._written()

    def abandon(self, packet: Publish) -> None:
        """A message that was admitted last is not sent."""
        if not packet.qos:
            self._recorder.abandon(self._unsent.pop())
            return
        expected = self._expected[packet.packet_id]
        exchange = expected.pop()
        self._unacknowledged -= 1
        if not expected:
            del self._expected[packet.packet_id], self._in_use[packet.packet_id]
            if exchange is not None:
                self._recorder.abandon(exchange)

    def responded(
        self,
        packet: Acknowledgement,
        encode: Encode,
        acked_by: AckedBy = AckedBy.UPSTREAM,
        *,
        recorded: bool = True,
    ) -> None:
        """Record a message with its PUBACK or PUBREC, then send that; unless it is known not to be ``recorded``."""
        expected = self._expected.get(packet.packet_id) if recorded else None
        # Without any it is of a message that an earlier connection sent.
        counted = bool(expected)
        exchange = expected.pop(0) if expected else None
        if recorded and not expected:
            self._expected.pop(packet.packet_id, None)
            if packet.type is PacketType.PUBACK or packet.code >= ReasonCode.UNSPECIFIED_ERROR:
                self._in_use.pop(packet.packet_id, None)
        if exchange is not None and exchange.message.qos != _ACKNOWLEDGED_QOS[packet.type]:
            raise ProtocolViolation(packet=packet.type.name, defect="it acknowledges a message of another QoS")
        waiting = self._waiting[packet.type]
        entry: list[bytes] = []
        waiting.append(entry)

        def done(result: object) -> None:
            self._unacknowledged -= counted
            if self._recorded(result):
                entry.append(encode(result if isinstance(result, str) else None))
                self._send(waiting)
                self._written()

        if exchange is None:
            done(None)
        else:
            self._recorder.complete(exchange, packet, acked_by, done)

    def released(self, packet_id: int) -> None:
        """The client has sent PUBREL."""
        self._in_use.pop(packet_id, None)
        self._recorder.release(packet_id)

    def end(self, outcome: ExchangeOutcome) -> None:
        """The session is over and sends nothing to the client; what it still sends to the broker is recorded."""
        self._ended = True
        self._recorder.disconnected(outcome)

    def _recorded(self, result: object) -> bool:
        if self._ended:
            return False
        if not (result is None or isinstance(result, str)):
            self._failed()
            return False
        return True

    def _send(self, waiting: deque[list[bytes]]) -> None:
        octets = []
        while waiting and waiting[0]:
            octets += waiting.popleft()
        if octets:
            self._release(b"".join(octets))


def _digest(packet: Publish) -> bytes:
    """What two packets of one message have in common."""
    head = (packet.qos, packet.retain, packet.topic, packet.properties.replace(topic_alias=None))
    digest = hashlib.sha256(repr(head).encode())
    digest.update(packet.payload)
    return digest.digest()
