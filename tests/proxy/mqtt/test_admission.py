"""What both kinds of session answer alike."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.naming import PROPERTY_RECEIPT_ID
from svc.proxy.mqtt.admission import with_receipt
from svc.wire.mqtt import Acknowledgement, Connect, PacketType, Properties, Version, encode


class ReceiptTests(SynchronousTestCase):
    """The identifier of a receipt in PUBACK and PUBREC."""

    def with_receipt(self, receipt: str | None = "r" * 22, version: Version = Version.V5, **accepted: Any) -> bool:
        """Whether an acknowledgement names its receipt, where it has one, to a client that accepts this."""
        packet = Acknowledgement(PacketType.PUBACK, 7, 0, Properties(reason_string="ok"))
        made = with_receipt(packet, receipt, Connect("c", version, properties=Properties(**accepted)))
        if made is packet:
            return False
        self.assertEqual(made.properties, packet.properties.replace(user=((PROPERTY_RECEIPT_ID, receipt),)))  # type: ignore[arg-type]
        return True

    def test_accepted(self) -> None:
        """It is there unless there is none, the version has no properties, or the client declined them."""
        self.assertTrue(self.with_receipt())
        self.assertTrue(self.with_receipt(request_problem_information=1))
        self.assertFalse(self.with_receipt(request_problem_information=0))
        self.assertFalse(self.with_receipt(version=Version.V311))
        self.assertFalse(self.with_receipt(None))
        self.assertFalse(self.with_receipt(""))

    def test_maximum_packet_size(self) -> None:
        """It is left out where the packet would be larger than the client accepts."""
        properties = Properties(reason_string="ok", user=((PROPERTY_RECEIPT_ID, "r" * 22),))
        size = len(encode(Acknowledgement(PacketType.PUBACK, 7, 0, properties), Version.V5, "server"))
        self.assertTrue(self.with_receipt(maximum_packet_size=size))
        self.assertFalse(self.with_receipt(maximum_packet_size=size - 1))
