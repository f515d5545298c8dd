"""
Which filters a client is subscribed to, and the responses to SUBSCRIBE where some filters were refused.

A filter counts from the SUBSCRIBE that is passed on until the broker confirms an UNSUBSCRIBE that was sent after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from svc.wire.mqtt import ProtocolViolation, QuotaExceeded, ReasonCode, Suback, Unsuback, Unsubscribe

#: Octets of all topic filters of a client.
MAX_FILTER_OCTETS: Final = 256 * 1024
#: SUBSCRIBE with refused filters, and UNSUBSCRIBE, that wait for the broker.
MAX_WAITING: Final = 1000


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """A filter as of one SUBSCRIBE."""

    filter: str
    octets: int


class ClientFilters:
    """The filters of one client; ``limit``: how many at once."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._filters: dict[str, _Counted] = {}
        self._octets = 0
        #: By packet identifier: for each filter of a SUBSCRIBE the code of its refusal, None where it is passed on.
        self._subscribes: dict[int, list[int | None]] = {}
        #: By packet identifier: what each filter of an UNSUBSCRIBE ends, None where it does not count.
        self._unsubscribes: dict[int, list[_Counted | None]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._filters))

    def add(self, topic_filter: str) -> bool:
        """Count a filter that is passed on; returns False where there are as many as allowed."""
        former = self._filters.get(topic_filter)
        if former is not None:
            # Another object: an UNSUBSCRIBE that waits for the broker does not end this subscription.
            self._filters[topic_filter] = _Counted(former.filter, former.octets)
            return True
        octets = len(topic_filter.encode())
        if len(self._filters) >= self._limit or self._octets + octets > MAX_FILTER_OCTETS:
            return False
        self._filters[topic_filter] = _Counted(topic_filter, octets)
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
        self._unsubscribes[packet.packet_id] = [self._filters.get(each) for each in packet.filters]

    def unsubscribed(self, packet: Unsuback) -> None:
        """The broker has responded; MQTT 3.1.1 has no codes."""
        filters = self._unsubscribes.pop(packet.packet_id, [])
        for counted, code in zip(filters, packet.codes or [0] * len(filters), strict=False):
            if counted is None or code >= ReasonCode.UNSPECIFIED_ERROR:
                continue
            if self._filters.get(counted.filter) is counted:
                del self._filters[counted.filter]
                self._octets -= counted.octets

    def _wait(self, packet_id: int, name: str) -> None:
        if packet_id in self._subscribes or packet_id in self._unsubscribes:
            raise ProtocolViolation(packet=name, defect="its packet identifier is in use")
        if len(self._subscribes) + len(self._unsubscribes) >= MAX_WAITING:
            raise QuotaExceeded(packet=name, limit=MAX_WAITING, items="requests that wait for the broker")
