"""
One session of store-and-forward (``ack: middleware``): messages of the client are stored, acknowledged and forwarded.

A state machine without I/O and clock: it is told what happened and when, changes the store, and acts through
:class:`ForwarderLinks`. What was stored is sent in order, each message once it is durable with its packet identifier,
so that a restart repeats it under the same one. The rules are in docs/decisions/0054-store-and-forward.md.

Two connections of the client may be concerned at a time: while messages of the former wait, the end of its connection
is not carried out at the broker, and the CONNECT of the next one waits (``BufferedSession.next``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol

from svc.errors import SvcError
from svc.proxy.mqtt.backoff import full_jitter
from svc.proxy.mqtt.errors import SessionNotStored
from svc.proxy.mqtt.interfaces import RecordDemand
from svc.proxy.mqtt.stored.buffer.limits import BufferLimits
from svc.proxy.mqtt.stored.buffer.records import (
    BufferedMessage,
    BufferedSession,
    LoadedSession,
    MessageState,
    ReceivedId,
    RejectionCause,
    message_digest,
)
from svc.proxy.mqtt.stored.buffer.sharing import BufferShares
from svc.proxy.mqtt.stored.buffer.store import PAGE_OCTETS
from svc.proxy.mqtt.stored.refusals import OF_MESSAGES, Refusal, closed_for_message, refusal
from svc.proxy.mqtt.stored.waits import ClientWaits, Wait
from svc.proxy.mqtt.stored.window import Flight, RelayedRequest, UpstreamWindow
from svc.shares import share_evidence
from svc.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledgement,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    ProtocolViolation,
    Publish,
    QuotaExceeded,
    ReasonCode,
    ReturnCode,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Version,
    encode,
)

AckSource = Literal["middleware", "upstream"]
#: Why a message was not accepted: a bound of its session, the share of its identity, credentials that the broker
#: refuses while little is left for others, or the disk.
RefusalCause = Literal["octets", "messages", "age", "share", "credentials", "store"]
#: Why an accepted message was not forwarded.
DropCause = Literal["expired", "rejected", "too_large", "link_lost"]
#: Why a connection to the broker is of no use: the session that was to be removed is still there, a packet that does
#: not belong there, DISCONNECT, or no answer to PINGREQ.
LinkFailure = Literal["session_kept", "unexpected_packet", "disconnected", "no_response"]

_NO_LIMIT: Final = 0xFFFFFFFF
#: Messages in flight to a broker of MQTT 3.1.1, which cannot tell its limit: Mosquitto closes the connection above 20.
_UNTOLD_MAXIMUM: Final = 20
#: Codes of CONNACK that are about the broker and not about the client: as if it could not be reached.
_UNAVAILABLE: Final = (ReturnCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_UNAVAILABLE, ReasonCode.SERVER_BUSY)
#: Codes of CONNACK that are about the client's credentials.
_CREDENTIALS: Final = frozenset(
    {
        ReturnCode.BAD_USER_NAME_OR_PASSWORD,
        ReturnCode.NOT_AUTHORIZED,
        ReasonCode.BAD_USER_NAME_OR_PASSWORD,
        ReasonCode.NOT_AUTHORIZED,
        ReasonCode.BANNED,
    }
)
#: What the client learns of the broker's CONNACK; the rest concerns the broker's connection alone.
_RELAYED_PROPERTIES: Final = (
    "maximum_qos",
    "retain_available",
    "maximum_packet_size",
    "wildcard_subscription_available",
    "subscription_identifier_available",
    "shared_subscription_available",
    "response_information",
    "reason_string",
    "user",
)


class Admission(Enum):
    """What became of the demand for a record."""

    ADMITTED = auto()
    REFUSED = auto()
    #: It is not known yet.
    LATER = auto()


class Moment(NamedTuple):
    """A time by both clocks."""

    #: Monotonic.
    seconds: float
    #: Since 1970 UTC.
    wall: float


@dataclass(frozen=True, slots=True)
class ReplayBackoff:
    """
    Pauses before connections to the broker, and before a message that it refused: full jitter below a doubling bound.

    Args:
        first: the bound in seconds after the first failure.
        longest: the highest bound.
        budget: failures in a row after which the longest pause is made each time, and which are reported together.
    """

    first: float = 0.5
    longest: float = 60.0
    budget: int = 12

    def pause(self, failures: int, random: float) -> float:
        """The seconds after so many failures in a row, at least 1, for a random number from 0 to 1."""
        if failures >= self.budget:
            return self.longest
        return full_jitter(self.first, self.longest, failures - 1, random)


@dataclass(frozen=True, slots=True)
class ForwarderLimits:
    """
    Limits and times of a session.

    Args:
        in_flight: messages that are sent to the broker and not complete.
        receive_maximum: messages of the client that wait for PUBACK or PUBREC; the next one waits with all behind it.
        unreleased: messages with QoS 2 that wait for PUBREL, which may come behind all that a client had buffered.
        requests: SUBSCRIBE and UNSUBSCRIBE that wait for the broker.
        memory: octets of messages in memory that are not in flight, above which the others stay on the disk.
        unacknowledged: octets of messages that wait for the disk before the client is not read any more.
        connack: seconds that CONNACK waits for that of the broker.
        keep_alive: towards the broker, in seconds.
        session_expiry: seconds that the broker keeps the session while messages are on their way; also how long a
            session without limit is remembered.
        backoff: between connections to the broker.
        when_full: whether a client of MQTT 3.1.1 is closed where a message is refused, or the newest message ignored.
    """

    in_flight: int = 64
    receive_maximum: int = 1024
    unreleased: int = 16_384
    requests: int = 32
    memory: int = PAGE_OCTETS
    unacknowledged: int = 1024 * 1024
    connack: float = 2.0
    keep_alive: int = 60
    session_expiry: int = 7 * 86400
    backoff: ReplayBackoff = ReplayBackoff()
    when_full: Literal["refuse", "newest"] = "refuse"


class ForwarderStore(Protocol):
    """The buffer; implemented by :class:`svc.proxy.mqtt.stored.buffer.store.MessageBuffer`, which documents it."""

    @property
    def limits(self) -> BufferLimits: ...

    @property
    def accepting(self) -> bool: ...

    @property
    def shares(self) -> BufferShares: ...

    def when_durable(self, then: Callable[[], None]) -> None: ...

    def session(self, session: BufferedSession) -> None: ...

    def forget(self, session: BufferedSession) -> None: ...

    def store(self, session: BufferedSession, message: BufferedMessage) -> None: ...

    def changed(self, message: BufferedMessage) -> None: ...

    def remove(self, session: BufferedSession, message: BufferedMessage) -> None: ...

    def has_room(self, session: BufferedSession, message: BufferedMessage) -> bool: ...

    def dead_letter(
        self, session: BufferedSession, message: BufferedMessage, cause: RejectionCause, code: int, now: float
    ) -> None: ...

    def received(self, session: BufferedSession, packet_id: int, received: ReceivedId) -> None: ...

    def released(self, session: BufferedSession, packet_id: int) -> None: ...

    def all_released(self, session: BufferedSession) -> None: ...


class ForwarderLinks(Protocol):
    """What a forwarder acts on; no method may call the forwarder back before it returns."""

    def connect_upstream(self, connect: Connect) -> None:
        """Open a connection to the broker and send CONNECT."""

    def send_upstream(self, packet: Packet) -> None:
        """Send a packet to the broker."""

    def close_upstream(self, last: Disconnect | None) -> None:
        """Send the last packet and close, or abort the connection, open or not; nothing is reported of it any more."""

    def send_client(self, packet: Packet) -> None:
        """Send a packet to the client; CONNACK without what the listener itself limits or assigns."""

    def admit(self, packet: Publish, demand: RecordDemand, *, stored: bool) -> Admission:
        """
        Reserve the record of a message; after ``LATER`` :meth:`Forwarder.admitted` follows, unless the client leaves.

        Where the record is refused, so is the message; with one that is ``stored`` already the client is closed.
        """

    def abandon(self, packet: Publish) -> None:
        """A message whose record was admitted is not accepted."""

    def handed_over(self) -> None:
        """The messages with QoS 0 whose records were admitted are stored or sent: record them."""

    def acknowledge(self, packet: Acknowledgement, source: AckSource, receipt: str, *, recorded: bool) -> None:
        """
        Send PUBACK or PUBREC to the client behind those before it, with this receipt.

        Where its message is to be ``recorded``, that is done before, with the record that was admitted: then
        :meth:`Forwarder.acknowledged` follows, unless the client leaves or, where the record fails, is closed.
        """

    def hold_client(self) -> None:
        """Something is outstanding: read nothing more of the client."""

    def resume_client(self) -> None:
        """Nothing is: call :meth:`Forwarder.resume_client` in a turn of its own, then read the client."""

    def close_client(self, last: Connack | Disconnect | None, error: SvcError | None = None) -> None:
        """
        Send the last packet, where the version has it, and close; nothing is reported of it any more.

        ``error`` is why it is closed here, to be logged; CONNACK without one is the broker's.
        """

    def read_page(self, after: int) -> None:
        """Read a page of messages for :meth:`Forwarder.got_page` or :meth:`Forwarder.page_failed`."""

    def wake_at(self, seconds: float | None) -> None:
        """Call :meth:`Forwarder.wake` at this monotonic time, and not at an earlier one that was given before."""

    def ended(self) -> None:
        """The session is forgotten; this forwarder is not used any more."""


class ForwarderObserver(Protocol):
    """Receives reports on sessions."""

    def queued(self, change: int) -> None:
        """So many messages more are in the buffer; fewer where it is negative."""

    def stored(self) -> None:
        """A message is durable."""

    def forwarded(self, qos: int) -> None:
        """A message was handed over to the connection to the broker, for the first time or again."""

    def acked(self, source: AckSource) -> None:
        """PUBACK or PUBREC was sent to a client, with success."""

    def refused(self, cause: RefusalCause) -> None:
        """A message was not accepted."""

    def dropped(self, cause: DropCause, code: int) -> None:
        """A message was accepted and will not be forwarded; ``code`` is the broker's, 0 where it has none."""

    def dead_letter(self, topic: str, cause: RejectionCause, code: int) -> None:
        """The broker will not accept an acknowledged message, which is kept for an operator; ``code`` as above."""

    def dead_letters_full(self, topic: str) -> None:
        """There is no room for such a message, which holds back those behind it."""

    def held(self, code: int) -> None:
        """The broker does not accept a message for now; it is sent again after a pause, and what follows it waits."""

    def reconnected(self, success: bool) -> None:
        """Another connection to the broker was tried."""

    def connack_rejected(self, code: int) -> None:
        """The broker refused CONNECT."""

    def link_failed(self, failure: LinkFailure, code: int) -> None:
        """A connection that the broker had accepted is closed; ``code`` is that of its DISCONNECT, 0 without one."""

    def replay_failed(self) -> None:
        """The budget of the backoff is used up."""

    def session_lost(self, resent: int) -> None:
        """The broker lost the session; so many messages that were on their way are sent anew."""

    def credentials_missing(self) -> None:
        """Messages wait for their client, whose password was not stored."""


class _Link(Enum):
    """The connection to the broker."""

    DOWN = auto()
    CONNECTING = auto()
    #: Nothing is sent before the operations until CONNACK are durable.
    OPENED = auto()
    READY = auto()


class Forwarder:
    """
    The session of one client identifier at one listener.

    Methods are called in the order of what happens, with the time.

    Args:
        loaded: the session; a new one has no number.
        store: the buffer.
        links: the connections.
        observer: receives reports.
        limits: limits and times.
        relays: whether a topic is acknowledged only when the broker did.
        random: returns numbers from 0 to 1, for the backoff.
    """

    def __init__(
        self,
        loaded: LoadedSession,
        store: ForwarderStore,
        links: ForwarderLinks,
        observer: ForwarderObserver,
        limits: ForwarderLimits,
        *,
        relays: Callable[[str], bool],
        random: Callable[[], float],
    ) -> None:
        self.session: Final = loaded.session
        self._v5 = loaded.session.connect.version is Version.V5
        self._store = store
        self._links = links
        self._observer = observer
        self._limits = limits
        self._relays = relays
        self._random = random
        self._now = Moment(0.0, 0.0)
        # Messages: all of this session; in memory and not sent; the last one in memory, durable, and stored.
        self._messages, self._octets, self._oldest = loaded.messages, loaded.octets, loaded.oldest
        self._queue: deque[BufferedMessage] = deque()
        self._queue_octets = 0
        self._cursor, self._durable, self._last = 0, loaded.last, loaded.last
        self._reading, self._read_until = False, 0
        self._read_at: float | None = None
        # Until the messages that a former process sent are known, no packet identifier is free.
        self._recovering = loaded.messages > 0
        # Numbers of messages that are not durable, and their octets; how many of them have no packet identifier yet,
        # and how many are acknowledged then.
        self._pending: deque[int] = deque()
        self._pending_octets = self._pending_queued = self._pending_acks = 0
        # Messages with QoS 0 whose removal is not durable, so that they are not sent yet.
        self._leaving = 0
        # The client: the number of its connection or 0.
        self._client = self._clients = 0
        # Whether the client wants the session that was there before this connection.
        self._resumed = False
        #: What is outstanding, and what the client sent behind it.
        self.waits: Final = ClientWaits(links.hold_client, links.resume_client)
        self._held: deque[Callable[[], None]] = deque()
        # Acknowledgements that wait for their records, and messages that wait for the broker's, on this connection.
        self._unrecorded = 0
        self._relayed: set[int] = set()
        # The message that waits until its record is admitted, and whether it is stored; what follows it is held.
        self._admitting: tuple[Publish, bool] | None = None
        # Packet identifiers of stored messages whose records are admitted on this connection and not made.
        self._admitted: set[int] = set()
        self._connack_at: float | None = None
        self._received = loaded.received
        # Messages with QoS 1 whose PUBACK waits for the broker's, by the client's packet identifiers. Those of a former
        # process are not known: the client may have got PUBACK, and use the identifier for another message.
        self._owed: dict[int, ReceivedId] = {}
        self._requests: deque[RelayedRequest] = deque()
        # The broker.
        self._window = UpstreamWindow(limits.in_flight)
        self._link = _Link.DOWN
        self._link_number = 0
        self._linked_before = loaded.session.opened
        self._capabilities = NO_PROPERTIES
        # Whether the connection only removes the broker's session: for good, or before a new one.
        self._removing = self._wiping = False
        # Whether the last connection removed the broker's session for a new one, which is not open since.
        self._wiped = False
        self._given_up = self._missing_reported = False
        # Whether the broker refused the credentials when it was last asked.
        self._credentials_refused = False
        self._failures = 0
        self._retry_at: float | None = None
        # Refusals in a row that pass: while there are any, messages are sent singly, and none while it is paused.
        self._refusals = 0
        self._paused = False
        self._resume_at: float | None = None
        self._ping_at: float | None = None
        self._ping_every = 0.0
        self._pinged = False
        self._idle_until: float | None = None
        self._wake_at: float | None = None
        self._over = False

    # State for the caller.

    @property
    def has_client(self) -> bool:
        """Whether a client is connected."""
        return bool(self._client)

    @property
    def waiting(self) -> bool:
        """Whether what the client sends waits; ``resume_client`` of the links follows."""
        return bool(self.waits or self._held)

    @property
    def _connected(self) -> bool:
        """Whether there is a client that got CONNACK."""
        return bool(self._client) and Wait.CONNACK not in self.waits

    @property
    def queued(self) -> int:
        """Messages in the buffer."""
        return self._messages

    def start(self, now: Moment) -> None:
        """Forward what a former process left; called first for a session that was loaded."""
        self._now = now
        session = self.session
        session.ended = session.ended or now.wall
        if session.linked:
            # The broker noticed the end of that process.
            session.connect, session.linked = replace(session.connect, will=None), False
        self._store.session(session)
        self._read()
        self._advance()

    # The client.

    def client_connected(self, connect: Connect, now: Moment) -> None:
        """
        A client sent CONNECT; ``client_id`` is not empty, and one before it was reported lost.

        The first packet for it is CONNACK.
        """
        self._now = now
        session, store = self.session, self._store
        self._clients += 1
        self._client = self._clients
        anew = connect.clean_start or self._expired
        self._resumed = session.number > 0 and not anew
        refusal = self._connect_refusal(connect)
        if refusal is not None:
            self._client = 0
            self._links.close_client(*refusal)
            if not session.number:
                self._end()
            return
        self.waits.begin(Wait.CONNACK)
        self._v5 = connect.version is Version.V5
        # The client may know another one, until it reads CONNACK.
        session.renewed = session.renewed or not session.number
        if anew:
            self._begin_anew()
        self._take_connect(connect, anew=anew)
        session.ended, session.expiry, session.incomplete = 0.0, _expiry(connect), False
        store.session(session)
        self._connack_at = now.seconds + self._limits.connack
        self._given_up = self._removing = False
        if self._link is _Link.DOWN:
            self._retry_at = None
        self._advance()

    def client_packet(self, packet: Packet, now: Moment, demand: RecordDemand | None = None) -> None:
        """
        A client sent a packet other than CONNECT, AUTH and DISCONNECT; its topic alias is resolved.

        ``demand`` is of a message that is to be recorded.
        """
        self._now = now
        self._in_turn(partial(self._got_packet, packet, demand))

    def publish_refused(self, refusal: Acknowledgement, now: Moment) -> None:
        """A PUBLISH of a client of MQTT 5.0 is refused by the rules, which this PUBACK or PUBREC says."""
        self._now = now
        self._in_turn(partial(self._send_refusal, refusal))

    def _in_turn(self, act: Callable[[], None]) -> None:
        """Act when nothing is outstanding; a client may send packets before CONNACK, too (section 3.1.4)."""
        if not self._client:
            return
        if self.waiting:
            self._held.append(act)
        else:
            act()

    def _send_refusal(self, refusal: Acknowledgement) -> None:
        """Where it was stored before, the client may use its identifier for another message from then on."""
        packet_id = refusal.packet_id
        self._relayed.discard(packet_id)
        known = self._owed if refusal.type is PacketType.PUBACK else self._received
        if known.pop(packet_id, None) is not None:
            self._admitted.discard(packet_id)
            if known is self._received:
                self._store.released(self.session, packet_id)
        self._send_when_durable(refusal)

    def _send_when_durable(self, packet: Acknowledgement) -> None:
        self._store.when_durable(partial(self._send_to, self._client, packet))

    def _send_to(self, client: int, packet: Acknowledgement) -> None:
        if client == self._client:
            self._links.send_client(packet)

    def _got_packet(self, packet: Packet, demand: RecordDemand | None) -> None:
        if isinstance(packet, Publish):
            self._got_publish(packet, demand)
        elif isinstance(packet, Acknowledgement):
            if packet.type is PacketType.PUBREL:
                self._got_client_release(packet.packet_id)
            elif self._link in (_Link.OPENED, _Link.READY) and self.session.next is None:
                # What answers a delivery depends on nothing that waits for the disk.
                self._links.send_upstream(packet)
        elif isinstance(packet, (Subscribe, Unsubscribe)):
            self._got_request(packet)
        elif isinstance(packet, Pingreq):
            self._links.send_client(Pingresp())

    def client_disconnected(self, packet: Disconnect, now: Moment) -> None:
        """The client sent DISCONNECT and was closed."""
        # It must not become another than 0 (section 3.14.2.2.2).
        if (expiry := packet.properties.session_expiry) is not None and self.session.expiry != 0:
            self.session.expiry = _limited(expiry)
        self._client_gone(now, will=packet.code == ReasonCode.DISCONNECT_WITH_WILL)

    def client_lost(self, now: Moment) -> None:
        """The client's connection ended in another way, or was closed for any reason; its will is published."""
        self._client_gone(now, will=True)

    def admitted(self, *, admitted: bool, now: Moment) -> None:
        """The record of the message that waits was admitted, or refused."""
        self._now, waiting, self._admitting = now, self._admitting, None
        if waiting is not None and admitted:
            self._got_admitted(*waiting)
        self.waits.end(Wait.ADMISSION)

    def resume_client(self, now: Moment) -> None:
        """Go on with what the client sent, as far as nothing is outstanding, or close it."""
        self._now = now
        self._close_acknowledged()
        while self._held and not self.waits:
            self._held.popleft()()

    def acknowledged(self, packet: Acknowledgement, source: AckSource, receipt: str, now: Moment) -> None:
        """PUBACK or PUBREC was sent behind its record, whose receipt is empty at the level ``logRequest``."""
        self._now = now
        self._unrecorded = max(0, self._unrecorded - 1)
        if Wait.END in self.waits:
            # It is sent when this returns.
            self._links.resume_client()
        if packet.code >= ReasonCode.UNSPECIFIED_ERROR:
            return
        self._observer.acked(source)
        received = self._received.get(packet.packet_id) if packet.type is PacketType.PUBREC else None
        if received is not None and received.due:
            self._admitted.discard(packet.packet_id)
            received.receipt, received.due = receipt, b""
            self._store.received(self.session, packet.packet_id, received)

    def send_again(self, message: BufferedMessage, now: Moment) -> bool:
        """Store a message that was a dead letter behind those that wait; returns whether there is room for it."""
        self._now = now
        new = not self.session.number
        if self._refusal(message) is not None or (new and not self._store.shares.session_fits(self.session.key)):
            return False
        if new:
            self._store.session(self.session)
        self._keep(message, recorded=False, again=True)
        self._advance()
        return True

    # The broker.

    def upstream_connected(self, connack: Connack, now: Moment) -> None:
        """The broker sent CONNACK; where it refuses, the connection is closed."""
        self._now = now
        if self._link is not _Link.CONNECTING:
            return
        if connack.code:
            self._rejected(connack)
            return
        cleaned = self._removing or self._wiping
        anew = self.session.clean and self.session.next is None
        kept = connack.session_present and (cleaned or anew)
        if kept and (cleaned or self._upstream_v5 or self._wiped):
            # A clean session must not be present (section 3.2.2.2), nor one that was just removed.
            self._session_kept()
            return
        self._report_attempt(success=True)
        if cleaned:
            self._removed()
            return
        if kept:
            # MQTT 3.1.1 cannot begin anew a session that outlives its connection.
            self._close_link(Disconnect())
            self._wiping = True
        else:
            self._open_link(connack, anew=anew)
        self._advance()

    def upstream_packet(self, packet: Packet, now: Moment) -> None:
        """The broker sent a packet other than CONNACK."""
        self._now = now
        if self._link not in (_Link.OPENED, _Link.READY):
            return
        pinged = self._pinged
        # PINGRESP may be long in coming behind acknowledgements, where the peer holds this connection at its rate.
        self._pinged = False
        if isinstance(packet, Acknowledgement) and packet.type is not PacketType.PUBREL:
            self._got_answer(packet)
        elif isinstance(packet, (Publish, Acknowledgement)):
            # Without its client a delivery stays unanswered, and is repeated on the next connection.
            if self._connected and self.session.next is None:
                self._failures = 0
                self._links.send_client(packet)
        elif isinstance(packet, (Suback, Unsuback)):
            request = self._window.requests.pop(packet.packet_id, None)
            if request is not None and self._connected and self.session.next is None:
                self._failures = 0
                self._links.send_client(replace(packet, packet_id=request.packet.packet_id))
        elif isinstance(packet, Disconnect):
            if closed_for_message(packet.code):
                self._closed_for_message(packet.code)
            self._fail_link("disconnected", packet.code)
        elif not isinstance(packet, Pingresp):
            self._fail_link("unexpected_packet")
        elif pinged:
            self._failures = 0
        self._advance()

    def upstream_lost(self, now: Moment) -> None:
        """The connection to the broker could not be opened, or ended."""
        self._now = now
        if self._link is not _Link.DOWN:
            self._lose_link()
            self._advance()

    def suspend(self, now: Moment) -> None:
        """
        Leave the broker, which keeps the session; another connection is asked for at once.

        Without its client, a will that is due is published by the broker now, before messages that wait.
        """
        self._now = now
        if self._link is not _Link.DOWN:
            due = self._link is not _Link.CONNECTING and (self._client or self.session.connect.will is None)
            self._links.close_upstream(Disconnect() if due else None)
            self._lose_link(refused=False)
            self._retry_at = None
            self._advance()

    # The store and the time.

    def got_page(self, messages: Sequence[BufferedMessage], now: Moment) -> None:
        """The page that was asked for was read; it is empty where there is nothing more."""
        self._now = now
        self._reading = False
        recovered = not messages
        for message in messages:
            self._cursor = message.number
            if message.state is MessageState.STORED:
                recovered = True
                self._enqueue(message)
            else:
                self._window.restore(message)
                if message.refused:
                    # The order of those that were refused is kept, too.
                    self._refusals = max(1, self._refusals)
        if not messages:
            self._cursor = max(self._cursor, self._read_until)
        self._recovering = self._recovering and not recovered and self._cursor < self._durable
        self._read()
        self._advance()

    def page_failed(self, now: Moment) -> None:
        """The page could not be read; it is tried again later."""
        self._now = now
        self._reading = False
        self._read_at = now.seconds + self._limits.backoff.longest
        self._update_wake()

    def wake(self, now: Moment) -> None:
        """The time of ``wake_at`` has come; harmless before."""
        self._now = now
        if self._connack_at is not None and now.seconds >= self._connack_at:
            self._answer_connect(self._resumed, NO_PROPERTIES)
        if self._retry_at is not None and now.seconds >= self._retry_at:
            self._retry_at = None
        if self._resume_at is not None and now.seconds >= self._resume_at:
            self._resume_at = None
            self._store.when_durable(self._resume)
        if self._read_at is not None and now.seconds >= self._read_at:
            self._read_at = None
            self._read()
        if self._ping_at is not None and now.seconds >= self._ping_at:
            self._ping()
        self._advance()

    # The client, continued.

    def _connect_refusal(self, connect: Connect) -> tuple[Connack, SessionNotStored] | None:
        """With what CONNECT is refused, and why."""
        code: int = ReasonCode.SERVER_UNAVAILABLE
        fits = self.session.number > 0 or self._store.shares.session_fits(self.session.key)
        if connect.properties.authentication_method is not None:
            code, error = ReasonCode.BAD_AUTHENTICATION_METHOD, SessionNotStored("mqtt_authentication_refused")
        elif self.session.number or (self._store.accepting and fits):
            return None
        elif not fits:
            code, error = ReasonCode.QUOTA_EXCEEDED, self._sessions_full()
        else:
            error = SessionNotStored("mqtt_buffer_refuses")
        return Connack(code=code if connect.version is Version.V5 else ReturnCode.SERVER_UNAVAILABLE), error

    def _sessions_full(self) -> SessionNotStored:
        store, holder = self._store, self.session.key.holder
        evidence = share_evidence(store.shares.sessions, holder, store.limits.sessions)
        return SessionNotStored("mqtt_sessions_full", **evidence)

    def _begin_anew(self) -> None:
        """The client begins a session without what the former one knew."""
        if self._received:
            self._received.clear()
            self._store.all_released(self.session)
        self._owed.clear()
        self.session.renewed = False

    @property
    def _expired(self) -> bool:
        """Whether the session of the client is over, though messages of it may wait."""
        session = self.session
        return session.ended > 0 and session.expiry is not None and self._now.wall - session.ended >= session.expiry

    def _take_connect(self, connect: Connect, *, anew: bool) -> None:
        """Open the next connection to the broker with this CONNECT, at once or when the former one is finished."""
        session, former = self.session, self.session.connect
        if (connect.username, connect.password) != (former.username, former.password):
            if self._credentials_refused or session.incomplete:
                self._use_credentials(connect)
            self._credentials_refused = False
        if self._link is _Link.CONNECTING:
            self._close_link(None)
        waits = self._unfinished(self._last) and (anew or session.next is not None)
        if self._link is not _Link.DOWN or waits:
            if session.next is None:
                session.until = self._last
            session.next = connect
        else:
            # The will of a connection that the broker never saw is not published.
            session.connect, session.next, session.until = connect, None, 0
        session.clean = session.clean or anew

    def _use_credentials(self, connect: Connect) -> bool:
        """
        Take the credentials of the client's next session for what waits before it, which would wait for good.

        Returns whether they are others: CONNECT of another version may have what the former one cannot.
        """
        session, former = self.session, self.session.connect
        others = (connect.username, connect.password) != (former.username, former.password)
        if not others or connect.version is not former.version:
            return False
        session.connect = replace(former, username=connect.username, password=connect.password)
        return True

    def _client_gone(self, now: Moment, *, will: bool) -> None:
        self._now = now
        if not self._client:
            return
        self._client, self._connack_at = 0, None
        self.waits.client_left()
        # A record is admitted on one connection; the repeated message needs another admission.
        self._admitting = None
        self._admitted.clear()
        self._held.clear()
        self._relayed.clear()
        self._unrecorded = 0
        self._requests.clear()
        session = self.session
        if not will and session.next is not None:
            session.next = replace(session.next, will=None)
        elif not will:
            session.connect = replace(session.connect, will=None)
        session.ended = now.wall
        self._store.session(session)
        self._advance()

    def _close_client(self, code: ReasonCode, error: SvcError | None = None) -> None:
        self._links.close_client(Disconnect(code) if self._v5 else None, error)
        self._client_gone(self._now, will=True)

    def _answer_connect(self, present: bool, granted: Properties) -> None:
        """Send CONNACK, with what the broker ``granted`` where it did already."""
        if not self._client or self._connected:
            return
        session, properties = self.session, NO_PROPERTIES
        if self._v5:
            members = {name: getattr(granted, name) for name in _RELAYED_PROPERTIES}
            if (granted.session_expiry or 0) < (_NO_LIMIT if session.expiry is None else session.expiry):
                members["session_expiry"] = granted.session_expiry
            properties = Properties(**members)
        present = present and not session.renewed
        if session.renewed:
            session.renewed = False
            self._store.session(session)
        if not present:
            # The client discards its packet identifiers (section 3.2.2.1.1): those that follow are of other messages.
            self._begin_anew()
        self._connack_at = None
        self._links.send_client(Connack(present, 0, properties))
        self.waits.end(Wait.CONNACK)

    def _got_publish(self, packet: Publish, demand: RecordDemand | None) -> None:
        if packet.properties.topic_alias is not None:
            packet = replace(packet, properties=packet.properties.replace(topic_alias=None))
        if packet.qos and self._repeated(packet, demand):
            return
        if packet.qos and self._unacknowledged >= self._limits.receive_maximum:
            self.waits.begin(Wait.ACKNOWLEDGEMENTS)
            self._held.appendleft(partial(self._got_packet, packet, demand))
        elif demand is None:
            self._accept(packet, recorded=False)
        else:
            self._admit(packet, demand, stored=False)

    @property
    def _unacknowledged(self) -> int:
        """Messages of the client that wait for the disk or the broker, and not for their records."""
        return self._pending_acks + len(self._relayed)

    def _admit(self, packet: Publish, demand: RecordDemand, *, stored: bool) -> None:
        admission = self._links.admit(packet, demand, stored=stored)
        if admission is Admission.LATER:
            self._admitting = (packet, stored)
            self.waits.begin(Wait.ADMISSION)
        elif admission is Admission.ADMITTED:
            self._got_admitted(packet, stored)

    def _got_admitted(self, packet: Publish, stored: bool) -> None:
        packet_id = packet.packet_id
        known = (self._owed if packet.qos == 1 else self._received).get(packet_id) if stored else None
        if known is None:
            # Where it was stored, the broker has answered it meanwhile, and the client was not told.
            self._accept(packet, recorded=True)
            return
        self._admitted.add(packet_id)
        if not known.owed:
            self._acknowledge_again(packet_id, known, recorded=True)

    def _accept(self, packet: Publish, *, recorded: bool) -> None:
        """Store a message, or send one with QoS 0 that finds nothing before it."""
        relayed = packet.qos > 0 and self._relays(packet.topic)
        message = BufferedMessage(
            packet.topic,
            packet.payload,
            packet.qos,
            packet.retain,
            packet.properties,
            packet.packet_id,
            relayed,
            self._now.wall,
        )
        if not packet.qos and self._ready and self._all_sent:
            self._window.ready([Flight(message)])
            self._flush()
        elif (cause := self._refusal(message)) is not None:
            if recorded:
                self._links.abandon(packet)
            self._refuse(packet, cause)
            return
        else:
            self._keep(message, recorded=recorded)
        if recorded and not packet.qos:
            self._links.handed_over()

    def _repeated(self, packet: Publish, demand: RecordDemand | None) -> bool:
        """Whether the message of a PUBLISH is stored; it is acknowledged again, unless that is still to come."""
        packet_id = packet.packet_id
        if packet.qos == 1:
            known = self._owed.get(packet_id) if packet.dup else None
        else:
            known = self._received.get(packet_id)
        if known is None:
            return False
        if known.due and demand is None:
            # The rules demand no record any more.
            known.due = b""
            if packet.qos == 2:
                self._store.received(self.session, packet_id, known)
        if known.due and demand is not None:
            if not packet.dup or known.due != message_digest(packet):
                # Its record would be of a message that is not stored.
                defect = "it has the packet identifier of another message, whose record is due"
                self._close_client(ReasonCode.PROTOCOL_ERROR, ProtocolViolation(packet="PUBLISH", defect=defect))
            elif packet_id not in self._admitted:
                self._admit(packet, demand, stored=True)
        elif not known.owed:
            self._acknowledge_again(packet_id, known, recorded=False)
        return True

    def _acknowledge_again(self, packet_id: int, received: ReceivedId, *, recorded: bool) -> None:
        source: AckSource = "middleware" if received.code is None else "upstream"
        code, client = received.code or 0, self._client
        again = partial(self._acknowledge, PacketType.PUBREC, packet_id, code, source, client, recorded=recorded)
        self._store.when_durable(again)

    def _refusal(self, message: BufferedMessage) -> RefusalCause | None:
        store, limits = self._store, self._store.limits
        if not store.accepting:
            return "store"
        if self._octets + message.size > limits.session_octets:
            return "octets"
        unreleased = len(self._received) if message.qos == 2 else 0
        if self._messages >= limits.session_messages or unreleased >= self._limits.unreleased:
            return "messages"
        if self._messages and self._now.wall - self._oldest >= limits.session_age:
            return "age"
        if not store.shares.message_fits(self.session.key, message.size):
            return "share"
        if self._credentials_refused and store.shares.messages.scarce:
            return "credentials"
        return None

    def _refuse(self, packet: Publish, cause: RefusalCause) -> None:
        self._observer.refused(cause)
        if not packet.qos:
            return
        if self._v5:
            kind: Literal[PacketType.PUBACK, PacketType.PUBREC]
            kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
            self._links.send_client(Acknowledgement(kind, packet.packet_id, ReasonCode.QUOTA_EXCEEDED))
        elif self._limits.when_full == "refuse":
            # Only a lost connection makes a client of MQTT 3.1.1 send a message again, and what is not acknowledged
            # before, too. That of a disk that takes nothing may never be.
            self.waits.begin(Wait.END)
            self._close_acknowledged(at_once=cause == "store")

    def _close_acknowledged(self, *, at_once: bool = False) -> None:
        """Close a client that is to be, as soon as all of it that was stored is acknowledged."""
        if Wait.END in self.waits and (at_once or not (self._pending_acks or self._unrecorded)):
            self._close_client(ReasonCode.QUOTA_EXCEEDED)

    def _keep(self, message: BufferedMessage, *, recorded: bool, again: bool = False) -> None:
        """
        Store a message; where nothing is before it, it has its packet identifier from the beginning.

        Nobody waits for the acknowledgement of one that was stored before (``again``).
        """
        store, window = self._store, self._window
        in_memory = self._cursor == self._last and self._queue_octets + self._pending_octets < self._limits.memory
        flight = None
        if message.qos and in_memory and self._ready and not self._queue and not self._pending_queued and window.room:
            flight = window.take(message)
        if not self._messages:
            self._oldest = message.stored
        store.store(self.session, message)
        self._messages += 1
        self._octets += message.size
        self._observer.queued(1)
        self._last = message.number
        if in_memory:
            self._cursor = message.number
        if not again:
            self._remember(message, recorded=recorded)
        client = 0 if again else self._client
        self._pending.append(message.number)
        self._pending_octets += message.size
        if self._pending_octets >= self._limits.unacknowledged:
            self.waits.begin(Wait.DISK)
        self._pending_queued += flight is None
        self._pending_acks += message.qos > 0 and not message.relayed
        stored = partial(self._stored, message, flight, in_memory, self._link_number, client, recorded=recorded)
        store.when_durable(stored)

    def _remember(self, message: BufferedMessage, *, recorded: bool) -> None:
        """Remember the packet identifier of a message that can be repeated without being another one."""
        packet_id = message.packet_id
        if message.relayed:
            self._relayed.add(packet_id)
        if message.qos != 2 and not message.relayed:
            if message.qos:
                self._owed.pop(packet_id, None)
            return
        known = ReceivedId(message.number, message.relayed, due=message_digest(message) if recorded else b"")
        if message.qos == 2:
            self._received[packet_id] = known
            self._store.received(self.session, packet_id, known)
        else:
            self._owed[packet_id] = known
        if recorded:
            self._admitted.add(packet_id)

    def _stored(
        self,
        message: BufferedMessage,
        flight: Flight | None,
        in_memory: bool,
        link: int,
        client: int,
        *,
        recorded: bool,
    ) -> None:
        self._pending.popleft()
        self._pending_octets -= message.size
        if self._pending_octets < self._limits.unacknowledged:
            self.waits.end(Wait.DISK)
        self._pending_queued -= flight is None
        self._pending_acks -= message.qos > 0 and not message.relayed
        self._durable = message.number
        self._observer.stored()
        if message.qos and not message.relayed:
            kind = PacketType.PUBACK if message.qos == 1 else PacketType.PUBREC
            self._acknowledge(kind, message.packet_id, 0, "middleware", client, recorded=recorded)
        self._close_acknowledged()
        if flight is None and in_memory:
            self._enqueue(message)
        elif flight is not None and link == self._link_number:
            self._window.ready([flight])
            self._flush()
        self._read()
        self._advance()

    def _acknowledge(
        self, kind: PacketType, packet_id: int, code: int, source: AckSource, client: int, *, recorded: bool
    ) -> None:
        """Acknowledge on the connection of the message, or not at all."""
        self._relayed.discard(packet_id)
        if self._unacknowledged <= self._limits.receive_maximum // 2:
            self.waits.end(Wait.ACKNOWLEDGEMENTS)
        if not self._connected or client != self._client:
            return
        if code >= ReasonCode.UNSPECIFIED_ERROR and not self._v5:
            # It was promised nothing, and repeats the message on its next connection.
            self._close_client(ReasonCode(code))
            return
        received = self._received.get(packet_id) if kind is PacketType.PUBREC else None
        if code < ReasonCode.UNSPECIFIED_ERROR and not recorded:
            self._observer.acked(source)
        packet = Acknowledgement(kind, packet_id, code)  # type: ignore[arg-type]
        self._unrecorded += recorded
        self._links.acknowledge(packet, source, "" if received is None else received.receipt, recorded=recorded)

    def _got_client_release(self, packet_id: int) -> None:
        """PUBREL: a repeated identifier means another message from now on, so PUBCOMP waits for the disk."""
        self._admitted.discard(packet_id)
        self._relayed.discard(packet_id)
        if self._received.pop(packet_id, None) is None:
            code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if self._v5 else ReasonCode.SUCCESS
            self._links.send_client(Acknowledgement(PacketType.PUBCOMP, packet_id, code))
            return
        self._store.released(self.session, packet_id)
        self._send_when_durable(Acknowledgement(PacketType.PUBCOMP, packet_id))

    def _got_request(self, packet: Subscribe | Unsubscribe) -> None:
        if len(self._requests) + len(self._window.requests) >= self._limits.requests:
            name, items = type(packet).__name__.upper(), "requests that wait for the broker"
            error = QuotaExceeded(packet=name, limit=self._limits.requests, items=items)
            self._close_client(error.mqtt_reason, error)
            return
        self._requests.append(RelayedRequest(packet))
        self._send_requests()

    # Messages on their way to the broker.

    @property
    def _ready(self) -> bool:
        """Whether messages of the client's connection can be sent."""
        return self._link is _Link.READY and self.session.next is None

    @property
    def _all_sent(self) -> bool:
        """Whether every message was sent, so that another one is sent behind them."""
        waiting = self._messages - len(self._window.flights) or self._pending or self._leaving or self._paused
        return not waiting and self._window.idle

    @property
    def _first(self) -> BufferedMessage | None:
        """The first message in memory that is durable, or is in flight."""
        for flight in self._window.flights.values():
            return flight.message
        return self._queue[0] if self._queue else None

    def _unfinished(self, until: int) -> bool:
        """Whether a message up to this number is not complete at the broker."""
        if self._leaving or self._cursor < min(until, self._last):
            return True
        first = self._first
        return (first is not None and first.number <= until) or (bool(self._pending) and self._pending[0] <= until)

    def _enqueue(self, message: BufferedMessage) -> None:
        self._queue.append(message)
        self._queue_octets += message.size

    def _read(self) -> None:
        """Read more messages where few are in memory and the disk has some."""
        if self._reading or self._read_at is not None or self._cursor >= self._durable:
            return
        if self._queue_octets < self._limits.memory:
            self._reading, self._read_until = True, self._durable
            self._links.read_page(self._cursor)

    def _fill(self) -> None:
        """Give messages their identifiers, as many as may be in flight; they are sent when these are durable."""
        if self._link is not _Link.READY or self._paused or (self._refusals and self._window.flights):
            return
        session, batch = self.session, []
        while self._queue and (session.next is None or self._queue[0].number <= session.until):
            message = self._queue[0]
            expired = message.expired(self._now.wall)
            if message.qos and not expired and not self._window.room:
                break
            self._queue.popleft()
            self._queue_octets -= message.size
            if expired:
                self._finish(message)
                self._expire(message)
            elif message.qos:
                batch.append(self._window.take(message))
                self._store.changed(message)
            else:
                # At most once: it is removed before it is sent.
                batch.append(Flight(message))
                self._finish(message)
                self._leaving += 1
        if batch:
            self._store.when_durable(partial(self._batch_durable, batch, self._link_number))
        self._read()

    def _batch_durable(self, batch: list[Flight], link: int) -> None:
        leaving = sum(not flight.message.qos for flight in batch)
        self._leaving -= leaving
        if link == self._link_number:
            self._window.ready(batch)
            self._flush()
        else:
            # The others are sent on the next connection.
            for _flight in range(leaving):
                self._observer.dropped("link_lost", 0)
        self._advance()

    def _flush(self) -> None:
        """Send what the Receive Maximum allows, and drop what has expired, unless the broker may have it with QoS 2."""
        while not self._paused and (flight := self._window.next_to_send(single=self._refusals > 0)) is not None:
            message = flight.message
            if message.expired(self._now.wall) and not (flight.sent and message.qos == 2):
                self._window.answered(message.upstream_id)
                if message.qos:
                    self._finish(message)
                self._expire(message)
                continue
            packet = self._publish_packet(flight)
            if (most := self._capabilities.maximum_packet_size) and len(encode(packet, Version.V5, "client")) > most:
                if not self._reject(flight, "too_large", ReasonCode.PACKET_TOO_LARGE):
                    self._hold(flight, ReasonCode.PACKET_TOO_LARGE)
                continue
            flight.sent, flight.qos = True, packet.qos
            self._links.send_upstream(packet)
            self._observer.forwarded(message.qos)
            if message.qos and not packet.qos:
                # The broker acknowledges nothing of what it accepts with QoS 0 alone.
                self._window.answered(message.upstream_id)
                self._finish(message)
                self._answered(message, ReasonCode.SUCCESS, "middleware")

    def _publish_packet(self, flight: Flight) -> Publish:
        """PUBLISH as the broker accepts it; the rest of its expiry [MQTT-3.3.2-6] is never 0, which may mean none."""
        message, properties, capabilities = flight.message, flight.message.properties, self._capabilities
        if properties.message_expiry is not None:
            waited = max(0, int(self._now.wall - message.stored))
            properties = properties.replace(message_expiry=max(1, properties.message_expiry - waited))
        qos = message.qos
        if capabilities.maximum_qos == 1 and qos == 2:
            qos = 1
        elif capabilities.maximum_qos == 0:
            qos = 0
        retain = message.retain and capabilities.retain_available != 0
        packet_id = message.upstream_id if qos else 0
        return Publish(message.topic, message.payload, qos, retain, flight.sent and qos > 0, packet_id, properties)

    def _got_answer(self, packet: Acknowledgement) -> None:
        """PUBACK, PUBREC or PUBCOMP of the broker; one that does not belong there ends the connection."""
        flight = self._window.flights.get(packet.packet_id)
        released = flight is not None and flight.message.state is MessageState.RELEASED
        if packet.type is PacketType.PUBREC:
            self._got_pubrec(packet, flight, released=released)
        elif flight is not None and released == (packet.type is PacketType.PUBCOMP) and (released or flight.qos == 1):
            if not released and refusal(packet.code) is not None:
                self._refused(flight, packet.code)
            else:
                self._failures = 0
                self._window.answered(packet.packet_id)
                self._finish(flight.message)
                if not released:
                    self._accepted(flight.message, packet.code)
        elif flight is not None:
            self._fail_link("unexpected_packet")
        self._flush()

    def _got_pubrec(self, packet: Acknowledgement, flight: Flight | None, *, released: bool) -> None:
        if flight is None:
            code = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND if self._upstream_v5 else ReasonCode.SUCCESS
            self._links.send_upstream(Acknowledgement(PacketType.PUBREL, packet.packet_id, code))
            return
        message = flight.message
        if not released and flight.qos != 2:
            self._fail_link("unexpected_packet")
        elif refusal(packet.code) is not None:
            if released:
                self._window.answered(packet.packet_id)
                self._finish(message)
            else:
                self._refused(flight, packet.code)
        else:
            if not released:
                self._failures = 0
                message.state = MessageState.RELEASED
                self._store.changed(message)
                self._accepted(message, packet.code)
            self._store.when_durable(partial(self._release, flight, self._link_number))

    def _release(self, flight: Flight, link: int) -> None:
        """Send PUBREL: that the message is the broker's is durable."""
        if link == self._link_number and flight.message.upstream_id in self._window.flights:
            self._links.send_upstream(Acknowledgement(PacketType.PUBREL, flight.message.upstream_id))

    def _accepted(self, message: BufferedMessage, code: int) -> None:
        # What was on its way behind a refused message says nothing about that one.
        if not self._paused:
            self._refusals = 0
        self._answered(message, code)

    def _refused(self, flight: Flight, code: int) -> None:
        """The broker refused a message: one that the client was promised is kept, as long as that may help."""
        message, kind = flight.message, refusal(code)
        cause: RejectionCause | None = None
        if message.relayed or kind is Refusal.LASTS:
            cause = "rejected"
        elif self._overdue(message):
            cause = "age"
        if cause is None or not self._reject(flight, cause, code):
            self._hold(flight, code, renumber=kind is Refusal.RENUMBERED)

    def _hold(self, flight: Flight, code: int, *, renumber: bool = False) -> None:
        """Keep a message at its place, unless it is there already."""
        if self._window.refused(flight, renumber=renumber):
            if renumber:
                self._store.changed(flight.message)
            self._pause(code)

    def _overdue(self, message: BufferedMessage) -> bool:
        """Whether a message that is refused has kept back those behind it since so long ago."""
        if not message.refused:
            message.refused = self._now.wall
            self._store.changed(message)
        return self._now.wall - message.refused >= self._store.limits.session_age

    def _reject(self, flight: Flight, cause: RejectionCause, code: int) -> bool:
        """
        End a message that will not be accepted: the client that waits for the answer learns it, or an operator decides.

        Returns whether that was possible: what was acknowledged is kept in a table that has an end.
        """
        message = flight.message
        promised = message.qos > 0 and not message.relayed
        if promised and not self._store.has_room(self.session, message):
            self._observer.dead_letters_full(message.topic)
            return False
        self._window.answered(message.upstream_id)
        if promised:
            self._store.dead_letter(self.session, message, cause, code, self._now.wall)
            self._observer.dead_letter(message.topic, cause, code)
        else:
            self._observer.dropped("too_large" if cause == "too_large" else "rejected", code)
        if message.qos:
            self._finish(message)
            told = code if code in OF_MESSAGES else ReasonCode.QUOTA_EXCEEDED
            self._answered(message, told, "middleware" if cause == "too_large" else "upstream")
        return True

    def _pause(self, code: int) -> None:
        """Send nothing until the pause is over; further refusals until then are the same one."""
        if self._paused:
            return
        self._paused = True
        self._refusals += 1
        self._observer.held(code)
        if self._refusals == self._limits.backoff.budget:
            self._observer.replay_failed()
        self._resume_at = self._now.seconds + self._limits.backoff.pause(self._refusals, self._random())

    def _resume(self) -> None:
        """The pause is over, and what changed in it is durable."""
        self._paused = False
        self._flush()
        self._advance()

    def _closed_for_message(self, code: int) -> None:
        """The broker closes the connection for a message; where it may be one of several, they follow singly."""
        unanswered = self._window.unanswered
        if len(unanswered) == 1:
            self._reject(unanswered[0], "rejected", code)
        else:
            self._refusals = max(1, self._refusals)

    def _closed_before_answer(self) -> None:
        """The connection ended; MQTT 3.1.1 refuses the first message without an answer only so."""
        for flight in self._window.unanswered[:1]:
            if self._overdue(flight.message):
                self._reject(flight, "age", 0)

    def _answered(self, message: BufferedMessage, code: int, source: AckSource = "upstream") -> None:
        """Pass on the answer to a message that the client did not see acknowledged."""
        packet_id = message.packet_id
        known = (self._owed if message.qos == 1 else self._received).get(packet_id)
        if not message.relayed or known is None or known.number != message.number or not known.owed:
            # A broker that lost the session answers again.
            return
        # Without an admission on this connection it is acknowledged when it is repeated.
        client = self._client if not known.due or packet_id in self._admitted else 0
        recorded = bool(known.due)
        if message.qos == 1:
            del self._owed[packet_id]
            self._admitted.discard(packet_id)
            self._acknowledge(PacketType.PUBACK, packet_id, code, source, client, recorded=recorded)
            return
        acknowledge = partial(self._acknowledge, PacketType.PUBREC, packet_id, code, source, client, recorded=recorded)
        if code >= ReasonCode.UNSPECIFIED_ERROR:
            # As with PUBCOMP, the client may use the identifier for another message from then on.
            del self._received[packet_id]
            self._admitted.discard(packet_id)
            self._store.released(self.session, packet_id)
            self._store.when_durable(acknowledge)
        else:
            known.owed, known.code = False, code if source == "upstream" else None
            self._store.received(self.session, packet_id, known)
            acknowledge()

    def _expire(self, message: BufferedMessage) -> None:
        self._observer.dropped("expired", 0)
        self._answered(message, ReasonCode.SUCCESS, "middleware")

    def _finish(self, message: BufferedMessage) -> None:
        """A message needs no buffer any more. Nobody waits for that to be durable: a repetition is harmless."""
        self._store.remove(self.session, message)
        self._messages -= 1
        self._octets -= message.size
        self._observer.queued(-1)
        first = self._first
        if first is not None:
            self._oldest = first.stored

    # The connection to the broker.

    def _advance(self) -> None:
        """Do what is due: send, end the former connection, open the next one, or forget the session."""
        if self._over:
            return
        session = self.session
        if session.next is not None and not self._unfinished(session.until):
            if self._link in (_Link.OPENED, _Link.READY):
                self._end_link()
            elif self._link is _Link.CONNECTING:
                self._close_link(None)
            session.connect, session.next, session.until = session.next, None, 0
            self._store.session(session)
        if self._link is _Link.READY and not self._busy_for_client:
            self._end_link()
        self._fill()
        self._idle_until = None
        if self._link is _Link.DOWN:
            if self._needs_link():
                self._connect()
            elif not self._busy_for_client:
                self._idle()
        if not self._over:
            self._update_wake()

    @property
    def _upstream_v5(self) -> bool:
        """Whether the connection to the broker has MQTT 5.0; a client that connects anew may have another version."""
        return self.session.connect.version is Version.V5

    @property
    def _busy_for_client(self) -> bool:
        return bool(self._client or self._messages or self._leaving or self.session.next is not None)

    def _needs_link(self) -> bool:
        session = self.session
        if self._recovering:
            return False
        if session.incomplete and not self._client:
            if self._messages and not self._missing_reported:
                self._missing_reported = True
                self._observer.credentials_missing()
            return False
        if self._busy_for_client or session.connect.will is not None:
            return True
        self._removing = session.opened and session.expiry == 0 and not self._given_up
        return self._removing

    def _connect(self) -> None:
        if self._retry_at is None:
            self._link = _Link.CONNECTING
            self._links.connect_upstream(self._connect_packet())

    def _connect_packet(self) -> Connect:
        """The client's CONNECT, for a session that outlives the connection as long as messages are on their way."""
        session = self.session
        connect = replace(session.connect, keep_alive=self._limits.keep_alive, clean_start=False)
        if self._removing or self._wiping:
            return replace(connect, clean_start=True, will=None, properties=NO_PROPERTIES)
        if not self._upstream_v5:
            return connect
        expiry = max(_NO_LIMIT if session.expiry is None else session.expiry, self._limits.session_expiry)
        properties = connect.properties.replace(session_expiry=expiry)
        return replace(connect, clean_start=session.clean and session.next is None, properties=properties)

    def _open_link(self, connack: Connack, *, anew: bool) -> None:
        """Take the broker's session into use; ``anew`` where it had to be another one."""
        session, window = self.session, self._window
        self._link, self._capabilities = _Link.OPENED, connack.properties
        self._link_number += 1
        self._given_up = self._wiped = False
        self._credentials_refused = False
        window.opened(connack.properties.receive_maximum or (65_535 if self._upstream_v5 else _UNTOLD_MAXIMUM))
        known = session.opened and not anew
        lost = known and not connack.session_present
        session.opened = session.linked = True
        session.clean = session.clean and not anew
        if lost:
            resent = len(window.flights)
            for flight in window.renew():
                self._store.changed(flight.message)
            # Its subscriptions are gone, of which the client has to learn.
            session.renewed = True
            self._observer.session_lost(resent)
        seconds = connack.properties.server_keep_alive or self._limits.keep_alive
        self._ping_every, self._pinged = seconds * 0.75, False
        self._ping_at = self._now.seconds + self._ping_every
        self._store.session(session)
        self._store.when_durable(partial(self._resume_link, self._link_number))
        if session.next is None and lost and self._connected:
            self._close_client(ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR)
        elif session.next is None:
            self._answer_connect(connack.session_present or (self._resumed and not known), connack.properties)

    def _resume_link(self, link: int) -> None:
        """Repeat what is in flight, in order (section 4.4), then go on."""
        if link != self._link_number or self._link is not _Link.OPENED:
            return
        self._link = _Link.READY
        for flight in self._window.flights.values():
            if flight.message.state is MessageState.RELEASED:
                self._release(flight, link)
            else:
                self._window.ready([flight])
        self._flush()
        self._send_requests()
        self._advance()

    def _send_requests(self) -> None:
        while self._requests and self._ready:
            request = self._requests.popleft()
            self._window.request(request)
            self._links.send_upstream(replace(request.packet, packet_id=request.upstream_id))

    def _rejected(self, connack: Connack) -> None:
        self._observer.connack_rejected(connack.code)
        self._links.close_upstream(None)
        if connack.code in _CREDENTIALS:
            # The client may have come with others while the broker was away.
            others = self.session.next is not None and self._use_credentials(self.session.next)
            self._credentials_refused = not others
            if others:
                self._store.session(self.session)
        refused = connack.code not in _UNAVAILABLE
        if refused and self._client and not self._connected and self.session.next is None:
            properties = Properties(reason_string=connack.properties.reason_string) if self._v5 else NO_PROPERTIES
            self._links.close_client(Connack(code=connack.code, properties=properties))
            self._client_gone(self._now, will=False)
        self._lose_link()
        self._advance()

    def _removed(self) -> None:
        """The broker's session was removed with this connection."""
        self._close_link(Disconnect())
        if not self._wiping:
            self._failures = 0
        self._wiped = self._wiping
        self._removing = self._wiping = self.session.opened = False
        self._store.session(self.session)
        self._advance()

    def _session_kept(self) -> None:
        """The broker did not remove the session: as if it could not be reached, and the next attempt removes again."""
        self._observer.link_failed("session_kept", 0)
        self._links.close_upstream(Disconnect())
        self._wiping = not self._removing and not self._upstream_v5
        self._lose_link()
        self._advance()

    def _end_link(self) -> None:
        """Carry out the end of the client's connection at the broker."""
        session = self.session
        will = session.connect.will is not None
        properties = NO_PROPERTIES
        if self._upstream_v5 and session.next is None:
            properties = Properties(session_expiry=_NO_LIMIT if session.expiry is None else session.expiry)
            session.opened = session.expiry != 0
        if self._upstream_v5:
            code = ReasonCode.DISCONNECT_WITH_WILL if will else ReasonCode.SUCCESS
            self._close_link(Disconnect(code, properties))
        else:
            self._close_link(None if will else Disconnect())
        session.connect, session.linked = replace(session.connect, will=None), False
        self._store.session(session)

    def _close_link(self, last: Disconnect | None) -> None:
        self._links.close_upstream(last)
        self._drop_link()
        self._retry_at = None

    def _drop_link(self) -> None:
        unanswered = self._window.closed()
        if self._client and self.session.next is None:
            self._requests.extendleft(reversed(unanswered))
        self._link, self._ping_at = _Link.DOWN, None
        self._link_number += 1

    def _fail_link(self, failure: LinkFailure, code: int = 0) -> None:
        """The broker broke the protocol, closes the connection, or does not respond."""
        if self._link is not _Link.DOWN:
            self._observer.link_failed(failure, code)
            self._links.close_upstream(None)
            self._lose_link()

    def _lose_link(self, *, refused: bool = True) -> None:
        session, limits = self.session, self._limits
        opened = self._link is not _Link.CONNECTING
        if opened and refused:
            self._closed_before_answer()
        self._drop_link()
        if opened:
            session.linked = False
            if not self._client or session.next is not None:
                # The broker has published it.
                session.connect = replace(session.connect, will=None)
            self._store.session(session)
        else:
            self._report_attempt(success=False)
        self._failures += 1
        if self._failures == limits.backoff.budget:
            self._observer.replay_failed()
            # A session that only was to be removed ends by its expiry.
            self._given_up = True
        self._retry_at = self._now.seconds + limits.backoff.pause(self._failures, self._random())
        self._answer_connect(self._resumed, NO_PROPERTIES)

    def _report_attempt(self, *, success: bool) -> None:
        if self._linked_before:
            self._observer.reconnected(success)
        self._linked_before = self._linked_before or success

    def _ping(self) -> None:
        if self._pinged:
            self._fail_link("no_response")
            return
        self._links.send_upstream(Pingreq())
        self._pinged = True
        self._ping_at = self._now.seconds + self._ping_every

    # The end.

    def _idle(self) -> None:
        """Nothing is to be done at the broker: remember the session as long as its client may come back."""
        session = self.session
        longest = self._limits.session_expiry
        expiry = longest if session.expiry is None else min(session.expiry, longest)
        left = session.ended + expiry - self._now.wall
        if left <= 0 or not (session.opened or self._received):
            self._store.forget(session)
            self._end()
        else:
            self._idle_until = self._now.seconds + left

    def _end(self) -> None:
        self._over = True
        self._links.ended()

    def _update_wake(self) -> None:
        times = (self._connack_at, self._retry_at, self._resume_at, self._read_at, self._ping_at, self._idle_until)
        wake_at = min((each for each in times if each is not None), default=None)
        if wake_at != self._wake_at:
            self._wake_at = wake_at
            self._links.wake_at(wake_at)


def _expiry(connect: Connect) -> int | None:
    """Seconds that the session outlives its connection, as CONNECT asks; None is without limit."""
    if connect.version is Version.V311:
        return 0 if connect.clean_start else None
    return _limited(connect.properties.session_expiry or 0)


def _limited(expiry: int) -> int | None:
    return None if expiry == _NO_LIMIT else expiry
