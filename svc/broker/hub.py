"""
The broker's core: sessions, subscriptions, retained messages, wills, and how a message finds its receivers.

Pure: it is told the time, writes to outlets, records in a journal. Owns what concerns more than one session; what one
client says is taken by :mod:`svc.broker.client`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from svc.broker.access import Guard, Principal
from svc.broker.admission import Admission
from svc.broker.deadlines import Deadlines
from svc.broker.errors import (
    AuthenticationMethodRefused,
    ClientIdRefused,
    NotAllowed,
    SessionOwned,
    StoreRefuses,
    TooManySessions,
    TooManySessionsOfIdentity,
)
from svc.broker.feeding import RetainedFeed
from svc.broker.journal import Journal, NoJournal, Remains
from svc.broker.message import Message
from svc.broker.outlet import Outlet
from svc.broker.retained import RetainedMessages
from svc.broker.session import Session, SessionLimits
from svc.broker.sharing import chosen
from svc.broker.statistics import Statistics
from svc.broker.subscriptions import SubscriptionTree
from svc.wire.mqtt import Connect, Publish, ReasonCode, Subscription, Version, shared

#: Sessions and retained messages that end before connections have their turn: some milliseconds.
AT_ONCE: Final = 200
#: What the broker tells about itself is made anew at each start.
OWN_TOPICS: Final = "$SYS/"


@dataclass(frozen=True, slots=True)
class HubLimits:
    """
    What a broker holds.

    Args:
        sessions: sessions, connected or not.
        sessions_of_identity: how many of them one SPIFFE ID may have.
        session_expiry: seconds that a session may outlive its connection; a client that asks for more gets this.
        client_id: octets of a client identifier.
        retained: retained messages.
        retained_octets: octets of all of them.
        session: what one session may use.
    """

    sessions: int = 100_000
    sessions_of_identity: int = 10_000
    session_expiry: int = 7 * 24 * 3600
    client_id: int = 256
    retained: int = 100_000
    retained_octets: int = 256 * 1024 * 1024
    session: SessionLimits = field(default_factory=SessionLimits)


class Hub:
    """
    All sessions and what flows between them.

    Args:
        now: seconds since 1970 UTC.
        guard: decides who may do what.
        random_name: gives a client identifier that nobody can guess.
        soon: calls a function when connections had their turn, never at once.
        limits: what is held.
        journal: records what must last.
        told: called with principal, client identifier and action when rules of access refuse something.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        guard: Guard,
        random_name: Callable[[], str],
        soon: Callable[[Callable[[], None]], None],
        limits: HubLimits | None = None,
        journal: Journal | None = None,
        told: Callable[[Principal, str, str], None] = lambda principal, client_id, action: None,
    ) -> None:
        self._told = told
        self.now: Final = now
        self.guard: Final = guard
        self.limits: Final = limits or HubLimits()
        self.journal: Final[Journal] = journal or NoJournal()
        self.statistics: Final = Statistics()
        self.subscriptions: Final[SubscriptionTree[Session]] = SubscriptionTree()
        self.retained: Final = RetainedMessages(self.limits.retained, self.limits.retained_octets)
        self.sessions: Final[dict[str, Session]] = {}
        self._owned: Counter[str] = Counter()
        self.feed: Final = RetainedFeed(self.retained, now, soon)
        self._soon = soon
        self.random_name: Final = random_name
        self.session_deadlines: Final = Deadlines()
        self.retained_deadlines: Final = Deadlines()

    def denied(self, principal: Principal, client_id: str, action: str) -> None:
        """
        Count what rules of access refused.

        Args:
            principal: who was refused.
            client_id: its client identifier.
            action: ``publish`` or ``subscribe``.
        """
        self.statistics.denied[action] += 1
        self._told(principal, client_id, action)

    # Connections.

    def admit(self, packet: Connect, principal: Principal) -> Admission:
        """
        Judge a CONNECT and find or make its session; the connection is not attached yet.

        Args:
            packet: the packet.
            principal: who sent it.

        Returns:
            The session. A connection that it had is closed, and its will follows the rules (section 3.1.4).

        Raises:
            BrokerError: the connection is refused; the class says why.
        """
        if packet.properties.authentication_method is not None:
            raise AuthenticationMethodRefused
        octets = len(packet.client_id.encode())
        if octets > self.limits.client_id:
            raise ClientIdRefused(octets=octets, limit=self.limits.client_id)
        if packet.will is not None and not self.guard.may_publish(principal, packet.will.topic):
            raise NotAllowed(action="publish its will")
        client_id = packet.client_id or self.random_name()
        old = self.sessions.get(client_id)
        if old is not None and old.owner != principal.owner:
            raise SessionOwned
        if old is None:
            self._judge_room(principal)
        if not self.journal.accepting and self.expiry(packet) != 0:
            raise StoreRefuses
        lasted = old is not None and old.lasting
        if old is not None:
            self._take_over(old)
            old = self.sessions.get(client_id)
            if old is not None and (packet.clean_start or not self._still_allowed(old, principal)):
                self.end_session(old)
                old = None
        session = self._taken_up(old, packet, client_id, principal)
        recorded = lasted or session.lasting
        admission = Admission(session, old is not None, session.expiry, recorded)
        session.claim = admission
        return admission

    def _judge_room(self, principal: Principal) -> None:
        """Judge whether somebody may have one more session."""
        if len(self.sessions) >= self.limits.sessions:
            raise TooManySessions(limit=self.limits.sessions)
        limit = self.limits.sessions_of_identity
        if principal.spiffe_id is not None and self._owned[principal.owner] >= limit:
            raise TooManySessionsOfIdentity(limit=limit)

    def _still_allowed(self, session: Session, principal: Principal) -> bool:
        """
        Judge the subscriptions of a session by the rules in force where it is resumed.

        They may be others than when it subscribed: those of another listener, or of another start. What waits in the
        session came by these subscriptions, so the session goes as a whole.
        """
        if all(self.guard.may_subscribe(principal, topic_filter) for topic_filter in session.subscriptions):
            return True
        self.denied(principal, session.client_id, "subscribe")
        return False

    def _taken_up(self, old: Session | None, packet: Connect, client_id: str, principal: Principal) -> Session:
        session = old
        if session is None:
            session = self._make_session(client_id, principal.owner)
            self._enter(session)
        lasted = session.lasting
        session.expiry = self.expiry(packet)
        # A will that waited is not published when its session goes on [MQTT-3.1.3-9].
        session.will, session.will_due, session.ended = packet.will, None, None
        session.version = packet.version
        if session.lasting:
            self.journal.session(session.record())
        elif lasted:
            session.unrecord()
            self.journal.session_ended(client_id)
        return session

    def _enter(self, session: Session) -> None:
        self.sessions[session.client_id] = session
        self._owned[session.owner] += 1

    def _make_session(self, client_id: str, owner: str) -> Session:
        return Session(client_id, owner, self.limits.session, self.journal, self.statistics, self.now)

    def _take_over(self, session: Session) -> None:
        """End the connection that a session has [MQTT-3.1.4-3], or one that waits for its CONNACK."""
        outlet = session.outlet
        if outlet is not None:
            outlet.close(ReasonCode.SESSION_TAKEN_OVER)
            self.connection_ended(session, outlet, with_will=True)
        elif session.ended is None:
            self._ended(session)

    def abandoned(self, admission: Admission) -> None:
        """
        A connection ended before it was told that it was admitted.

        Args:
            admission: what it would have been told.
        """
        if admission.session.claim is admission:
            self._ended(admission.session)

    def expiry(self, packet: Connect) -> int | None:
        """
        Say how long a session may outlive its connection.

        Args:
            packet: the CONNECT that asks.

        Returns:
            Seconds.
        """
        if packet.version is Version.V311:
            return 0 if packet.clean_start else self.limits.session_expiry
        return min(packet.properties.session_expiry or 0, self.limits.session_expiry)

    def connection_ended(self, session: Session, outlet: Outlet, *, with_will: bool) -> None:
        """
        A connection is over.

        Args:
            session: its session.
            outlet: its outlet; one that the session has not any more is ignored.
            with_will: whether its will is to be published: always, but after a DISCONNECT with reason 0.
        """
        if session.outlet is not outlet:
            return
        if not with_will:
            session.will = None
        self._ended(session)

    def _ended(self, session: Session) -> None:
        now = self.now()
        session.claim = None
        session.detach(now)
        if session.will is not None:
            delay = session.will.properties.will_delay or 0
            session.will_due = now + min(delay, session.expiry if session.expiry is not None else delay)
        if not session.lasting:
            self.end_session(session)
            return
        if session.will is not None and session.will_due == now:
            self._publish_will(session)
        self.journal.session(session.record())
        self._schedule(session)

    def _schedule(self, session: Session) -> None:
        """Set when something is to be done about a session without a connection: its will, or its end."""
        due = [] if session.will_due is None else [session.will_due]
        if session.expiry is not None and session.ended is not None:
            due.append(session.ended + session.expiry)
        if due:
            self.session_deadlines.set(session.client_id, min(due))

    def end_session(self, session: Session) -> None:
        """
        End a session: its will is published, its subscriptions and messages are gone (section 4.1.1).

        Args:
            session: one without an open connection.
        """
        if session.will is not None:
            self._publish_will(session)
        for topic_filter in list(session.subscriptions):
            self.subscriptions.remove(session, topic_filter)
        session.subscriptions.clear()
        self.feed.forget(session)
        session.forget_everything()
        session.claim = None
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
            self._owned[session.owner] -= 1
            if not self._owned[session.owner]:
                del self._owned[session.owner]
            self.session_deadlines.drop(session.client_id)
        self.journal.session_ended(session.client_id)

    def _publish_will(self, session: Session) -> None:
        will, session.will, session.will_due = session.will, None, None
        if will is None:
            return
        packet = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
        self.publish(Message.from_publish(packet, will.topic, session.client_id, self.now()))

    # Messages.

    def publish(self, message: Message, *, keep: bool = True) -> bool:
        """
        Bring a message to all who want it, and keep it where it is to be retained.

        Args:
            message: the message.
            keep: False where it is not to be retained although its flag says so, since it would not be safe.

        Returns:
            Whether anybody's subscription matched.
        """
        now = self.now()
        if message.retain and (keep or not message.payload):
            self._retain(message)
        elif message.retain:
            self.statistics.dropped("store_refuses")
        routes = self.subscriptions.routes(message.topic)
        for route in routes.direct:
            if route.no_local and route.subscriber.client_id == message.publisher:
                continue
            route.subscriber.offer(message, route, now)
        for group in routes.groups:
            route = chosen(group, message)
            route.subscriber.offer(message, route, now)
        if message.retain or message.qos:
            message.settle()
        return bool(routes.direct or routes.groups)

    def _retain(self, message: Message) -> None:
        if not message.payload:
            self._unretain(message.topic)
            return
        if not self.retained.keep(message):
            self.statistics.dropped("retained_full")
            return
        if not message.topic.startswith(OWN_TOPICS):
            self.journal.retained(message)
        self._retained_until(message)

    def _retained_until(self, message: Message) -> None:
        if message.expires is None:
            self.retained_deadlines.drop(message.topic)
        else:
            self.retained_deadlines.set(message.topic, message.expires)

    def _unretain(self, topic: str) -> None:
        self.retained_deadlines.drop(topic)
        if self.retained.forget(topic) is not None and not topic.startswith(OWN_TOPICS):
            self.journal.unretained(topic)

    # Subscriptions.

    def subscribe(self, session: Session, subscription: Subscription, identifier: int | None) -> bool:
        """
        Add a subscription that was judged before.

        Args:
            session: whose it is.
            subscription: what is wanted.
            identifier: its subscription identifier.

        Returns:
            Whether it is new.
        """
        new = self.subscriptions.add(session, subscription, identifier)
        session.subscriptions[subscription.filter] = (subscription, identifier)
        if session.lasting:
            self.journal.subscribed(session.client_id, subscription, identifier)
        return new

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """
        Take a subscription out.

        Args:
            session: whose it is.
            topic_filter: its filter.

        Returns:
            Whether there was one.
        """
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        self.subscriptions.remove(session, topic_filter)
        self.feed.end(session, topic_filter)
        if session.lasting:
            self.journal.unsubscribed(session.client_id, topic_filter)
        return True

    def send_retained(self, session: Session, subscription: Subscription, *, new: bool) -> None:
        """
        Have the retained messages sent that a subscription asks for (section 3.3.1.3).

        Args:
            session: who gets them; :attr:`feed` begins with :meth:`~svc.broker.feeding.RetainedFeed.go_on`.
            subscription: the subscription.
            new: whether it was not there before.
        """
        handling = subscription.retain_handling
        unwanted = handling == 2 or (handling == 1 and not new) or shared(subscription.filter)
        if not unwanted and subscription.filter in session.subscriptions:
            self.feed.begin(session, subscription.filter)

    # Time.

    def tick(self) -> None:
        """Do what is due: wills, ends of sessions, retained messages of no use; to be called about once a second."""
        if self._do_due():
            self._soon(self.tick)
        self.feed.tick()

    def _do_due(self) -> bool:
        """Do a part of what is due, as all sessions may be after a restart; whether there may be more."""
        now, left = self.now(), AT_ONCE
        for client_id in islice(self.session_deadlines.due(now), AT_ONCE):
            left -= 1
            session = self.sessions.get(client_id)
            if session is not None and session.outlet is None:
                self._judge(session, now)
        for topic in islice(self.retained_deadlines.due(now), left):
            left -= 1
            self._unretain(topic)
        return not left

    def _judge(self, session: Session, now: float) -> None:
        if session.expiry is not None and session.ended is not None and session.ended + session.expiry <= now:
            self.end_session(session)
        elif session.will_due is not None and session.will_due <= now:
            self._publish_will(session)
            self.journal.session(session.record())
            self._schedule(session)

    # Restart.

    def restore(self, remains: Remains) -> None:
        """
        Take back what a journal kept; connections that were open count as lost now (section 3.1.2.5).

        What was due while nothing ran is done at once: sessions end, wills are published.

        Args:
            remains: sessions and retained messages.
        """
        now = self.now()
        for message in remains.retained:
            if message.expired(now) or not self.retained.keep(message):
                self.journal.unretained(message.topic)
            else:
                message.settle()
                self._retained_until(message)
        for restored in remains.sessions:
            record = restored.record
            session = self._make_session(record.client_id, record.owner)
            session.expiry, session.will, session.will_due = record.expiry, record.will, record.will_due
            session.ended = now if record.ended is None else record.ended
            session.restore(restored.deliveries, restored.received, record.version)
            for subscription, identifier in restored.subscriptions:
                session.subscriptions[subscription.filter] = (subscription, identifier)
                self.subscriptions.add(session, subscription, identifier)
            if session.will is not None and session.will_due is None:
                session.will_due = now + (session.will.properties.will_delay or 0)
            if record.ended is None:
                self.journal.session(session.record())
            self._enter(session)
            self._schedule(session)
        while self._do_due():
            pass
