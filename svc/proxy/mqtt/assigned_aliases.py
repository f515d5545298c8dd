"""The topics of the aliases that the sender of messages assigned (MQTT 5.0, section 3.3.2.3.4)."""

from __future__ import annotations

from svc.wire.mqtt import Publish, TopicAliasInvalid


class AssignedAliases:
    """
    Resolves aliases for decisions, while the packets pass to a receiver that resolves them itself.

    Attributes:
        maximum: the highest alias.
    """

    def __init__(self) -> None:
        self.maximum = 0
        self._topics: dict[int, str] = {}
        #: Assigned in a packet that was refused, so that the receiver has another topic for them or none.
        self._unsent: set[int] = set()

    def resolve(self, packet: Publish) -> str:
        """Return the topic of a packet, and store what it assigns; raises TopicAliasInvalid."""
        alias = packet.properties.topic_alias
        if alias is None:
            return packet.topic
        if packet.topic:
            # The receiver refuses an alias above the maximum.
            if alias <= self.maximum:
                self._topics[alias] = packet.topic
            return packet.topic
        topic = self._topics.get(alias)
        if topic is None:
            raise TopicAliasInvalid(alias=alias)
        return topic

    def refused(self, packet: Publish) -> None:
        """A packet is not passed on: the receiver does not get what it assigns."""
        alias = packet.properties.topic_alias
        if packet.topic and alias is not None and alias <= self.maximum:
            self._unsent.add(alias)

    def passed(self, packet: Publish) -> bool:
        """A packet is passed on; returns whether its topic must be added, since the receiver does not have it."""
        alias = packet.properties.topic_alias
        if alias not in self._unsent:
            return False
        self._unsent.discard(alias)
        return not packet.topic
