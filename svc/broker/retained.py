"""
The retained message of each topic (section 3.3.1.3).

A tree of topic levels, so that a new subscription finds what its filter matches without visiting every topic. Number
and octets are limited, those of the tree included; near the limits owners share them by :func:`svc.shares.fits_left`.
Does not depend on sessions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from svc.broker.message import Message
from svc.broker.sharing import LargestShare
from svc.shares import SCARCE_PART, Holdings, fits_left

#: Octets of a level of the tree, without its name.
NODE: Final = 250


@dataclass(slots=True)
class _TopicLevel:
    children: dict[str, _TopicLevel] = field(default_factory=dict)
    message: Message | None = None
    number: int = 0


class RetainedMessages:
    """Retained messages by topic, at most ``limit`` of them and ``octets`` of memory."""

    def __init__(self, limit: int, octets: int) -> None:
        self._root = _TopicLevel()
        self._limit = limit
        self._octets_limit = octets
        self._count = 0
        self._octets = 0
        self._stored = 0
        self._messages_of: Holdings[str] = Holdings()
        self._octets_of: Holdings[str] = Holdings()

    def __len__(self) -> int:
        return self._count

    @property
    def octets(self) -> int:
        """Approximate octets of memory of all messages, with the levels of their topics."""
        return self._octets

    def store(self, message: Message, *, recovered: bool = False) -> bool:
        """
        Store a message in place of the one that its topic had [MQTT-3.3.1-5].

        Args:
            message: its payload is not empty.
            recovered: whether it was retained before, so that it needs no more than room.

        Returns:
            False where there was no room for it, or none for its owner; then the old one stays.
        """
        node, missing = self._root, message.topic.split("/")
        while missing and (child := node.children.get(missing[0])) is not None:
            node = child
            del missing[0]
        old = None if missing else node.message
        more = message.size + sum(map(_octets, missing)) - (old.size if old is not None else 0)
        if not self._fits("" if recovered else message.owner, more, new=old is None):
            return False
        for level in missing:
            child = node.children[level] = _TopicLevel()
            node = child
        self._stored += 1
        node.message, node.number = message, self._stored
        self._count += old is None
        self._octets += more
        if old is not None and old.owner == message.owner:
            self._attribute(message.owner, 0, message.size - old.size)
        else:
            if old is not None:
                self._attribute(old.owner, -1, -_charge(old))
            self._attribute(message.owner, 1, _charge(message))
        return True

    def _fits(self, owner: str, octets: int, *, new: bool) -> bool:
        limit, octets_limit = self._limit, self._octets_limit
        if new and not fits_left(self._messages_of.held(owner), 1, limit - self._count, limit // SCARCE_PART):
            return False
        # What takes no more than before always fits.
        left = octets_limit - self._octets
        return octets <= 0 or fits_left(self._octets_of.held(owner), octets, left, octets_limit // SCARCE_PART)

    def _attribute(self, owner: str, messages: int, octets: int) -> None:
        if owner and messages:
            self._messages_of.change(owner, messages)
        if owner and octets:
            self._octets_of.change(owner, octets)

    def most(self) -> LargestShare:
        """Who has most, of number or octets, whichever is nearer to its limit."""
        by_number = self._count * self._octets_limit >= self._octets * self._limit
        owner = (self._messages_of if by_number else self._octets_of).most() or ""
        return LargestShare(owner, self._octets_of.held(owner), self._messages_of.held(owner))

    def get(self, topic: str) -> Message | None:
        """Return the message of a topic, or None."""
        node: _TopicLevel | None = self._root
        for level in topic.split("/"):
            node = node.children.get(level) if node is not None else None
        return node.message if node is not None else None

    def remove(self, topic: str) -> Message | None:
        """Remove and return the message of a topic, or None where it has none [MQTT-3.3.1-6]."""
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
        self._attribute(message.owner, -1, -_charge(message))
        for parent, level, child in zip(reversed(path[:-1]), reversed(levels), reversed(path), strict=False):
            if child.children or child.message is not None:
                break
            del parent.children[level]
            self._octets -= _octets(level)
        return message

    def walk(self, topic_filter: str) -> Iterator[Message | None]:
        """
        Find the messages that a filter matches, step by step.

        Messages may be stored and removed between two steps; those stored after the call are left out.

        Args:
            topic_filter: a valid filter that is not shared.

        Returns:
            For each visited topic level its message, expired ones included, or None, so that the caller can stop after
            any number of steps.
        """
        return self._steps(topic_filter.split("/"), self._stored)

    def _steps(self, levels: list[str], last: int) -> Iterator[Message | None]:
        steps = [(iter([self._root]), 0)]
        while steps:
            nodes, depth = steps[-1]
            node = next(nodes, None)
            if node is None:
                steps.pop()
                continue
            level = levels[depth] if depth < len(levels) else None
            # "#" matches the level before it as well [section 4.7.1.2].
            matched = level is None or level == "#"
            yield node.message if matched and node.number <= last else None
            if level is not None:
                steps.append((iter(self._children(node, level)), depth if level == "#" else depth + 1))

    def _children(self, node: _TopicLevel, level: str) -> list[_TopicLevel]:
        if level not in ("+", "#"):
            child = node.children.get(level)
            return [] if child is None else [child]
        if node is self._root:
            # A leading wildcard matches no topic that begins with $ [MQTT-4.7.2-1].
            return [child for name, child in node.children.items() if name[:1] != "$"]
        return list(node.children.values())


def _charge(message: Message) -> int:
    """Octets that count for the owner: with all levels of the topic, which stay with any of those that share them."""
    return message.size + NODE * (message.topic.count("/") + 1) + len(message.topic)


def _octets(level: str) -> int:
    return NODE + len(level)
