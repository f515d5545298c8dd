"""Who of a shared subscription gets a message. Pure; whose turn it is, the group knows."""

from __future__ import annotations

from svc.broker.message import Message
from svc.broker.session import Session
from svc.broker.subscriptions import Group, Route


def chosen(group: Group[Session], message: Message) -> Route[Session]:
    """
    Choose who of a group gets a message (section 4.8.2).

    Whoever is there comes first: a message for one who is away may wait for long. Who cannot take it now, because it
    reads too slowly or its queue is full, comes last.

    Args:
        group: its members, at least one.
        message: the message.

    Returns:
        The route to the chosen one; it is its turn, or that of the next one who fits.
    """
    first = away = None
    for member in group.in_turn():
        first = first or member
        session = member.subscriber
        outlet = session.outlet
        if min(message.qos, member.qos):
            takes = session.has_room(message)
        else:
            takes = outlet is not None and not outlet.congested
        if takes and outlet is not None:
            return member
        if takes:
            away = away or member
    route = away or first
    assert route is not None  # noqa: S101 (a group has members as long as it is there)
    return route
