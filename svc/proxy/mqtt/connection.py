"""
One client's connection and its connection to the broker, for whatever kind of session.

A client is verified in the handshake and decided on with its CONNECT, before the broker is connected to. Each side is
read only as fast as the other takes it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Flag, auto
from typing import Any, Final, Literal, cast

from twisted.internet.defer import CancelledError
from twisted.internet.error import ConnectingCancelledError, ConnectionDone
from twisted.internet.interfaces import IProtocol, IPushProducer
from twisted.python.failure import Failure
from zope.interface import implementer

from svc.errors import SvcError, printable
from svc.identity.errors import SvidInvalid
from svc.naming import MQTT_CLIENT_PREFIX
from svc.notary.level import Level, effective_level
from svc.pacing.turns import Turns
from svc.policy.engine import ConnectionPolicy, Denied, Permit
from svc.policy.rules import MqttAction, RequestFacts
from svc.policyfiles.settings import Policies
from svc.proxy.context import level_bounds
from svc.proxy.errors import IdentityGone, ProxyError
from svc.proxy.listener import Connection
from svc.proxy.mqtt.context import MqttContext
from svc.proxy.mqtt.errors import ClientIdRefused
from svc.proxy.mqtt.interfaces import MqttSession
from svc.proxy.mqtt.recorder import PublishRecorder, PublishRecords
from svc.proxy.mqtt.upstream import BrokerFactory, MqttUpstream
from svc.proxy.records.notarizer import attested_client
from svc.proxy.relayed import RelayedClient
from svc.proxy.reporter import PolicyDecision
from svc.telemetry.labels import Cause
from svc.transport.errors import ConnectFailed, ConnectionLimitReached, KeyUpdateLimitReached, OwnSvidRefused
from svc.transport.evidence import PeerEvidence
from svc.transport.fair_limiter import release_slot
from svc.wire.errors import RemoteProtocolError
from svc.wire.mqtt import Connect, ReasonCode, Version, split_shared

#: Seconds in which a client may take the last octets; then its connection is dropped.
CLOSE_TIMEOUT: Final = 5.0
#: The same of a broker, whose last octets are messages and DISCONNECT.
BROKER_CLOSE_TIMEOUT: Final = 30.0
#: Unsent octets of a client that reads: no more than the packets with which a session ends.
_LAST_OCTETS: Final = 1024
#: Octets for a client whose transport is full, before it is not read either: it gets answers to what it sends.
MAX_UNREAD_OCTETS: Final = 64 * 1024
#: What a client must send within the keep alive, in its lengths [MQTT-3.1.2-22].
KEEP_ALIVE_FACTOR: Final = 1.5
#: Policies about topics that begin so are those of the broker.
_RESERVED_TOPIC: Final = "$"
#: What brokers such as EMQX put before a filter, as ``$share``: its messages are those of the rest.
_BROKER_PREFIXES: Final = ("$queue/", "$exclusive/")


class _Pause(Flag):
    """Why nothing is read from a client."""

    SESSION = auto()
    BROKER_FULL = auto()
    ANSWERS_UNREAD = auto()
    LEAVING = auto()
    TURN = auto()


_NOT_PAUSED: Final = _Pause(0)


@implementer(IProtocol, IPushProducer)
class MqttConnection(RelayedClient):
    """
    A client's connection; the two ends and the authorizer of its session, and the producer of the broker's transport.

    Attributes:
        upstream: the connection to the broker, once there is one.
        gone: whether the transport is closed.
    """

    context: MqttContext

    def __init__(
        self, context: MqttContext, registry: set[Connection], session: Callable[[MqttConnection], MqttSession]
    ) -> None:
        RelayedClient.__init__(self, context, registry)
        self.upstream: MqttUpstream | None = None
        self.gone = False
        self._reauthorization = context.reauthorization
        self._octets = self._forwarded = 0
        #: Whether the client's transport has a producer.
        self._producing = False
        #: Sends to the broker; nothing before it is connected to.
        self._to_broker: Callable[[bytes], object] = lambda _octets: None
        self._rules: ConnectionPolicy | None = None
        self._client_id: str | None = None
        self._paused = _NOT_PAUSED
        self._full = False
        self._unread = 0
        #: Whether the connection is counted as a success or a failure.
        self._counted = False
        #: Octets of the client at the last sweep, and when it sent the last ones.
        self._sent_before, self._sent_at = 0, context.tick
        #: Whether the client went away without DISCONNECT.
        self._lost = False
        #: When the connection was first to be closed.
        self._closing: float | None = None
        #: With which cause and reason it ends when nothing is being recorded; None unless it is to end.
        self._leaving: tuple[Cause, ReasonCode] | None = None
        #: Whether octets of the client wait for a turn, and what came behind them.
        self._awaits_turn = False
        self._behind = b""
        self._session: MqttSession = session(self)

    @property
    def received(self) -> int:
        """See :class:`svc.proxy.relayed.RelayedClient`."""
        return self._octets

    @property
    def returned(self) -> int:
        """See :class:`svc.proxy.relayed.RelayedClient`."""
        return 0 if self.upstream is None else self.upstream.octets

    @property
    def _upstream_evidence(self) -> PeerEvidence | None:
        return None if self.upstream is None else self.upstream.evidence

    @property
    def forwarded(self) -> int:
        """See :class:`svc.proxy.relayed.RelayedClient`."""
        return self._forwarded

    # -- Twisted -----------------------------------------------------------------------------------------------------

    def makeConnection(self, transport: Any) -> None:
        """Take the transport."""
        self.transport = transport
        set_no_delay = getattr(transport, "setTcpNoDelay", None)
        if set_no_delay is not None:
            set_no_delay(True)
        self.connectionMade()

    def connectionMade(self) -> None:
        """Identify the client, and wait for CONNECT."""
        self._register()
        context = self.context
        try:
            if context.policies is not None:
                evidence = self._identify()
                # The bundles may have changed during the handshake.
                evidence.reauthorize(context.rotation.identity, context.rotation.bundles, context.wall())
                # No other connection is evicted for this one before its client is permitted.
                context.evictions.unpermitted[self] = None
            elif context.rotation.identity is None:
                raise IdentityGone()
        except IdentityGone as error:
            self._count(context.metrics.failed.inc)
            self._report_failure(error)
            self.abort("identity_withdrawn")
        except SvidInvalid as error:
            self._count(context.metrics.auth_failed.inc)
            self._report_denied(error)
            self.abort("reauthorization")

    def dataReceived(self, data: bytes) -> None:
        """Octets of the client; none are decided on by what is no longer in force."""
        self._octets += len(data)
        if self._awaits_turn:
            self._behind += data
            return
        if self._reauthorization.running:
            self._reauthorization.decide(self)
        self._session.client_received(data)

    def read_on(self) -> None:
        """See :class:`svc.pacing.turns.UnfinishedRead`."""
        self._awaits_turn = False
        data, self._behind = self._behind, b""
        if self._reauthorization.running:
            self._reauthorization.decide(self)
        self._session.client_received(data)
        if self._awaits_turn:
            return
        self._resume(_Pause.TURN)
        if self.gone:
            self._client_lost()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008 (Twisted's signature)
        """The client's connection is closed; what it sent before is handled first."""
        self.gone = True
        self.context.evictions.closing.pop(self, None)
        if self._cause is None and isinstance(reason.value, KeyUpdateLimitReached):
            self._cause = "key_update_limit"
        if not self._awaits_turn:
            self._client_lost()

    def _client_lost(self) -> None:
        self._lost = self._closing is None
        self._session.client_lost()
        self._remove_when_both_gone()

    # The producer of the broker's transport.

    def pauseProducing(self) -> None:
        """The broker reads slower than the client sends."""
        self._pause(_Pause.BROKER_FULL)

    def resumeProducing(self) -> None:
        """The broker caught up."""
        self._resume(_Pause.BROKER_FULL)

    def stopProducing(self) -> None:
        """The broker's transport is closed; its own protocol is called."""

    def _pause(self, reason: _Pause) -> None:
        if not self._paused and not self.gone:
            self.transport.pauseProducing()
        self._paused |= reason

    def _resume(self, reason: _Pause) -> None:
        if reason in self._paused:
            self._paused &= ~reason
            if not self._paused and not self.gone and self._closing is None:
                # It was not read: the time does not count against its keep alive.
                self._sent_at = self.context.tick
                self.transport.resumeProducing()

    # What the connection to the broker reports.

    def upstream_opened(self, upstream: MqttUpstream) -> None:
        """It is connected to."""
        self._attempt = None
        self.upstream = upstream
        if self._changes != self.context.reauthorization.changes:
            self._evaluate_upstream()
        if self._closing is not None:
            upstream.drop()
            return
        self._to_broker = upstream.transport.write
        upstream.transport.registerProducer(self, True)
        self.deliver_from(upstream)
        upstream.joined = True
        self._session.upstream_opened()

    def upstream_received(self, data: bytes) -> None:
        """Octets of the broker."""
        if self._reauthorization.running:
            self._reauthorization.decide(self)
        self._session.upstream_received(data)

    def upstream_lost(self, reason: Failure) -> None:
        """It is closed."""
        error = self.context.explained(reason.value) if isinstance(reason.value, OwnSvidRefused) else None
        self._session.upstream_lost(error)
        self._remove_when_both_gone()

    def deliver_from(self, producer: IPushProducer) -> None:
        """Have the client's transport pause what sends to it, which calls :meth:`client_full`."""
        self.transport.registerProducer(producer, True)
        self._producing = True

    def client_full(self, *, full: bool) -> None:
        """The client's transport is full, or has sent everything."""
        self._full = full
        if full:
            self._unread = 0
        else:
            self._resume(_Pause.ANSWERS_UNREAD)

    # -- svc.proxy.mqtt.interfaces.SessionEnds -----------------------------------------------------------------------

    @property
    def turns(self) -> Turns:
        """See :class:`svc.proxy.mqtt.interfaces.SessionEnds`."""
        return self.context.turns

    def client_waits(self) -> None:
        """Go on with the client in a later turn."""
        self._awaits_turn = True
        self._pause(_Pause.TURN)
        self.context.turns.wait(self)

    def upstream_waits(self) -> None:
        """The same with the broker."""
        if self.upstream is not None:
            self.upstream.wait()

    def open_upstream(self) -> None:
        """Connect to the broker."""
        if self._closing is not None:
            return
        context = self.context
        self._changes = context.reauthorization.changes
        self._attempt = context.endpoint.connect(BrokerFactory(self))
        self._attempt.addErrback(self._not_connected)

    def _not_connected(self, failure: Failure) -> None:
        self._attempt = None
        if failure.check(CancelledError, ConnectingCancelledError):
            return
        if failure.check(ConnectFailed):
            self.context.unreachable()
        self._session.upstream_lost(self.context.explained(failure.value))

    def write_client(self, octets: bytes) -> None:
        """Send to the client; one that does not read what it gets is not read either."""
        if self.gone:
            return
        self.transport.write(octets)
        if self._full:
            self._unread += len(octets)
            if self._unread > MAX_UNREAD_OCTETS:
                self._pause(_Pause.ANSWERS_UNREAD)

    def write_upstream(self, octets: bytes) -> None:
        """Send to the broker."""
        self._forwarded += len(octets)
        self._to_broker(octets)

    def hold_client(self, *, held: bool) -> None:
        """Stop or go on reading the client."""
        if held:
            self._pause(_Pause.SESSION)
        else:
            self._resume(_Pause.SESSION)

    def refused(self, error: SvcError, action: MqttAction, topic: str | None) -> None:
        """Count and report what is refused."""
        if isinstance(error, Denied):
            context, decision = self.context, PolicyDecision(error.policy, error.rule, "")
            if context.inbound:
                # Outbound the decisions are those on peers.
                context.metrics.denied_policy.inc()
            if action == "Connect":
                self._decision = decision
            detail = f"{error}; {action}" + ("" if topic is None else f" {printable(topic)}")
            context.reporter.denied(
                error.reason, self._address, self._peer, detail, listener=context.name, decision=decision
            )
        elif isinstance(error, ProxyError):
            self._report_failure(error)
        else:
            self.context.reporter.exchange_failed(error.reason, self._peer, str(error))

    def close(self, cause: Cause, error: SvcError | None) -> None:
        """Close both connections behind what was sent."""
        if self._closing is not None:
            return
        context = self.context
        self._closing = context.seconds()
        if self._cause is None:
            self._cause = cause
        context.evictions.unpermitted.pop(self, None)
        # From now on a new connection that needs its place has it at once.
        if not self.gone:
            context.evictions.closing[self] = None
        if self._share is not None:
            context.evictions.leaving[self] = None
        if isinstance(error, ConnectionLimitReached):
            context.reporter.evicted(error.reason, self._address, self._peer, str(error))
        elif isinstance(error, ProxyError):
            self._report_failure(error)
        elif isinstance(error, RemoteProtocolError):
            context.reporter.exchange_failed(error.reason, self._peer, str(error))
        if self._evidence is not None:
            self._count(context.metrics.auth_failed.inc if cause == "policy_deny" else context.metrics.failed.inc)
        if self._attempt is not None:
            self._attempt.cancel()
        if self.upstream is not None:
            self.upstream.finish()
        if not self.gone:
            if self._producing:
                # A transport with a producer does not close.
                self.transport.unregisterProducer()
            self.transport.resumeProducing()
            self.transport.loseConnection()
        if self._awaits_turn:
            # Nothing of what waits is taken any more.
            self._awaits_turn = False
            context.turns.discard(self)
            if self.gone:
                self._client_lost()

    def _count(self, count: Callable[[], None]) -> None:
        if not self._counted:
            self._counted = True
            count()

    # -- svc.proxy.mqtt.interfaces.TopicAuthorizer -------------------------------------------------------------------

    def named(self, client_id: str) -> None:
        """Take the client identifier, which decisions name; the broker may be the one that assigns it."""
        self._client_id = client_id or None

    def _facts(self, action: MqttAction, topic: str | None = None) -> RequestFacts:
        return RequestFacts(action=action, topic=topic, client_id=self._client_id)

    def connect(self, packet: Connect) -> None:
        """Admit a client."""
        context, evidence = self.context, self._evidence
        if evidence is None:
            return
        if context.policies is None:
            raise self._denied("this listener has no policies")
        self._authorize(self._current_rules(evidence), self._facts("Connect"))
        self._check_client_id(packet.client_id, evidence)
        context.metrics.auth_allowed.inc()
        context.evictions.unpermitted.pop(self, None)
        self._share = context.evictions.admit(self, evidence.svid.spiffe_id)
        self._count(context.metrics.succeeded.inc)

    def reconnect(self, packet: Connect) -> None:
        """Decide again, by the policies that are in force now."""
        if self._evidence is not None:
            self._authorize(self._current_rules(self._evidence), self._facts("Connect"))
            self._check_client_id(packet.client_id, self._evidence)

    def publish(self, topic: str) -> Level:
        """Decide on a topic name, and on the level of its messages."""
        if topic.startswith(_RESERVED_TOPIC):
            raise self._denied("topics that begin with $ are reserved")
        artifacts = self.context.artifacts
        if artifacts is not None and artifacts.prefix.protects(topic):
            raise self._denied(f"topics below {artifacts.prefix} are those of artifacts")
        context, permit = self.context, self._decide_topic("Publish", topic)
        if permit is None:
            return Level.NONE
        demanded, maximum = level_bounds(permit, context.demanded, context.maximum)
        return effective_level(demanded=demanded, asked=Level.NONE, maximum=maximum)

    def subscribe(self, topic_filter: str) -> None:
        """Decide on a topic filter."""
        share = split_shared(topic_filter)
        if share is not None:
            topic_filter = share.filter
        for prefix in _BROKER_PREFIXES:
            topic_filter = topic_filter.removeprefix(prefix) or topic_filter
        self._decide_topic("Subscribe", topic_filter)

    def _decide_topic(self, action: Literal["Publish", "Subscribe"], topic: str) -> Permit | None:
        if self._evidence is None:
            # Outbound the peer decides.
            return None
        before = self._decision
        permit = self._authorize(self._current_rules(self._evidence), self._facts(action, topic))
        self.context.metrics.auth_allowed.inc()
        # The record of a connection has the decision on its client.
        self._decision = before or self._decision
        return permit

    def recorder(self, records: PublishRecords, version: Version, client_id: str) -> PublishRecorder:
        """Return what records the messages of a verified client."""
        evidence = self._evidence
        if evidence is None:
            raise TypeError("messages are recorded at inbound listeners")
        client, tls = attested_client(evidence)
        return PublishRecorder(
            records,
            owner=self._peer,
            client=client,
            credentials=lambda: self.context.rotation.of_evidence(evidence),
            tls=tls,
            version=version,
            client_id=client_id,
        )

    def _current_rules(self, evidence: PeerEvidence) -> ConnectionPolicy:
        policies = self.context.policies
        if policies is None:
            raise self._denied("this listener has no policies")
        if self._rules is None or policies is not self._policies:
            self._rules = self._narrowed(policies, evidence)
        return self._rules

    def _check_client_id(self, client_id: str, evidence: PeerEvidence) -> None:
        patterns, identity = self.context.client_ids, evidence.svid.spiffe_id
        if client_id.startswith(MQTT_CLIENT_PREFIX):
            # It would take the session of the proxy, which publishes artifacts.
            rule = f"identifiers that begin with {MQTT_CLIENT_PREFIX} are the proxy's"
            raise ClientIdRefused(identity=identity, policy=f"listener {self.context.name}", rule=rule)
        if not patterns or self._policies is None:
            return
        attributes = self._policies.attributes.attributes(identity)
        # One that the broker is to assign matches nothing.
        if not client_id or not any(each.admits(client_id, identity, attributes) for each in patterns):
            raise ClientIdRefused(
                identity=identity, policy=f"listener {self.context.name}", rule=f"clientIDs: {printable(client_id, 64)}"
            )

    def _denied(self, rule: str) -> Denied:
        return Denied(identity=self._peer or "this client", policy=f"listener {self.context.name}", rule=rule)

    # -- svc.proxy.relayed.RelayedClient -----------------------------------------------------------------------------

    def _decide(self, policies: Policies, evidence: PeerEvidence) -> None:
        self._rules = self._narrowed(policies, evidence)
        self._session.reauthorize()

    def reauthorize(self) -> bool:
        """See :class:`svc.proxy.context.AuthorizedConnection`."""
        if self._closing is not None:
            return False
        return super().reauthorize()

    def _revoke(self, cause: Cause) -> None:
        """End with a reason for the client; the will of one that is refused is not published."""
        self._dropped = True
        refused = cause == "reauthorization"
        code = ReasonCode.NOT_AUTHORIZED if refused else ReasonCode.ADMINISTRATIVE_ACTION
        self._session.end(cause, code, will=not refused)

    def _drain(self) -> None:
        self._leave("rotation", ReasonCode.ADMINISTRATIVE_ACTION)

    def _leave(self, cause: Cause, code: ReasonCode) -> None:
        """End as soon as no response waits for its record, and no packet for a turn."""
        if self._leaving is None:
            self._leaving = (cause, code)
            self._pause(_Pause.LEAVING)
        if not (self._session.recording or self._awaits_turn):
            self._session.end(*self._leaving)

    # -- The end -----------------------------------------------------------------------------------------------------

    def abort(self, cause: Cause) -> None:
        """Drop both connections."""
        self._dropped = True
        if self._cause is None:
            self._cause = cause
        if self._closing is None:
            self._session.end(cause, ReasonCode.ADMINISTRATIVE_ACTION)
            self.close(cause, None)
        if self.upstream is not None:
            self.upstream.drop()
        self._break_off()

    def cut(self, cause: Cause) -> None:
        """End at once, with a reason for the client."""
        self._session.end(cause, ReasonCode.SERVER_SHUTTING_DOWN)
        self.abort(cause)

    def evict(self, error: SvcError) -> None:
        """
        Report it, free the places of both sides at once and close, with a reason for the client, whose answer is not
        waited for; of what closes already, drop the connection to the broker.
        """
        if self._closing is None:
            self.context.reporter.evicted(error.reason, self._address, self._peer, str(error))
            self._session.end(cast(Cause, error.reason), ReasonCode.QUOTA_EXCEEDED)
        elif self.upstream is not None:
            self.upstream.drop()
        self._free_slot()
        self.context.evictions.closing.pop(self, None)
        if self.gone:
            return
        transport = self.transport
        release_slot(transport)
        if getattr(transport, "unsent", 0) > _LAST_OCTETS:
            self._break_off()
        else:
            getattr(transport, "close_without_reply", transport.loseConnection)()

    def _break_off(self) -> None:
        if not self.gone:
            self.transport.abortConnection()

    def _remove_when_both_gone(self) -> None:
        if self in self._registry and self.gone and (self.upstream is None or self.upstream.gone):
            self._remove(complete=self._cause == "client" and not self._lost)

    # -- Time --------------------------------------------------------------------------------------------------------

    def sweep(self, now: float, wall: datetime) -> None:
        """Check the time limits; called about twice a second."""
        self._notice_activity(now)
        if self._closing is not None:
            closing = now - self._closing
            if closing >= CLOSE_TIMEOUT:
                self._break_off()
            if closing >= BROKER_CLOSE_TIMEOUT and self.upstream is not None:
                self.upstream.drop()
            return
        if self._ended_with_credentials(wall):
            return
        if self.context.draining:
            self._leave("drain", ReasonCode.SERVER_SHUTTING_DOWN)
        elif self._leaving is not None:
            self._leave(*self._leaving)
        else:
            self._check_idle(now)
        lifetime = self.context.timeouts.lifetime
        if lifetime is not None and now - self._started >= lifetime:
            self._leave("lifetime", ReasonCode.MAXIMUM_CONNECT_TIME)

    def _check_idle(self, now: float) -> None:
        session, timeouts = self._session, self.context.timeouts
        if self._octets != self._sent_before:
            self._sent_before, self._sent_at = self._octets, now
        idle = now - self._activity
        if not session.connect_received:
            if now - self._started >= timeouts.handshake:
                session.end("timeout", ReasonCode.UNSPECIFIED_ERROR)
        elif not session.connected:
            if idle >= timeouts.connect:
                session.end("upstream", ReasonCode.SERVER_UNAVAILABLE)
        elif session.keep_alive:
            silent = now - self._sent_at >= session.keep_alive * KEEP_ALIVE_FACTOR
            # While it is not read its silence shows nothing, but neither side moves for ever.
            if silent and (not self._paused or idle >= self.context.idle):
                session.end("idle", ReasonCode.KEEP_ALIVE_TIMEOUT)
        elif idle >= self.context.idle:
            session.end("idle", ReasonCode.KEEP_ALIVE_TIMEOUT)
