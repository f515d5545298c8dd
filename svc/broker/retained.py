"""
The last retained message of each topic (section 3.3.1.3).

A tree of topic levels, so that a new subscription finds what matches its filter without looking at everything. Bounded
by number and octets, those of the tree included. Must not know who asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from svc.broker.message import Message

#: Octets of a level of the tree beside its name.
NODE: Final = 250


@dataclass(slots=True)
class _Node:
    children: dict[str, _Node] = field(default_factory=dict)
    message: Message | None = None
    number: int = 0


class RetainedMessages:
    """
    Retained messages by topic.

    Args:
        limit: the most messages.
        octets: the most octets of all together, with the levels of their topics.
    """

    def __init__(self, limit: int, octets: int) -> None:
        self._root = _Node()
        self._limit = limit
        self._octets_limit = octets
        self._count = 0
        self._octets = 0
        self._kept = 0

    def __len__(self) -> int:
        """Tell the number of messages."""
        return self._count

    @property
    def octets(self) -> int:
        """About the octets that all messages take together, with the levels of their topics."""
        return self._octets

    def keep(self, message: Message) -> bool:
        """
        Keep a message in place of the one that its topic had [MQTT-3.3.1-5].

        Args:
            message: its payload is not empty.

        Returns:
            Whether there was room for it; where there was none, the old one stays.
        """
        node, missing = self._root, message.topic.split("/")
        while missing and (child := node.children.get(missing[0])) is not None:
            node = child
            del missing[0]
        old = None if missing else node.message
        more = message.size + sum(map(_octets, missing)) - (old.size if old is not None else 0)
        if self._octets + more > self._octets_limit or (old is None and self._count >= self._limit):
            return False
        for level in missing:
            child = node.children[level] = _Node()
            node = child
        self._kept += 1
        node.message, node.number = message, self._kept
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
            self._octets -= _octets(level)
        return message

    def walk(self, topic_filter: str) -> Iterator[Message | None]:
        """
        Find the messages that a filter matches, step by step.

        What is kept or forgotten between two steps does no harm: a message that is kept from now on is left out.

        Args:
            topic_filter: a valid filter that is not shared.

        Returns:
            For each topic level that is looked at its message, expired ones included, or None, so that whoever walks
            can stop after as many steps as there is time for.
        """
        return self._steps(topic_filter.split("/"), self._kept)

    def _steps(self, levels: list[str], last: int) -> Iterator[Message | None]:
        steps = [(iter([self._root]), 0)]
        while steps:
            nodes, depth = steps[-1]
            node = next(nodes, None)
            if node is None:
                steps.pop()
                continue
            level = levels[depth] if depth < len(levels) else None
            # "#" stands for the level before it as well [section 4.7.1.2].
            matched = level is None or level == "#"
            yield node.message if matched and node.number <= last else None
            if level is not None:
                steps.append((iter(self._below(node, level)), depth if level == "#" else depth + 1))

    def _below(self, node: _Node, level: str) -> list[_Node]:
        if level not in ("+", "#"):
            child = node.children.get(level)
            return [] if child is None else [child]
        if node is self._root:
            # A leading wildcard matches no topic that begins with $ [MQTT-4.7.2-1].
            return [child for name, child in node.children.items() if name[:1] != "$"]
        return list(node.children.values())


def _octets(level: str) -> int:
    return NODE + len(level)
