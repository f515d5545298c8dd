"""A withdrawn or changed identity, and a trust domain whose federation ends: what is closed, and when."""

from __future__ import annotations

import contextlib
import gc
import weakref
from datetime import timedelta

from twisted.internet.error import ConnectionAborted
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import BundleSet, ExactID, X509Svid, verify_svid
from svc.policy.denylist import DenyList
from svc.policyfiles.settings import Policies
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
    """The source reports that the identity has ended."""

    def ended(self) -> None:
        """Assert that there are no credentials to present or to sign with."""
        self.assertIsNone(self.rotation.current)
        self.assertIsNone(self.rotation.identity)
        self.assertRaises(IdentityWithdrawn, lambda: self.rotation.svid)
        self.assertIsInstance(self.rotation.last_error, IdentityWithdrawn)

    def test_ends_and_is_replaced(self) -> None:
        """The identity ends at once, is reported once, and is replaced by the next SVID without further action."""
        first = self.begin()
        self.assertEqual(self.rotation.identity, FIRST.spiffe_id)
        self.source.withdraw()
        self.ended()
        self.assertEqual((self.notified, self.observer.ended), (1, ["identity_withdrawn"]))
        self.assertIsNone(self.rotation.of_evidence(evidence_of(CALLER, FIRST)))
        # The statement is fetched from the store, as those of other processes are.
        self.assertIsNone(self.rotation.statement(first.statement.id))
        self.assertEqual(self.stored(first.statement.id), first.statement.envelope.serialize())
        self.clock.advance(60)
        self.ended()
        self.assertEqual(self.issuer.asked, [FIRST])
        self.source.rotate(SECOND)
        self.assertEqual((self.current().svid, self.rotation.identity), (SECOND, SECOND.spiffe_id))
        self.assertEqual((self.notified, self.rotation.last_error), (2, None))

    def test_no_references_are_kept(self) -> None:
        """Connections that find no identity keep no tracebacks and no objects, however many there are."""
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
        """If the Workload API sends the same SVID again, it is used again."""
        self.begin()
        self.source.withdraw()
        self.source.rotate(FIRST)
        self.assertEqual(self.current().svid, FIRST)

    def test_while_a_leaf_is_awaited(self) -> None:
        """A leaf that arrives after the withdrawal is not used."""
        self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        self.source.withdraw()
        self.issuer.waiting[0].callback(leaf_of(SECOND))
        self.ended()
        self.assertEqual((len(self.observer.issued), self.observer.failed), (1, []))

    def test_while_a_retry_is_due(self) -> None:
        """A scheduled retry is cancelled."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(SECOND)
        asked = len(self.issuer.asked)
        self.source.withdraw()
        self.clock.advance(60)
        self.assertEqual(len(self.issuer.asked), asked)
        self.ended()

    def test_statement_not_stored_yet(self) -> None:
        """A statement that the store refused is written again, though its identity has ended."""
        self.rotation.startService()
        self.store.raises = StoreUnavailable(path="notary.db", what="no")
        self.source.rotate(FIRST, AUTHORITY.bundles())
        statement = self.current().statement
        self.source.withdraw()
        self.store.raises = None
        self.clock.advance(10)
        self.assertEqual(self.stored(statement.id), statement.envelope.serialize())

    def test_stop(self) -> None:
        """After the stop nothing is left, even during a change of identity."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(RENAMED)
        self.rotation.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])


class RenamedTests(RotationTestCase):
    """The Workload API sends another identity than before."""

    def test_new_name(self) -> None:
        """The new identity is used when its credentials are complete, and nothing of the former one is left."""
        first = self.begin()
        self.source.rotate(RENAMED)
        self.assertEqual((self.rotation.identity, self.notified), (RENAMED.spiffe_id, 1))
        self.assertIsNone(self.rotation.of_evidence(evidence_of(CALLER, FIRST)))
        self.assertIsNone(self.rotation.statement(first.statement.id))
        self.assertEqual(self.observer.ended, [])
        self.clock.advance(GRACE + 1)
        self.assertEqual(self.rotation.identity, RENAMED.spiffe_id)

    def test_rotation_keeps_the_old(self) -> None:
        """Under the same identity the old credentials stay in use for the connections that they accepted."""
        first = self.begin()
        self.source.rotate(SECOND)
        self.assertIs(self.rotation.of_evidence(evidence_of(CALLER, FIRST)), first)

    def test_new_name_without_a_leaf(self) -> None:
        """While the new identity has no leaf, the former one stays in use for the grace period at most."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(RENAMED)
        self.clock.advance(GRACE - 0.01)
        self.assertEqual(self.rotation.identity, FIRST.spiffe_id)
        self.clock.advance(0.01)
        self.assertIsNone(self.rotation.identity)
        self.assertEqual(self.observer.ended, ["identity_withdrawn"])
        self.assertRaises(CredentialsMissing, lambda: self.rotation.svid)
        self.issuer.error = None
        # The pause after the failures before; the last one is thirty seconds.
        self.clock.pump([1] * 31)
        self.assertEqual(self.rotation.identity, RENAMED.spiffe_id)

    def test_old_name_again(self) -> None:
        """If the former identity returns within the grace period, nothing ends."""
        self.begin()
        self.issuer.error = DOWN
        self.source.rotate(RENAMED)
        self.clock.advance(GRACE / 2)
        self.issuer.error = None
        self.source.rotate(SECOND)
        self.clock.advance(GRACE * 2)
        self.assertEqual((self.rotation.identity, self.observer.ended), (FIRST.spiffe_id, []))

    def test_leaf_of_the_former_name(self) -> None:
        """A leaf that was requested for the former identity is not used; one for the new identity is requested."""
        self.begin()
        self.issuer.waiting = []
        self.source.rotate(SECOND)
        self.source.rotate(RENAMED)
        self.issuer.waiting[0].callback(leaf_of(SECOND))
        self.issuer.waiting[1].callback(leaf_of(RENAMED))
        self.assertEqual([each.svid for each in self.observer.issued], [FIRST, RENAMED])


class InboundTests(SynchronousTestCase):
    """Connections of clients."""

    def setUp(self) -> None:
        """Create a listener with a client."""
        self.rig = Rig()
        self.client, self.wire = self.rig.client()

    def closed(self, cause: str) -> float:
        """Return how many connections were closed with this cause."""
        name, labels = "svc_proxy_connections_closed_total", {"protocol": "http", "cause": cause}
        return self.rig.registry.get_sample_value(name, labels) or 0.0

    def test_idle(self) -> None:
        """An idle connection is closed and counted with its cause."""
        self.rig.change()
        self.assertFalse(self.wire.disconnecting)
        self.rig.rotation.withdrawn = True
        self.rig.change()
        self.assertTrue(self.wire.disconnecting)
        self.assertEqual(self.closed("identity_withdrawn"), 1)
        self.assertEqual(self.rig.reporter.denials, [])

    def test_running(self) -> None:
        """A running exchange is cut, so that its response is incomplete for the client."""
        self.client.dataReceived(GET)
        self.rig.rotation.withdrawn = True
        self.rig.change()
        self.assertTrue(self.wire.aborted)
        self.assertEqual(self.closed("identity_withdrawn"), 1)

    def test_running_and_recorded(self) -> None:
        """A recorded exchange that is cut still has its record, the last one signed under the identity."""
        self.client.dataReceived(b"GET / HTTP/1.1\r\nHost: api\r\nSvc-Notarization-Level: signRequest\r\n\r\n")
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        location = self.wire.take().split(b"Svc-Receipt-Location: ")[1].split(b"\r\n")[0].decode()
        self.rig.rotation.withdrawn = True
        self.rig.change()
        self.assertTrue(self.wire.aborted)
        key = location.rpartition("/")[2]
        record = self.successResultOf(self.rig.store.get_by_request(str(CALLER.spiffe_id), key))
        self.assertEqual((record.outcome, record.server), ("server_aborted", str(OWN.spiffe_id)))
        self.assertIsNotNone(record.envelope)

    def test_other_name(self) -> None:
        """A connection made under another identity than the current one is closed too."""
        self.rig.rotation.svid = RENAMED
        self.rig.change()
        self.assertTrue(self.wire.disconnecting)

    def test_handshake_that_ends_too_late(self) -> None:
        """A client whose handshake was running when the identity ended is dropped before its first request."""
        self.rig.rotation.withdrawn = True
        client, wire = self.rig.client()
        self.assertTrue(wire.aborted)
        client.dataReceived(GET)
        self.assertEqual(self.rig.endpoint.connections, [])


class OutboundTests(SynchronousTestCase):
    """Connections to peers."""

    def setUp(self) -> None:
        """Create a listener whose upstream is a peer of a federated trust domain."""
        self.rig = Rig(inbound=False)
        (settings,) = settings_of(("out", 1)).listeners
        self.listener = Listener(self.rig.context, ServerEndpoint(Ports(), settings), self.rig.build)

    def begin(self, own: X509Svid = OWN) -> tuple[ClientConnection, Wire, Wire]:
        """An application sends a request, which is forwarded on a connection to the peer."""
        self.rig.endpoint.handle = Handle(self.evidence(own))
        client, wire = self.rig.client()
        client.dataReceived(GET)
        return client, wire, self.rig.upstream()[1]

    def evidence(self, own: X509Svid = OWN) -> PeerEvidence:
        """Return the evidence of the handshake with the peer."""
        proved = verify_svid(PEER.chain, BOTH, BASE)
        return PeerEvidence(proved, "X25519MLKEM768", "TLS_AES_256_GCM_SHA384", "1.3", True, own)

    def lose(self) -> None:
        """Close the transport of the peer's connection."""
        self.rig.upstream()[0].connectionLost(Failure(ConnectionAborted()))

    def reauthorize(self, bundles: BundleSet = BOTH) -> None:
        """Reauthorize as the service does after a change."""
        self.rig.change(bundles)

    def test_good_ones_go_on(self) -> None:
        """A change that affects neither side leaves a running exchange alone."""
        _client, wire, upstream = self.begin()
        self.reauthorize()
        self.assertFalse(upstream.aborted or wire.disconnecting)
        self.rig.respond(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        self.assertIn(b"200 OK", wire.take())

    def test_federation_ends(self) -> None:
        """A running exchange with a peer of a trust domain that is no longer federated is cut and reported."""
        _client, wire, upstream = self.begin()
        self.reauthorize(AUTHORITY.bundles())
        self.assertTrue(upstream.aborted)
        self.assertEqual(self.rig.reporter.denials, [("trust_domain_unknown", str(PEER.spiffe_id))])
        self.lose()
        self.assertIn(b"502", wire.take())

    def test_deny_list(self) -> None:
        """A running exchange with a peer that is now on a deny list is cut and reported."""
        _client, wire, upstream = self.begin()
        listed = Policies.of(denied=[DenyList("stolen", (ExactID(PEER.spiffe_id),))])
        self.rig.context.listed = listed.listed
        self.reauthorize()
        self.assertTrue(upstream.aborted)
        self.assertEqual(self.rig.reporter.denials, [("policy_deny", str(PEER.spiffe_id))])
        self.assertEqual(["stolen"], [each.policy for each in self.rig.reporter.decisions if each is not None])
        self.lose()
        self.assertIn(b"upstream_identity_refused", wire.take())

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
        """An exchange under another identity than the current one is cut too."""
        _client, _wire, upstream = self.begin(RENAMED)
        self.reauthorize()
        self.assertTrue(upstream.aborted)

    def test_connection_being_made(self) -> None:
        """A connection that was being established when the identity ended is not used."""
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
        """A connection that was being established during an unrelated change is used."""
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
        """A connection that finds no credentials to present is reported with that reason."""
        self.rig.endpoint.refuse = OwnCredentialsMissing(detail="identity_withdrawn")
        client, wire = self.rig.client()
        client.dataReceived(GET)
        self.assertIn(b'"code":"identity_withdrawn"', wire.take())
