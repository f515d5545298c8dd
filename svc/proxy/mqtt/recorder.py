"""
The record of each PUBLISH of a client: admitted before the message is forwarded, durable before it is acknowledged.

Owns which packets are one exchange. A repeated PUBLISH (DUP) of an exchange that is not over yields the same receipt:
on the same connection, and on a later one of the same client and identity. In between, exchanges wait here for the
repetition, in memory; those that wait for too long, or are too many, are recorded with the outcome that their
connection had. A crash loses them: the repeated message then is an exchange of its own, unless it has a nonce whose
record is durable. Does no I/O on connections: its user forwards and acknowledges.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from twisted.python.failure import Failure

from svc import naming
from svc.envelope.envelope import MAX_ENVELOPE
from svc.envelope.errors import EnvelopeError
from svc.envelope.ids import NonceMalformed, parse_nonce
from svc.errors import SvcError
from svc.notary.credentials import CredentialSet
from svc.notary.exchange import BodySummary, ExchangeOutcome, Peer, TlsFacts
from svc.notary.level import Level
from svc.notary.publish import (
    AckedBy,
    PublishedMessage,
    RecordedAcknowledgement,
    RecordedPublish,
    publish_octets,
    recorded_properties,
)
from svc.notary.publish_claims import PublishClaims
from svc.notary.receipt_claims import ReceiptClaims, read_disclosures
from svc.notary.record_bound import SIGNATURES_ROOM, PublishBound
from svc.proxy.errors import NonceReplayed, NotaryUnavailable, ProxyError, PublishRefused, RecordTooLarge
from svc.proxy.records.release_points import ReleaseObserver, ReleasePoint, unobserved
from svc.proxy.reporter import MessageSummary, Reporter
from svc.store.records import StoredReceipt
from svc.strictjson import JsonRefused, loads_object
from svc.wire.mqtt import Acknowledgement, Properties, Publish, ReasonCode, Version

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from svc.proxy.records.notarizer import Notarizer, Reservation
    from svc.telemetry.metrics import NotaryMetrics

#: Octets of the exchanges of ended connections that wait for their repetition, and the seconds that they wait.
MAX_SUSPENDED_OCTETS: Final = 16 * 2**20
#: What an exchange takes in memory besides topic and properties.
EXCHANGE_OCTETS: Final = 2048
SUSPENDED_SECONDS: Final = 300.0
#: Exchanges with QoS 1 and 2 of one connection that are kept, and the Receive Maximum of its client.
MAX_OPEN_EXCHANGES: Final = 256

#: The client's identity and identifier, and the packet identifier.
_Key = tuple[str, str, int]


def publish_nonce(properties: Properties) -> str | None:
    """
    Return the nonce that a publisher sent, None where it sent none.

    Raises:
        PublishRefused: for two of them, and for one that is not 22 characters of canonical base64url.
    """
    if not properties.user:
        return None
    given = [value for name, value in properties.user if name == naming.PROPERTY_NONCE]
    if not given:
        return None
    try:
        if len(given) == 1:
            return parse_nonce(given[0])
    except NonceMalformed as error:
        raise PublishRefused("nonce_malformed") from error
    raise PublishRefused("nonce_malformed")


#: Receives the identifier of the receipt once the record is durable, None at the level ``logRequest``; else the error.
RecordDone = Callable[[str | Failure | None], object]


@dataclass(slots=True, eq=False)
class PublishExchange:
    """
    A PUBLISH whose record was admitted, until its exchange is over.

    Attributes:
        recorded: whether the record is durable.
        receipt_id: the identifier of the receipt; None before the record is durable, and at the level ``logRequest``.
    """

    message: PublishedMessage
    level: Level
    received: datetime
    reservation: Reservation | None
    client: Peer | None
    tls: TlsFacts | None
    #: What it takes in memory.
    octets: int
    recorded: bool = False
    receipt_id: str | None = None
    committing: bool = False
    #: Whether a packet of it came before the last one.
    repeated: bool = False
    #: Whether a later packet with its packet identifier is another message.
    over: bool = False
    #: Whether its record was not durable in time; the one in its place has no acknowledgement.
    late: bool = False
    #: Called when the record is durable, or failed.
    waiting: list[RecordDone] = field(default_factory=list)
    #: When its connection ended, by both clocks, and how.
    suspended: tuple[float, datetime, ExchangeOutcome] | None = None


class PublishRecords:
    """
    What the recorders of one listener share, and the exchanges whose connections have ended.

    ``stored`` is called with each signed record when it is durable, behind those that wait for it.
    """

    def __init__(
        self,
        notarizer: Notarizer,
        metrics: NotaryMetrics,
        reporter: Reporter,
        bound: PublishBound,
        *,
        wall: Callable[[], datetime],
        seconds: Callable[[], float],
        listener: str = "",
        stored: Callable[[StoredReceipt], object] | None = None,
        released: ReleaseObserver = unobserved,
        max_suspended_octets: int = MAX_SUSPENDED_OCTETS,
    ) -> None:
        self.notarizer = notarizer
        self.metrics = metrics
        self.reporter = reporter
        self.bound = bound
        self.wall = wall
        self._seconds = seconds
        self._listener = listener
        self._stored = stored
        self._on_release_point = released
        self._max_suspended_octets = max_suspended_octets
        self._suspended: OrderedDict[_Key, PublishExchange] = OrderedDict()
        self._suspended_octets = 0
        self._closed = False

    @property
    def suspended(self) -> int:
        """Exchanges of ended connections."""
        return len(self._suspended)

    def suspend(self, key: _Key, exchange: PublishExchange, outcome: ExchangeOutcome) -> None:
        """Keep the exchange of a connection that has ended for its repetition."""
        former = self.take(key)
        if former is not None:
            self.end(former)
        exchange.suspended = self._seconds(), self.wall(), outcome
        self._suspended[key] = exchange
        self._suspended_octets += exchange.octets
        while self._suspended_octets > (0 if self._closed else self._max_suspended_octets):
            self._end_oldest()

    def take(self, key: _Key) -> PublishExchange | None:
        """Return the exchange of an ended connection, which is kept no longer."""
        exchange = self._suspended.pop(key, None)
        if exchange is not None:
            self._suspended_octets -= exchange.octets
        return exchange

    def sweep(self, now: float) -> None:
        """End the exchanges that were not repeated in time; ``now`` is a monotonic time."""
        while self._suspended:
            since, _when, _outcome = next(iter(self._suspended.values())).suspended or (0.0, None, None)
            if now - since < SUSPENDED_SECONDS:
                return
            self._end_oldest()

    def close(self) -> None:
        """End all exchanges of ended connections, now and of those that end later, before the store is closed."""
        self._closed = True
        while self._suspended:
            self._end_oldest()

    def _end_oldest(self) -> None:
        exchange = self.take(next(iter(self._suspended)))
        if exchange is not None:
            self.end(exchange)

    def end(self, exchange: PublishExchange) -> None:
        """End an exchange that gets no acknowledgement; a message that was forwarded leaves its record all the same."""
        exchange.over = True
        if exchange.reservation is None or exchange.committing:
            return
        _since, when, outcome = exchange.suspended or (0.0, self.wall(), ExchangeOutcome.CLIENT_ABORTED)
        self.commit(exchange, outcome, when, None)

    def commit(
        self,
        exchange: PublishExchange,
        outcome: ExchangeOutcome,
        completed: datetime,
        acknowledgement: RecordedAcknowledgement | None,
    ) -> None:
        """Make the record of an exchange durable; count and report the result, and call who waits for it."""
        reservation = exchange.reservation
        if reservation is None:
            raise TypeError("an exchange without a reservation is recorded already")
        exchange.committing = True
        recorded = RecordedPublish(
            level=reservation.level,
            jti=reservation.jti,
            client=exchange.client,
            server=reservation.credentials.server,
            tls=exchange.tls,
            message=exchange.message,
            acknowledgement=acknowledgement,
            received=exchange.received,
            # The clock may have been set back meanwhile: nothing ends before it began.
            completed=max(completed, exchange.received),
            outcome=outcome,
        )
        # With QoS 0 nothing is withheld, nor from a client that has left: such a record is true however late it is.
        done = self.notarizer.commit(
            reservation,
            recorded,
            None if acknowledgement is None else lambda error: self._broken_off(error, exchange, reservation, recorded),
        )
        done.addCallbacks(
            self._written, self._failed, callbackArgs=(exchange, recorded), errbackArgs=(exchange, recorded)
        )

    def _broken_off(
        self, error: NotaryUnavailable, exchange: PublishExchange, reservation: Reservation, recorded: RecordedPublish
    ) -> RecordedPublish:
        """
        Acknowledge nothing where the record is not durable in time, and return what is recorded in its place.

        The repeated message is an exchange of its own, with the nonce.
        """
        exchange.late = exchange.over = True
        self._report_failure(error, reservation.client)
        self.notarizer.release_nonce(reservation)
        self._call_waiting(exchange, Failure(error))
        return _without_acknowledgement(recorded, self.wall())

    def _written(self, record: StoredReceipt | None, exchange: PublishExchange, recorded: RecordedPublish) -> None:
        if self.reporter.recorded_exchanges:
            self._report(exchange, recorded)
        reservation, exchange.reservation = exchange.reservation, None
        self.metrics.records_written.inc()
        exchange.recorded, exchange.committing = not exchange.late, False
        if reservation is not None and exchange.level is Level.SIGN_REQUEST:
            exchange.receipt_id = reservation.receipt_id
        self._on_release_point(ReleasePoint.RECEIPT_COMMITTED)
        self._call_waiting(exchange, exchange.receipt_id)
        if record is not None and self._stored is not None:
            self._stored(record)

    def _failed(self, failure: Failure, exchange: PublishExchange, recorded: RecordedPublish) -> None:
        if self.reporter.recorded_exchanges:
            self._report(exchange, recorded)
        client = "" if exchange.reservation is None else exchange.reservation.client
        exchange.reservation, exchange.committing, exchange.over = None, False, True
        if not exchange.late:
            self._report_failure(failure.value, client)
        self._call_waiting(exchange, failure)

    def _report_failure(self, error: BaseException | None, client: str) -> None:
        self.metrics.records_failed.inc()
        reason, what = type(error).__name__, "the record could not be committed"
        if isinstance(error, SvcError):
            reason, what = error.reason, f"{what}: {error}"
        self.reporter.exchange_failed(reason, client, what)

    def _report(self, exchange: PublishExchange, recorded: RecordedPublish) -> None:
        if exchange.late:
            recorded = _without_acknowledgement(recorded, recorded.completed)
        message, answer, reservation = recorded.message, recorded.acknowledgement, exchange.reservation
        self.reporter.message_recorded(
            MessageSummary(
                listener=self._listener,
                peer="" if reservation is None else reservation.client,
                topic=message.topic,
                qos=message.qos,
                octets=message.body.size,
                level=recorded.level,
                seconds=(recorded.completed - recorded.received).total_seconds(),
                code=None if answer is None else int(answer.code),
                receipt_id=None if reservation is None else reservation.receipt_id,
                outcome=recorded.outcome,
            )
        )

    def _call_waiting(self, exchange: PublishExchange, result: str | Failure | None) -> None:
        waiting, exchange.waiting = exchange.waiting, []
        for done in waiting:
            done(result)


class PublishRecorder:
    """
    Records what the client of one connection publishes.

    For each message :meth:`begin`, then :meth:`complete` before it is acknowledged, or :meth:`abandon` where it was not
    forwarded; :meth:`release` on PUBREL, and :meth:`disconnected` at the end of the connection.

    Args:
        owner: the identity of the client as text, for budget, nonces and repetitions.
        client: the client's end of the connection, None without TLS.
        credentials: returns the newest ones with the SVID of the connection, None where there are none.
        client_id: of the session: that of CONNECT, or the one that the broker assigned.
        limit: exchanges with QoS 1 and 2 that may be open at once; its user begins no more before some are recorded.
    """

    def __init__(
        self,
        records: PublishRecords,
        *,
        owner: str,
        client: Peer | None,
        credentials: Callable[[], CredentialSet | None],
        tls: TlsFacts | None,
        version: Version,
        client_id: str,
        limit: int = MAX_OPEN_EXCHANGES,
    ) -> None:
        self._records = records
        self._owner = owner
        self._client = client
        self._credentials = credentials
        self._tls = tls
        self._version = version
        self._client_id = client_id
        self.limit: Final = limit
        #: Exchanges with QoS 1 and 2 that are not over, by packet identifier.
        self._open: dict[int, PublishExchange] = {}
        #: The last admission, where it has to wait.
        self._admission: Deferred[Reservation] | None = None
        self._ended = False

    @property
    def in_flight(self) -> int:
        """Exchanges with QoS 1 and 2 that are not over."""
        return len(self._open)

    @property
    def may_repeat(self) -> bool:
        """Whether exchanges of ended connections wait, of which the client could repeat or release one."""
        return self._records.suspended > 0

    def begin(
        self,
        publish: Publish,
        level: Level,
        nonce: str | None,
        done: Callable[[PublishExchange | ProxyError], object],
    ) -> None:
        """
        Reserve what the record of a message will need, before anything of it is forwarded.

        Args:
            publish: with its topic, whatever alias it came with.
            level: ``LOG_REQUEST`` or ``SIGN_REQUEST``.
            nonce: of :func:`publish_nonce`.
            done: called with the exchange, which is that of an earlier packet where this one repeats it, or with the
                refusal. It is called before this method returns, unless a nonce is looked up in the store or the rate
                of the client holds it back: the client's later packets wait for it. It is not called after
                :meth:`disconnected`.

        Of more exchanges than the limit the oldest one is forgotten whose record is durable, and that waits for PUBREL.
        """
        records = self._records
        properties = recorded_properties(publish.properties)
        message = PublishedMessage(
            version=self._version,
            client_id=self._client_id,
            topic=publish.topic,
            qos=publish.qos,
            retain=publish.retain,
            packet_id=publish.packet_id,
            properties=properties,
            body=BodySummary.of(publish.payload),
            nonce=nonce,
        )
        credentials, received = self._credentials(), records.wall()
        if credentials is None or not credentials.valid_at(received):
            self._refuse(NotaryUnavailable(), done)
            return
        if publish.qos:
            former = self._former(message, level, credentials, dup=publish.dup)
            if former is not None:
                done(former)
                return
            self._make_room()
        octets = publish_octets(publish.topic, properties)
        bound, signatures = records.bound.of(octets, len(properties)), credentials.signature_octets
        if not self._fits(octets, len(properties)) or bound.envelope(max(signatures, SIGNATURES_ROOM)) > MAX_ENVELOPE:
            self._refuse(RecordTooLarge(size=octets, limit=MAX_ENVELOPE, signatures=signatures), done)
            return
        memory = octets + EXCHANGE_OCTETS

        def admitted(reservation: Reservation) -> None:
            if self._ended:
                records.notarizer.abandon(reservation)
                return
            records.metrics.level[level.value].inc()  # type: ignore[index]  # never at level none
            exchange = PublishExchange(message, level, received, reservation, self._client, self._tls, memory)
            if message.qos:
                self._open[message.packet_id] = exchange
            done(exchange)

        def refused(failure: Failure) -> None:
            if self._ended:
                return
            error = failure.value if isinstance(failure.value, ProxyError) else NotaryUnavailable()
            if isinstance(error, NonceReplayed) and publish.dup and nonce is not None:
                self._find_recorded(message, level, nonce, done)
            else:
                self._refuse(error, done)

        admission = records.notarizer.admit(level, self._owner, nonce, credentials, bound.stored)
        self._admission = None if admission.called else admission
        admission.addCallbacks(admitted, refused)

    def complete(
        self, exchange: PublishExchange, response: Acknowledgement | None, acked_by: AckedBy, done: RecordDone
    ) -> None:
        """
        Commit the record of a message that is acknowledged, or with QoS 0 was forwarded.

        Args:
            exchange: of :meth:`begin`.
            response: PUBACK or PUBREC as the client will get it, None with QoS 0.
            acked_by: who acknowledged the message.
            done: called once with the identifier of the receipt, None at the level ``logRequest``, when the record is
                durable; with a ``Failure`` of ``NotaryUnavailable`` or ``NonceReplayed`` where it could not be written:
                then the message must not be acknowledged, and the client repeats it. Not called after
                :meth:`disconnected`.
        """
        if exchange.recorded:
            self._over(exchange, response)
            done(exchange.receipt_id)
            return
        if exchange.reservation is None or exchange.late:
            # Its record has failed, for an earlier connection or since it was ended before.
            self._completed(exchange, response, Failure(NotaryUnavailable()), done)
            return
        exchange.waiting.append(lambda result: self._completed(exchange, response, result, done))
        if exchange.committing:
            return
        answer = None if response is None else RecordedAcknowledgement(response.code, acked_by)
        self._records.commit(exchange, ExchangeOutcome.COMPLETE, self._records.wall(), answer)

    def abandon(self, exchange: PublishExchange) -> None:
        """Give up the record of a packet that was not forwarded, unless an earlier one of its exchange was."""
        self._forget(exchange)
        if exchange.repeated:
            self._records.end(exchange)
            return
        exchange.over = True
        if exchange.reservation is not None and not exchange.committing:
            self._records.notarizer.abandon(exchange.reservation)
            exchange.reservation = None

    def release(self, packet_id: int) -> None:
        """The client has released a message with QoS 2: its packet identifier is free."""
        exchange = self._open.pop(packet_id, None) or self._records.take((self._owner, self._client_id, packet_id))
        if exchange is not None:
            self._records.end(exchange)

    def disconnected(self, outcome: ExchangeOutcome) -> None:
        """
        The connection has ended: its exchanges wait for their repetition on another one. Those of messages of which
        nothing was forwarded are abandoned before.

        Args:
            outcome: of the exchanges that are not repeated, ``CLIENT_ABORTED`` where the client has left.
        """
        self._ended = True
        if self._admission is not None:
            self._records.notarizer.withdraw(self._admission)
        exchanges, self._open = self._open, {}
        for packet_id, exchange in exchanges.items():
            self._records.suspend((self._owner, self._client_id, packet_id), exchange, outcome)
            if not self._client_id:
                # Clients without an identifier cannot be told apart on another connection.
                self.release(packet_id)

    def _fits(self, octets: int, properties: int) -> bool:
        bound = self._records.bound
        client_id = len(self._client_id.encode("utf-8"))
        return octets <= bound.head and properties <= bound.properties and client_id <= bound.client_id

    def _make_room(self) -> None:
        if len(self._open) < self.limit:
            return
        recorded = next((packet_id for packet_id, each in self._open.items() if each.recorded), None)
        if recorded is not None:
            self._open.pop(recorded).over = True

    def _former(
        self, message: PublishedMessage, level: Level, credentials: CredentialSet, *, dup: bool
    ) -> PublishExchange | None:
        """
        Return the exchange that a PUBLISH repeats; end one whose packet identifier it uses for another message, or that
        has a lower level than is now demanded.
        """
        key = self._owner, self._client_id, message.packet_id
        former = self._open.pop(message.packet_id, None) or self._records.take(key)
        if former is None or former.over:
            return None
        if not (dup and former.message == message and former.level.covers(level)):
            self._records.end(former)
            return None
        if former.suspended is not None:
            # The receipt is about the connection on which the message is acknowledged.
            former.suspended = None
            if former.reservation is not None and not former.committing:
                former.client, former.tls = self._client, self._tls
                former.reservation.credentials = credentials
        former.repeated = True
        self._open[message.packet_id] = former
        return former

    def _find_recorded(
        self,
        message: PublishedMessage,
        level: Level,
        nonce: str,
        done: Callable[[PublishExchange | ProxyError], object],
    ) -> None:
        """Answer a repeated message whose nonce has a record with that record, where it is about the same message."""

        def found(stored: StoredReceipt | None) -> None:
            if self._ended:
                return
            if stored is None or not _is_about(stored, message, level):
                self._refuse(NonceReplayed(), done)
                return
            octets = publish_octets(message.topic, message.properties) + EXCHANGE_OCTETS
            exchange = PublishExchange(
                message, level, self._records.wall(), None, self._client, self._tls, octets, recorded=True
            )
            exchange.receipt_id = stored.id if stored.signed else None
            self._open[message.packet_id] = exchange
            done(exchange)

        def failed(failure: Failure) -> None:
            if not self._ended:
                error = failure.value if isinstance(failure.value, ProxyError) else NotaryUnavailable()
                self._refuse(error, done)

        self._records.notarizer.recorded(self._owner, nonce).addCallbacks(found, failed)

    def _refuse(self, error: ProxyError, done: Callable[[PublishExchange | ProxyError], object]) -> None:
        """Count and report a message whose record is not admitted."""
        if isinstance(error, NotaryUnavailable):
            self._records.metrics.records_failed.inc()
        self._records.reporter.exchange_failed(error.reason, self._owner, str(error))
        done(error)

    def _completed(
        self,
        exchange: PublishExchange,
        response: Acknowledgement | None,
        result: str | Failure | None,
        done: RecordDone,
    ) -> None:
        if self._ended:
            # Nothing was acknowledged: the exchange goes on where the message is repeated.
            return
        if isinstance(result, Failure):
            self._forget(exchange)
        else:
            self._over(exchange, response)
        done(result)

    def _over(self, exchange: PublishExchange, response: Acknowledgement | None) -> None:
        """With QoS 2 an exchange lasts until it is released, unless the acknowledgement refuses the message."""
        if exchange.message.qos < 2 or (response is not None and response.code >= ReasonCode.UNSPECIFIED_ERROR):
            exchange.over = True
            self._forget(exchange)

    def _forget(self, exchange: PublishExchange) -> None:
        packet_id = exchange.message.packet_id
        if self._open.get(packet_id) is exchange:
            del self._open[packet_id]


def _without_acknowledgement(recorded: RecordedPublish, completed: datetime) -> RecordedPublish:
    completed = max(completed, recorded.received)
    return replace(recorded, acknowledgement=None, completed=completed, outcome=ExchangeOutcome.SERVER_ABORTED)


def _is_about(stored: StoredReceipt, message: PublishedMessage, level: Level) -> bool:
    """Whether a record is that of a message and its acknowledgement, at this level at least."""
    try:
        claims = ReceiptClaims.read(loads_object(stored.payload))
        salts = read_disclosures({"disclosures": stored.disclosures or {}}, claims).get("request", {})
    except (JsonRefused, EnvelopeError):
        return False
    complete = claims.outcome is ExchangeOutcome.COMPLETE and claims.level.covers(level)
    return complete and isinstance(claims.request, PublishClaims) and claims.request.describes(message, salts)
