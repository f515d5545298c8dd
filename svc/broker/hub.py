"""
The broker's core: sessions, subscriptions, retained messages, wills, and the delivery of messages to subscribers.

Pure: it is passed the time, writes to sinks, records in a journal. Owns what concerns more than one session; the
packets of one client are processed by :mod:`svc.broker.client`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from svc.broker.access import Guard, Principal
from svc.broker.client_sink import ClientSink
from svc.broker.deadlines import Deadlines
from svc.broker.errors import BrokerError, StoreRefuses
from svc.broker.feeding import RetainedFeed
from svc.broker.journal import Journal, NoJournal, RecoveredState
from svc.broker.message import Message
from svc.broker.retained import RetainedMessages
from svc.broker.session import Session, SessionLimits
from svc.broker.sharing import NoRoomObserver
from svc.broker.statistics import Statistics
from svc.broker.subscriptions import Route, SharedGroup, SubscriptionTree
from svc.identity.spiffeid import SpiffeIdMalformed
from svc.shares import Holdings, SharedRoom, one_fits, share_evidence
from svc.wire.mqtt import Connect, Publish, ReasonCode, Subscription, Version, split_shared

#: Sessions and retained messages that are processed before other events: some milliseconds.
BATCH: Final = 200
#: Queued messages that are searched for expired ones in the time of one of these.
MESSAGES: Final = 20
#: Topics of the broker itself, which are not recorded.
SYS_TOPICS: Final = "$SYS/"


@dataclass(frozen=True, slots=True)
class HubLimits:
    """The limits of a broker."""

    #: Sessions, connected or not; their owners share the last of them.
    sessions: int = 100_000
    #: How many of them one SPIFFE ID, user or name in a certificate may have in any case; None is no such limit.
    sessions_of_identity: int | None = None
    #: Seconds that a session may outlive its connection; a client that requests more gets this.
    session_expiry: int = 7 * 24 * 3600
    #: Octets of a client identifier.
    client_id: int = 256
    #: Retained messages, and the octets of memory that they take together.
    retained: int = 100_000
    retained_octets: int = 256 * 1024 * 1024
    #: Octets of memory that the messages to all sessions take together.
    queued_octets: int = 1024 * 1024 * 1024
    #: The limits of each session.
    session: SessionLimits = field(default_factory=SessionLimits)


@dataclass(frozen=True, slots=True)
class Admission:
    """The result of a CONNECT that was accepted; CONNACK may wait until it is durable."""

    session: Session
    #: The client, with its identifier.
    principal: Principal
    #: Whether the session existed before.
    present: bool
    #: Seconds that the session outlives its connection; None is without limit.
    expiry: int | None
    #: Whether the session is, or was, persistent, so that CONNACK waits for the journal.
    recorded: bool


class Hub:
    """
    All sessions and the messages between them.

    Args:
        now: seconds since 1970 UTC.
        guard: authorizes clients.
        random_name: returns a client identifier that cannot be guessed.
        call_soon: calls a function after other events were processed, never at once.
        limits: of the broker.
        journal: records durable state.
        on_denied: called with principal, client identifier and action when access rules refuse something.
        on_no_room: called where a message is not queued or retained for want of room that all share.
        check: raises a ``BrokerError`` for a client, or the owner of a session, that is not accepted any more.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        guard: Guard,
        random_name: Callable[[], str],
        call_soon: Callable[[Callable[[], None]], None],
        limits: HubLimits | None = None,
        journal: Journal | None = None,
        on_denied: Callable[[Principal, str, str], None] = lambda principal, client_id, action: None,
        on_no_room: NoRoomObserver = lambda reason, owner, most: None,
        check: Callable[[Principal], None] = lambda principal: None,
    ) -> None:
        self._check = check
        self._on_denied = on_denied
        self._on_no_room = on_no_room
        self.now: Final = now
        self.guard: Final = guard
        self.limits: Final = limits or HubLimits()
        self.journal: Final[Journal] = journal or NoJournal()
        self.statistics: Final = Statistics()
        self.subscriptions: Final[SubscriptionTree[Session]] = SubscriptionTree()
        self.retained: Final = RetainedMessages(self.limits.retained, self.limits.retained_octets)
        self.sessions: Final[dict[str, Session]] = {}
        self._sessions_by_owner: Holdings[str] = Holdings()
        self._queue_room = SharedRoom(self.limits.queued_octets)
        self.feed: Final = RetainedFeed(self.retained, now, call_soon)
        self._call_soon = call_soon
        self.random_name: Final = random_name
        self.session_deadlines: Final = Deadlines()
        #: When the queue of a session is searched for expired messages.
        self.expiry_deadlines: Final = Deadlines()
        self._dropping = False
        self.retained_deadlines: Final = Deadlines()

    def denied(self, principal: Principal, client_id: str, action: str) -> None:
        """Count and report that access rules refused to ``publish`` or ``subscribe``."""
        self.statistics.denied[action] += 1
        self._on_denied(principal, client_id, action)

    # Connections.

    def admit(self, packet: Connect, principal: Principal) -> Admission:
        """
        Authorize a CONNECT and find or create its session; the connection is not attached yet.

        A connection that the session has is closed, and its will is published by the rules of section 3.1.4.

        Raises:
            BrokerError: the connection is refused.
        """
        client_id = packet.client_id or self.random_name()
        principal = replace(principal, client_id=client_id)
        try:
            self.check_may_connect(principal)
        except BrokerError:
            self._revoke(packet.client_id, principal)
            raise
        if packet.properties.authentication_method is not None:
            raise BrokerError("mqtt_authentication_method")
        octets = len(packet.client_id.encode())
        if octets > self.limits.client_id:
            raise BrokerError("mqtt_client_id_invalid", octets=octets, limit=self.limits.client_id)
        if packet.will is not None and not self.guard.may_publish(principal, packet.will.topic):
            raise BrokerError("mqtt_not_authorized", action="publish its will")
        old = self.sessions.get(client_id)
        if old is not None and old.owner != principal.owner:
            raise BrokerError("mqtt_session_owned")
        if old is None:
            self._check_session_limits(principal.owner, identified=principal.identity is not None)
        if not self.journal.accepting and self.expiry(packet) != 0:
            raise StoreRefuses
        was_persistent = old is not None and old.persistent
        if old is not None:
            self._take_over(old)
            old = self.sessions.get(client_id)
            if old is not None and (packet.clean_start or not self._may_resume(old, principal)):
                self.end_session(old)
                old = None
        session = self._open_session(old, packet, client_id, principal)
        recorded = was_persistent or session.persistent
        admission = Admission(session, principal, old is not None, session.expiry, recorded)
        session.admission = admission
        return admission

    def check_may_connect(self, principal: Principal) -> None:
        """
        Check that the evidence of a client is accepted still, and that an access rule applies to it.

        Raises:
            BrokerError: it is not, such as for a client on a deny list, or no rule does (``mqtt_no_rule``).
        """
        self._check(principal)
        if not self.guard.may_connect(principal):
            who = "anonymous clients" if principal.identity is None else principal.identity
            raise BrokerError("mqtt_no_rule", listener=principal.listener, who=who)

    def _revoke(self, client_id: str, principal: Principal) -> None:
        """End the session of a refused client, unless it may be resumed at another listener."""
        session = self.sessions.get(client_id)
        if session is None or session.owner != principal.owner or self._owner_may_connect(session.owner):
            return
        self._end_revoked(session)

    def _end_revoked(self, session: Session) -> None:
        self.statistics.revoked += 1
        self._take_over(session)
        if self.sessions.get(session.client_id) is session:
            self.end_session(session)

    def _owner_may_connect(self, owner: str) -> bool:
        """Whether the owner of a session would be admitted, so that it may be resumed."""
        try:
            self.check_may_connect(Principal.from_owner(owner))
        except (SpiffeIdMalformed, BrokerError):
            return False
        return True

    def _check_session_limits(self, owner: str, *, identified: bool) -> None:
        held, sessions = self._sessions_by_owner, self.limits.sessions
        if not one_fits(held, owner, sessions):
            raise BrokerError("mqtt_session_limit", **share_evidence(held, owner, sessions))
        limit = self.limits.sessions_of_identity
        if identified and limit is not None and self._sessions_by_owner.held(owner) >= limit:
            raise BrokerError("mqtt_identity_session_limit", limit=limit)

    def _may_resume(self, session: Session, principal: Principal) -> bool:
        """
        Whether the current rules allow all subscriptions of a session.

        The rules may have changed since it subscribed, or be those of another listener. Its queued messages are there
        because of these subscriptions, so it is resumed as a whole or not at all.
        """
        if all(self.guard.may_subscribe(principal, topic_filter) for topic_filter in session.subscriptions):
            return True
        self.denied(principal, session.client_id, "subscribe")
        return False

    # Changes of access rules.

    def rules_changed(self) -> None:
        """
        Reauthorize the sessions without a connection, in batches.

        Those of open connections are reauthorized by :meth:`svc.broker.client.Client.rules_changed` under the rules of
        their listeners. A stored session keeps what the rules of any listener allow where it could be resumed.
        """
        self._reauthorize(iter(tuple(self.sessions)))

    def _reauthorize(self, client_ids: Iterator[str]) -> None:
        batch = tuple(islice(client_ids, BATCH))
        for client_id in batch:
            session = self.sessions.get(client_id)
            if session is None or session.sink is not None:
                continue
            if self._owner_may_connect(session.owner):
                self.end_disallowed_subscriptions(session, Principal.from_owner(session.owner, client_id))
            else:
                self._end_revoked(session)
        if len(batch) == BATCH:
            self._call_soon(lambda: self._reauthorize(client_ids))

    def end_disallowed_subscriptions(self, session: Session, principal: Principal) -> None:
        """End the subscriptions that access rules no longer allow, and drop what is queued because of them."""
        disallowed = [each for each in session.subscriptions if not self.guard.may_subscribe(principal, each)]
        for topic_filter in disallowed:
            self.unsubscribe(session, topic_filter)
            self.denied(principal, session.client_id, "subscribe")
        if disallowed:
            session.drop_unsubscribed()

    def _open_session(self, old: Session | None, packet: Connect, client_id: str, principal: Principal) -> Session:
        session = old
        if session is None:
            session = self._new_session(client_id, principal.owner)
            self._add_session(session)
        was_persistent = session.persistent
        session.expiry = self.expiry(packet)
        # A delayed will is not published when its session is resumed [MQTT-3.1.3-9].
        session.will, session.will_due, session.ended = packet.will, None, None
        session.version = packet.version
        if session.persistent:
            self.journal.session(session.record())
        elif was_persistent:
            session.remove_from_journal()
            self.journal.session_ended(client_id)
        return session

    def _add_session(self, session: Session) -> None:
        self.sessions[session.client_id] = session
        self._sessions_by_owner.change(session.owner, 1)

    def _new_session(self, client_id: str, owner: str) -> Session:
        return Session(
            client_id,
            owner,
            self.limits.session,
            self.journal,
            self.statistics,
            self.now,
            self._queue_room,
            self._on_no_room,
            self.expiry_deadlines,
        )

    def _take_over(self, session: Session) -> None:
        """End the connection of a session [MQTT-3.1.4-3], or the one whose CONNACK waits."""
        sink = session.sink
        if sink is not None:
            sink.close(ReasonCode.SESSION_TAKEN_OVER)
            self.connection_ended(session, sink, with_will=True)
        elif session.ended is None:
            self._disconnected(session)

    def abandon(self, admission: Admission) -> None:
        """End an admission whose connection ended before CONNACK."""
        if admission.session.admission is admission:
            self._disconnected(admission.session)

    def expiry(self, packet: Connect) -> int | None:
        """Return how many seconds the session of a CONNECT outlives its connection; 0 ends with it."""
        if packet.version is Version.V311:
            return 0 if packet.clean_start else self.limits.session_expiry
        return min(packet.properties.session_expiry or 0, self.limits.session_expiry)

    def connection_ended(self, session: Session, sink: ClientSink, *, with_will: bool) -> None:
        """
        End a connection.

        Args:
            session: its session.
            sink: the connection; one that the session no longer has is ignored.
            with_will: whether its will is published: always, but after a DISCONNECT with reason 0.
        """
        if session.sink is not sink:
            return
        if not with_will:
            session.will = None
        self._disconnected(session)

    def _disconnected(self, session: Session) -> None:
        now = self.now()
        session.admission = None
        session.detach(now)
        if session.will is not None:
            delay = session.will.properties.will_delay or 0
            session.will_due = now + min(delay, session.expiry if session.expiry is not None else delay)
        if not session.persistent:
            self.end_session(session)
            return
        if session.will is not None and session.will_due == now:
            self._publish_will(session)
        self.journal.session(session.record())
        self._schedule(session)

    def _schedule(self, session: Session) -> None:
        """Set when the will of a session without a connection is published, or the session ends."""
        due = [] if session.will_due is None else [session.will_due]
        if session.expiry is not None and session.ended is not None:
            due.append(session.ended + session.expiry)
        if due:
            self.session_deadlines.set(session.client_id, min(due))

    def end_session(self, session: Session) -> None:
        """End a session without a connection: publish its will, drop subscriptions and messages (section 4.1.1)."""
        if session.will is not None:
            self._publish_will(session)
        for topic_filter in list(session.subscriptions):
            self.subscriptions.remove(session, topic_filter)
        session.subscriptions.clear()
        self.feed.remove_session(session)
        session.discard()
        session.admission = None
        if self.sessions.get(session.client_id) is session:
            del self.sessions[session.client_id]
            self._sessions_by_owner.change(session.owner, -1)
            self.session_deadlines.drop(session.client_id)
            self.expiry_deadlines.drop(session.client_id)
        self.journal.session_ended(session.client_id)

    def _publish_will(self, session: Session) -> None:
        will, session.will, session.will_due = session.will, None, None
        if will is None:
            return
        packet = Publish(will.topic, will.payload, will.qos, will.retain, properties=will.properties)
        self.publish(Message.from_publish(packet, will.topic, session.client_id, self.now(), session.owner))

    # Messages.

    def publish(self, message: Message, *, may_retain: bool = True) -> bool:
        """
        Deliver a message to all subscribers, and store it where it is to be retained.

        Args:
            message: the message.
            may_retain: False where it is not stored although its flag requests it, as it would not be durable.

        Returns:
            Whether a subscription matched.
        """
        now = self.now()
        if message.retain and (may_retain or not message.payload):
            self._retain(message)
        elif message.retain:
            self.statistics.dropped("store_refuses")
        routes = self.subscriptions.routes(message.topic)
        for route in routes.direct:
            if route.no_local and route.subscriber.client_id == message.publisher:
                continue
            route.subscriber.deliver(message, route, now)
        for group in routes.groups:
            route = _choose_member(group, message)
            route.subscriber.deliver(message, route, now)
        if message.retain or message.qos:
            message.drop_packets()
        return bool(routes.direct or routes.groups)

    def _retain(self, message: Message) -> None:
        if not message.payload:
            self._unretain(message.topic)
            return
        if not self.retained.store(message):
            self.statistics.dropped("retained_full")
            self._on_no_room("retained_full", message.owner, self.retained.most)
            return
        if not message.topic.startswith(SYS_TOPICS):
            self.journal.retained(message)
        self._schedule_retained_expiry(message)

    def _schedule_retained_expiry(self, message: Message) -> None:
        if message.expires is None:
            self.retained_deadlines.drop(message.topic)
        else:
            self.retained_deadlines.set(message.topic, message.expires)

    def _unretain(self, topic: str) -> None:
        self.retained_deadlines.drop(topic)
        if self.retained.remove(topic) is not None and not topic.startswith(SYS_TOPICS):
            self.journal.unretained(topic)

    # Subscriptions.

    def subscribe(self, session: Session, subscription: Subscription, identifier: int | None) -> bool:
        """Add an authorized subscription; whether it is new."""
        new = self.subscriptions.add(session, subscription, identifier)
        session.subscriptions[subscription.filter] = (subscription, identifier)
        if session.persistent:
            self.journal.subscribed(session.client_id, subscription, identifier)
        return new

    def unsubscribe(self, session: Session, topic_filter: str) -> bool:
        """Remove a subscription; whether there was one."""
        if session.subscriptions.pop(topic_filter, None) is None:
            return False
        self.subscriptions.remove(session, topic_filter)
        self.feed.remove(session, topic_filter)
        if session.persistent:
            self.journal.unsubscribed(session.client_id, topic_filter)
        return True

    def send_retained(self, session: Session, subscription: Subscription, *, new: bool) -> None:
        """
        Add the retained messages that a subscription requests to the feed (section 3.3.1.3).

        Args:
            session: the subscriber; :meth:`RetainedFeed.proceed` begins.
            subscription: the subscription.
            new: whether it did not exist before.
        """
        handling = subscription.retain_handling
        unwanted = handling == 2 or (handling == 1 and not new) or split_shared(subscription.filter)
        if not unwanted and subscription.filter in session.subscriptions:
            self.feed.add(session, subscription.filter)

    # Time.

    def tick(self) -> None:
        """Publish delayed wills and remove what has expired; to be called about once a second."""
        if self._process_due():
            self._call_soon(self.tick)
        self.feed.tick()

    def _process_due(self) -> bool:
        """Process a batch of what is due, as all sessions may be after a restart; whether there may be more."""
        now, left = self.now(), BATCH
        for client_id in islice(self.session_deadlines.due(now), BATCH):
            left -= 1
            session = self.sessions.get(client_id)
            if session is not None and session.sink is None:
                self._process_due_session(session, now)
        for topic in islice(self.retained_deadlines.due(now), left):
            left -= 1
            self._unretain(topic)
        if left > 0 and not self._dropping:
            self._drop_expired(now, left)
        return left <= 0

    def _drop_expired(self, now: float, left: int) -> None:
        """Drop a batch of expired messages from queues, and the next one when that is durable."""
        # No faster than the journal: it refuses what is new while too much waits.
        expiring = self.expiry_deadlines.due(now)
        while left > 0 and (client_id := next(expiring, "")):
            self._dropping = True
            session = self.sessions.get(client_id)
            left -= 1 if session is None else 1 + session.drop_expired(now) // MESSAGES

        def durable() -> None:
            self._dropping = False
            if left <= 0:
                self._call_soon(self.tick)

        if self._dropping:
            self.journal.when_durable(durable)

    def _process_due_session(self, session: Session, now: float) -> None:
        if session.expiry is not None and session.ended is not None and session.ended + session.expiry <= now:
            self.end_session(session)
        elif session.will_due is not None and session.will_due <= now:
            self._publish_will(session)
            self.journal.session(session.record())
            self._schedule(session)

    # Restart.

    def restore(self, recovered: RecoveredState) -> None:
        """
        Restore the state that a journal recovered; connections that were open count as lost now (section 3.1.2.5).

        What was due meanwhile is done at once: sessions end, wills are published. Sessions to whose owner no access
        rule applies any more end as well.
        """
        now = self.now()
        for message in recovered.retained:
            if message.expired(now) or not self.retained.store(message, recovered=True):
                self.journal.unretained(message.topic)
            else:
                message.drop_packets()
                self._schedule_retained_expiry(message)
        for each in recovered.sessions:
            record = each.record
            session = self._new_session(record.client_id, record.owner)
            session.expiry, session.will, session.will_due = record.expiry, record.will, record.will_due
            session.ended = now if record.ended is None else record.ended
            session.restore(each.deliveries, each.received, record.version)
            for subscription, identifier in each.subscriptions:
                session.subscriptions[subscription.filter] = (subscription, identifier)
                self.subscriptions.add(session, subscription, identifier)
            if session.will is not None and session.will_due is None:
                session.will_due = now + (session.will.properties.will_delay or 0)
            if record.ended is None:
                self.journal.session(session.record())
            self._add_session(session)
            self._schedule(session)
        self._revoke_all()
        while self._process_due():
            pass

    def _revoke_all(self) -> None:
        """End all sessions that nobody may resume; each owner is evaluated once."""
        allowed = {owner: self._owner_may_connect(owner) for owner in self._sessions_by_owner}
        for session in [each for each in self.sessions.values() if not allowed[each.owner]]:
            self.statistics.revoked += 1
            self.end_session(session)


def _choose_member(group: SharedGroup[Session], message: Message) -> Route[Session]:
    """
    Choose the member of a shared subscription that gets a message (section 4.8.2).

    Connected members come first, as a message for another one may wait for long. Members that cannot take it now,
    because their client does not read or their queue is full, come last.
    """
    first = disconnected = None
    for member in group.in_turn():
        first = first or member
        session = member.subscriber
        sink = session.sink
        with_qos = min(message.qos, member.qos)
        has_room = session.has_room(message) if with_qos else sink is not None and not sink.congested
        if has_room and sink is not None:
            return member
        if has_room:
            disconnected = disconnected or member
    route = disconnected or first
    assert route is not None  # noqa: S101 (a group without members is removed)
    return route
