"""Tests of opening connections: which server is accepted, the errors where none answers, the address."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionRefusedError as TwistedRefused
from twisted.internet.error import DNSLookupError
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.curl.network import connect_error
from svc.client.connection import OpenConnection, address_of
from svc.client.target import Target
from svc.client.verification import Demands
from svc.identity.spiffeid import SpiffeID, TrustDomain
from svc.transport import errors as transport_errors
from tests.cli.doubles import MemoryDialer, NotaryServer, default_world, settled

TARGET = Target.parse("https://api.test:8443/")


def caused(error: Exception, cause: Exception) -> Any:
    error.__cause__ = cause
    return error


class DialingTests(SynchronousTestCase):
    """Which server is accepted, and the errors where no connection can be opened."""

    def test_acceptable(self) -> None:
        """Without --expect-id any workload of the own trust domain, and none of another; with it exactly those."""
        own = TrustDomain.parse("example.org")
        here, there = SpiffeID.parse("spiffe://example.org/a"), SpiffeID.parse("spiffe://other.org/a")
        anyone = Demands().accepted_servers(own)
        self.assertEqual((anyone.matches(here), anyone.matches(there)), (True, False))
        named = Demands(expected=(there,)).accepted_servers(own)
        self.assertEqual((named.matches(here), named.matches(there)), (False, True))

    def test_words(self) -> None:
        """Each failure to connect has its own reason and a hint."""
        failed = transport_errors.ConnectFailed(address="api.test:8443", detail="no route to host")
        refused = transport_errors.ConnectFailed(address="a", detail="x")
        named = transport_errors.ConnectFailed(address="a", detail="x")
        for error, reason in (
            (failed, "connect_failed"),
            (caused(refused, TwistedRefused()), "connection_refused"),
            (caused(named, DNSLookupError()), "name_unresolved"),
            (transport_errors.ConnectTimeout(address="a", detail="10 s"), "connect_timeout"),
            (transport_errors.HandshakeFailed(address="a", alert="", detail="x"), "handshake_failed"),
            (transport_errors.HandshakeTimeout(address="a", seconds=10.0), "handshake_timeout"),
            (
                transport_errors.PeerIdentityUnexpected(address="a", alert="", spiffe_id="i", expected="e"),
                "identity_unexpected",
            ),
        ):
            shown = connect_error(error, TARGET)
            self.assertEqual(shown.reason, reason)
            self.assertTrue(shown.hint, reason)
            self.assertNotIn("{", str(shown) + shown.hint)

    def test_unexpected(self) -> None:
        """With a named identity the hint is to compare it; without one, that another trust domain needs one."""
        error = transport_errors.PeerIdentityUnexpected(address="a", alert="", spiffe_id="i", expected="e")
        self.assertIn("correct --expect-id", connect_error(error, TARGET, pinned=True).hint)
        self.assertIn("--expect-id i", connect_error(error, TARGET).hint)

    def test_svid_reason(self) -> None:
        """An invalid SVID of the server is reported with the precise reason."""
        error = transport_errors.PeerSvidInvalid(address="a", alert="", detail="expired", cause="it expired")
        shown = connect_error(error, TARGET)
        self.assertEqual((shown.reason, getattr(shown, "detail_reason", "")), ("svid_invalid", "expired"))

    def test_others_stay(self) -> None:
        """An error without better words is returned unchanged."""
        error = transport_errors.TransportError("pq_required", address="a", alert="")
        self.assertIs(connect_error(error, TARGET), error)

    def test_address_of(self) -> None:
        """A connection that follows another one goes to the same address, whatever the name resolves to by then."""
        self.assertEqual(address_of(TARGET, None).host, "api.test")
        dialer = MemoryDialer(NotaryServer(default_world()), None)
        previous: OpenConnection = settled(Deferred.fromCoroutine(dialer.dial(None)))
        address = address_of(TARGET, previous)
        self.assertEqual((address.host, address.port), ("192.0.2.7", 8443))
