"""
Which filters a client is subscribed to, and the responses to SUBSCRIBE where some filters were refused.

A filter counts from the SUBSCRIBE that is passed on until the broker confirms that it is unsubscribed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from svc.wire.mqtt import ProtocolViolation, QuotaExceeded, ReasonCode, Suback, Unsuback, Unsubscribe

#: Octets of all topic filters of a client.
MAX_FILTER_OCTETS: Final = 256 * 1024
#: SUBSCRIBE with refused filters, and UNSUBSCRIBE, that wait for the broker.
MAX_WAITING: Final = 1000


class ClientFilters:
    """The filters of one client; ``limit``: how many at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._filters: dict[str, int] = {}
        self._octets = 0
        #: By packet identifier: for each filter of a SUBSCRIBE the code of its refusal, None where it is passed on.
        self._subscribes: dict[int, list[int | None]] = {}
        self._unsubscribes: dict[int, list[str]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._filters))

    def add(self, topic_filter: str) -> bool:
        """Count a filter that is passed on; returns False where there are as many as allowed."""
        if topic_filter in self._filters:
            return True
        octets = len(topic_filter.encode())
        if len(self._filters) >= self._limit or self._octets + octets > MAX_FILTER_OCTETS:
            return False
        self._filters[topic_filter] = octets
        self._octets += octets
        return True

    def partly_refused(self, packet_id: int, codes: list[int | None]) -> None:
        """A SUBSCRIBE is passed on without the filters that have a code here."""
        self._wait(packet_id, "SUBSCRIBE")
        self._subscribes[packet_id] = codes

    def merged(self, packet: Suback) -> Suback | None:
        """Return a SUBACK with the codes of refused filters in their places; None where none were refused."""
        codes = self._subscribes.pop(packet.packet_id, None)
        if codes is None:
            return None
        if len(packet.codes) != codes.count(None):
            raise ProtocolViolation(packet="SUBACK", defect="it responds to another number of subscriptions")
        answered = iter(packet.codes)
        return replace(packet, codes=[next(answered) if code is None else code for code in codes])

    def unsubscribing(self, packet: Unsubscribe) -> None:
        """An UNSUBSCRIBE is passed on."""
        self._wait(packet.packet_id, "UNSUBSCRIBE")
        self._unsubscribes[packet.packet_id] = packet.filters

    def unsubscribed(self, packet: Unsuback) -> None:
        """The broker has responded; MQTT 3.1.1 has no codes."""
        filters = self._unsubscribes.pop(packet.packet_id, [])
        for topic_filter, code in zip(filters, packet.codes or [0] * len(filters), strict=False):
            if code < ReasonCode.UNSPECIFIED_ERROR:
                self._octets -= self._filters.pop(topic_filter, 0)

    def _wait(self, packet_id: int, name: str) -> None:
        if packet_id in self._subscribes or packet_id in self._unsubscribes:
            raise ProtocolViolation(packet=name, defect="its packet identifier is in use")
        if len(self._subscribes) + len(self._unsubscribes) >= MAX_WAITING:
            raise QuotaExceeded(packet=name, limit=MAX_WAITING, items="requests that wait for the broker")
