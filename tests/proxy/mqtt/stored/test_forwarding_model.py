"""
Any client, any broker and a crash at every step: nothing acknowledged is lost, QoS 2 is delivered exactly once.

Receive Maximum, packet identifiers and the order of packets are assertions of the model itself.
"""

from __future__ import annotations

from collections import Counter

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

from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.forwarding import Admission
from svc.wire.mqtt import Subscribe, Subscription, Version
from tests.peers.waiting import rounds
from tests.proxy.mqtt.stored.forwarding_model import World

#: Longer than any run.
LASTING = 100_000
SEVERAL = st.integers(1, 4)
#: What works on, besides the disk.
STEPS = (
    "hand_over",
    "commit",
    "reads_page",
    "broker_accepts",
    "broker_reads",
    "proxy_reads",
    "client_reads",
    "notary_writes",
    "client_resumed",
)


class ForwardingMachine(RuleBasedStateMachine):
    """One client identifier over connections, crashes and outages."""

    @initialize(
        version=st.sampled_from((Version.V5, Version.V311)),
        receive_maximum=st.integers(1, 5),
        page=st.integers(1, 3),
        random=st.sampled_from((0.0, 0.5, 1.0)),
        lowest=st.booleans(),
        window=st.sampled_from((1, 3, 100)),
        letters=st.sampled_from((0, 1, 1000)),
        waits=st.booleans(),
        age=st.sampled_from((5.0, LASTING)),
    )
    def begin(
        self,
        version: Version,
        receive_maximum: int,
        page: int,
        random: float,
        lowest: bool,
        window: int,
        letters: int,
        waits: bool,
        age: float,
    ) -> None:
        """A client connects for the first time; it may exceed the ``window`` that it has."""
        # About three messages.
        self.world = World(version, memory=400, receive_maximum=window)
        self.world.broker.receive_maximum, self.world.page_size, self.world.random = receive_maximum, page, random
        self.world.client.lowest_id = lowest
        self.world.store.letters, self.world.store.waits = letters, waits
        self.world.store.limit(BufferLimits(session_age=age))
        self.number = 0
        self.session_lost = False
        self.qos: dict[bytes, int] = {}
        self.relayed: set[bytes] = set()
        #: Whether the broker acknowledges messages that are recorded.
        self.recorded: dict[bytes, bool] = {}
        self.world.connect()

    @rule(clean=st.sampled_from((False, False, True)), will=st.booleans(), expiry=st.sampled_from((LASTING, 0)))
    def connect(self, clean: bool, will: bool, expiry: int) -> None:
        """The client connects, whatever it was doing."""
        self.world.connect(clean=clean, will=b"will" if will else None, expiry=expiry)

    @precondition(lambda self: len(self.world.client.unacked) < 8)
    @rule(qos=st.sampled_from((0, 1, 2, 2)), relayed=st.booleans(), recorded=st.booleans(), count=SEVERAL)
    def publish(self, qos: int, relayed: bool, recorded: bool, count: int) -> None:
        """The client publishes messages, before CONNACK too; it connects again where it is not connected."""
        if not self.world.client.connected:
            self.world.connect()
        for _message in range(count):
            if self.world.client.connected and len(self.world.client.unacked) < 8:
                self.number += 1
                payload = b"%d" % self.number
                self.qos[payload] = qos
                if relayed:
                    self.relayed.add(payload)
                if recorded:
                    self.recorded[payload] = relayed
                self.world.publish(payload, qos, relayed=relayed, recorded=recorded)

    @precondition(lambda self: self.world.client.answered and self.world.client.connected)
    @rule()
    def subscribe(self) -> None:
        """The client subscribes."""
        self.world.sends(Subscribe(self.world.client.new_id(), [Subscription("x")]))

    @precondition(lambda self: self.world.client.connected)
    @rule(will=st.booleans(), expiry=st.sampled_from((None, 0, LASTING)))
    def disconnect(self, will: bool, expiry: int | None) -> None:
        """The client disconnects."""
        self.world.disconnect(4 if will else 0, expiry)

    @rule()
    def client_breaks(self) -> None:
        """The client's connection breaks."""
        self.world.lose_client()

    @rule(
        steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=16),
        crash=st.sampled_from((None, None, None, None, False, True)),
    )
    def works(self, steps: list[str], crash: bool | None) -> None:
        """Each side does some of its work, in any order; the process may be killed in the middle of it."""
        for step in steps:
            getattr(self.world.store if step in ("hand_over", "commit") else self.world, step)()
        if crash is not None:
            self.world.crash(written=crash)

    @rule()
    def broker_unreachable(self) -> None:
        """The broker cannot be reached."""
        self.world.broker_unreachable()

    @precondition(lambda self: self.number)
    @rule(back=st.integers(0, 3))
    def broker_rejects(self, back: int) -> None:
        """The broker will not accept a message of late, unless it has it already."""
        payload = b"%d" % max(1, self.number - back)
        if payload not in dict(self.world.broker.delivered):
            self.world.broker.rejects.add(payload)

    @rule(code=st.sampled_from((0, 0x80, 0x83, 0x91, 0x97)))
    def broker_busy(self, code: int) -> None:
        """The broker accepts no message for now, or does again."""
        self.world.broker.busy = code if self.world.client.version is Version.V5 else 0

    @rule()
    def broker_refuses(self) -> None:
        """The broker refuses the credentials of the client, if it is asked now."""
        self.world.broker_refuses()

    @rule(qos=st.sampled_from((1, 2)), count=SEVERAL)
    def broker_delivers(self, qos: int, count: int) -> None:
        """The broker delivers messages to the client."""
        for _message in range(count):
            self.world.broker_delivers(b"delivery", qos)

    @rule(accepted=st.booleans())
    def operator_sends(self, accepted: bool) -> None:
        """An operator sends dead letters; the broker accepts them now, or as little as before."""
        if accepted:
            self.world.broker.rejects -= set(self.world.store.dead_letters)
        self.world.operator_sends()

    @rule()
    def link_breaks(self) -> None:
        """The connection to the broker breaks."""
        self.world.lose_link()

    @rule(seconds=st.sampled_from((0.5, 2.0, 10.0, 50.0)))
    def time_passes(self, seconds: float) -> None:
        """Time passes."""
        self.world.pass_time(seconds)

    @rule(written=st.booleans(), recorded=st.booleans())
    def crash(self, written: bool, recorded: bool) -> None:
        """The process is killed and starts again."""
        self.world.crash(written=written, recorded=recorded)

    @rule(admits=st.sampled_from(Admission))
    def notary(self, admits: Admission) -> None:
        """The notary admits records from now on, refuses them, or takes its time."""
        self.world.notary.admits = admits

    @precondition(lambda self: self.world.notary.waiting is not None)
    @rule(admitted=st.booleans())
    def admission(self, admitted: bool) -> None:
        """The notary has taken its time."""
        self.world.admission(admitted=admitted)

    @rule(denies=st.sampled_from((False, False, True)))
    def rules_change(self, denies: bool) -> None:
        """Messages of the client are refused from now on, repeated ones too, or accepted."""
        self.world.denies = denies

    @rule()
    def record_fails(self) -> None:
        """A record that was admitted cannot be written."""
        self.world.notary.fails()

    @precondition(lambda self: self.world.broker.connect is None and self.world.broker.sessions)
    @rule()
    def broker_forgets(self) -> None:
        """The broker loses its sessions."""
        self.world.broker.sessions.clear()
        self.session_lost = True

    @rule(accepting=st.booleans())
    def disk(self, accepting: bool) -> None:
        """The disk becomes full, or has room again."""
        self.world.store.accepting = accepting

    @precondition(lambda self: len(self.world.client.unacked) < 8)
    @rule(
        qos=st.sampled_from((1, 2, 2)),
        relayed=st.booleans(),
        crash=st.booleans(),
        steps=st.lists(st.sampled_from(STEPS), max_size=8),
    )
    def interrupted(self, qos: int, relayed: bool, crash: bool, steps: list[str]) -> None:
        """The client or the process ends between a message and its record; then the client comes back."""
        self.publish(qos, relayed, True, 1)
        self.world.pass_time(2.0)
        self.world.store.commit()
        if crash:
            self.world.crash(written=False)
        self.world.connect()
        self.works(steps, None)

    @rule()
    def rest(self) -> None:
        """Everything comes to rest."""
        self.world.settle()

    @invariant()
    def no_duplicates(self) -> None:
        """QoS 2 is delivered once while the broker keeps its session and the rules permit it; QoS 0 never twice."""
        if not hasattr(self, "world"):
            return
        for payload, count in Counter(payload for payload, _qos in self.world.broker.delivered).items():
            # A repetition that is refused frees the identifier, so that the next one is another message.
            once = not self.session_lost and payload not in self.world.denied
            if count > 1 and (self.qos[payload] == 0 or (self.qos[payload] == 2 and once)):
                raise AssertionError(f"{payload!r} with QoS {self.qos[payload]} was delivered {count} times")

    @invariant()
    def count_is_right(self) -> None:
        """The number of messages that is reported is that of the session."""
        if hasattr(self, "world") and self.world.forwarder is not None:
            assert self.world.notes.in_buffer == self.world.forwarder.queued

    @invariant()
    def held_for_a_reason(self) -> None:
        """The client is not read if, and only if, something is outstanding, or it is about to go on."""
        if hasattr(self, "world") and self.world.forwarder is not None and self.world.client.connected:
            world, forwarder = self.world, self.world.forwarder
            assert world.held or not forwarder.waits
            assert not world.held or forwarder.waits or world.resumes

    @invariant()
    def recorded_before_it_is_acknowledged(self) -> None:
        """What is acknowledged and to be recorded has a record, which says who acknowledged it."""
        if not hasattr(self, "world"):
            return
        records: dict[bytes, set[str | None]] = {}
        for payload, source, _code in self.world.notary.records:
            records.setdefault(payload, set()).add(source)
        for payload, relayed in self.recorded.items():
            sources = records.get(payload, set())
            assert payload not in self.world.client.acknowledged or sources, f"{payload!r} has no record"
            assert relayed or "upstream" not in sources, f"{payload!r} was not acknowledged by the broker"
            if "upstream" in sources:
                broker = self.world.broker
                assert payload in {*dict(broker.delivered), *broker.rejects, *broker.kept_back}

    def teardown(self) -> None:
        """Everything works in the end: nothing acknowledged is missing, and the order is that of the client."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.store.accepting, world.notary.admits, world.denies = True, Admission.ADMITTED, False
        world.broker.busy, world.store.letters = 0, 1000
        for _attempt in range(3):
            if not world.client.connected:
                world.connect()
            world.pass_time(60)
            world.settle()
        assert not world.client.unacked, world.client.unacked
        delivered = [payload for payload, _qos in world.broker.delivered]
        # With MQTT 3.1.1 the broker acknowledges what it rejects.
        forgotten = world.broker.rejects if world.client.version is Version.V311 else set()
        missing = world.client.acknowledged - set(delivered) - set(world.store.dead_letters) - forgotten
        assert not missing, missing
        assert not world.store.messages, world.store.messages
        # A client that did not read the refusal of a message that the broker acknowledges sends it as another one.
        # So is one that an operator sends.
        anew = (self.relayed & world.broker.kept_back) | set(world.store.rejected)
        ordered = [each for each in delivered if self.qos[each] and each in world.store.order and each not in anew]
        first = list(dict.fromkeys(ordered))
        # What was on its way behind a message that was refused for now may come before it.
        for kept_back in (False, True):
            numbers = [world.store.order[each] for each in first if (each in world.broker.kept_back) is kept_back]
            assert numbers == sorted(numbers), (first, numbers)
        self.no_duplicates()
        # The session ends when its client does not want it any more.
        world.disconnect(0, 0)
        world.settle()
        if world.client.version is Version.V5 and not world.store.sessions:
            assert not world.broker.sessions, "a session is left at the broker"


class ForwardingModelTests(SynchronousTestCase):
    """The machine, in a short form and a long one."""

    def test_any_order_of_events(self) -> None:
        """Whatever happens in whatever order, the guarantees hold."""
        run_state_machine_as_test(
            ForwardingMachine,
            settings=settings(max_examples=rounds(150, 5000), stateful_step_count=60, deadline=None),
        )

    def test_answered_again(self) -> None:
        """A broker that lost the session, and answers a message again, has it acknowledged once."""
        machine = ForwardingMachine()
        machine.begin(
            Version.V5, receive_maximum=1, page=1, random=0.0, lowest=False, window=1, letters=0, waits=True, age=5.0
        )
        machine.interrupted(2, relayed=True, crash=False, steps=[])
        machine.broker_refuses()
        machine.interrupted(1, relayed=False, crash=False, steps=["broker_accepts", "commit"])
        machine.interrupted(1, relayed=False, crash=False, steps=["broker_reads", "proxy_reads"])
        machine.interrupted(1, relayed=False, crash=True, steps=[])
        machine.broker_forgets()
        machine.teardown()
