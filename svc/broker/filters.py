"""
The subscriptions of one session and their limits: number, memory, and how much of a topic tree one message may visit.

Does not depend on other sessions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, MutableMapping
from typing import Final, NamedTuple

from svc.wire.mqtt import Subscription

#: Octets that a subscription takes, and each level of its filter, measured where no two filters share anything.
ENTRY: Final = 600
LEVEL: Final = 350
#: Octets of all filters together for each subscription that is allowed; a filter of ten levels takes it.
OCTETS: Final = 4096
#: Levels from the first ``+`` on for each subscription that is allowed: below a ``+`` a message may have to visit every
#: filter, one node for each level. One client that uses up the limit of 1000 subscriptions costs the first message of a
#: topic two milliseconds, ten of them twenty.
WILDCARD_LEVELS: Final = 5
#: Lower bounds of these sums where few subscriptions are allowed, so that any single filter fits.
LEAST_OCTETS: Final = 1024 * 1024
LEAST_WILDCARD_LEVELS: Final = 1000

#: A subscription and its identifier.
SubscriptionEntry = tuple[Subscription, int | None]


class FilterCost(NamedTuple):
    """What a filter takes."""

    #: Of memory, approximately, where it shares nothing with others.
    octets: int
    #: Its levels from the first ``+`` on.
    wildcard_levels: int


def filter_cost(topic_filter: str) -> FilterCost:
    """Estimate what a valid filter, shared or not, takes."""
    # The text is stored as a whole, and each level once more in the tree.
    octets = ENTRY + 2 * sys.getsizeof(topic_filter) + LEVEL * (topic_filter.count("/") + 1)
    first = topic_filter.find("+")
    return FilterCost(octets, 0 if first < 0 else topic_filter.count("/", first) + 1)


class SessionSubscriptions(MutableMapping[str, SubscriptionEntry]):
    """
    The subscriptions of one session by their filters, in the order in which they were added.

    Attributes:
        octets: the memory of all together.
        wildcard_levels: the levels of all together, from the first ``+`` of each on.
    """

    def __init__(self, limit: int) -> None:
        self.octets = 0
        self.wildcard_levels = 0
        self._limit = limit
        self._most = FilterCost(max(LEAST_OCTETS, limit * OCTETS), max(LEAST_WILDCARD_LEVELS, limit * WILDCARD_LEVELS))
        self._entries: dict[str, SubscriptionEntry] = {}

    def has_room_for(self, topic_filter: str) -> bool:
        """Whether a subscription is within the limits; an existing one may always be replaced [MQTT-3.8.4-3]."""
        if topic_filter in self._entries:
            return True
        cost = filter_cost(topic_filter)
        return (
            len(self._entries) < self._limit
            and self.octets + cost.octets <= self._most.octets
            and self.wildcard_levels + cost.wildcard_levels <= self._most.wildcard_levels
        )

    def __getitem__(self, topic_filter: str) -> SubscriptionEntry:
        return self._entries[topic_filter]

    def __setitem__(self, topic_filter: str, entry: SubscriptionEntry) -> None:
        """Add a subscription without checking the limits: recovered ones stay."""
        if topic_filter not in self._entries:
            self._add_cost(filter_cost(topic_filter), 1)
        self._entries[topic_filter] = entry

    def __delitem__(self, topic_filter: str) -> None:
        del self._entries[topic_filter]
        self._add_cost(filter_cost(topic_filter), -1)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _add_cost(self, cost: FilterCost, sign: int) -> None:
        self.octets += sign * cost.octets
        self.wildcard_levels += sign * cost.wildcard_levels
