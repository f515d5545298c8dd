"""A relayed connection: authorized before the upstream is reached, relayed, limited, and decided on again."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.internet.interfaces import IHalfCloseableProtocol, IPushProducer
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from svc.identity import ExactID
from svc.policy.denylist import DenyList
from svc.policy.engine import Denied
from svc.policy.paths import HostPattern
from svc.policy.rules import Action, AuthorizationPolicy, Patterns, Rule, RuleTarget, Values
from svc.policyfiles.settings import Policies
from svc.proxy.connection_settings import LimitSettings, TimeoutSettings
from svc.testing.ca import TestAuthority
from svc.transport.errors import ConnectFailed, OwnSvidRefused
from tests.proxy.policies import admit_nobody
from tests.proxy.rig import AUTHORITY, BASE, CALLER, OWN, Handle, evidence_of
from tests.proxy.tcp.rig import HalfWire, TcpRig, lose

PEER = AUTHORITY.svid("/ns/db/sa/main", ttl=timedelta(hours=2))


class RelayTests(SynchronousTestCase):
    """Octets and ends of streams."""

    def setUp(self) -> None:
        """Relay one connection."""
        self.rig = TcpRig()
        self.client, self.wire = self.rig.accept()
        self.upstream, self.far = self.rig.far()

    def test_both_ways(self) -> None:
        """Octets pass in both directions and are counted."""
        self.client.dataReceived(b"SELECT 1")
        self.upstream.dataReceived(b"1 row")
        self.assertEqual((self.far.take(), self.wire.take()), (b"SELECT 1", b"1 row"))
        self.rig.pass_time()
        self.assertEqual(self.rig.value("svc_proxy_bytes_received_total", protocol="tcp"), 8)
        self.assertEqual(self.rig.value("svc_proxy_bytes_sent_total", protocol="tcp"), 8)

    def test_client_ends_first(self) -> None:
        """The end of what the client sends ends the stream to the application, whose answer is still relayed."""
        self.client.dataReceived(b"question")
        self.client.readConnectionLost()
        self.assertTrue(self.far.ended)
        self.assertFalse(self.wire.ended or self.far.disconnecting)
        self.upstream.dataReceived(b"answer")
        self.upstream.readConnectionLost()
        self.assertEqual((self.far.take(), self.wire.take()), (b"question", b"answer"))
        self.assertTrue(self.wire.ended and self.wire.disconnecting and self.far.disconnecting)
        lose(self.client)
        self.assertFalse(self.far.aborted)
        lose(self.upstream)
        self.assertEqual((self.rig.closed("client"), self.rig.known), (1, set()))
        self.assertTrue(self.rig.reporter.connections[0].complete)

    def test_application_ends_first(self) -> None:
        """The same in the other direction."""
        self.upstream.readConnectionLost()
        self.assertTrue(self.wire.ended)
        self.client.dataReceived(b"more")
        self.assertEqual(self.far.take(), b"more")
        self.client.readConnectionLost()
        self.assertTrue(self.far.ended and self.far.disconnecting and self.wire.disconnecting)
        lose(self.upstream)
        lose(self.client)
        self.assertFalse(self.wire.aborted)
        self.assertEqual(self.rig.closed("application"), 1)

    def test_client_breaks_off(self) -> None:
        """A client that breaks off breaks off the application's connection."""
        lose(self.client, clean=False)
        self.assertTrue(self.far.aborted)
        lose(self.upstream)
        self.assertEqual(self.rig.closed("client"), 1)
        self.assertFalse(self.rig.reporter.connections[0].complete)

    def test_client_breaks_off_after_its_end(self) -> None:
        """Also while it still receives."""
        self.client.readConnectionLost()
        lose(self.client, clean=False)
        self.assertTrue(self.far.aborted)

    def test_application_breaks_off(self) -> None:
        """An application that breaks off breaks off the client's connection."""
        lose(self.upstream, clean=False)
        self.assertTrue(self.wire.aborted)
        lose(self.client)
        self.assertEqual(self.rig.closed("application"), 1)

    def test_slow_application(self) -> None:
        """While the application's transport is full the client is not read."""
        verifyObject(IPushProducer, self.far.producer)
        verifyObject(IHalfCloseableProtocol, self.client)
        self.far.producer.pauseProducing()
        self.assertTrue(self.wire.paused)
        self.assertFalse(self.far.paused)
        self.far.producer.resumeProducing()
        self.assertFalse(self.wire.paused)

    def test_slow_client(self) -> None:
        """The same in the other direction."""
        self.wire.producer.pauseProducing()
        self.assertTrue(self.far.paused)
        self.wire.producer.resumeProducing()
        self.assertFalse(self.far.paused)

    def test_not_read_after_its_end(self) -> None:
        """A stream that has ended is not read again: the transport would report its end again."""
        self.client.readConnectionLost()
        self.wire.pauseProducing()
        self.client.resumeProducing()
        self.assertTrue(self.wire.paused)

    def test_end_of_a_transport_stops_nothing(self) -> None:
        """What was received before the end of the other transport is still sent."""
        self.wire.producer.stopProducing()
        self.assertFalse(self.far.disconnecting or self.far.aborted)

    def test_slow_reader_that_never_closes(self) -> None:
        """A transport that is never closed is dropped after the idle time."""
        self.client.readConnectionLost()
        self.upstream.readConnectionLost()
        lose(self.client)
        self.rig.pass_time(3599)
        self.assertFalse(self.far.aborted)
        self.rig.pass_time(1)
        self.assertTrue(self.far.aborted)

    @given(st.lists(st.tuples(st.booleans(), st.one_of(st.binary(min_size=1, max_size=9), st.booleans())), max_size=40))
    def test_any_interleaving(self, events: list[tuple[bool, bytes | bool]]) -> None:
        """Whatever the order of octets, pauses and ends, both streams arrive whole, in order, and end once."""
        self.setUp()
        sides: list[tuple[Any, HalfWire, HalfWire]] = [
            (self.client, self.wire, self.far),
            (self.upstream, self.far, self.wire),
        ]
        sent, ended = [b"", b""], [False, False]
        for from_upstream, event in events:
            end, own, other = sides[from_upstream]
            if ended[from_upstream]:
                continue
            if isinstance(event, bytes):
                sent[from_upstream] += event
                end.dataReceived(event)
            elif event:
                ended[from_upstream] = True
                end.readConnectionLost()
            elif other.producer is not None:
                other.producer.pauseProducing()
                self.assertTrue(own.paused)
                other.producer.resumeProducing()
        self.assertEqual([self.far.take(), self.wire.take()], sent)
        self.assertEqual([self.far.ended, self.wire.ended], ended)
        self.assertEqual([self.far.disconnecting, self.wire.disconnecting], [all(ended)] * 2)
        self.assertFalse(self.far.aborted or self.wire.aborted)


class BeginningTests(SynchronousTestCase):
    """From the accepted connection to the upstream."""

    def test_nothing_is_read_before_the_upstream_is_there(self) -> None:
        """What was decrypted with the handshake waits, and the end of the stream with it."""
        rig = TcpRig()
        rig.endpoint.manual = True
        client, wire = rig.accept()
        client.dataReceived(b"early")
        client.readConnectionLost()
        self.assertTrue(wire.paused)
        rig.endpoint.complete()
        self.assertEqual(rig.far()[1].take(), b"early")
        self.assertTrue(rig.far()[1].ended)

    def test_refused_client_reaches_nothing(self) -> None:
        """A client that no rule admits is dropped, counted and reported; no connection to the upstream is made."""
        rig = TcpRig(policies=admit_nobody())
        client, wire = rig.accept()
        self.assertTrue(wire.aborted)
        client.dataReceived(b"anything")
        lose(client)
        self.assertEqual(rig.endpoint.connections, [])
        self.assertEqual((rig.closed("policy_deny"), rig.known), (1, set()))
        self.assertEqual(rig.reporter.denials, [("policy_deny", str(CALLER.spiffe_id))])
        decision = rig.reporter.decisions[0]
        assert decision is not None
        self.assertEqual((decision.policy, rig.reporter.connections[0].decision), ("default-deny", decision))
        labels = {"protocol": "tcp", "direction": "inbound"}
        self.assertEqual(rig.value("svc_proxy_connections_total", result="auth_failed", **labels), 1)
        self.assertEqual(rig.value("svc_proxy_connections_total", result="success", **labels), 0)
        self.assertEqual(rig.value("svc_proxy_active_connections", **labels), 0)

    def test_rules_about_requests(self) -> None:
        """A connection has no request: what only a request can satisfy admits nothing."""
        gets = Rule("gets", targets=(RuleTarget(methods=Values(frozenset({"GET"}))),))
        rig = TcpRig(policies=Policies.of(AuthorizationPolicy("p", Action.ALLOW, (gets,))))
        self.assertTrue(rig.accept()[1].aborted)

    def test_server_name_and_protocol(self) -> None:
        """Policies see the server name and the application protocol of the handshake."""
        target = RuleTarget(snis=Patterns((HostPattern.parse("db.example"),)), alpns=Values(frozenset({"postgresql"})))
        policies = Policies.of(AuthorizationPolicy("p", Action.ALLOW, (Rule("r", targets=(target,)),)))
        rig = TcpRig(policies=policies)
        cases: list[tuple[dict[str, Any], bool]] = [
            ({"server_name": "db.example", "alpn": "postgresql"}, True),
            ({"server_name": "db.example"}, False),
            ({"alpn": "postgresql"}, False),
        ]
        for facts, admitted in cases:
            wire = HalfWire(Handle(replace(evidence_of(CALLER), **facts)))
            rig.listener._build(rig.known).makeConnection(wire)
            self.assertEqual(wire.aborted, not admitted, facts)

    def test_dry_run_and_audit(self) -> None:
        """Policies in dry run and Audit policies are reported once for the connection."""
        everything = (Rule("all"),)
        rig = TcpRig(
            policies=Policies.of(
                AuthorizationPolicy("a", Action.ALLOW, everything),
                AuthorizationPolicy("d", Action.DENY, everything, enforced=False),
                AuthorizationPolicy("w", Action.AUDIT, everything),
            )
        )
        rig.accept()
        self.assertEqual(rig.reporter.dry_runs, [("d", "all", False)])
        self.assertEqual(rig.reporter.audits, [("w", "all", True)])

    def test_unreachable_application(self) -> None:
        """The client is dropped at once; the failure is counted and reported with its reason."""
        rig = TcpRig()
        rig.endpoint.refuse = ConnectFailed(address="127.0.0.1:5432", detail="refused")
        client, wire = rig.accept()
        self.assertTrue(wire.aborted)
        lose(client)
        self.assertEqual((rig.closed("upstream"), rig.reporter.failures), (1, ["upstream_unreachable"]))

    def test_client_ends_while_connecting(self) -> None:
        """The attempt is given up."""
        rig = TcpRig()
        rig.endpoint.manual = True
        client, _wire = rig.accept()
        attempt = rig.endpoint.attempts[0][1]
        lose(client, clean=False)
        self.assertTrue(attempt.called)
        self.assertEqual((rig.closed("client"), rig.known, rig.reporter.failures), (1, set(), []))

    def test_identity_that_ended_in_the_handshake(self) -> None:
        """A client that was shown a former identity is dropped."""
        rig = TcpRig()
        rig.rotation.withdrawn = True
        client, wire = rig.accept()
        self.assertTrue(wire.aborted)
        lose(client)
        self.assertEqual((rig.closed("identity_withdrawn"), rig.endpoint.connections), (1, []))


class OutboundTests(SynchronousTestCase):
    """Plain clients of this machine, and a peer behind mutual TLS."""

    def setUp(self) -> None:
        """Relay one connection."""
        self.rig = TcpRig(inbound=False)
        self.rig.endpoint.handle = Handle(evidence_of(PEER))
        self.client, self.wire = self.rig.accept()
        self.upstream, self.far = self.rig.far()

    def succeeded(self) -> float:
        """How many connections the peer accepted."""
        labels = {"protocol": "tcp", "direction": "outbound", "result": "success"}
        return self.rig.value("svc_proxy_connections_total", **labels)

    def test_peer_accepts(self) -> None:
        """The connection is counted once the peer has sent something or ended in order."""
        self.assertEqual(self.succeeded(), 0)
        self.upstream.dataReceived(b"x")
        self.upstream.dataReceived(b"y")
        lose(self.upstream)
        self.assertEqual((self.succeeded(), self.wire.take()), (1, b"xy"))

    def test_peer_refuses_our_svid(self) -> None:
        """The client is dropped, and the reason reported."""
        self.upstream.connectionLost(Failure(OwnSvidRefused(address="a", spiffe_id="us", ends="now", alert="x")))
        self.assertTrue(self.wire.aborted)
        lose(self.client)
        self.assertEqual((self.succeeded(), self.rig.closed("upstream")), (0, 1))
        self.assertEqual(self.rig.reporter.failures, ["own_svid_refused"])

    def test_without_identity(self) -> None:
        """Without an identity of its own the proxy connects to nobody."""
        self.rig.rotation.withdrawn = True
        _client, wire = self.rig.accept()
        self.assertTrue(wire.aborted)
        self.assertEqual(len(self.rig.endpoint.connections), 1)
        self.assertEqual(self.rig.reporter.failures, ["identity_withdrawn"])

    def test_credentials_end(self) -> None:
        """The connection ends with the credentials of the side whose end comes first."""
        self.rig.pass_time(3599)
        self.client.dataReceived(b"x")
        self.rig.pass_time(2)
        self.assertTrue(self.wire.aborted and self.far.aborted)
        lose(self.upstream)
        lose(self.client)
        self.rig.pass_time(1)
        self.assertEqual(self.rig.closed("credentials_expired"), 1)
        self.assertEqual(self.rig.reporter.denials, [("credentials_expired", str(PEER.spiffe_id))])

    def test_bundle_without_the_peer(self) -> None:
        """A peer whose SVID the new bundles refuse is dropped and reported once."""
        bundles = type(AUTHORITY)("prod.example", now=BASE).bundles()
        self.rig.change(AUTHORITY.bundles())
        self.assertFalse(self.wire.aborted)
        self.rig.change(bundles)
        self.rig.change(bundles)
        self.assertTrue(self.wire.aborted and self.far.aborted)
        self.assertEqual(len(self.rig.reporter.denials), 1)

    def test_listed_peer(self) -> None:
        """A peer that comes on a deny list is dropped and reported once, with the list."""
        denied = Denied(identity=PEER.spiffe_id, policy="stolen", rule="key")
        self.rig.tcp.listed = lambda _evidence: denied
        for _ in range(2):
            self.rig.change(AUTHORITY.bundles())
        self.assertTrue(self.wire.aborted and self.far.aborted)
        self.assertEqual(self.rig.reporter.denials, [("policy_deny", str(PEER.spiffe_id))])

    def test_peer_that_is_gone(self) -> None:
        """A peer whose connection has ended is not verified: the client still reads what it sent."""
        self.upstream.readConnectionLost()
        self.client.readConnectionLost()
        lose(self.upstream)
        self.rig.change(type(AUTHORITY)("prod.example", now=BASE).bundles())
        self.assertEqual((self.wire.aborted, self.rig.reporter.denials), (False, []))

    def test_bundle_while_connecting(self) -> None:
        """So is one whose connection was being made meanwhile."""
        self.rig.endpoint.manual = True
        _client, wire = self.rig.accept()
        self.rig.change(type(AUTHORITY)("prod.example", now=BASE).bundles())
        self.rig.endpoint.complete()
        self.assertTrue(wire.aborted and self.rig.far()[1].aborted)

    def test_identity_withdrawn(self) -> None:
        """A connection under a former identity of this proxy is dropped."""
        self.rig.rotation.withdrawn = True
        self.rig.change(AUTHORITY.bundles())
        lose(self.upstream)
        lose(self.client)
        self.assertEqual(self.rig.closed("identity_withdrawn"), 1)


class LimitTests(SynchronousTestCase):
    """Times, and the end of the listener."""

    def test_idle(self) -> None:
        """Octets of either side keep a connection open."""
        rig = TcpRig(timeouts=TimeoutSettings.model_validate({"idle": "10s"}))
        client, wire = rig.accept()
        for end in (client, rig.far()[0]):
            rig.pass_time(9.5)
            end.dataReceived(b"x")
            rig.pass_time(0.5)
        rig.pass_time(9.5)
        self.assertFalse(wire.aborted)
        rig.pass_time(0.5)
        self.assertTrue(wire.aborted and rig.far()[1].aborted)
        lose(client)
        lose(rig.far()[0])
        self.assertEqual(rig.closed("idle"), 1)

    def test_lifetime(self) -> None:
        """A connection is dropped at the end of its lifetime, busy or not."""
        rig = TcpRig(timeouts=TimeoutSettings.model_validate({"lifetime": "1m"}))
        client, wire = rig.accept()
        rig.pass_time(59.5)
        client.dataReceived(b"x")
        self.assertFalse(wire.aborted)
        rig.pass_time(0.5)
        self.assertTrue(wire.aborted)
        lose(client)
        lose(rig.far()[0])
        self.assertEqual(rig.closed("lifetime"), 1)

    def test_drain(self) -> None:
        """A listener that stops accepting keeps its connections until it is closed."""
        rig = TcpRig()
        client, wire = rig.accept()
        rig.listener.stop_accepting()
        rig.pass_time(1)
        self.assertFalse(wire.aborted)
        rig.listener.close()
        self.assertTrue(wire.aborted)
        lose(client)
        lose(rig.far()[0])
        self.assertEqual(rig.closed("drain"), 1)

    def test_credentials_of_the_client_end(self) -> None:
        """An inbound connection ends with the credentials of the own SVID, here the first to end."""
        rig = TcpRig()
        _client, wire = rig.accept()
        rig.pass_time((OWN.not_after - BASE).total_seconds() + 1)
        rig.pass_time(1)
        self.assertTrue(wire.aborted)
        self.assertEqual(rig.reporter.denials, [("credentials_expired", str(CALLER.spiffe_id))])


class FullListenerTests(SynchronousTestCase):
    """A listener with as many authorized connections as it may have."""

    OTHER = AUTHORITY.svid("/ns/shop/sa/till", ttl=timedelta(hours=2))

    def setUp(self) -> None:
        """All slots are taken by one identity."""
        self.rig = TcpRig(limits=LimitSettings(connections=3))
        self.held = [self.rig.accept() for _ in range(3)]

    @property
    def dropped(self) -> list[bool]:
        """Which of them are dropped."""
        return [wire.aborted for _client, wire in self.held]

    def test_same_identity(self) -> None:
        """At the limit the next connection of the same identity is refused before the upstream is reached."""
        client, wire = self.rig.accept()
        self.assertTrue(wire.aborted)
        lose(client)
        self.assertEqual((self.dropped, len(self.rig.endpoint.connections)), ([False] * 3, 3))
        self.assertEqual(self.rig.closed("connection_limit"), 1)
        self.assertEqual(self.rig.reporter.evictions, [("connection_limit", str(CALLER.spiffe_id))])
        labels = {"protocol": "tcp", "direction": "inbound"}
        self.assertEqual(self.rig.value("svc_proxy_connections_total", result="error", **labels), 1)
        self.assertEqual(self.rig.value("svc_proxy_connections_total", result="success", **labels), 3)

    def test_another_identity(self) -> None:
        """It takes the slots of the identity that holds most, longest idle first, up to the same number."""
        client, _wire = self.held[0]
        self.rig.pass_time(1)
        client.dataReceived(b"x")
        self.rig.pass_time(1)
        self.assertFalse(self.rig.accept(self.OTHER)[1].aborted)
        self.assertEqual(self.dropped, [False, True, False])
        self.assertTrue(self.rig.endpoint.connections[1][1].aborted)
        self.assertTrue(self.rig.accept(self.OTHER)[1].aborted, "each would hold the share of the other")
        self.assertEqual(self.dropped, [False, True, False])
        lose(self.held[1][0])
        lose(self.rig.endpoint.connections[1][0])
        self.assertEqual(self.rig.closed("evicted_idle"), 1)
        self.assertEqual(self.rig.reporter.evictions[0], ("evicted_idle", str(CALLER.spiffe_id)))

    def test_refused_after_the_handshake(self) -> None:
        """A client that was verified by former bundles takes the slot of no other."""
        self.rig.rotation.bundles = TestAuthority("prod.example", now=BASE).bundles()
        _client, wire = self.rig.accept(self.OTHER)
        self.assertTrue(wire.aborted)
        self.assertEqual((self.dropped, len(self.rig.endpoint.connections)), ([False] * 3, 3))
        self.assertEqual(self.rig.reporter.denials, [("chain_untrusted", str(self.OTHER.spiffe_id))])

    def test_octets_of_the_upstream(self) -> None:
        """What the upstream sends is activity, too."""
        self.rig.endpoint.connections[0][0].dataReceived(b"x")
        self.rig.pass_time(1)
        self.rig.accept(self.OTHER)
        self.assertEqual(self.dropped, [False, True, False])

    def test_upstream_that_is_not_there_yet(self) -> None:
        """A connection whose upstream is being reached is evicted like others."""
        self.rig = TcpRig(limits=LimitSettings(connections=2))
        self.rig.endpoint.manual = True
        self.held = [self.rig.accept(), self.rig.accept()]
        self.rig.accept(self.OTHER)
        self.assertEqual(self.dropped, [True, False])

    def test_end_of_a_connection(self) -> None:
        """A slot is free when both transports are closed: an upstream that stays open is counted."""
        client, _wire = self.held[0]
        upstream = self.rig.endpoint.connections[0][0]
        client.readConnectionLost()
        upstream.readConnectionLost()
        lose(client)
        self.assertTrue(self.rig.accept()[1].aborted)
        lose(upstream)
        self.assertFalse(self.rig.accept()[1].aborted)

    def test_dropped_connection(self) -> None:
        """A connection that is dropped frees its slot at once, and once."""
        for _ in range(2):
            self.held[0][0].abort("idle")
        lose(self.held[0][0])
        lose(self.rig.endpoint.connections[0][0])
        self.assertEqual([self.rig.accept()[1].aborted for _ in range(2)], [False, True])

    def test_outbound(self) -> None:
        """Clients of this machine are bounded where they are accepted; none of them is evicted."""
        self.rig = TcpRig(inbound=False, limits=LimitSettings(connections=1))
        self.rig.endpoint.handle = Handle(evidence_of(PEER))
        self.assertEqual([self.rig.accept()[1].aborted for _ in range(2)], [False, False])


class ReauthorizationTests(SynchronousTestCase):
    """Exactly the connections that would now be refused are closed, counted and reported once."""

    def test_policies(self) -> None:
        """Of two clients the one that new policies refuse is dropped."""
        rig = TcpRig()
        other = AUTHORITY.svid("/ns/shop/sa/till", ttl=timedelta(hours=2))
        (_, kept), (client, dropped) = rig.accept(), rig.accept(other)
        rig.listener.take_policies(Policies.admitting(ExactID(CALLER.spiffe_id)))
        for _ in range(2):
            rig.change(AUTHORITY.bundles())
        self.assertEqual((kept.aborted, dropped.aborted), (False, True))
        self.assertEqual(rig.reporter.denials, [("policy_deny", str(other.spiffe_id))])
        lose(client)
        lose(rig.far()[0])
        self.assertEqual(rig.closed("reauthorization"), 1)

    def test_deny_list(self) -> None:
        """A client that comes on a deny list is dropped, and one that is on it reaches nothing."""
        rig = TcpRig()
        _client, wire = rig.accept()
        everything = AuthorizationPolicy("p", Action.ALLOW, (Rule("all"),))
        listed = DenyList("stolen", (ExactID(CALLER.spiffe_id),))
        rig.listener.take_policies(Policies.of(everything, denied=[listed]))
        rig.change(AUTHORITY.bundles())
        self.assertTrue(wire.aborted and rig.accept()[1].aborted)
        self.assertEqual(len(rig.endpoint.connections), 1)
        self.assertEqual([each.policy for each in rig.reporter.decisions if each is not None], ["stolen", "stolen"])

    def test_bundles(self) -> None:
        """A client whose SVID the new bundles refuse is dropped."""
        rig = TcpRig()
        _client, wire = rig.accept()
        rig.change(AUTHORITY.bundles())
        self.assertFalse(wire.aborted)
        rig.change(type(AUTHORITY)("prod.example", now=BASE).bundles())
        self.assertTrue(wire.aborted)
        self.assertEqual([peer for _, peer in rig.reporter.denials], [str(CALLER.spiffe_id)])

    def test_identity_withdrawn(self) -> None:
        """A connection under a former identity of this proxy is dropped."""
        rig = TcpRig()
        client, wire = rig.accept()
        rig.rotation.withdrawn = True
        rig.change(AUTHORITY.bundles())
        self.assertTrue(wire.aborted)
        lose(client)
        lose(rig.far()[0])
        self.assertEqual(rig.closed("identity_withdrawn"), 1)

    def test_defect(self) -> None:
        """A connection that cannot be decided is dropped, with its connection to the application."""
        rig = TcpRig()
        client, wire = rig.accept()
        client.reauthorize = lambda: 1 / 0  # type: ignore[assignment, return-value]
        rig.change(AUTHORITY.bundles())
        self.assertTrue(wire.aborted and rig.far()[1].aborted)
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)
        lose(client)
        lose(rig.far()[0])
        self.assertEqual(rig.closed("defect"), 1)
