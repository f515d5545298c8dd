"""
The last retained message of each topic (section 3.3.1.3).

A tree of topic levels, so that a new subscription finds what matches its filter without looking at everything. Bounded
by number and octets. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from svc.broker.message import Message


@dataclass(slots=True)
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    message: Message | None = None


class RetainedMessages:
    """
    Retained messages by topic.

    Args:
        limit: the most messages.
        octets: the most octets of all together.
    """

    def __init__(self, limit: int, octets: int) -> None:
        self._root = _Node()
        self._limit = limit
        self._octets_limit = octets
        self._count = 0
        self._octets = 0

    def __len__(self) -> int:
        """Tell the number of messages."""
        return self._count

    @property
    def octets(self) -> int:
        """The octets that all messages take together."""
        return self._octets

    def keep(self, message: Message) -> bool:
        """
        Keep a message in place of the one that its topic had [MQTT-3.3.1-5].

        Args:
            message: its payload is not empty.

        Returns:
            Whether there was room for it; where there was none, the old one stays.
        """
        old = self.at(message.topic)
        more = message.size - (old.size if old is not None else 0)
        if self._octets + more > self._octets_limit or (old is None and self._count >= self._limit):
            return False
        node = self._root
        for level in message.topic.split("/"):
            node = node.children.setdefault(level, _Node())
        node.message = message
        self._count += old is None
        self._octets += more
        return True

    def at(self, topic: str) -> Message | None:
        """
        Find the message of a topic.

        Args:
            topic: the topic name.

        Returns:
            Its message, or None.
        """
        node: _Node | None = self._root
        for level in topic.split("/"):
            node = node.children.get(level) if node is not None else None
        return node.message if node is not None else None

    def forget(self, topic: str) -> Message | None:
        """
        Forget the message of a topic [MQTT-3.3.1-6].

        Args:
            topic: the topic name.

        Returns:
            The message that there was, or None.
        """
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return None
            path.append(child)
        message, path[-1].message = path[-1].message, None
        if message is None:
            return None
        self._count -= 1
        self._octets -= message.size
        for parent, level, child in zip(reversed(path[:-1]), reversed(levels), reversed(path), strict=False):
            if child.children or child.message is not None:
                break
            del parent.children[level]
        return message

    def matching(self, topic_filter: str) -> Iterator[Message]:
        """
        Find the messages that a filter matches.

        Args:
            topic_filter: a valid filter that is not shared.

        Yields:
            The messages, expired ones included; nothing may be kept or forgotten meanwhile.
        """
        levels = topic_filter.split("/")
        stack: list[tuple[_Node, int]] = [(self._root, 0)]
        while stack:
            node, depth = stack.pop()
            if depth == len(levels):
                if node.message is not None:
                    yield node.message
                continue
            level = levels[depth]
            if level == "#":
                yield from self._below(node, depth)
                continue
            if level == "+":
                stack += [(child, depth + 1) for name, child in node.children.items() if depth or name[:1] != "$"]
            elif level in node.children:
                stack.append((node.children[level], depth + 1))

    def _below(self, node: _Node, depth: int) -> Iterator[Message]:
        stack = [(node, depth)]
        while stack:
            current, below = stack.pop()
            if current.message is not None:
                yield current.message
            stack += [(child, below + 1) for name, child in current.children.items() if below or name[:1] != "$"]
