"""
All stored sessions of a proxy: each with its forwarder, its client if there is one, and its connection to the broker.

Owns when a session exists, which client it has, and its timers; what is sent when is decided by
:class:`svc.proxy.mqtt.stored.forwarding.Forwarder`. A session outlives its client, its listener's reload, and the
process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from twisted.internet.interfaces import IDelayedCall, IPushProducer, IReactorTime
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.errors import SvcError, printable
from svc.proxy.errors import ProxyError
from svc.proxy.mqtt.errors import ClientIdRefused
from svc.proxy.mqtt.interfaces import RecordDemand
from svc.proxy.mqtt.stored.buffer.records import (
    BufferedMessage,
    BufferedSession,
    DeadLetter,
    LoadedSession,
    ReadLetter,
    SessionKey,
    Wanted,
)
from svc.proxy.mqtt.stored.buffer.store import MessageBuffer
from svc.proxy.mqtt.stored.forwarding import AckSource, Admission, Forwarder, ForwarderLimits, Moment
from svc.proxy.mqtt.stored.reports import BufferReports, SessionReports
from svc.proxy.mqtt.stored.upstream import BufferedUpstream
from svc.proxy.mqtt.stored.waits import Wait
from svc.wire.mqtt import (
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketLimits,
    Publish,
    ReasonCode,
    matches,
)

if TYPE_CHECKING:
    from svc.proxy.mqtt.connection import MqttConnection
    from svc.proxy.mqtt.context import MqttContext
    from svc.proxy.mqtt.stored.session import BufferedMqttSession


#: Seconds between two looks for dead letters with which an operator wants something done.
LOOK_INTERVAL: Final = 5.0


class StoreAndForward:
    """
    The sessions.

    Args:
        make_buffer: makes the buffer, or raises BufferKeyRefused; called once, at the start.
        wall: the time in seconds since 1970 UTC.
        random: returns numbers from 0 to 1.
    """

    def __init__(
        self,
        make_buffer: Callable[[], MessageBuffer],
        limits: ForwarderLimits,
        reports: BufferReports,
        *,
        clock: IReactorTime,
        wall: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        #: Open while listeners are.
        self.buffer: MessageBuffer
        self._make_buffer = make_buffer
        self._opened = False
        self.limits: Final = limits
        self.reports: Final = reports
        self.clock: Final = clock
        self.random: Final = random
        self._wall = wall
        self._listeners: dict[str, ForwardingListener] = {}
        self._sessions: dict[SessionKey, StoredSession] = {}
        #: Which identity has a client identifier at a listener.
        self._owners: dict[tuple[str, str], str] = {}
        #: Listeners and client identifiers whose last connection to the broker is closed, while its transport is not:
        #: the next one is opened behind that, even if it is of another session.
        self.closing: Final[set[tuple[str, str]]] = set()
        self._looking: IDelayedCall | None = None
        self._closed = False

    @property
    def now(self) -> Moment:
        """The time."""
        return Moment(self.clock.seconds(), self._wall())

    @property
    def messages(self) -> int:
        """Messages in the buffer."""
        return sum(each.forwarder.queued for each in self._sessions.values())

    @property
    def sessions(self) -> int:
        """Sessions, with a client or without."""
        return len(self._sessions)

    async def open(self) -> None:
        """Open the buffer; its sessions begin with their listeners. Raises DatabaseError or BufferKeyRefused."""
        self.buffer = self._make_buffer()
        self._opened = True
        loaded = await self.buffer.open()
        for each in loaded:
            self._add(each)
        self.reports.opened(len(loaded), sum(each.messages for each in loaded), len(self.buffer.dead_letters))
        self._look_later()

    async def close(self) -> None:
        """Leave all brokers, and close the buffer; raises JournalStuck."""
        if not self._opened:
            return
        self.reports.closing()
        self._closed = True
        if self._looking is not None:
            self._looking.cancel()
        for each in list(self._sessions.values()):
            each.stop()
        await self.buffer.close()
        self.reports.closed()

    def begin(self, listener: ForwardingListener) -> None:
        """A listener accepts connections: its sessions go on, or use it instead of the one of this name before."""
        name = listener.context.name
        self._listeners[name] = listener
        for each in self._named(name):
            each.resume()

    def suspend(self, listener: ForwardingListener) -> None:
        """A listener has no connections any more; unless another one has its name, its messages wait for that."""
        name = listener.context.name
        if self._listeners.get(name) is not listener:
            return
        del self._listeners[name]
        left = self._named(name)
        for each in left:
            each.suspend()
        messages = sum(each.forwarder.queued for each in left)
        if messages:
            self.reports.listener_gone(name, messages)

    def report_absent(self) -> None:
        """Report messages of listeners that are not there; called once all are."""
        absent: dict[str, int] = {}
        for key, each in self._sessions.items():
            if key.listener not in self._listeners and each.forwarder.queued:
                absent[key.listener] = absent.get(key.listener, 0) + each.forwarder.queued
        for name, messages in absent.items():
            self.reports.listener_gone(name, messages)

    def sweep(self, listener: ForwardingListener, wall: datetime) -> None:
        """Check the credentials of connections to the peer."""
        for each in self._named(listener.context.name):
            each.verify_time(wall)

    def attach(self, client: BufferedMqttSession, connect: Connect, connection: MqttConnection) -> StoredSession:
        """Return the session of a client, which ends the connection of the one before."""
        name, identity = connection.context.name, connection.identity
        owner = "" if identity is None else str(identity)
        # Another identity would get what the broker has for this one.
        if self._owners.get((name, connect.client_id), owner) != owner:
            raise ClientIdRefused(
                identity=owner,
                policy=f"listener {name}",
                rule=f"{printable(connect.client_id, 64)} is that of a session of another identity",
            )
        key = SessionKey(name, connect.client_id, owner)
        session = self._sessions.get(key)
        if session is not None:
            session.end_client()
            # A session may end with its client.
            session = self._sessions.get(key)
        if session is None:
            session = self._add(LoadedSession(BufferedSession(key, connect)))
            session.resume(start=False)
        session.take(client, connection)
        return session

    def listener(self, name: str) -> ForwardingListener | None:
        """The listener that is open under a name."""
        return self._listeners.get(name)

    def upstream_closed(self, key: SessionKey) -> None:
        """The transport of a connection in ``closing`` is closed."""
        name = key[:2]
        self.closing.discard(name)
        session = self._sessions.get(SessionKey(*name, self._owners.get(name, "")))
        if session is not None:
            session.open_upstream()

    def forget(self, session: StoredSession) -> None:
        """A session has ended."""
        if self._sessions.get(session.key) is session:
            del self._sessions[session.key]
            del self._owners[session.key[:2]]

    # -- Dead letters ------------------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        if not self._closed:
            self._looking = self.clock.callLater(LOOK_INTERVAL, self._look)

    def _look(self, after: int = 0) -> None:
        """Do what an operator wants with the dead letters behind a number."""
        self._looking = None
        if self._closed:
            return
        if not self.buffer.dead_letters:
            self._look_later()
            return
        self.buffer.wanted_dead_letters(after).addCallbacks(self._found, self._not_found).addErrback(self._failed)

    def _found(self, letters: Sequence[ReadLetter]) -> None:
        if not letters:
            self._look_later()
            return
        for each in letters:
            # One that is decided on may still be on the disk.
            if each.number in self.buffer.dead_letters:
                self._decided(each)
        self.buffer.when_durable(partial(self._look, letters[-1].number))

    def _not_found(self, failure: Failure) -> None:
        failure.trap(SvcError)
        self.reports.db_error("put", str(failure.value))
        self._look_later()

    def _failed(self, failure: Failure) -> None:
        self.reports.log.failure("looking at dead letters failed unexpectedly", failure)
        self._look_later()

    def _decided(self, read: ReadLetter) -> None:
        if read.wanted is Wanted.DELETE:
            self.buffer.dead_letter_over(read.number)
            self.reports.dead_letter_over(read.letter, "delete")
        elif read.letter is None:
            self.reports.dead_letter_kept(None, "unreadable")
        else:
            self._send_again(read.letter)

    def _send_again(self, letter: DeadLetter) -> None:
        key = letter.key
        if self._owners.get(key[:2], key.owner) != key.owner:
            self.reports.dead_letter_kept(letter, "another_identity")
            return
        session = self._sessions.get(key)
        if session is None:
            ended = BufferedSession(key, letter.connect, ended=self.now.wall, expiry=0, incomplete=letter.incomplete)
            session = self._add(LoadedSession(ended))
            if key.listener in self._listeners:
                session.resume(start=False)
        session.send_again(letter)

    def _add(self, loaded: LoadedSession) -> StoredSession:
        session = StoredSession(self, loaded)
        self._sessions[session.key] = session
        self._owners[session.key[:2]] = session.key.owner
        return session

    def _named(self, name: str) -> list[StoredSession]:
        return [each for key, each in self._sessions.items() if key.listener == name]


class ForwardingListener:
    """
    The sessions of one listener, while it is there.

    Args:
        packets: limits of a packet.
        ack_upstream: filters of the topics whose messages the broker acknowledges.
    """

    def __init__(self, sessions: StoreAndForward, packets: PacketLimits, ack_upstream: Sequence[str]) -> None:
        self.packets: Final = packets
        self._sessions = sessions
        self._ack_upstream = ack_upstream
        #: Set before the listener opens.
        self.context: MqttContext

    def relays(self, topic: str) -> bool:
        """Whether the broker acknowledges messages to this topic."""
        return any(matches(each, topic) for each in self._ack_upstream)

    def begin(self) -> None:
        """The listener accepts connections."""
        self._sessions.begin(self)

    def suspend(self) -> None:
        """The listener has no connections any more."""
        self._sessions.suspend(self)

    def sweep(self, wall: datetime) -> None:
        """Check the credentials of connections to the peer; an own broker has none."""
        if not self.context.inbound:
            self._sessions.sweep(self, wall)


class StoredSession:
    """
    One session; the :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks` of its forwarder, and its observer.

    What happens while the forwarder acts on it is passed on afterwards.
    """

    def __init__(self, owner: StoreAndForward, loaded: LoadedSession) -> None:
        self._owner = owner
        self.key: Final = loaded.session.key
        self._reports = SessionReports(owner.reports, self.key, loaded.messages, owner.buffer.shares)
        self.forwarder = Forwarder(
            loaded, owner.buffer, self, self._reports, owner.limits, relays=self._relays, random=owner.random
        )
        self._client: BufferedMqttSession | None = None
        self._client_full = False
        self._upstream: BufferedUpstream | None = None
        #: With which a connection is to be opened as soon as it can.
        self._connect: Connect | None = None
        #: A page that is read while the broker reads nothing.
        self._page: Sequence[BufferedMessage] | None = None
        #: Which connection it is; what is to be passed on of another one is not.
        self._generation = 0
        self._acting = False
        #: Whether the listener is absent, or the process ends.
        self._suspended, self._stopped = True, False
        self._started = False
        self._due: deque[Callable[[], object]] = deque()
        self._wake: IDelayedCall | None = None

    def _do(self, call: Callable[[], object]) -> None:
        """Call the forwarder, which must not be called while it acts."""
        if self._acting or self._due:
            self._due.append(call)
            if len(self._due) == 1:
                self._owner.clock.callLater(0, self._run_due)
        elif not self._stopped:
            call()

    def _run_due(self) -> None:
        while self._due and not self._stopped:
            call = self._due.popleft()
            # What it leads to follows what waits.
            with self._act():
                call()
        if self._client is not None:
            self._client.read_on()

    def _relays(self, topic: str) -> bool:
        listener = self._owner.listener(self.key.listener)
        return listener is not None and listener.relays(topic)

    # -- For the owner -----------------------------------------------------------------------------------------------

    def resume(self, *, start: bool = True) -> None:
        """The listener is there; ``start``: forward what a former process left, unless that has begun."""
        self._suspended = False
        if start and not self._started:
            self._do(lambda: self.forwarder.start(self._owner.now))
        self._started = True
        self.open_upstream()

    def suspend(self) -> None:
        """Leave the broker until the listener is there again."""
        self._suspended = True
        self._do(lambda: self.forwarder.suspend(self._owner.now))

    def stop(self) -> None:
        """The process ends: what is stored is forwarded by the next one."""
        self._run_due()
        self.suspend()
        self._stopped = True
        self.wake_at(None)

    def end_client(self) -> None:
        """End the client, if there is one, for the next one; what the forwarder is to do about it is done."""
        if self._client is not None:
            self._client.end("application", ReasonCode.SESSION_TAKEN_OVER)
        self._run_due()

    def take(self, client: BufferedMqttSession, connection: MqttConnection) -> None:
        """Have a client where there is none."""
        self._client = client
        connection.deliver_from(_ClientPacer(self, client, connection))

    def send_again(self, letter: DeadLetter) -> None:
        """Forward a message that was a dead letter, unless it is one no more or there is no room for it."""

        def send() -> None:
            owner, message = self._owner, letter.message
            if message.number not in owner.buffer.dead_letters:
                return
            if self.forwarder.send_again(message.renewed(owner.now.wall), owner.now):
                # In the turn, and so in the transaction, that stores it.
                owner.buffer.dead_letter_over(message.number)
                owner.reports.dead_letter_over(letter, "send")
            else:
                owner.reports.dead_letter_kept(letter, "no_room")
                if self._client is None and not self.forwarder.session.number:
                    self.ended()

        self._do(send)

    def verify_time(self, wall: datetime) -> None:
        """End a connection whose credentials have ended."""
        if self._upstream is not None:
            self._upstream.verify_time(wall)

    # -- svc.proxy.mqtt.stored.session.ClientForwarder -------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """See :class:`svc.proxy.mqtt.stored.session.ClientForwarder`."""
        return bool(self._due) or self.forwarder.waiting

    def client_connected(self, connect: Connect) -> None:
        """See :class:`svc.proxy.mqtt.stored.session.ClientForwarder`."""
        self._do(lambda: self.forwarder.client_connected(connect, self._owner.now))

    def client_packet(self, packet: Packet, demand: RecordDemand | None = None) -> None:
        """See :class:`svc.proxy.mqtt.stored.session.ClientForwarder`."""
        self._do(lambda: self.forwarder.client_packet(packet, self._owner.now, demand))

    def publish_refused(self, refusal: Acknowledgement) -> None:
        """See :class:`svc.proxy.mqtt.stored.session.ClientForwarder`."""
        self._do(lambda: self.forwarder.publish_refused(refusal, self._owner.now))

    def admitted(self, client: BufferedMqttSession, *, admitted: bool) -> None:
        """See :class:`svc.proxy.mqtt.stored.session.ClientForwarder`."""

        def go_on() -> None:
            if client is self._client:
                self.forwarder.admitted(admitted=admitted, now=self._owner.now)

        self._do(go_on)

    def acknowledged(self, packet: Acknowledgement, source: AckSource, receipt: str) -> None:
        """See :class:`svc.proxy.mqtt.stored.session.ClientForwarder`."""
        self._do(lambda: self.forwarder.acknowledged(packet, source, receipt, self._owner.now))

    def client_left(self, last: Disconnect | None) -> None:
        """See :class:`svc.proxy.mqtt.stored.session.ClientForwarder`."""
        self._detach()
        if last is None:
            self._do(lambda: self.forwarder.client_lost(self._owner.now))
        else:
            self._do(lambda: self.forwarder.client_disconnected(last, self._owner.now))

    def _detach(self) -> BufferedMqttSession | None:
        client, self._client = self._client, None
        if self._client_full:
            self.client_full(None, full=False)
        return client

    def client_full(self, client: BufferedMqttSession | None, *, full: bool) -> None:
        """The client reads slower than the broker sends, or has caught up; without a client it is none."""
        if client is not self._client and (full or self._client is not None):
            return
        self._client_full = full
        if self._upstream is not None:
            self._upstream.pause(paused=full)

    # -- svc.proxy.mqtt.stored.upstream.UpstreamOwner --------------------------------------------------------------

    @property
    def has_client(self) -> bool:
        """See :class:`svc.proxy.mqtt.stored.upstream.UpstreamOwner`."""
        return self._client is not None

    def upstream_sent(self, packet: Packet) -> None:
        """See :class:`svc.proxy.mqtt.stored.upstream.UpstreamOwner`."""
        if isinstance(packet, Connack):
            self._do_of_upstream(partial(self._upstream_connected, packet))
        else:
            self._do_of_upstream(lambda: self.forwarder.upstream_packet(packet, self._owner.now))

    def _do_of_upstream(self, call: Callable[[], object]) -> None:
        generation = self._generation

        def current() -> None:
            if generation == self._generation:
                call()

        self._do(current)

    def _upstream_connected(self, packet: Connack) -> None:
        if not packet.code:
            self._reports.upstream_connected()
        if self._client_full and self._upstream is not None:
            self._upstream.pause(paused=True)
        self.forwarder.upstream_connected(packet, self._owner.now)

    def upstream_full(self, *, full: bool) -> None:
        """See :class:`svc.proxy.mqtt.stored.upstream.UpstreamOwner`."""
        if full:
            self.forwarder.waits.begin(Wait.BROKER)
        else:
            self.forwarder.waits.end(Wait.BROKER)
            self._release_page()

    def upstream_ended(self, error: ProxyError | None) -> None:
        """See :class:`svc.proxy.mqtt.stored.upstream.UpstreamOwner`."""
        if error is not None:
            self._reports.upstream_failed(error)
        self._drop_upstream()
        self._do_of_upstream(lambda: self.forwarder.upstream_lost(self._owner.now))

    def upstream_closed(self) -> None:
        """See :class:`svc.proxy.mqtt.stored.upstream.UpstreamOwner`."""
        self._owner.upstream_closed(self.key)

    def _drop_upstream(self) -> None:
        upstream, self._upstream = self._upstream, None
        if upstream is not None and upstream.closing:
            self._owner.closing.add(self.key[:2])
        self.upstream_full(full=False)

    def open_upstream(self) -> None:
        """Open the connection that is asked for, if there is none left to be closed before it."""
        listener = self._owner.listener(self.key.listener)
        if self._connect is None or self.key[:2] in self._owner.closing or listener is None or self._suspended:
            return
        connect, self._connect = self._connect, None
        self._generation += 1
        with self._act():
            self._upstream = BufferedUpstream(listener.context, connect, listener.packets, self, self._owner.clock)

    # -- svc.proxy.mqtt.stored.forwarding.ForwarderLinks -------------------------------------------------------------

    def connect_upstream(self, connect: Connect) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`; behind the end of the connection before."""
        self._connect = connect
        self.open_upstream()

    def send_upstream(self, packet: Packet) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._upstream is not None:
            with self._act():
                self._upstream.send(packet)

    def close_upstream(self, last: Disconnect | None) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        self._connect = None
        self._generation += 1
        if self._upstream is not None:
            with self._act():
                self._upstream.close(last)
                self._drop_upstream()

    def send_client(self, packet: Packet) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._client is not None:
            with self._act():
                self._client.send(packet)

    def admit(self, packet: Publish, demand: RecordDemand, *, stored: bool) -> Admission:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._client is None:
            return Admission.REFUSED
        with self._act():
            return self._client.admit(packet, demand, stored=stored)

    def abandon(self, packet: Publish) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._client is not None:
            self._client.abandon(packet)

    def handed_over(self) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._client is not None:
            with self._act():
                self._client.handed_over()

    def acknowledge(self, packet: Acknowledgement, source: AckSource, receipt: str, *, recorded: bool) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._client is not None:
            with self._act():
                self._client.acknowledge(packet, source, receipt, recorded=recorded)

    def hold_client(self) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        if self._client is not None:
            self._client.pace()

    def resume_client(self) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        with self._act():
            # Behind it the client is read.
            self._do(lambda: self.forwarder.resume_client(self._owner.now))

    def close_client(self, last: Connack | Disconnect | None, error: SvcError | None = None) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        client = self._detach()
        if client is not None:
            with self._act():
                client.close(last, error)

    def read_page(self, after: int) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        page = self._owner.buffer.page(self.forwarder.session, after)
        with self._act():
            page.addCallbacks(self._got_page, self._page_failed)

    def wake_at(self, seconds: float | None) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        wake, self._wake = self._wake, None
        if wake is not None and wake.active():
            wake.cancel()
        if seconds is not None and not self._stopped:
            delay = max(0.0, seconds - self._owner.clock.seconds())
            self._wake = self._owner.clock.callLater(delay, self._woken)

    def ended(self) -> None:
        """See :class:`svc.proxy.mqtt.stored.forwarding.ForwarderLinks`."""
        self.wake_at(None)
        self._owner.forget(self)

    @contextmanager
    def _act(self) -> Iterator[None]:
        """What happens meanwhile is passed on afterwards."""
        self._acting, acting = True, self._acting
        try:
            yield
        finally:
            self._acting = acting

    def _woken(self) -> None:
        self._wake = None
        self._do(lambda: self.forwarder.wake(self._owner.now))

    def _got_page(self, page: Sequence[BufferedMessage]) -> None:
        self._page = page
        if Wait.BROKER not in self.forwarder.waits:
            self._release_page()

    def _release_page(self) -> None:
        page, self._page = self._page, None
        if page is not None:
            self._do(lambda: self.forwarder.got_page(page, self._owner.now))

    def _page_failed(self, failure: Failure) -> None:
        error = failure.value
        if isinstance(error, SvcError):
            self._reports.page_failed(error)
        else:
            self._owner.reports.log.failure("reading the buffer failed unexpectedly", failure)
        self._do(lambda: self.forwarder.page_failed(self._owner.now))


@implementer(IPushProducer)
class _ClientPacer:
    """The producer of a client's transport: the broker is read only as fast as the client takes what it sends."""

    def __init__(self, session: StoredSession, client: BufferedMqttSession, connection: MqttConnection) -> None:
        self._session = session
        self._client = client
        self._connection = connection

    def pauseProducing(self) -> None:
        """The client reads slower than it is sent to."""
        self._connection.client_full(full=True)
        self._session.client_full(self._client, full=True)

    def resumeProducing(self) -> None:
        """The client caught up."""
        self._connection.client_full(full=False)
        self._session.client_full(self._client, full=False)

    def stopProducing(self) -> None:
        """The client's transport is closed; its own protocol is called."""
