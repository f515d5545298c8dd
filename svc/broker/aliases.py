"""
Aliases of topics on one connection towards a client (MQTT 5.0, section 3.3.2.3.4).

Owns which topic has which alias, and which of them the client knows. Pure. What an alias does to the octets of a packet
is the business of :class:`svc.broker.message.Message`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from svc.broker.message import Message

#: Octets of the shortest topic that gets an alias: the property takes three in place of the topic, and may make the
#: length of the properties longer by one.
SHORTEST: Final = 5
#: Characters of the longest one: the aliases of a connection hold kilobytes, not megabytes.
LONGEST: Final = 1024


class TopicAliases:
    """
    The aliases of one connection; they are gone with it.

    The first topics get the free numbers at once. When none is left, a topic gets one when it comes again soon: that of
    the topic which was silent for longest. Topics that come once drive nothing out.

    Args:
        most: the highest alias, above 0.
    """

    __slots__ = ("_known", "_most", "_seen")

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[str, int] = OrderedDict()
        self._seen: set[str] = set()

    def applied(self, message: Message, octets: bytes, limit: int | None) -> tuple[bytes, int]:
        """
        Make a packet what is best sent.

        Args:
            message: what it brings.
            octets: the packet without an alias.
            limit: octets of the largest packet that the client takes; None is no limit.

        Returns:
            The packet: as it was, without its topic, or with topic and alias. In the last case the alias as well, for
            :meth:`introduced` once the packet was sent; else 0. Nothing that is within the limit is made to exceed it.
        """
        topic = message.topic
        alias = self._known.get(topic)
        if alias is not None:
            self._known.move_to_end(topic)
            return message.with_alias(octets, alias, named=False), 0
        alias = self._proposed(topic)
        if alias:
            introduction = message.with_alias(octets, alias, named=True)
            if limit is None or len(introduction) <= limit:
                return introduction, alias
        return octets, 0

    def introduced(self, topic: str, alias: int) -> None:
        """
        Note that a packet with both was sent: from now on the alias stands for the topic.

        Args:
            topic: the topic.
            alias: what the last call of :meth:`applied` gave for it.
        """
        if len(self._known) >= self._most:
            self._known.popitem(last=False)
        self._seen.discard(topic)
        self._known[topic] = alias

    def _proposed(self, topic: str) -> int:
        if len(topic) > LONGEST or (len(topic) < SHORTEST and len(topic.encode()) < SHORTEST):
            return 0
        if len(self._known) < self._most:
            return len(self._known) + 1
        if topic in self._seen:
            return next(iter(self._known.values()))
        if len(self._seen) >= self._most:
            self._seen.clear()
        self._seen.add(topic)
        return 0
