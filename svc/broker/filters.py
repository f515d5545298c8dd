"""
The subscriptions of one session, and how much they may take.

Owns their bounds: a number, what they take in memory, and how much of a topic tree one message may have to walk for
them. Must not know other sessions.
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
#: Levels from the first ``+`` on for each subscription that is allowed: below a ``+`` a message may have to look at
#: every filter there is, one node for each level. One client that uses up the bound of 1000 subscriptions costs the
#: first message of a topic two milliseconds, ten of them twenty.
OPEN_LEVELS: Final = 5
#: What all filters may take wherever few are allowed: any single one fits.
LEAST_OCTETS: Final = 1024 * 1024
LEAST_OPEN_LEVELS: Final = 1000

#: A subscription and its identifier.
Wanted = tuple[Subscription, int | None]


class Weight(NamedTuple):
    """
    What a filter takes.

    Args:
        octets: in memory, about, where it shares nothing with others.
        open_levels: its levels from the first ``+`` on.
    """

    octets: int
    open_levels: int


def weigh(topic_filter: str) -> Weight:
    """
    Weigh a filter.

    Args:
        topic_filter: a valid filter, shared or not.

    Returns:
        What it takes.
    """
    # The whole text is held, and each level once more by the tree.
    octets = ENTRY + 2 * sys.getsizeof(topic_filter) + LEVEL * (topic_filter.count("/") + 1)
    first = topic_filter.find("+")
    return Weight(octets, 0 if first < 0 else topic_filter.count("/", first) + 1)


class SessionFilters(MutableMapping[str, Wanted]):
    """
    The subscriptions of one session by their filters, in the order in which they came.

    Args:
        limit: the most subscriptions.

    Attributes:
        octets: what all take together.
        open_levels: the levels of all from the first ``+`` of each on.
    """

    def __init__(self, limit: int) -> None:
        self.octets = 0
        self.open_levels = 0
        self._limit = limit
        self._most = Weight(max(LEAST_OCTETS, limit * OCTETS), max(LEAST_OPEN_LEVELS, limit * OPEN_LEVELS))
        self._wanted: dict[str, Wanted] = {}

    def has_room_for(self, topic_filter: str) -> bool:
        """
        Say whether a subscription keeps the bounds.

        Args:
            topic_filter: its filter; one that is there may always be replaced [MQTT-3.8.4-3].

        Returns:
            Whether it does.
        """
        if topic_filter in self._wanted:
            return True
        weight = weigh(topic_filter)
        return (
            len(self._wanted) < self._limit
            and self.octets + weight.octets <= self._most.octets
            and self.open_levels + weight.open_levels <= self._most.open_levels
        )

    def __getitem__(self, topic_filter: str) -> Wanted:
        """Give the subscription of a filter."""
        return self._wanted[topic_filter]

    def __setitem__(self, topic_filter: str, wanted: Wanted) -> None:
        """Put a subscription in, whatever the bounds: what was taken in before stays."""
        if topic_filter not in self._wanted:
            self._count(weigh(topic_filter), 1)
        self._wanted[topic_filter] = wanted

    def __delitem__(self, topic_filter: str) -> None:
        """Take a subscription out."""
        del self._wanted[topic_filter]
        self._count(weigh(topic_filter), -1)

    def __iter__(self) -> Iterator[str]:
        """Give the filters."""
        return iter(self._wanted)

    def __len__(self) -> int:
        """Tell the number of subscriptions."""
        return len(self._wanted)

    def _count(self, weight: Weight, sign: int) -> None:
        self.octets += sign * weight.octets
        self.open_levels += sign * weight.open_levels
