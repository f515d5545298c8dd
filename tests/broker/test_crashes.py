"""
Whatever connections end, commits wait and the process crash: nothing acknowledged is lost, nothing comes twice.

Honest clients over the core and its real database. A crash drops what the thread did not write, and what it wrote and
did not say. The model uses only what the clients received.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Subscription, Version, Will
from tests.broker.keeping import Kept
from tests.broker.rig import Peer, Rig
from tests.peers.conforming_client import ConformingClient
from tests.sqlite.stepwise import Quick, broken

PUBLISHERS = {"p5": Version.V5, "p3": Version.V311}
#: Client identifier to protocol level and the quality of service that it subscribes with.
SUBSCRIBERS = {"s2": (Version.V5, 2), "s1": (Version.V5, 1), "old2": (Version.V311, 2)}


class Link:
    """A client with the connection that it has at the moment."""

    def __init__(self, client: ConformingClient) -> None:
        self.client = client
        self.peer: Peer | None = None

    def connect(self, rig: Rig, **more: Any) -> None:
        """Begin a connection."""
        packet: Any = self.client.connect(**more)
        self.peer = rig.connect(
            packet.client_id,
            packet.version,
            read_answer=False,
            clean_start=packet.clean_start,
            properties=packet.properties,
            will=packet.will,
        )

    def lose(self) -> None:
        """Lose the connection, and what was on its way."""
        if self.peer is not None:
            self.peer.loses()
        self.gone()

    def gone(self) -> None:
        """The other side is gone."""
        self.peer = None
        self.client.lost()

    def sends(self, packet: Any) -> None:
        """Send a packet; what is answered stays on its way."""
        if self.peer is not None:
            came = self.peer.sends(packet)
            self.peer.got = came
            if self.peer.closed is not None:
                self.receive()
                self.gone()

    def receive(self, most: int = 1000) -> bool:
        """Take what is on its way, and answer; give whether there was anything."""
        received = False
        while self.peer is not None and self.peer.got and most:
            received, most = True, most - 1
            for answer in self.client.receive(self.peer.got.pop(0)):
                self.sends(answer)
        if self.peer is not None and self.peer.closed is not None:
            self.gone()
        return received


class Machine(RuleBasedStateMachine):
    """Everything that can happen to five clients and a broker."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.kept = Kept(self.folder)
        self.rig = self.kept.rig()
        self.publishers = {name: Link(ConformingClient(name, version)) for name, version in PUBLISHERS.items()}
        self.subscribers = {name: Link(ConformingClient(name, version)) for name, (version, _) in SUBSCRIBERS.items()}
        self.links = {**self.publishers, **self.subscribers}
        #: Payload to its quality of service and the subscribers that must get it once it is acknowledged.
        self.sent: dict[bytes, tuple[int, list[str]]] = {}
        #: Payloads by the topic on which they were to be retained; one quality of service each, since order is promised
        #: within one only (section 4.6).
        self.kept_last: dict[str, list[bytes]] = {}
        self.count = 0

    def teardown(self) -> None:
        """ReceiptVerifier, then clean up."""
        try:
            self.verify()
        finally:
            Quick.error, Quick.after = None, False
            self.kept.crash()
            shutil.rmtree(self.folder)

    @initialize()
    def begin(self) -> None:
        """All clients are connected and subscribed."""
        for link in self.links.values():
            link.connect(self.rig)
        self.commit()
        for name in SUBSCRIBERS:
            self.subscribe(name)
        self.commit()
        self.hear_all()

    @rule(name=st.sampled_from(sorted(SUBSCRIBERS)))
    def subscribe(self, name: str) -> None:
        """Subscribe, once more perhaps."""
        link = self.subscribers[name]
        link.receive()
        if link.client.connected:
            link.sends(link.client.subscribe(Subscription("t/#", SUBSCRIBERS[name][1])))  # type: ignore[arg-type]

    @rule(
        name=st.sampled_from(sorted(PUBLISHERS)),
        qos=st.sampled_from([1, 2, 2]),
        keep=st.booleans(),
        many=st.integers(1, 3),
    )
    def publish(self, name: str, qos: Any, keep: bool, many: int) -> None:
        """Publish, perhaps to be retained on a topic of its own."""
        link = self.publishers[name]
        for _ in range(many):
            if not link.client.connected:
                return
            self.count += 1
            payload = b"%d" % self.count
            topic = f"t/{name}/{qos}" if keep else "t"
            to = [each for each, other in self.subscribers.items() if other.client.subscribed]
            self.sent[payload] = qos, to
            if keep:
                self.kept_last.setdefault(topic, []).append(payload)
            link.sends(link.client.publish(topic, payload, qos, retain=keep))

    @rule(name=st.sampled_from(sorted([*PUBLISHERS, *SUBSCRIBERS])), most=st.integers(1, 4))
    def receive_some(self, name: str, most: int) -> None:
        """A client reads some of what is on its way."""
        self.links[name].receive(most)

    @rule()
    def hear_all(self) -> None:
        """All clients read everything."""
        for link in self.links.values():
            link.receive()

    @rule(name=st.sampled_from(sorted([*PUBLISHERS, *SUBSCRIBERS])))
    def lose(self, name: str) -> None:
        """A connection ends."""
        self.links[name].lose()

    @rule(name=st.sampled_from(sorted([*PUBLISHERS, *SUBSCRIBERS])), will=st.booleans())
    def connect(self, name: str, will: bool) -> None:
        """A client connects, over a connection that it has perhaps."""
        link = self.links[name]
        link.connect(self.rig, will=Will("w", b"gone", 1) if will else None)

    @rule(steps=st.integers(1, 3))
    def commit(self, steps: int = 3) -> None:
        """What was recorded is handed over; the thread does its work; the reactor learns what came of it."""
        for step in (self.kept.round, self.kept.thread.run, self.kept.reactor.deliver)[:steps]:
            step()

    @rule()
    def second(self) -> None:
        """Time passes."""
        self.kept.reactor.advance(1)
        self.rig.passes(1)

    @rule(code=st.sampled_from([sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR]), after=st.booleans())
    def disk(self, code: int, after: bool) -> None:
        """The disk refuses from now on, and what it refuses may be on it all the same; or it is well again."""
        Quick.error, Quick.after = (broken(code), after) if Quick.error is None else (None, False)

    @rule(orderly=st.sampled_from([False, False, True]), received=st.booleans())
    def ends(self, orderly: bool, received: bool) -> None:
        """The process is killed, or stops in order, and starts again; clients have read what it sent, or not."""
        for link in self.links.values():
            if received:
                link.receive()
            if orderly:
                link.lose()
            link.gone()
        if orderly:
            self.kept.close()
        else:
            self.kept.crash()
        Quick.error = None
        now = self.rig.clock.now
        self.rig = self.kept.rig(now)
        for link in self.links.values():
            link.connect(self.rig)

    @rule(seed=st.integers(0, 2**32))
    def walk(self, seed: int) -> None:
        """A stretch of all that, messages and commits more often than failures."""
        chosen = Random(seed)
        everybody = sorted(self.links)
        steps: dict[Any, tuple[int, Callable[[], dict[str, Any]]]] = {
            self.publish: (
                12,
                lambda: {
                    "name": chosen.choice(sorted(PUBLISHERS)),
                    "qos": chosen.choice([1, 2, 2]),
                    "keep": chosen.random() < 0.2,
                    "many": chosen.randint(1, 3),
                },
            ),
            self.hear_all: (8, dict),
            self.receive_some: (8, lambda: {"name": chosen.choice(everybody), "most": chosen.randint(1, 4)}),
            self.commit: (16, lambda: {"steps": chosen.randint(1, 3)}),
            self.lose: (2, lambda: {"name": chosen.choice(everybody)}),
            self.connect: (4, lambda: {"name": chosen.choice(everybody), "will": chosen.random() < 0.3}),
            self.subscribe: (1, lambda: {"name": chosen.choice(sorted(SUBSCRIBERS))}),
            self.second: (1, dict),
            self.disk: (
                1,
                lambda: {
                    "code": chosen.choice([sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR]),
                    "after": chosen.random() < 0.5,
                },
            ),
            self.ends: (2, lambda: {"orderly": chosen.random() < 0.2, "received": chosen.random() < 0.7}),
        }
        names = list(steps)
        for step in chosen.choices(names, [steps[each][0] for each in names], k=60):
            step(**steps[step][1]())

    # The verification.

    def verify(self) -> None:
        """Let everything come to its end, and compare."""
        self.finish()
        for name, link in self.links.items():
            assert not link.client.broken, (name, link.client.broken)
            assert not link.client.unfinished, (name, link.client.unfinished)
        acknowledged = {payload for link in self.publishers.values() for payload in link.client.acknowledged}
        refused = {payload for link in self.publishers.values() for payload in link.client.refused}
        # What was refused when it came again may have been taken before.
        again = {payload for link in self.publishers.values() for payload in link.client.sent_again}
        for name, link in self.subscribers.items():
            self._verify_subscriber(name, link, acknowledged, refused - again)
        self._verify_retained(acknowledged)
        assert self.kept.rows("delivery") == self.kept.rows("received") == 0
        assert self.kept.rows("message") == self.kept.rows("retained") == len(self.rig.hub.retained)

    def _verify_subscriber(self, name: str, link: Link, acknowledged: set[bytes], refused: set[bytes]) -> None:
        highest = SUBSCRIBERS[name][1]
        counted = Counter(payload for payload, _qos in link.client.delivered if payload != b"gone")
        for payload in acknowledged:
            qos, to = self.sent[payload]
            if name in to:
                assert counted[payload], (name, payload, "lost")
        for payload, times in counted.items():
            assert payload not in refused, (name, payload, "refused and delivered")
            qos, to = self.sent[payload]
            # A retained message comes with each subscription besides.
            if min(qos, highest) == 2 and payload not in {each for kept in self.kept_last.values() for each in kept}:
                assert times == 1, (name, payload, "twice")

    def _verify_retained(self, acknowledged: set[bytes]) -> None:
        for topic, sent in self.kept_last.items():
            known = [number for number, payload in enumerate(sent) if payload in acknowledged]
            if not known:
                continue
            message = self.rig.hub.retained.get(topic)
            assert message is not None, (topic, "no retained message")
            assert sent.index(message.payload) >= known[-1], (topic, message.payload, "is not the last one")

    def finish(self) -> None:
        """Mend the disk, connect all clients, and continue until nothing is in flight."""
        Quick.error = None
        for _turn in range(400):
            for link in self.links.values():
                if link.peer is None:
                    link.connect(self.rig)
            self.kept.commit()
            self.second()
            received = [link.receive() for link in self.links.values()]
            waits = any(link.client.unfinished or not link.client.connected for link in self.links.values())
            if not waits and not any(received) and not self.kept.journal.waiting[0]:
                return
        raise AssertionError(f"no end: {[(name, link.client.unfinished) for name, link in self.links.items()]}")


class CrashTests(SynchronousTestCase):
    """The machine, many times."""

    def test_nothing_acknowledged_is_lost(self) -> None:
        """Over reconnects, slow and failing commits, crashes at every point and restarts."""
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=100, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
            ),
        )
