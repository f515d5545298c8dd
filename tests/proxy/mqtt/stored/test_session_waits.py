"""
A client of a listener with ``ack: middleware`` is not read if, and only if, something that has a name is outstanding.

The whole of it in memory: a transport, the session of a client, its forwarder, a buffer on a disk, and a broker. What
the client sends comes in pieces, and what it waits for ends in any order.
"""

from __future__ import annotations

import shutil
import tempfile
from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.connection import _Pause
from svc.proxy.mqtt.stored.forwarders import StoredSession
from svc.proxy.mqtt.stored.forwarding import ForwarderLimits
from svc.proxy.mqtt.stored.session import BufferedMqttSession
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    QoS,
    Version,
    encode,
)
from tests.peers.waiting import rounds
from tests.proxy.mqtt.rig import Device, lose
from tests.proxy.mqtt.sessions import Recorder, read
from tests.proxy.mqtt.stored.buffering import OpenedBuffer
from tests.proxy.mqtt.stored.rig import StoredRig

PUBACK: Final = PacketType.PUBACK
PUBREC: Final = PacketType.PUBREC
PUBREL: Final = PacketType.PUBREL
PUBCOMP: Final = PacketType.PUBCOMP
#: More messages than are ever outstanding at once.
MOST = 60


class Publisher:
    """A client that sends CONNECT and all its messages without waiting for anything, in pieces."""

    def __init__(self, device: Device, version: Version) -> None:
        self.device = device
        self.version = version
        self.unsent = b""
        self.connack = False
        #: Messages by packet identifier, and those that are complete.
        self.qos: dict[int, QoS] = {}
        self.complete: set[int] = set()

    def says(self, *packets: Packet) -> None:
        """Have packets to send."""
        self.unsent += b"".join(encode(each, self.version, "client") for each in packets)

    def sends(self, octets: int) -> None:
        """Send so many of the octets that are left, unless the proxy does not read."""
        if not self.device.wire.paused and self.unsent:
            piece, self.unsent = self.unsent[:octets], self.unsent[octets:]
            self.device.connection.dataReceived(piece)

    def reads(self) -> None:
        """Read, and release what has QoS 2."""
        data = self.device.wire.take()
        if not data:
            return
        for packet in read(data, "server", self.version):
            if isinstance(packet, Connack):
                assert not packet.code, packet
                self.connack = True
                continue
            assert isinstance(packet, Acknowledgement), packet
            assert not packet.code, packet
            if packet.type is PUBREC:
                self.says(Acknowledgement(PUBREL, packet.packet_id))
            else:
                assert (self.qos[packet.packet_id] == 1) is (packet.type is PUBACK), packet
                self.complete.add(packet.packet_id)


class WaitingMachine(RuleBasedStateMachine):
    """One client over one connection, and a broker that takes its time."""

    @initialize(
        version=st.sampled_from((Version.V5, Version.V311)),
        window=st.sampled_from((1, 3, 100)),
        unacknowledged=st.sampled_from((300, 1_000_000)),
        records=st.sampled_from((0, 1, 4)),
    )
    def begin(self, version: Version, window: int, unacknowledged: int, records: int) -> None:
        """A client is accepted; its messages are recorded, so many at a time, or not at all."""
        self.folder = tempfile.mkdtemp()
        self.recorder = Recorder(records) if records else None
        self.rig = StoredRig(
            OpenedBuffer(self.folder),
            ack_upstream=["relayed/#"],
            limits=ForwarderLimits(receive_maximum=window, unacknowledged=unacknowledged),
            recorder=self.recorder,
        )
        self.rig.begin()
        self.version = version
        device = self.rig.accept(version=version)
        self.client = Publisher(device, version)
        properties = Properties(session_expiry=3600) if version is Version.V5 else Properties()
        self.client.says(Connect("c", version, False, 600, properties=properties))
        self.number = 0
        #: What the broker got and has not answered.
        self.unanswered: list[Packet] = []

    # The client.

    @precondition(lambda self: self.number < MOST)
    @rule(qos=st.sampled_from((0, 1, 2)), relayed=st.booleans(), count=st.integers(1, 8))
    def publishes(self, qos: QoS, relayed: bool, count: int) -> None:
        """The client has messages to send."""
        for _message in range(count):
            self.number += 1
            if qos:
                self.client.qos[self.number] = qos
            topic = "relayed/t" if relayed else "t"
            self.client.says(Publish(topic, b"%d" % self.number, qos, packet_id=self.number if qos else 0))

    @rule(pieces=st.lists(st.integers(1, 60), min_size=1, max_size=6))
    def sends(self, pieces: list[int]) -> None:
        """The client sends some of it, in pieces that begin and end anywhere."""
        for octets in pieces:
            self.client.sends(octets)

    @rule()
    def sends_all(self) -> None:
        """The client sends all that it has at once."""
        self.client.sends(len(self.client.unsent))

    @rule()
    def client_reads(self) -> None:
        """The client reads."""
        self.client.reads()

    @rule(full=st.booleans())
    def client_full(self, full: bool) -> None:
        """The transport to the client is full, or is not."""
        producer = self.client.device.wire.producer
        if producer is not None:
            producer.pauseProducing() if full else producer.resumeProducing()

    # What it waits for.

    @rule(steps=st.lists(st.sampled_from(("turn", "disk", "broker", "record", "admission")), min_size=1, max_size=8))
    def works(self, steps: list[str]) -> None:
        """Each side does a part of its work, in any order."""
        for step in steps:
            getattr(self, f"_{step}")()

    @rule(seconds=st.sampled_from((0.5, 2.0, 10.0)))
    def time_passes(self, seconds: float) -> None:
        """Time passes; CONNACK waits for that of the broker only for a while."""
        self.rig.clock.advance(seconds)

    @rule(full=st.booleans())
    def broker_full(self, full: bool) -> None:
        """The transport to the broker is full, or is not."""
        if self.rig.endpoint.connections:
            protocol, _wire = self.rig.endpoint.connections[-1]
            if not (protocol._over or protocol._lost):
                protocol.pauseProducing() if full else protocol.resumeProducing()

    @rule()
    def broker_leaves(self) -> None:
        """The connection to the broker ends."""
        if self.rig.endpoint.connections and not self.rig.endpoint.connections[-1][0]._lost:
            self._leave()

    @precondition(lambda self: self.recorder is not None)
    @rule(later=st.booleans())
    def notary(self, later: bool) -> None:
        """The notary takes its time from now on, or admits at once."""
        assert self.recorder is not None
        if not self.recorder.admissions:
            self.recorder.admissions = [] if later else None

    def _leave(self) -> None:
        self.unanswered.clear()
        lose(*self.rig.endpoint.connections[-1], clean=True)  # type: ignore[arg-type]

    def _turn(self) -> None:
        self.rig.clock.advance(0)

    def _disk(self) -> None:
        self.rig.opened.step()

    def _record(self) -> None:
        if self.recorder is not None and self.recorder.done:
            self.recorder.done.pop(0)(None)

    def _admission(self) -> None:
        if self.recorder is not None and self.recorder.admissions:
            self.recorder.admissions.pop(0)(None)

    def _broker(self) -> None:
        """The broker reads, and answers one packet."""
        if not self.rig.endpoint.connections:
            return
        protocol, _wire = self.rig.endpoint.connections[-1]
        if protocol.closing:
            self._leave()
        if protocol._lost:
            return
        self.unanswered += self.rig.broker_takes(version=self.version)
        if self.unanswered:
            packet = self.unanswered.pop(0)
            answer = self._answer(packet)
            if answer is not None:
                protocol.dataReceived(encode(answer, self.version, "server"))

    def _answer(self, packet: Packet) -> Packet | None:
        if isinstance(packet, Connect):
            return Connack(len(self.rig.endpoint.connections) > 1)
        if isinstance(packet, Publish):
            kind = {1: PUBACK, 2: PUBREC}.get(packet.qos)
            return None if kind is None else Acknowledgement(kind, packet.packet_id)  # type: ignore[arg-type]
        if isinstance(packet, Acknowledgement):
            return Acknowledgement(PUBCOMP, packet.packet_id)
        return Pingresp() if isinstance(packet, Pingreq) else None

    # What holds at any time.

    def _outstanding(self) -> list[str]:
        """What the client waits for, by name."""
        connection = self.client.device.connection
        session = connection._session
        assert isinstance(session, BufferedMqttSession)
        names = [each.name for each in (_Pause.TURN, _Pause.ANSWERS_UNREAD) if each in connection._paused]
        forwarder, records = session._forwarder, session._records
        if isinstance(forwarder, StoredSession):
            names += [each.name for each in forwarder.forwarder.waits._outstanding]
            names += ["DUE"] * bool(forwarder._due)
        if records is not None and session._packets and not records.has_room:
            names.append("RECORDS")
        return [each or "" for each in names]

    @invariant()
    def paused_for_a_reason(self) -> None:
        """The client is read, or something is outstanding."""
        if hasattr(self, "client"):
            outstanding, paused = self._outstanding(), self.client.device.wire.paused
            assert not paused or outstanding
            # What waits for a turn may have begun since the last read.
            assert paused or not set(outstanding) - {"DUE", "RECORDS"}, outstanding

    def teardown(self) -> None:
        """Everything ends: all that the client sent is answered."""
        if not hasattr(self, "client"):
            return
        try:
            self._end()
        finally:
            self.rig.close()
            shutil.rmtree(self.folder)

    def _end(self) -> None:
        self.client_full(full=False)
        self.broker_full(full=False)
        for turn in range(600):
            self.client.sends(50)
            for step in ("turn", "disk", "broker", "record", "admission"):
                getattr(self, f"_{step}")()
            self.client.reads()
            if self._all_answered():
                break
            if turn % 20 == 19:
                # The pause before another connection to the broker.
                self.rig.clock.advance(10.0)
        waiting = self._outstanding(), self.client.device.wire.paused, len(self.client.unsent)
        assert self._all_answered(), waiting

    def _all_answered(self) -> bool:
        client = self.client
        waits = client.device.wire.paused or client.unsent
        return client.connack and not waits and client.complete == client.qos.keys()


class WaitingTests(SynchronousTestCase):
    """The machine, in a short form and a long one."""

    def test_any_order(self) -> None:
        """Whatever ends in whatever order, the client goes on."""
        run_state_machine_as_test(
            WaitingMachine,
            settings=settings(max_examples=rounds(60, 3000), stateful_step_count=40, deadline=None),
        )
