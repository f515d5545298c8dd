"""
Acknowledgements that wait until a message is recorded.

PUBACK and PUBREC are sent in the order of the broker, each type by itself, each when it and all before it are recorded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from svc.proxy.mqtt.interfaces import PublishRecorder
from svc.wire.mqtt import Acknowledgement, PacketType, ProtocolViolation, Publish

#: Encodes a response with the identifier of a receipt, or without one.
Encode = Callable[[str | None], bytes]


class RecordedMessages:
    """
    The messages of one session that are being recorded.

    Args:
        recorder: records them.
        release: sends octets to the client.
        failed: called when a record could not be made.
    """

    def __init__(self, recorder: PublishRecorder, release: Callable[[bytes], None], failed: Callable[[], None]) -> None:
        self._recorder: Final = recorder
        self._release = release
        self._failed = failed
        self._tokens: dict[int, object] = {}
        self._unacknowledged: list[object] = []
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

    def begin(self, packet: Publish, nonce: str | None) -> None:
        """Accept a message that is sent now; an SvcError refuses it."""
        if packet.packet_id in self._tokens:
            # A second message under this identifier would be acknowledged without a record.
            raise ProtocolViolation(packet="PUBLISH", defect="its packet identifier is in use")
        token = self._recorder.begin(packet, nonce)
        if packet.qos:
            self._tokens[packet.packet_id] = token
        else:
            self._unacknowledged.append(token)

    def sent(self) -> None:
        """Record the messages with QoS 0, which have been sent."""
        tokens, self._unacknowledged = self._unacknowledged, []
        for token in tokens:
            self._recorder.complete(token, None, "upstream", self._check)

    def responded(self, packet: Acknowledgement, encode: Encode) -> None:
        """Record a message with the broker's PUBACK or PUBREC, then send that."""
        waiting = self._waiting[packet.type]
        entry: list[bytes] = []
        waiting.append(entry)

        def done(receipt: object) -> None:
            if self._recorded(receipt):
                entry.append(encode(receipt if isinstance(receipt, str) else None))
                self._send(waiting)

        if packet.packet_id in self._tokens:
            self._recorder.complete(self._tokens.pop(packet.packet_id), packet, "upstream", done)
        else:
            # Of a message that an earlier connection sent, or one after its PUBREC.
            done(None)

    def end(self) -> None:
        """The session is over: nothing more is sent."""
        self._ended = True
        for token in (*self._tokens.values(), *self._unacknowledged):
            self._recorder.abandon(token)
        self._tokens.clear()
        self._unacknowledged.clear()

    def _check(self, receipt: object) -> None:
        self._recorded(receipt)

    def _recorded(self, receipt: object) -> bool:
        if self._ended:
            return False
        if receipt is None or isinstance(receipt, str):
            return True
        self._failed()
        return False

    def _send(self, waiting: deque[list[bytes]]) -> None:
        octets = []
        while waiting and waiting[0]:
            octets += waiting.popleft()
        if octets:
            self._release(b"".join(octets))
