"""
The subscriptions of all clients.

A tree of topic levels, so that a topic is compared with those filters only that can match it. The routes of a topic are
cached until a subscription changes. Does not depend on the use of a message.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, Generic, NamedTuple, TypeVar

from svc.wire.mqtt import QoS, Subscription, split_shared

Subscriber = TypeVar("Subscriber", bound=Hashable)

#: Topics whose routes are cached; telemetry has as many topics as devices.
CACHED_TOPICS: Final = 10_000
#: The routes of all of them together: a few octets each, 200 where overlapping subscriptions made a new one.
CACHED_ROUTES: Final = 250_000
#: Characters of the longest topic that is cached, which bounds the memory of the cache.
CACHED_TOPIC_LENGTH: Final = 256


class Route(NamedTuple, Generic[Subscriber]):
    """One copy of a message for one subscriber."""

    subscriber: Subscriber
    #: The highest quality of service of all matching subscriptions [MQTT-3.3.4-2].
    qos: QoS
    #: Whether it excludes messages of the subscriber itself.
    no_local: bool
    retain_as_published: bool
    #: The identifiers of all matching subscriptions [MQTT-3.3.4-3, MQTT-3.3.4-4].
    identifiers: tuple[int, ...]


@dataclass(slots=True)
class SharedGroup(Generic[Subscriber]):
    """The members of a shared subscription, which take turns."""

    members: dict[Subscriber, Route[Subscriber]] = field(default_factory=dict)
    _next: int = 0
    _order: list[Route[Subscriber]] | None = None

    def add(self, route: Route[Subscriber]) -> bool:
        """Add a member, or replace its route; whether it is new."""
        new = route.subscriber not in self.members
        self.members[route.subscriber], self._order = route, None
        return new

    def remove(self, subscriber: Subscriber) -> bool:
        """Remove a member; whether it was one."""
        self._order = None
        return self.members.pop(subscriber, None) is not None

    def in_turn(self) -> Iterator[Route[Subscriber]]:
        """Yield all members, beginning one further at each call."""
        if self._order is None:
            self._order = list(self.members.values())
        routes = self._order
        count = len(routes)
        begin = self._next % count
        self._next = begin + 1
        for number in range(begin, begin + count):
            yield routes[number % count]


class Routes(NamedTuple, Generic[Subscriber]):
    """The routes of a topic's messages."""

    #: One copy for each.
    direct: tuple[Route[Subscriber], ...]
    #: One copy for one member of each.
    groups: tuple[SharedGroup[Subscriber], ...]


@dataclass(slots=True)
class _Node(Generic[Subscriber]):
    children: dict[str, _Node[Subscriber]] = field(default_factory=dict)
    direct: dict[Subscriber, Route[Subscriber]] = field(default_factory=dict)
    groups: dict[str, SharedGroup[Subscriber]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        return not (self.children or self.direct or self.groups)


class SubscriptionTree(Generic[Subscriber]):
    """All subscriptions of a broker; ``topics`` and ``routes`` limit the cache."""

    def __init__(self, topics: int = CACHED_TOPICS, routes: int = CACHED_ROUTES) -> None:
        self._root: _Node[Subscriber] = _Node()
        self._cache: dict[str, Routes[Subscriber]] = {}
        self._cached_routes = 0
        self._topics_limit = topics
        self._routes_limit = routes
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, subscriber: Subscriber, subscription: Subscription, identifier: int | None) -> bool:
        """Add a valid subscription, in place of one with the same filter [MQTT-3.8.4-3]; whether it is new."""
        share = split_shared(subscription.filter)
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
            new = node.groups.setdefault(share.group, SharedGroup()).add(route)
        else:
            new = subscriber not in node.direct
            node.direct[subscriber] = route
        self._count += new
        self._clear_cache()
        return new

    def remove(self, subscriber: Subscriber, topic_filter: str) -> bool:
        """Remove a subscription by its filter as it was added [MQTT-3.10.4-1]; whether there was one."""
        share = split_shared(topic_filter)
        levels = (share.filter if share else topic_filter).split("/")
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return False
            path.append(child)
        if not self._remove_from(path[-1], subscriber, share.group if share else None):
            return False
        for parent, level, child in zip(reversed(path[:-1]), reversed(levels), reversed(path), strict=False):
            if not child.empty:
                break
            del parent.children[level]
        self._count -= 1
        self._clear_cache()
        return True

    def _remove_from(self, node: _Node[Subscriber], subscriber: Subscriber, group: str | None) -> bool:
        if group is None:
            return node.direct.pop(subscriber, None) is not None
        members = node.groups.get(group)
        if members is None or not members.remove(subscriber):
            return False
        if not members.members:
            del node.groups[group]
        return True

    def routes(self, topic: str) -> Routes[Subscriber]:
        """Find the routes of a valid topic name; overlapping subscriptions of one subscriber are one route."""
        found = self._cache.get(topic)
        if found is None:
            found = self._match(topic)
            if len(topic) <= CACHED_TOPIC_LENGTH:
                self._add_to_cache(topic, found)
        return found

    def _add_to_cache(self, topic: str, routes: Routes[Subscriber]) -> None:
        count = len(routes.groups) + sum(1 + len(each.identifiers) for each in routes.direct)
        if count > self._routes_limit:
            return
        if len(self._cache) >= self._topics_limit or self._cached_routes + count > self._routes_limit:
            self._clear_cache()
        self._cache[topic] = routes
        self._cached_routes += count

    def _clear_cache(self) -> None:
        self._cache.clear()
        self._cached_routes = 0

    def _match(self, topic: str) -> Routes[Subscriber]:
        found: dict[Subscriber, list[Route[Subscriber]]] = {}
        groups: list[SharedGroup[Subscriber]] = []
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
    """One route for overlapping subscriptions; No Local applies only where each of them has it."""
    return Route(
        routes[0].subscriber,
        max(each.qos for each in routes),
        all(each.no_local for each in routes),
        any(each.retain_as_published for each in routes),
        tuple(chain.from_iterable(each.identifiers for each in routes)),
    )
