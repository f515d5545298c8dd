"""
Who wants which topics.

A tree of topic levels, so that a message is compared with the filters that can match it and with no other. What a topic
leads to is remembered until a subscription changes. Must not know what is done with a message.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

from svc.wire.mqtt import QoS, Subscription, shared

Subscriber = TypeVar("Subscriber", bound=Hashable)

#: Topics whose routes are remembered; telemetry has as many topics as devices.
REMEMBERED: Final = 10_000
#: The routes of all of them together: a few octets each, 200 where overlapping subscriptions made a new one.
REMEMBERED_ROUTES: Final = 250_000
#: Characters of a topic that is remembered; what is longer is looked up each time, so that no memory goes to it.
REMEMBERED_TOPIC: Final = 256


class Route(NamedTuple, Generic[Subscriber]):
    """
    One copy of a message for one subscriber.

    Args:
        subscriber: who gets it.
        qos: the highest quality of service of all matching subscriptions [MQTT-3.3.4-2].
        no_local: whether it is not for its own publisher.
        retain_as_published: whether the retain flag is kept.
        identifiers: the identifiers of all matching subscriptions [MQTT-3.3.4-3, MQTT-3.3.4-4].
    """

    subscriber: Subscriber
    qos: QoS
    no_local: bool
    retain_as_published: bool
    identifiers: tuple[int, ...]


@dataclass(slots=True)
class Group(Generic[Subscriber]):
    """
    A shared subscription's members, and whose turn it is.

    Args:
        members: their routes, in the order in which they came.
        turn: counts the messages.
    """

    members: dict[Subscriber, Route[Subscriber]] = field(default_factory=dict)
    turn: int = 0
    _order: list[Route[Subscriber]] | None = None

    def add(self, route: Route[Subscriber]) -> bool:
        """Add a member, or replace its route; whether it is new."""
        new = route.subscriber not in self.members
        self.members[route.subscriber], self._order = route, None
        return new

    def remove(self, subscriber: Subscriber) -> bool:
        """Take a member out; whether it was there."""
        self._order = None
        return self.members.pop(subscriber, None) is not None

    def in_turn(self) -> Iterator[Route[Subscriber]]:
        """Give all members, the one whose turn it is first; the next call begins with the next one."""
        if self._order is None:
            self._order = list(self.members.values())
        routes = self._order
        count = len(routes)
        begin = self.turn % count
        self.turn = begin + 1
        for number in range(begin, begin + count):
            yield routes[number % count]


class Routes(NamedTuple, Generic[Subscriber]):
    """
    Where the messages of a topic go.

    Args:
        direct: one copy for each.
        groups: one copy for one member of each.
    """

    direct: tuple[Route[Subscriber], ...]
    groups: tuple[Group[Subscriber], ...]


@dataclass(slots=True)
class _Node(Generic[Subscriber]):
    children: dict[str, _Node[Subscriber]] = field(default_factory=dict)
    direct: dict[Subscriber, Route[Subscriber]] = field(default_factory=dict)
    groups: dict[str, Group[Subscriber]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not (self.children or self.direct or self.groups)


class SubscriptionTree(Generic[Subscriber]):
    """
    All subscriptions of a broker.

    Args:
        remembered: topics whose routes are remembered.
        routes: the routes of all of them together.
    """

    def __init__(self, remembered: int = REMEMBERED, routes: int = REMEMBERED_ROUTES) -> None:
        self._root: _Node[Subscriber] = _Node()
        self._known: dict[str, Routes[Subscriber]] = {}
        self._known_routes = 0
        self._remembered = remembered
        self._remembered_routes = routes
        self._count = 0

    def __len__(self) -> int:
        """Tell the number of subscriptions."""
        return self._count

    def add(self, subscriber: Subscriber, subscription: Subscription, identifier: int | None) -> bool:
        """
        Add a subscription, in place of one with the same filter [MQTT-3.8.4-3].

        Args:
            subscriber: who wants it.
            subscription: a valid filter with its options.
            identifier: its subscription identifier, or None.

        Returns:
            Whether it is new.
        """
        share = shared(subscription.filter)
        node = self._root
        for level in (share.filter if share else subscription.filter).split("/"):
            node = node.children.setdefault(level, _Node())
        route = Route(
            subscriber,
            subscription.qos,
            subscription.no_local,
            subscription.retain_as_published,
            () if identifier is None else (identifier,),
        )
        if share:
            new = node.groups.setdefault(share.group, Group()).add(route)
        else:
            new = subscriber not in node.direct
            node.direct[subscriber] = route
        self._count += new
        self._forget_known()
        return new

    def remove(self, subscriber: Subscriber, topic_filter: str) -> bool:
        """
        Take a subscription out.

        Args:
            subscriber: whose it is.
            topic_filter: the filter as it was added, compared character by character [MQTT-3.10.4-1].

        Returns:
            Whether there was one.
        """
        share = shared(topic_filter)
        levels = (share.filter if share else topic_filter).split("/")
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return False
            path.append(child)
        if not self._forget(path[-1], subscriber, share.group if share else None):
            return False
        for parent, level, child in zip(reversed(path[:-1]), reversed(levels), reversed(path), strict=False):
            if not child.empty:
                break
            del parent.children[level]
        self._count -= 1
        self._forget_known()
        return True

    def _forget(self, node: _Node[Subscriber], subscriber: Subscriber, group: str | None) -> bool:
        if group is None:
            return node.direct.pop(subscriber, None) is not None
        members = node.groups.get(group)
        if members is None or not members.remove(subscriber):
            return False
        if not members.members:
            del node.groups[group]
        return True

    def routes(self, topic: str) -> Routes[Subscriber]:
        """
        Find where the messages of a topic go.

        Args:
            topic: a valid topic name.

        Returns:
            The routes; overlapping subscriptions of one subscriber are one route.
        """
        known = self._known.get(topic)
        if known is None:
            known = self._matched(topic)
            if len(topic) <= REMEMBERED_TOPIC:
                self._remember(topic, known)
        return known

    def _remember(self, topic: str, routes: Routes[Subscriber]) -> None:
        count = len(routes.groups) + sum(1 + len(each.identifiers) for each in routes.direct)
        if count > self._remembered_routes:
            return
        if len(self._known) >= self._remembered or self._known_routes + count > self._remembered_routes:
            self._forget_known()
        self._known[topic] = routes
        self._known_routes += count

    def _forget_known(self) -> None:
        self._known.clear()
        self._known_routes = 0

    def _matched(self, topic: str) -> Routes[Subscriber]:
        found: dict[Subscriber, list[Route[Subscriber]]] = {}
        groups: list[Group[Subscriber]] = []
        for node in self._nodes(topic):
            groups += node.groups.values()
            for subscriber, route in node.direct.items():
                found.setdefault(subscriber, []).append(route)
        return Routes(tuple(each[0] if len(each) == 1 else _merge(each) for each in found.values()), tuple(groups))

    def _nodes(self, topic: str) -> Iterator[_Node[Subscriber]]:
        """Find the nodes of all filters that match (section 4.7)."""
        levels = topic.split("/")
        # A leading wildcard matches no topic that begins with $ [MQTT-4.7.2-1].
        wild = not topic.startswith("$")
        current = [self._root]
        for level in levels:
            following: list[_Node[Subscriber]] = []
            for node in current:
                children = node.children
                if not children:
                    continue
                if (child := children.get(level)) is not None and level not in ("+", "#"):
                    following.append(child)
                if wild:
                    if (child := children.get("#")) is not None:
                        yield child
                    if (child := children.get("+")) is not None:
                        following.append(child)
            if not following:
                return
            current, wild = following, True
        for node in current:
            if "#" in node.children:
                yield node.children["#"]
            yield node


def _merge(routes: Sequence[Route[Subscriber]]) -> Route[Subscriber]:
    """One copy for overlapping subscriptions; it is left out only where each of them would."""
    return Route(
        routes[0].subscriber,
        max(each.qos for each in routes),
        all(each.no_local for each in routes),
        any(each.retain_as_published for each in routes),
        tuple(chain.from_iterable(each.identifiers for each in routes)),
    )
