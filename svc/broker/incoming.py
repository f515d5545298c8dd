"""
The half of a session that takes messages with QoS above 0 from its client, and answers (sections 4.3.2 and 4.3.3).

Owns the identifiers of messages that are not released, our Receive Maximum, and when an acknowledgement is written:
once all that a packet caused is safe, on the connection that brought it, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from svc.broker.journal import Journal
from svc.broker.outlet import Outlet, Terms
from svc.wire.mqtt import Acknowledgement, PacketType, Publish, Version
from svc.wire.mqtt.properties import NONE

NOT_FOUND: Final = 0x92
_TERMS: Final = Terms(Version.V5)
#: A member of an enumeration is looked up by a call each time, which shows where every message does it.
_PUBACK: Final = PacketType.PUBACK


class Incoming:
    """
    What comes from one client.

    Args:
        client_id: whose it is.
        limit: messages in progress; announced as Receive Maximum.
        journal: records what must last.

    Attributes:
        expiry: seconds that the session outlives its connection; 0 ends with it, None never ends.
        owed: answers to the open connection that wait until something is safe and that no Receive Maximum bounds.
    """

    def __init__(self, client_id: str, limit: int, journal: Journal) -> None:
        self.client_id: Final = client_id
        self.expiry: int | None = 0
        self.owed = 0
        self._receive_maximum = limit
        self._journal = journal
        self._outlet: Outlet | None = None
        self._terms = _TERMS
        self._processing = 0
        # Made when something comes with QoS 2: most clients never send any, and an empty set takes 200 octets.
        self._received: set[int] | None = None
        # Of those received: what an earlier connection brought, which counts against no Receive Maximum of this one.
        self._earlier: set[int] | None = None

    @property
    def lasting(self) -> bool:
        """Whether it outlives its connection, so that its state must be recorded."""
        return self.expiry != 0

    @property
    def outlet(self) -> Outlet | None:
        """The open connection, or None."""
        return self._outlet

    def accepts(self, packet: Publish) -> bool:
        """
        Say whether another message with QoS above 0 keeps our Receive Maximum (section 3.3.4).

        Args:
            packet: the message; one that is sent again counts once.
        """
        if not packet.qos or self.knows(packet):
            return True
        open_ones = self._processing + (len(self._received) if self._received else 0)
        if self._earlier is not None and open_ones < 2 * self._receive_maximum:
            open_ones -= len(self._earlier)
        return open_ones < self._receive_maximum

    def begin_anew(self) -> None:
        """Count from the beginning: each connection has its own Receive Maximum (section 4.9)."""
        self._processing = self.owed = 0
        self._earlier = set(self._received) if self._received else None

    def begin(self, packet: Publish) -> None:
        """
        Take up a message with QoS above 0.

        Args:
            packet: the message, one that is not known.
        """
        if packet.qos == 1:
            self._processing += 1
            return
        if self._received is None:
            self._received = set()
        self._received.add(packet.packet_id)
        if self.lasting:
            self._journal.received(self.client_id, packet.packet_id)

    def answer(self, packet: Publish, code: int) -> None:
        """
        Acknowledge a message once all that it caused is safe.

        Args:
            packet: the message.
            code: the reason code, below 0x80.
        """
        if packet.qos == 2:
            self._answer_safe(PacketType.PUBREC, packet.packet_id, code)
            return
        outlet = self._outlet

        def safe() -> None:
            # The messages of another connection count against the Receive Maximum of that one.
            if outlet is self._outlet:
                self._processing -= 1
            self._answer_on(outlet, _PUBACK, packet.packet_id, code)

        self._journal.safe(safe)

    def refuse(self, packet: Publish, code: int) -> None:
        """
        Refuse a message that was not taken up, at once: nothing of it waits to be safe.

        Args:
            packet: the message, with QoS above 0.
            code: the reason code, 0x80 or higher.
        """
        self._answer(PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC, packet.packet_id, code)

    def knows(self, packet: Publish) -> bool:
        """
        Say whether a message was taken up before, so that it is not delivered again [MQTT-4.3.3-10].

        Args:
            packet: the message; with QoS 2 it is known until it is released.
        """
        return packet.qos == 2 and self._received is not None and packet.packet_id in self._received

    def released(self, packet: Acknowledgement) -> None:
        """
        Take PUBREL.

        Args:
            packet: the release.
        """
        known = self._received is not None and packet.packet_id in self._received
        if known:
            self._forget_received(packet.packet_id)
        code = 0 if known else NOT_FOUND
        self.when_kept(partial(self._answer, PacketType.PUBCOMP, packet.packet_id, code))

    def _forget_received(self, packet_id: int) -> None:
        if self._received is not None:
            self._received.discard(packet_id)
        if self._earlier is not None:
            self._earlier.discard(packet_id)
        if self.lasting:
            self._journal.released(self.client_id, packet_id)

    def when_kept(self, then: Callable[[], None]) -> None:
        """
        Call when what was recorded of the session is safe, unless the connection is over by then.

        Of a session that does not last nothing is recorded: a disk that stands still is no matter to it.

        Args:
            then: answers the client.
        """
        if self.lasting:
            self._when_safe(then)
        else:
            then()

    def _when_safe(self, then: Callable[[], None]) -> None:
        self.owed += 1
        self._journal.safe(partial(self._paid, self._outlet, then))

    def _paid(self, outlet: Outlet | None, then: Callable[[], None]) -> None:
        if outlet is self._outlet:
            self.owed -= 1
            then()

    def _answer(self, kind: PacketType, packet_id: int, code: int = 0) -> None:
        self._answer_on(self._outlet, kind, packet_id, code)

    def _answer_safe(self, kind: PacketType, packet_id: int, code: int = 0) -> None:
        """Answer once everything that was recorded is safe."""
        self._when_safe(partial(self._answer, kind, packet_id, code))

    def _answer_on(self, outlet: Outlet | None, kind: PacketType, packet_id: int, code: int = 0) -> None:
        """Answer on the connection that asked: one that came since must not get it."""
        if outlet is None or outlet is not self._outlet:
            return
        if code and self._terms.version is Version.V5:
            outlet.send(Acknowledgement(kind, packet_id, code, NONE))  # type: ignore[arg-type]
        else:
            outlet.write(_FIRST[kind] + packet_id.to_bytes(2, "big"))


#: The fixed header of an acknowledgement without reason code.
_FIRST: Final = {
    PacketType.PUBACK: b"\x40\x02",
    PacketType.PUBREC: b"\x50\x02",
    PacketType.PUBREL: b"\x62\x02",
    PacketType.PUBCOMP: b"\x70\x02",
}
