"""
Publishes statements and receipts on the upstream broker of a listener, in a session of the proxy's own.

Owns which statements are retained there, which receipts wait, and the life of the connections; the rules of MQTT are in
:mod:`svc.proxy.mqtt.artifacts.session`. Receipts are durable in the notary database before they come here: what does
not fit the queue, or is left at the end of the process, is not published, and nothing is published again after a
restart.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol
from weakref import WeakSet

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.interfaces import IDelayedCall, IStreamClientEndpoint
from twisted.internet.task import deferLater
from twisted.logger import Logger

from svc import naming
from svc.errors import SvcError
from svc.naming import MQTT_CLIENT_PREFIX
from svc.notary.artifact import stored_artifact
from svc.notary.artifact_topics import ArtifactPrefix
from svc.notary.statement import Statement
from svc.pacing.turns import Turns
from svc.process.lifecycle import when_finished
from svc.proxy.mqtt.artifacts.connection import CLOSE_SECONDS, ArtifactConnection
from svc.proxy.mqtt.artifacts.session import (
    ArtifactAccepted,
    ArtifactEvent,
    ArtifactKind,
    ArtifactMessage,
    ArtifactRefused,
    ArtifactSession,
    ArtifactSessionState,
    ArtifactsUnpublished,
    Probe,
    PublishingBegan,
)
from svc.proxy.mqtt.artifacts.settings import ArtifactSettings
from svc.proxy.mqtt.backoff import FullJitter
from svc.store.records import StoredReceipt
from svc.transport.errors import TransportError
from svc.wire.mqtt import Properties, Version
from svc.wire.mqtt.primitives import MAX_TEXT
from svc.workload.files import read_secret

#: Bounds of the first and of every pause between two connections, in seconds.
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
#: Statements that are removed from a broker at their end. More are sent only to one that refuses to remove them.
MAX_SENT: Final = 64
#: Statements that have ended are looked for at least so often: the clock may be set.
_EXPIRY_CHECK: Final = 600.0
#: MQTT 5.0, Message Expiry Interval: a four byte integer.
_MAX_EXPIRY: Final = 2**32 - 1
_RECEIPT_PROPERTIES: Final = {
    batched: Properties(content_type=media_type, payload_format=1)
    for batched, media_type in ((False, naming.MEDIA_TYPE_ENVELOPE), (True, naming.MEDIA_TYPE_BATCHED_RECEIPT))
}


class ArtifactObserver(Protocol):
    """Receives what operators should see of the artifacts of one listener."""

    def session_began(self, version: Version) -> None:
        """The broker takes artifacts; with MQTT 3.1.1 a probe has proven it."""

    def session_failed(self, error: SvcError) -> None:
        """There is no session with the broker, or no longer; another attempt follows."""

    def published(self, kind: ArtifactKind) -> None:
        """The broker acknowledged an artifact."""

    def refused(self, kind: ArtifactKind, error: ArtifactsUnpublished) -> None:
        """The broker refused an artifact, which is not sent again in this session."""

    def dropped(self, error: ArtifactsUnpublished) -> None:
        """A receipt is not published because too many wait."""

    def ended(self, left: int) -> None:
        """Nothing is published any more; so many receipts were left, and perhaps more in further calls."""


@dataclass(frozen=True, slots=True)
class ArtifactStatus:
    """``publishing`` is whether there is a session that takes artifacts, ``waiting`` counts what it has not taken."""

    publishing: bool
    waiting: int


def client_id_of(spiffe_id: str, listener: str) -> str:
    """Return the client identifier of a listener's session: 23 characters, which every broker takes."""
    digest = hashlib.sha256(f"{spiffe_id}\0{listener}".encode()).hexdigest()
    return MQTT_CLIENT_PREFIX + digest[:9]


class ArtifactPublisher:
    """
    The artifacts of one listener.

    Args:
        upstream: the address of the broker, for errors.
        endpoint: connects to the broker.
        wall: the time, aware.
        random: returns that many random octets.
        jitter: returns numbers from 0 to 1.
    """

    _log = Logger()

    def __init__(
        self,
        settings: ArtifactSettings,
        *,
        listener: str,
        upstream: str,
        endpoint: IStreamClientEndpoint,
        clock: Any,
        turns: Turns,
        wall: Callable[[], datetime],
        random: Callable[[int], bytes],
        jitter: Callable[[], float],
        observer: ArtifactObserver,
    ) -> None:
        self._settings = settings
        #: Below which no client may publish.
        self.prefix: Final = ArtifactPrefix.parse(settings.prefix)
        self._listener = listener
        self._client_id = ""
        self._upstream = upstream
        self._endpoint = endpoint
        self._clock = clock
        self._turns = turns
        self._wall = wall
        self._random = random
        self._observer = observer
        self._backoff = FullJitter(FIRST_PAUSE, LONGEST_PAUSE, jitter)
        #: The statements that should be retained, by identifier.
        self._current: dict[str, Statement] = {}
        #: Those that the broker may have, also after it was restarted; the oldest first.
        self._sent: dict[str, None] = {}
        #: Identifiers of statements that are to be published or removed, in order.
        self._due: dict[str, None] = {}
        self._receipts: deque[ArtifactMessage] = deque()
        self._connection: ArtifactConnection | None = None
        self._running: Deferred[None] | None = None
        self._started = self._stopping = False
        self._stopped: Deferred[None] | None = None
        self._emptied: Deferred[None] | None = None
        self._pump_call: IDelayedCall | None = None
        self._expiry_call: IDelayedCall | None = None

    @property
    def status(self) -> ArtifactStatus:
        connection = self._connection
        publishing = connection is not None and connection.session.state is ArtifactSessionState.PUBLISHING
        return ArtifactStatus(publishing, self._waiting)

    @property
    def _waiting(self) -> int:
        return len(self._receipts) + (0 if self._connection is None else self._connection.session.in_flight)

    # -- For the proxy -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Connect as soon as there is a statement, which says whose session it is."""
        self._started = True
        self._run_if_due()

    def stop(self) -> Deferred[None]:
        """Publish what waits, for a short time, and end the session. Statements stay retained until their end."""
        if self._stopped is None:
            self._stopping = True
            self._stopped = Deferred.fromCoroutine(self._stop())
        return when_finished(self._stopped)

    def statements(self, valid: Iterable[Statement]) -> None:
        """Retain these statements, and remove all others that were published."""
        now = self._wall()
        current = {each.id: each for each in valid if each.expires > now}
        former, self._current = self._current, current
        self._due.update(
            dict.fromkeys(each for each in (*former, *current) if each not in former or each not in current)
        )
        for statement in current.values():
            self._client_id = client_id_of(str(statement.claims["sub"]), self._listener)
        self._schedule_expiry()
        self._run_if_due()
        self._pump_soon()

    def stored(self, record: StoredReceipt) -> None:
        """Publish the receipt of a record that is durable; an unsigned record is none."""
        artifact = stored_artifact(record.payload, record.envelope, record.batch, record.inclusion)
        if artifact is not None:
            self.receipt(record.id, artifact, batched=record.batch is not None)

    def receipt(self, receipt_id: str, artifact: bytes, *, batched: bool) -> None:
        """Publish a receipt that is durable: as it is served, without ``disclosures``."""
        if self._stopping:
            self._observer.ended(1)
            return
        if self._waiting >= self._settings.queue:
            self._observer.dropped(
                ArtifactsUnpublished("artifacts_dropped", broker=self._upstream, waiting=self._waiting)
            )
            return
        topic = self.prefix.receipt_topic(receipt_id)
        self._receipts.append(
            ArtifactMessage("receipt", receipt_id, topic, artifact, properties=_RECEIPT_PROPERTIES[batched])
        )
        self._pump_soon()

    # -- Sessions ------------------------------------------------------------------------------------------------------

    def _run_if_due(self) -> None:
        if self._started and self._current and self._running is None and not self._stopping:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addErrback(lambda failure: failure.trap(CancelledError))

    async def _run(self) -> None:
        while True:
            try:
                error: SvcError | None = await self._serve(Version.V5)
                if error is None:
                    error = await self._serve(Version.V311)
            except SvcError as failed:
                error = failed
            except CancelledError:
                return
            except Exception:  # noqa: BLE001 (logged, and shown as a session that failed)
                self._log.failure("publishing artifacts failed unexpectedly")
                error = None
            if self._stopping:
                return
            self._observer.session_failed(error or ArtifactsUnpublished(broker=self._upstream))
            await deferLater(self._clock, self._backoff.pause())

    async def _serve(self, version: Version) -> ArtifactsUnpublished | None:
        """Keep one session; returns why it ended, None where the broker does not support the version."""
        session = self._session(version)
        try:
            connection = await ArtifactConnection.connect(self._endpoint, session, self._clock, self._turns, self._got)
        except TransportError as error:
            raise ArtifactsUnpublished("artifacts_broker_unreachable", broker=self._upstream, what=error) from error
        self._connection = connection
        self._pump()
        try:
            return await connection.ended
        finally:
            self._connection = None
            self._receipts.extendleft(each for each in reversed(session.unacknowledged) if each.kind == "receipt")
            self._check_emptied()

    def _session(self, version: Version) -> ArtifactSession:
        settings = self._settings
        password = None
        if settings.passwordFile is not None:
            password = read_secret(settings.passwordFile, max_bytes=MAX_TEXT).rstrip(b"\r\n")
        return ArtifactSession(
            version,
            broker=self._upstream,
            prefix=settings.prefix,
            probe=Probe(f"{settings.prefix}/probe/{self._client_id}", self._random(16).hex().encode("ascii")),
            client_id=self._client_id,
            username=settings.username,
            password=password,
        )

    def _got(self, events: Iterable[ArtifactEvent]) -> None:
        for event in events:
            if isinstance(event, ArtifactAccepted):
                # A broker that only lets sessions begin is one that fails.
                self._backoff.succeeded()
                if event.message.payload:
                    self._observer.published(event.message.kind)
                else:
                    self._sent.pop(event.message.id, None)
            elif isinstance(event, ArtifactRefused):
                self._observer.refused(event.message.kind, event.error)
            elif isinstance(event, PublishingBegan):
                self._observer.session_began(event.version)
                # The broker may have been restarted without what it retained.
                self._due = {**self._sent, **dict.fromkeys(self._current)}
        self._pump()

    # -- Messages ------------------------------------------------------------------------------------------------------

    def _pump_soon(self) -> None:
        """Publish at the end of this turn of the reactor, together what was signed together."""
        if self._pump_call is None and not self._stopping:
            self._pump_call = self._clock.callLater(0, self._pump)

    def _pump(self) -> None:
        if self._pump_call is not None and self._pump_call.active():
            self._pump_call.cancel()
        self._pump_call = None
        connection = self._connection
        if connection is not None:
            while connection.session.room and (message := self._next()) is not None:
                refused = connection.session.publish(message)
                if refused is not None:
                    self._observer.refused(message.kind, refused.error)
            connection.flush()
        self._check_emptied()

    def _next(self) -> ArtifactMessage | None:
        """The statements before the receipts that name them."""
        while self._due:
            statement_id = next(iter(self._due))
            del self._due[statement_id]
            if statement_id in self._current:
                self._sent[statement_id] = None
                if len(self._sent) > MAX_SENT:
                    del self._sent[next(iter(self._sent))]
                return self._statement_message(self._current[statement_id])
            if statement_id in self._sent:
                return ArtifactMessage("workload", statement_id, self.prefix.statement_topic(statement_id), b"", True)
        return self._receipts.popleft() if self._receipts else None

    def _statement_message(self, statement: Statement) -> ArtifactMessage:
        seconds = math.ceil((statement.expires - self._wall()).total_seconds())
        properties = Properties(
            content_type=naming.MEDIA_TYPE_ENVELOPE, payload_format=1, message_expiry=min(max(seconds, 1), _MAX_EXPIRY)
        )
        topic = self.prefix.statement_topic(statement.id)
        return ArtifactMessage("workload", statement.id, topic, statement.envelope.serialize(), True, properties)

    def _schedule_expiry(self) -> None:
        """Remove statements at their end: MQTT 3.1.1 has no expiry."""
        if self._expiry_call is not None:
            self._expiry_call.cancel()
            self._expiry_call = None
        if self._current and not self._stopping:
            first = min(each.expires for each in self._current.values())
            seconds = (first - self._wall()) / timedelta(seconds=1)
            self._expiry_call = self._clock.callLater(min(max(seconds, 0.0), _EXPIRY_CHECK), self._expire)

    def _expire(self) -> None:
        self._expiry_call = None
        self.statements(list(self._current.values()))

    # -- The end -------------------------------------------------------------------------------------------------------

    async def _stop(self) -> None:
        if self._expiry_call is not None:
            self._expiry_call.cancel()
            self._expiry_call = None
        self._pump()
        if self._connection is not None and self._waiting:
            self._emptied = Deferred()
            try:
                await self._emptied.addTimeout(CLOSE_SECONDS, self._clock)
            except DeferredTimeout:
                self._emptied = None
        if self._connection is not None:
            await self._connection.close()
        self._observer.ended(len(self._receipts))
        if self._running is not None:
            self._running.cancel()

    def _check_emptied(self) -> None:
        if self._emptied is not None and (self._connection is None or not self._waiting):
            emptied, self._emptied = self._emptied, None
            emptied.callback(None)


class ArtifactPublishers(Service):
    """Those of all listeners: the end of the process waits for them, also for those of listeners that were closed."""

    def __init__(self) -> None:
        self._publishers: WeakSet[ArtifactPublisher] = WeakSet()

    def add(self, publisher: ArtifactPublisher) -> ArtifactPublisher:
        self._publishers.add(publisher)
        return publisher

    def stopService(self) -> Deferred[None]:
        """Stop all; fires when their sessions are over."""
        super().stopService()
        return gatherResults([each.stop() for each in self._publishers]).addCallback(lambda _results: None)
