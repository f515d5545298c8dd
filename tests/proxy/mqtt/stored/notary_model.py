"""The notary of a world of forwarding: records are admitted, written and refused when the test says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from svc.notary.level import Level
from svc.proxy.mqtt.interfaces import RecordDemand
from svc.proxy.mqtt.stored.forwarding import Admission
from svc.wire.mqtt import Acknowledgement, PacketType, Publish, ReasonCode, Version

if TYPE_CHECKING:
    from tests.proxy.mqtt.stored.forwarding_model import World

#: Topics that end so are recorded.
RECORDED = "/recorded"
DEMAND = RecordDemand(Level.SIGN_REQUEST, None)
REFUSED = ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR


def demand_of(packet: object) -> RecordDemand | None:
    """What is demanded for a packet."""
    return DEMAND if isinstance(packet, Publish) and packet.topic.endswith(RECORDED) else None


class ModelNotary:
    """
    The records of one client.

    Attributes:
        admits: what an admission leads to.
        records: durable ones: the payload of a message, who acknowledged it, and with which code. The number of each,
            from 1, is the identifier of its receipt.
        waiting: a message whose admission is due, and whether it is stored.
        unwritten: acknowledgements in their order, with the payload of those whose record is not durable.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.admits = Admission.ADMITTED
        self.records: list[tuple[bytes, str | None, int]] = []
        self.waiting: tuple[Publish, bool] | None = None
        self.unwritten: list[tuple[Acknowledgement, str, str, bytes | None]] = []
        #: Whether the client was closed, which the forwarder does not know.
        self.closed = False
        self._admitted: dict[int, list[bytes]] = {}
        self._unsent: list[bytes] = []

    def admit(self, packet: Publish, *, stored: bool) -> Admission:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        assert self.waiting is None, "two admissions"
        if not self._world.client.connected:
            return Admission.REFUSED
        if self.admits is Admission.LATER:
            self.waiting = packet, stored
        else:
            self._admit(packet, stored=stored, admitted=self.admits is Admission.ADMITTED)
        return self.admits

    def answer(self, *, admitted: bool) -> None:
        """Tell the forwarder of an admission."""
        if self.waiting is not None and self._world.forwarder is not None:
            (packet, stored), self.waiting = self.waiting, None
            self._admit(packet, stored=stored, admitted=admitted)
            if self._world.client.connected:
                self._world.forwarder.admitted(admitted=admitted, now=self._world.now)
            self.close()

    def _admit(self, packet: Publish, *, stored: bool, admitted: bool) -> None:
        world = self._world
        if admitted and packet.qos:
            payloads = self._admitted.setdefault(packet.packet_id, [])
            assert set(payloads) <= {packet.payload}, "an identifier in use"
            payloads.append(packet.payload)
        elif admitted:
            self._unsent.append(packet.payload)
        elif stored or world.client.version is Version.V311:
            self.closed = True
            world.forget_client()
        elif packet.qos:
            kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
            world.send_client(Acknowledgement(kind, packet.packet_id, REFUSED))  # type: ignore[arg-type]

    def close(self) -> None:
        """Tell the forwarder of a client that was closed."""
        if self.closed and self._world.forwarder is not None:
            self.closed = False
            self._world.forwarder.client_lost(self._world.now)

    def abandon(self, packet: Publish) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if packet.qos:
            self._admitted[packet.packet_id].pop()
        else:
            self._unsent.pop()

    def handed_over(self) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        self.records += [(each, None, 0) for each in self._unsent]
        self._unsent.clear()

    def acknowledge(self, packet: Acknowledgement, source: str, receipt: str, *, recorded: bool) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        payload = None
        if recorded:
            assert self._admitted.get(packet.packet_id), f"{packet} without an admission"
            payload = self._admitted[packet.packet_id].pop(0)
        self.unwritten.append((packet, source, receipt, payload))
        self._send()

    def writes(self) -> bool:
        """Make a record durable, and send its acknowledgement."""
        world = self._world
        if not self.unwritten or world.forwarder is None:
            return False
        packet, source, _receipt, payload = self.unwritten.pop(0)
        assert payload is not None
        self.records.append((payload, source, packet.code))
        receipt = str(len(self.records))
        self._sends(packet, receipt)
        world.forwarder.acknowledged(packet, source, receipt, world.now)  # type: ignore[arg-type]
        self._send()
        return True

    def fails(self) -> None:
        """A record cannot be written: the client is closed."""
        if self.unwritten:
            self._world.lose_client()

    def _send(self) -> None:
        while self.unwritten and self.unwritten[0][3] is None:
            packet, _source, receipt, _payload = self.unwritten.pop(0)
            self._sends(packet, receipt)

    def _sends(self, packet: Acknowledgement, receipt: str) -> None:
        entry = self._world.client.unacked.get(packet.packet_id)
        # A client without a session closes its connection when CONNACK says that there is one, and sends all anew.
        if self._world.client.without_session:
            entry = None
        if entry is not None and packet.code < ReasonCode.UNSPECIFIED_ERROR and not entry[3]:
            topic, payload, *_more = entry
            if topic.endswith(RECORDED):
                assert payload in {each for each, _source, _code in self.records}, f"{packet} without a record"
            assert not receipt or self.records[int(receipt) - 1][0] == payload, "the receipt of another message"
        self._world.send_client(packet)

    def forget(self, *, written: bool = False) -> None:
        """The client's connection has ended, with or without what was being written."""
        if written:
            self.records += [(payload, source, each.code) for each, source, _, payload in self.unwritten if payload]
        self.waiting = None
        self.unwritten.clear()
        self._admitted.clear()
        self._unsent.clear()
