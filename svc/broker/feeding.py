"""
Retained messages for new subscriptions, in small pieces (section 3.3.1.3).

A subscription may match all that is retained. So each session is fed as fast as its client reads, a little at a time,
and takes turns with the others: nobody waits for long because somebody subscribed to everything, and nothing is
dropped because it does not fit into a queue at once. What is published meanwhile comes as to any subscriber.

Pure: the next turn comes when whoever runs the broker says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from svc.broker.message import Message
from svc.broker.retained import RetainedMessages
from svc.broker.session import Session
from svc.broker.subscriptions import Route
from svc.wire.mqtt import Subscription

#: What a turn may cost: one for each topic level that is looked at, and for each message what it takes more than that.
TURN: Final = 2000
_MESSAGE: Final = 20


class _Walk:
    """
    The messages of one subscription.

    Args:
        session: who gets them.
        wanted: what the session holds of the subscription as long as it is in force.
        steps: as :meth:`RetainedMessages.walk` gives them.

    Attributes:
        ended: whether there is nothing left to give.
    """

    def __init__(
        self, session: Session, wanted: tuple[Subscription, int | None], steps: Iterator[Message | None]
    ) -> None:
        subscription, identifier = wanted
        self.ended = False
        self._session = session
        self._wanted = wanted
        self._steps = steps
        # It is this subscription that asks: others that match have no part in it [MQTT-3.3.4-3].
        identifiers = () if identifier is None else (identifier,)
        self._route = Route(session, subscription.qos, subscription.no_local, True, identifiers)

    def go_on(self, left: int, now: float) -> int:
        """Go on as long as the session takes more and the turn is not over; give what is left of the turn."""
        session, route = self._session, self._route
        if session.subscriptions.get(self._wanted[0].filter) is not self._wanted:
            self.ended = True
        while not self.ended and left > 0 and session.hungry:
            left -= 1
            try:
                message = next(self._steps)
            except StopIteration:
                self.ended = True
                break
            # No Local is about every message of one's own [MQTT-3.8.3-3].
            own = message is not None and route.no_local and message.publisher == session.client_id
            if message is not None and not own and not message.expired(now):
                left -= _MESSAGE
                session.offer(message, route, now, retained=True)
        return left


class RetainedFeed:
    """
    Feeds all sessions.

    Args:
        retained: the retained messages.
        now: seconds since 1970 UTC.
        soon: calls a function when others had their turn, never at once.
    """

    def __init__(
        self, retained: RetainedMessages, now: Callable[[], float], soon: Callable[[Callable[[], None]], None]
    ) -> None:
        self._retained = retained
        self._now = now
        self._soon = soon
        self._walks: dict[Session, dict[str, _Walk]] = {}
        #: The sessions that are fed in the next turns, in this order.
        self._line: dict[Session, None] = {}
        self._called = False

    def begin(self, session: Session, topic_filter: str) -> None:
        """
        Note that a session is to get what a subscription matches; :meth:`go_on` begins.

        Args:
            session: the session.
            topic_filter: the filter of one of its subscriptions, not a shared one. Where it is fed for this filter
                already, it begins anew [MQTT-3.8.4-3].
        """
        walks = self._walks.setdefault(session, {})
        walks.pop(topic_filter, None)
        walks[topic_filter] = _Walk(session, session.subscriptions[topic_filter], self._retained.walk(topic_filter))

    def go_on(self, session: Session) -> None:
        """
        Feed a session that may take more, unless its turn is to come.

        Args:
            session: any session.
        """
        if session in self._walks and session not in self._line:
            self._feed(session)

    def end(self, session: Session, topic_filter: str) -> None:
        """
        Feed a session no more for one filter: it has unsubscribed.

        Args:
            session: any session.
            topic_filter: any filter.
        """
        walks = self._walks.get(session)
        if walks is not None and walks.pop(topic_filter, None) is not None and not walks:
            self.forget(session)

    def forget(self, session: Session) -> None:
        """
        Feed a session no more: it has ended.

        Args:
            session: any session.
        """
        self._walks.pop(session, None)
        self._line.pop(session, None)

    def tick(self) -> None:
        """Look after those whose queues have emptied by themselves; to be called about once a second."""
        for session in list(self._walks):
            if session not in self._line and session.hungry:
                self._queue(session)

    def _queue(self, session: Session) -> None:
        self._line[session] = None
        self._call()

    def _turn(self) -> None:
        self._called = False
        if self._line:
            session = next(iter(self._line))
            del self._line[session]
            if self._line:
                # Before the work: what goes wrong with one session must not stop the others.
                self._call()
            self._feed(session)

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self._soon(self._turn)

    def _feed(self, session: Session) -> None:
        """Feed one session for one turn."""
        walks, left, now = self._walks[session], TURN, self._now()
        while walks:
            topic_filter, walk = next(iter(walks.items()))
            left = walk.go_on(left, now)
            if walk.ended:
                del walks[topic_filter]
            elif left <= 0:
                self._queue(session)
                return
            else:
                # Acknowledgements, the end of congestion or a new connection bring it back.
                return
        del self._walks[session]
