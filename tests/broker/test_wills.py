"""Wills: when they are published, and with what (sections 3.1.2.5 and 3.1.3.2)."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.wire.mqtt import Acknowledgement, Disconnect, PacketType, Properties, Publish, ReasonCode, Subscription, Will
from tests.broker.rig import Peer, Rig


def will(payload: bytes = b"gone", **properties: Any) -> Will:
    """A will, with properties."""
    return Will("will", payload, properties=Properties(**properties))


class WillTests(SynchronousTestCase):
    """A client that receives wills."""

    def setUp(self) -> None:
        """It watches all of them."""
        self.rig = Rig()
        self.watcher = self.rig.connect("watcher")
        self.watcher.subscribes(Subscription("will", 0))

    def persistent(self, made: Will | None = None, seconds: int = 100, **more: Any) -> Peer:
        """A client whose session lasts."""
        return self.rig.connect(
            "c", clean_start=False, will=made, properties=Properties(session_expiry=seconds), **more
        )

    def seen(self) -> list[bytes]:
        """The wills that came since the last time."""
        return [each.payload for each in self.watcher.take() if isinstance(each, Publish)]

    def test_at_the_end_of_the_connection(self) -> None:
        """Without a delay a will is published when the connection is lost, whether the session lasts or not."""
        self.rig.connect("c", will=will(b"1")).loses()
        self.assertEqual(self.seen(), [b"1"])
        self.persistent(will(b"2")).loses()
        self.assertEqual(self.seen(), [b"2"])
        self.rig.passes(1000)
        self.assertEqual(self.seen(), [])

    def test_disconnect(self) -> None:
        """DISCONNECT with reason 0 takes the will with it, for ever [MQTT-3.14.4-3]."""
        self.persistent(will()).sends(Disconnect(0))
        self.rig.passes(1000)
        self.assertEqual(self.seen(), [])

    def test_any_other_reason(self) -> None:
        """Every other reason leaves it."""
        for code in (0x04, 0x80, 0x99):
            self.rig.connect("c", will=will()).sends(Disconnect(code))
            self.assertEqual(self.seen(), [b"gone"])

    def test_delay(self) -> None:
        """A will with a delay is published when it is over, not before, once, and without the delay's property."""
        self.persistent(will(will_delay=10, content_type="x")).loses()
        self.rig.passes(9)
        self.assertEqual(self.seen(), [])
        self.rig.passes(1)
        self.assertEqual(self.watcher.take(), [Publish("will", b"gone", properties=Properties(content_type="x"))])
        self.rig.passes(1000)
        self.assertEqual(self.seen(), [])

    def test_no_delay_without_a_session(self) -> None:
        """A session that ends with its connection does not wait for the delay."""
        self.rig.connect("c", will=will(will_delay=10)).loses()
        self.assertEqual(self.seen(), [b"gone"])

    def test_session_ends_before_the_delay(self) -> None:
        """The end of the session publishes the will [MQTT-3.1.3-9]."""
        self.persistent(will(will_delay=100), seconds=5).loses()
        self.rig.passes(4)
        self.assertEqual(self.seen(), [])
        self.rig.passes(1)
        self.assertEqual(self.seen(), [b"gone"])

    def test_back_in_time(self) -> None:
        """A client that is back before the delay is over has no will but its new one [MQTT-3.1.3-9]."""
        self.persistent(will(b"old", will_delay=10)).loses()
        self.rig.passes(9)
        again = self.persistent(will(b"new"))
        self.rig.passes(100)
        self.assertEqual(self.seen(), [])
        again.loses()
        self.assertEqual(self.seen(), [b"new"])

    def test_taken_over(self) -> None:
        """Another connection of the client publishes the will of the first, but for one with a delay."""
        first = self.persistent(will(b"1"))
        second = self.persistent(will(b"2", will_delay=10))
        self.assertEqual(first.closed, ReasonCode.SESSION_TAKEN_OVER)
        self.assertEqual(self.seen(), [b"1"])
        self.persistent()
        self.assertEqual(second.closed, ReasonCode.SESSION_TAKEN_OVER)
        self.rig.passes(1000)
        self.assertEqual(self.seen(), [])

    def test_clean_start_ends_the_wait(self) -> None:
        """A clean start ends the session, and so publishes a will that waits."""
        self.persistent(will(b"1", will_delay=10)).loses()
        self.rig.connect("c")
        self.assertEqual(self.seen(), [b"1"])
        self.persistent(will(b"2", will_delay=10))
        self.rig.connect("c")
        self.assertEqual(self.seen(), [b"2"])

    def test_expiry_begins_with_the_message(self) -> None:
        """The expiry interval of a will counts from its publication, not from CONNECT."""
        client = self.persistent(will(message_expiry=5))
        self.rig.passes(60)
        client.loses()
        (message,) = self.watcher.messages
        self.assertEqual(message.properties.message_expiry, 5)

    def test_quality_and_retain(self) -> None:
        """A will is delivered with its QoS, and kept where it is to be retained."""
        self.watcher.subscribes(Subscription("will", 2), packet_id=2)
        self.rig.connect("c", will=Will("will", b"gone", 2, retain=True)).loses()
        self.assertEqual(self.watcher.take(), [Publish("will", b"gone", 2, packet_id=1)])
        late = self.rig.connect("late")
        _, message = late.subscribes(Subscription("will", 1))
        self.assertEqual(message, Publish("will", b"gone", 1, retain=True, packet_id=1))

    def test_not_for_itself(self) -> None:
        """A client that is back gets no will of its own by a subscription with No Local."""
        client = self.persistent(will())
        client.subscribes(Subscription("will", 1, no_local=True))
        client.loses()
        back = self.persistent()
        self.assertEqual(back.take(), [])
        self.assertEqual(self.seen(), [b"gone"])
        self.assertEqual(back.publishes("other", b"", 1), [Acknowledgement(PacketType.PUBACK, 7, 0x10)])
