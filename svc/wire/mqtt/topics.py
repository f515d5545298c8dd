"""
Topic names and topic filters (MQTT 5.0 sections 4.7 and 4.8; MQTT 3.1.1 section 4.7).

Owns what makes them valid and when they match. Comparison is by code points: nothing is normalised [MQTT-4.7.3-4].
"""

from __future__ import annotations

from typing import Final, NamedTuple

SHARE: Final = "$share/"


class SharedFilter(NamedTuple):
    """
    A shared subscription taken apart.

    Args:
        group: the share name.
        filter: the topic filter behind it.
    """

    group: str
    filter: str


def name_defect(topic: str) -> str:
    """
    Judge a topic name.

    Args:
        topic: at least one character; an empty topic with an alias is judged by the packet.

    Returns:
        What is wrong, or an empty text ([MQTT-3.3.2-2], [MQTT-4.7.1-1], [MQTT-4.7.3-1]).
    """
    if not topic:
        return "the topic name is empty"
    if "#" in topic or "+" in topic:
        return "the topic name holds a wildcard"
    return ""


def filter_defect(topic_filter: str) -> str:
    """
    Judge a topic filter, shared or not.

    Args:
        topic_filter: as SUBSCRIBE or UNSUBSCRIBE names it.

    Returns:
        What is wrong, or an empty text ([MQTT-4.7.1-1], [MQTT-4.7.1-2], [MQTT-4.7.3-1], [MQTT-4.8.2-1],
        [MQTT-4.8.2-2]).
    """
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
            return "the wildcard + does not stand for a whole level"
    last = levels[-1]
    if ("#" in last or "+" in last) and last not in ("#", "+"):
        return "a wildcard does not stand for a whole level"
    return ""


def shared(topic_filter: str) -> SharedFilter | None:
    """
    Take a shared subscription apart.

    Args:
        topic_filter: a valid topic filter.

    Returns:
        Its two parts, or None where it is not shared.
    """
    if not topic_filter.startswith(SHARE):
        return None
    group, _, inner = topic_filter[len(SHARE) :].partition("/")
    return SharedFilter(group, inner)


def matches(topic_filter: str, topic: str) -> bool:
    """
    Say whether a topic filter matches a topic name.

    Args:
        topic_filter: a valid filter that is not shared.
        topic: a valid topic name.

    Returns:
        Whether it does (section 4.7); a leading wildcard matches no name that begins with ``$`` [MQTT-4.7.2-1].
    """
    if topic_filter == topic:
        return True
    if topic[0] == "$" and topic_filter[0] in "#+":
        return False
    wanted = topic_filter.split("/")
    levels = topic.split("/")
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position == len(levels) or level not in ("+", levels[position]):
            return False
    return len(wanted) == len(levels)
