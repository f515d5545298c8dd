"""An identity that is withdrawn or replaced, and a trust domain that is federated with no more: what ends, and when."""

from __future__ import annotations

import contextlib
import gc
import os
import weakref
from datetime import timedelta

from twisted.internet.error import ConnectionAborted
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import BundleSet, X509Svid, verify_svid
from svc.proxy.http.client import ClientConnection
from svc.proxy.listener import Listener
from svc.store.errors import StoreUnavailable
from svc.testing.ca import TestAuthority
from svc.transport.errors import OwnCredentialsMissing
from svc.transport.evidence import PeerEvidence
from svc.workload.errors import CredentialsMissing, IdentityWithdrawn
from svc.workload.interface import WITHDRAWAL_GRACE_SECONDS as GRACE
from tests.proxy.parts import Ports, ServerEndpoint, settings_of
from tests.proxy.rig import AUTHORITY, BASE, CALLER, OWN, Handle, Rig, Wire, evidence_of
from tests.proxy.test_credential_rotation import DOWN, FIRST, SECOND, RotationTestCase, leaf_of

RENAMED = AUTHORITY.svid("/ns/pay/sa/other", ttl=timedelta(hours=1))
BANK = TestAuthority("bank.example", now=BASE)
PEER = BANK.svid("/ns/pay/sa/api", ttl=timedelta(hours=1))
BOTH = BundleSet.of(AUTHORITY.bundle(), BANK.bundle())
GET = b"GET / HTTP/1.1\r\nHost: api\r\n\r\n"


class WithdrawnTests(RotationTestCase):
    """The source says that the identity has ended."""

    def ended(self) -> None:
        """Nothing is there to be presented or signed with."""
        self.assertIsNone(self.rotation.current)
        self.assertIsNone(self.rotation.identity)
        self.assertRaises(IdentityWithdrawn, lambda: self.rotation.svid)
        self.assertIsInstance(self.rotation.last_error, IdentityWithdrawn)

    def test_ends_and_comes_back(self) -> None:
        """It ends at once, is told once, and comes back with the next SVID by itself."""
        first = self.begin()
        self.assertEqual(self.rotation.identity, FIRST.spiffe_id)
        self.source.withdraw()
        self.ended()
        self.assertEqual((self.notified, self.watcher.ended), (1, ["identity_withdrawn"]))
        self.assertIsNone(self.rotation.of_evidence(evidence_of(CALLER, FIRST)))
        # The statement is fetched from the store as those of other processes are.
        self.assertIsNone(self.rotation.statement(first.statement.id))
        self.assertEqual(self.stored(first.statement.id), first.statement.envelope.serialize())
        self.clock.advance(60)
        self.ended()
        self.assertEqual(self.issuer.asked, [FIRST])
        self.source.rotate(SECOND)
        self.assertEqual((self.current().svid, self.rotation.identity), (SECOND, SECOND.spiffe_id))
        self.assertEqual((self.notified, self.rotation.last_error), (2, None))

    def test_asked_often(self) -> None:
        """Connections that find no identity leave nothing behind, however many: neither frames nor what they hold."""
        self.begin()
        self.source.withdraw()
        held: list[weakref.ref[Clock]] = []

        def connect() -> None:
            mine = Clock()
            held.append(weakref.ref(mine))
            with contextlib.suppress(IdentityWithdrawn):
                self.assertIsNone(self.rotation.svid)

        for _ in range(5):
            connect()
        gc.collect()
        self.assertEqual([each() for each in held], [None] * 5)

    def test_same_svid_again(self) -> None:
        """The very SVID of before serves again where the Workload API gives it again."""
        self.begin()
        self.source.withdraw()
        self.source.rotate(FIRST)
        self.assertEqual(self.current().svid, FIRST)

    def test_while_a_leaf_is_awaited(self) -> None:
        """A leaf that comes after the withdrawal makes nothing serve."""
        self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        self.source.withdraw()
        self.issuer.waiting[0].callback(leaf_of(SECOND))
        self.ended()
        self.assertEqual((len(self.watcher.issued), self.watcher.failed), (1, []))

    def test_while_a_retry_is_due(self) -> None:
        """A retry that was due is not made."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(SECOND)
        asked = len(self.issuer.asked)
        self.source.withdraw()
        self.clock.advance(60)
        self.assertEqual(len(self.issuer.asked), asked)
        self.ended()

    def test_statement_not_stored_yet(self) -> None:
        """A statement that the store did not take is offered again, though its identity has ended."""
        self.rotation.startService()
        self.store.raises = StoreUnavailable(path="notary.db", what="no")
        self.source.rotate(FIRST, AUTHORITY.bundles())
        statement = self.current().statement
        self.source.withdraw()
        self.store.raises = None
        self.clock.advance(10)
        self.assertEqual(self.stored(statement.id), statement.envelope.serialize())

    def test_stop(self) -> None:
        """Nothing is left when it stops, in the middle of a change of name either."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(RENAMED)
        self.rotation.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class RenamedTests(RotationTestCase):
    """The Workload API gives another identity than before."""

    def test_new_name(self) -> None:
        """The new identity serves when it is whole, and nothing of the former one is left."""
        first = self.begin()
        self.source.rotate(RENAMED)
        self.assertEqual((self.rotation.identity, self.notified), (RENAMED.spiffe_id, 1))
        self.assertIsNone(self.rotation.of_evidence(evidence_of(CALLER, FIRST)))
        self.assertIsNone(self.rotation.statement(first.statement.id))
        self.assertEqual(self.watcher.ended, [])
        self.clock.advance(GRACE + 1)
        self.assertEqual(self.rotation.identity, RENAMED.spiffe_id)

    def test_rotation_keeps_the_old(self) -> None:
        """Under one identity the old credentials serve the connections that they accepted."""
        first = self.begin()
        self.source.rotate(SECOND)
        self.assertIs(self.rotation.of_evidence(evidence_of(CALLER, FIRST)), first)

    def test_new_name_without_a_leaf(self) -> None:
        """The former identity serves for the grace at most while the new one cannot be made whole."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(RENAMED)
        self.clock.advance(GRACE - 0.01)
        self.assertEqual(self.rotation.identity, FIRST.spiffe_id)
        self.clock.advance(0.01)
        self.assertIsNone(self.rotation.identity)
        self.assertEqual(self.watcher.ended, ["identity_withdrawn"])
        self.assertRaises(CredentialsMissing, lambda: self.rotation.svid)
        self.issuer.error = None
        # The pause after the failures before; the last one is thirty seconds.
        self.clock.pump([1] * 31)
        self.assertEqual(self.rotation.identity, RENAMED.spiffe_id)

    def test_old_name_again(self) -> None:
        """Where the old name comes back within the grace, nothing ends."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(RENAMED)
        self.clock.advance(GRACE / 2)
        self.issuer.error = None
        self.source.rotate(SECOND)
        self.clock.advance(GRACE * 2)
        self.assertEqual((self.rotation.identity, self.watcher.ended), (FIRST.spiffe_id, []))

    def test_leaf_of_the_former_name(self) -> None:
        """A leaf that was awaited for the former name is not used; the new one is made."""
        self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        self.source.rotate(RENAMED)
        self.issuer.waiting[0].callback(leaf_of(SECOND))
        self.issuer.waiting[1].callback(leaf_of(RENAMED))
        self.assertEqual([each.svid for each in self.watcher.issued], [FIRST, RENAMED])


class InboundTests(SynchronousTestCase):
    """Connections of clients."""

    def setUp(self) -> None:
        """A listener with a client."""
        self.rig = Rig()
        self.client, self.wire = self.rig.client()

    def reauthorize(self, client: ClientConnection, bundles: BundleSet | None = None) -> None:
        """As the listener does at a change."""
        client.reauthorize(bundles or AUTHORITY.bundles(), self.rig.wall())

    def closed(self, cause: str) -> float:
        """How many connections ended for this."""
        name, labels = "svc_proxy_connections_closed_total", {"protocol": "http", "cause": cause}
        return self.rig.registry.get_sample_value(name, labels) or 0.0

    def test_idle(self) -> None:
        """An idle connection is closed, and counted with its cause."""
        self.reauthorize(self.client)
        self.assertFalse(self.wire.disconnecting)
        self.rig.rotation.withdrawn = True
        self.reauthorize(self.client)
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(self.closed("identity_withdrawn"), 1)
        self.assertEqual(self.rig.reporter.denials, [])

    def test_running(self) -> None:
        """A running exchange is cut: the client sees that something is missing."""
        self.client.dataReceived(GET)
        self.rig.rotation.withdrawn = True
        self.reauthorize(self.client)
        self.assertTrue(self.wire.aborted)
        self.assertEqual(self.closed("identity_withdrawn"), 1)

    def test_running_and_recorded(self) -> None:
        """A recorded exchange that is cut leaves its record: the last thing that the identity signs."""
        self.client.dataReceived(b"GET / HTTP/1.1\r\nHost: api\r\nSvc-Notarization-Level: signRequest\r\n\r\n")
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        location = self.wire.take().split(b"Svc-Receipt-Location: ")[1].split(b"\r\n")[0].decode()
        self.rig.rotation.withdrawn = True
        self.reauthorize(self.client)
        self.assertTrue(self.wire.aborted)
        key = location.rpartition("/")[2]
        record = self.successResultOf(self.rig.store.get_by_request(str(CALLER.spiffe_id), key))
        self.assertEqual((record.outcome, record.server), ("server_aborted", str(OWN.spiffe_id)))
        self.assertIsNotNone(record.envelope)

    def test_other_name(self) -> None:
        """So is one that was made under another identity than the present one."""
        self.rig.rotation.svid = RENAMED
        self.reauthorize(self.client)
        self.assertTrue(self.wire.disconnecting)

    def test_handshake_that_ends_too_late(self) -> None:
        """Who was in the handshake when the identity ended is dropped before the first request."""
        self.rig.rotation.withdrawn = True
        client, wire = self.rig.client()
        self.assertTrue(wire.aborted)
        client.dataReceived(GET)
        self.assertEqual(self.rig.endpoint.connections, [])


class OutboundTests(SynchronousTestCase):
    """Connections to peers."""

    def setUp(self) -> None:
        """A listener whose upstream is a peer of a federated trust domain."""
        self.rig = Rig(inbound=False)
        (settings,) = settings_of(("out", 1)).listeners
        self.listener = Listener(self.rig.context, ServerEndpoint(Ports(), settings), None, os.urandom)

    def begin(self, own: X509Svid = OWN) -> tuple[ClientConnection, Wire, Wire]:
        """An application asks, and a connection to the peer carries the request."""
        client, wire = self.rig.client()
        client.dataReceived(GET)
        upstream = self.rig.upstream()[1]
        upstream._handle = Handle(self.evidence(own))
        return client, wire, upstream

    def evidence(self, own: X509Svid = OWN) -> PeerEvidence:
        """What the handshake with the peer proved."""
        proved = verify_svid(PEER.chain, BOTH, BASE)
        return PeerEvidence(proved, "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", "1.3", True, own)

    def lose(self) -> None:
        """The transport of the peer's connection reports its end."""
        self.rig.upstream()[0].connectionLost(Failure(ConnectionAborted()))

    def reauthorize(self, bundles: BundleSet = BOTH) -> None:
        """As the service does at a change."""
        self.listener.reauthorize(bundles, self.rig.wall())

    def test_good_ones_go_on(self) -> None:
        """A change that concerns neither side leaves a running exchange alone."""
        _client, wire, upstream = self.begin()
        self.reauthorize()
        self.assertFalse(upstream.aborted or wire.disconnecting)
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertIn(b"200 OK", wire.take())

    def test_federation_ends(self) -> None:
        """The running exchange with a peer of a trust domain that is not federated any more is cut, and told."""
        _client, wire, upstream = self.begin()
        self.reauthorize(AUTHORITY.bundles())
        self.assertTrue(upstream.aborted)
        self.assertEqual(self.rig.reporter.denials, [("trust_domain_unknown", str(PEER.spiffe_id))])
        self.lose()
        self.assertIn(b"502", wire.take())

    def test_identity_ends(self) -> None:
        """A running exchange under a withdrawn identity is cut; later requests get 503 and are not forwarded."""
        client, wire, upstream = self.begin()
        self.rig.rotation.withdrawn = True
        self.reauthorize()
        self.assertTrue(upstream.aborted)
        self.lose()
        self.assertIn(b"503", wire.take())
        client.dataReceived(GET)
        answer = wire.take()
        self.assertIn(b"503", answer)
        self.assertIn(b'"code":"identity_withdrawn"', answer)
        self.assertEqual(len(self.rig.endpoint.connections), 1)
        self.rig.rotation.withdrawn = False
        client.dataReceived(GET)
        self.assertEqual(len(self.rig.endpoint.connections), 2)

    def test_identity_changes(self) -> None:
        """So is an exchange under another identity than the present one."""
        _client, _wire, upstream = self.begin(RENAMED)
        self.reauthorize()
        self.assertTrue(upstream.aborted)

    def test_connection_being_made(self) -> None:
        """A connection that was being made when the identity ended is not used."""
        self.rig.endpoint.manual = True
        client, wire = self.rig.client()
        client.dataReceived(GET)
        self.rig.rotation.withdrawn = True
        self.reauthorize()
        self.rig.endpoint.handle = Handle(self.evidence())
        self.rig.endpoint.complete()
        upstream = self.rig.upstream()[1]
        self.assertTrue(upstream.aborted)
        self.assertEqual(upstream.take(), b"")
        self.assertIn(b"503", wire.take())

    def test_connection_made_in_time(self) -> None:
        """One that was being made over a change that does not concern it is used."""
        self.rig.endpoint.manual = True
        client, _wire = self.rig.client()
        client.dataReceived(GET)
        self.reauthorize()
        self.rig.endpoint.handle = Handle(self.evidence())
        self.rig.endpoint.complete()
        upstream = self.rig.upstream()[1]
        self.assertFalse(upstream.aborted)
        self.assertIn(b"GET /", upstream.take())

    def test_no_credentials(self) -> None:
        """A connection that finds no credentials to present is told as what it is."""
        self.rig.endpoint.refuse = OwnCredentialsMissing(detail="identity_withdrawn")
        client, wire = self.rig.client()
        client.dataReceived(GET)
        self.assertIn(b'"code":"identity_withdrawn"', wire.take())
