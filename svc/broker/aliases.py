"""
Topic aliases on one connection towards a client (MQTT 5.0, section 3.3.2.3.4).

Owns which topic has which alias, and whether the client was sent the pair. Pure. How an alias is encoded is the
business of :class:`svc.broker.message.Message`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from svc.broker.message import Message

#: Octets of the shortest topic that gets an alias: the property takes three in place of the topic, and may make the
#: length of the properties longer by one.
SHORTEST: Final = 5
#: Characters of the longest one, so that the aliases of a connection take kilobytes of memory, not megabytes.
LONGEST: Final = 1024


class TopicAliases:
    """
    The aliases of one connection.

    The first topics get the unused aliases at once. When none is left, a topic that is sent a second time gets the
    alias of the least recently sent topic. Topics that are sent once replace nothing.
    """

    __slots__ = ("_assigned", "_maximum", "_seen")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self._assigned: OrderedDict[str, int] = OrderedDict()
        self._seen: set[str] = set()

    def apply(self, message: Message, octets: bytes, limit: int | None) -> tuple[bytes, int]:
        """
        Replace the topic of a packet by its alias, or add a new alias to the topic.

        Args:
            message: the message.
            octets: its packet without an alias.
            limit: octets of the largest packet that the client accepts; None is no limit.

        Returns:
            The packet to send, and the alias to :meth:`confirm` after that, or 0. A packet within the limit stays
            within it.
        """
        topic = message.topic
        alias = self._assigned.get(topic)
        if alias is not None:
            self._assigned.move_to_end(topic)
            return message.with_alias(octets, alias, with_topic=False), 0
        alias = self._choose(topic)
        if alias:
            with_both = message.with_alias(octets, alias, with_topic=True)
            if limit is None or len(with_both) <= limit:
                return with_both, alias
        return octets, 0

    def confirm(self, topic: str, alias: int) -> None:
        """Assign an alias that :meth:`apply` returned: a packet with both was sent."""
        if len(self._assigned) >= self._maximum:
            self._assigned.popitem(last=False)
        self._seen.discard(topic)
        self._assigned[topic] = alias

    def _choose(self, topic: str) -> int:
        if len(topic) > LONGEST or (len(topic) < SHORTEST and len(topic.encode()) < SHORTEST):
            return 0
        if len(self._assigned) < self._maximum:
            return len(self._assigned) + 1
        if topic in self._seen:
            return next(iter(self._assigned.values()))
        if len(self._seen) >= self._maximum:
            self._seen.clear()
        self._seen.add(topic)
        return 0
