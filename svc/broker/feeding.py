"""
Retained messages for new subscriptions, in bounded turns (section 3.3.1.3).

A subscription may match all retained messages. So each session gets them as fast as its client reads, some in a turn,
and sessions take turns: no session waits long because another client subscribed to everything, and nothing is dropped
because it exceeds a queue, or what its owner may have of all queues. Messages published meanwhile are delivered as to
any subscriber.

Pure: the next turn begins when the ``call_soon`` of the broker calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from svc.broker.filters import SubscriptionEntry
from svc.broker.message import Message
from svc.broker.retained import RetainedMessages
from svc.broker.session import Session
from svc.broker.subscriptions import Route

#: The cost of a turn: one for each topic level that is visited, and for each message this much more.
TURN: Final = 2000
_MESSAGE: Final = 20


class _SubscriptionFeed:
    """
    The retained messages of one subscription.

    Args:
        session: the subscriber.
        entry: the subscription; the session has the same object while it is in force.
        retained: the retained messages.
    """

    def __init__(self, session: Session, entry: SubscriptionEntry, retained: RetainedMessages) -> None:
        subscription, identifier = entry
        #: Whether all messages were delivered, or the subscription has ended.
        self.finished = False
        self._session = session
        self._entry = entry
        self._retained = retained
        self._steps = retained.walk(subscription.filter)
        #: The message that waits for room.
        self._kept: Message | None = None
        # They are delivered for this subscription only, whatever others match [MQTT-3.3.4-3].
        identifiers = () if identifier is None else (identifier,)
        self._route = Route(session, subscription.qos, subscription.no_local, True, identifiers)

    def deliver(self, left: int, now: float) -> int:
        """Deliver while the session has room and the turn lasts; return what is left of the turn."""
        session, route = self._session, self._route
        if session.subscriptions.get(self._entry[0].filter) is not self._entry:
            self.finished = True
        while not self.finished and left > 0 and session.below_low_water:
            left -= 1
            try:
                message = self._next()
            except StopIteration:
                self.finished = True
                break
            # No Local excludes every message of the subscriber itself [MQTT-3.8.3-3].
            own = message is not None and route.no_local and message.publisher == session.client_id
            if message is None or own or message.expired(now):
                continue
            if session.must_wait(message, route.qos):
                self._kept = message
                break
            left -= _MESSAGE
            session.deliver(message, route, now, retained=True)
        return left

    def _next(self) -> Message | None:
        message, self._kept = self._kept, None
        if message is None:
            return next(self._steps)
        # What replaced it meanwhile was delivered when it was published.
        return message if self._retained.get(message.topic) is message else None


class RetainedFeed:
    """
    Delivers retained messages to all sessions that have new subscriptions.

    Args:
        retained: the retained messages.
        now: seconds since 1970 UTC.
        call_soon: calls a function after other events were processed, never at once.
    """

    def __init__(
        self, retained: RetainedMessages, now: Callable[[], float], call_soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._retained = retained
        self._now = now
        self._call_soon = call_soon
        self._feeds: dict[Session, dict[str, _SubscriptionFeed]] = {}
        #: The sessions of the next turns, in order.
        self._turns: dict[Session, None] = {}
        self._scheduled = False

    def add(self, session: Session, topic_filter: str) -> None:
        """
        Add a subscription whose retained messages are to be delivered; :meth:`proceed` begins.

        Args:
            session: the subscriber.
            topic_filter: the filter of one of its subscriptions that is not shared. One that was added before begins
                again [MQTT-3.8.4-3].
        """
        feeds = self._feeds.setdefault(session, {})
        feeds.pop(topic_filter, None)
        entry = session.subscriptions[topic_filter]
        feeds[topic_filter] = _SubscriptionFeed(session, entry, self._retained)

    def proceed(self, session: Session) -> None:
        """Deliver to a session that may have room now, unless a turn of it is scheduled."""
        if session in self._feeds and session not in self._turns:
            self._deliver(session)

    def remove(self, session: Session, topic_filter: str) -> None:
        """Stop delivering for one filter, if any: the session has unsubscribed."""
        feeds = self._feeds.get(session)
        if feeds is not None and feeds.pop(topic_filter, None) is not None and not feeds:
            self.remove_session(session)

    def remove_session(self, session: Session) -> None:
        """Stop delivering to a session: it has ended."""
        self._feeds.pop(session, None)
        self._turns.pop(session, None)

    def tick(self) -> None:
        """Schedule the sessions whose queues have room again; to be called about once a second."""
        for session in list(self._feeds):
            if session not in self._turns and session.below_low_water:
                self._schedule(session)

    def _schedule(self, session: Session) -> None:
        self._turns[session] = None
        self._schedule_turn()

    def _schedule_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._turns:
            session = next(iter(self._turns))
            del self._turns[session]
            if self._turns:
                # Before the work: a defect in one session must not stop the others.
                self._schedule_turn()
            self._deliver(session)

    def _deliver(self, session: Session) -> None:
        """Deliver to one session for one turn."""
        feeds, left, now = self._feeds[session], TURN, self._now()
        while feeds:
            topic_filter, feed = next(iter(feeds.items()))
            left = feed.deliver(left, now)
            if feed.finished:
                del feeds[topic_filter]
            elif left <= 0:
                self._schedule(session)
                return
            else:
                # Acknowledgements, the end of congestion or a new connection call :meth:`proceed`.
                return
        del self._feeds[session]
