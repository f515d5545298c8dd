"""What becomes of a message that the next hop refuses, by the reason code."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.mqtt.stored.refusals import Refusal, closed_for_message, refusal
from svc.wire.mqtt import PacketType
from svc.wire.mqtt.codes import DISCONNECT_REASONS, REASONS


class RefusalTests(SynchronousTestCase):
    """The table."""

    def test_every_code(self) -> None:
        """Each code that PUBACK and PUBREC may carry is a success or has its course."""
        expected = {
            None: {0x00, 0x10},
            Refusal.PASSES: {0x80, 0x83, 0x97},
            Refusal.RENUMBERED: {0x91},
            Refusal.LASTS: {0x87, 0x90, 0x99},
        }
        for kind in (PacketType.PUBACK, PacketType.PUBREC):
            found = {each: {code for code in REASONS[kind] if refusal(code) is each} for each in (None, *Refusal)}
            self.assertEqual(expected, found)

    def test_closed_connections(self) -> None:
        """Of the codes of DISCONNECT only those that cannot be about anything else are about a message."""
        about = {code for code in DISCONNECT_REASONS["server"] if closed_for_message(code)}
        self.assertEqual({0x90, 0x95, 0x99, 0x9A, 0x9B}, about)
