"""
Topic names and topic filters: validity and matching (MQTT 5.0 sections 4.7 and 4.8; MQTT 3.1.1 section 4.7).

Comparison is by code points: nothing is normalised [MQTT-4.7.3-4].
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHARE: Final = "$share/"


class SharedFilter(NamedTuple):
    """The share name and the topic filter of a shared subscription."""

    group: str
    filter: str


def name_defect(topic: str) -> str:
    """Return what is wrong with a topic name, or an empty string [MQTT-3.3.2-2, 4.7.1-1, 4.7.3-1]."""
    if not topic:
        return "the topic name is empty"
    if "#" in topic or "+" in topic:
        return "the topic name holds a wildcard"
    return ""


def filter_defect(topic_filter: str) -> str:
    """Return what is wrong with a filter, shared or not, or "" [MQTT-4.7.1-1, 4.7.1-2, 4.7.3-1, 4.8.2-1, 4.8.2-2]."""
    if topic_filter.startswith(SHARE):
        group, slash, topic_filter = topic_filter[len(SHARE) :].partition("/")
        if not group or "#" in group or "+" in group:
            return "the share name is empty or holds a wildcard"
        if not slash:
            return "no topic filter follows the share name"
    if not topic_filter:
        return "the topic filter is empty"
    if "#" not in topic_filter and "+" not in topic_filter:
        return ""
    levels = topic_filter.split("/")
    for level in levels[:-1]:
        if "#" in level:
            return "the wildcard # is not the last level"
        if "+" in level and level != "+":
            return "the wildcard + is not a whole level"
    last = levels[-1]
    if ("#" in last or "+" in last) and last not in ("#", "+"):
        return "a wildcard is not a whole level"
    return ""


def split_shared(topic_filter: str) -> SharedFilter | None:
    """Split a valid filter of a shared subscription; None for other filters."""
    if not topic_filter.startswith(SHARE):
        return None
    group, _, inner = topic_filter[len(SHARE) :].partition("/")
    return SharedFilter(group, inner)


def matches(topic_filter: str, topic: str) -> bool:
    """
    Return whether a valid filter, not a shared one, matches a valid topic name (section 4.7).

    A leading wildcard matches no name that begins with ``$`` [MQTT-4.7.2-1].
    """
    if topic_filter == topic:
        return True
    if topic[0] == "$" and topic_filter[0] in "#+":
        return False
    wanted = topic_filter.split("/")
    # What follows as many levels is one more: it is compared with none of them.
    levels = topic.split("/", len(wanted))
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position == len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)


def covers(allowed: str, requested: str) -> bool:
    """
    Return whether one valid filter, not a shared one, matches everything that another one can match.

    ``#`` and ``+`` at the beginning never cover a filter that begins with ``$`` [MQTT-4.7.2-1].
    """
    if requested[0] == "$" and allowed[0] in "#+":
        return False
    if requested in ("#", "/#"):
        # The same topics, since none is empty [MQTT-4.7.3-1].
        requested = f"{requested[:-1]}+/#"
    have = allowed.split("/")
    want = requested.split("/", len(have))
    for position, level in enumerate(have):
        if level == "#":
            return True
        if position == len(want) or want[position] == "#":
            return False
        if level not in ("+", want[position]):
            return False
    return len(have) == len(want)


def intersection(first: str, second: str) -> str | None:
    """Return the filter of what two valid filters, not shared ones, both match; None where no topic matches both."""
    if (first[0] == "$" and second[0] in "#+") or (second[0] == "$" and first[0] in "#+"):
        return None
    ours = first.split("/")
    theirs = second.split("/", len(ours))
    common: list[str] = []
    for position, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if one == "#":
            return "/".join([*common, *theirs[position:]])
        if other == "#":
            return "/".join([*common, *ours[position:]])
        if one != other and "+" not in (one, other):
            return None
        common.append(other if one == "+" else one)
    # What is left of the longer one; # matches the level above it too.
    rest = ours[len(theirs) :] or theirs[len(ours) :]
    return ("/".join(common) or None) if rest in ([], ["#"]) else None


def intersects(first: str, second: str) -> bool:
    """Return whether any topic matches two valid filters, not shared ones."""
    return intersection(first, second) is not None
