"""Tests of ``svc.transport.selection`` and of what the fast path relies on."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol
from svc.transport.peerchain import sent_chain_is_readable
from svc.transport.selection import choose_tls_protocol, choose_transports


class SelectionTests(SynchronousTestCase):
    """On the pinned versions the fast path is the one selected."""

    def test_fast_tls_on_the_pinned_versions(self) -> None:
        """Everything the fast TLS path relies on is there."""
        choice = choose_tls_protocol({})
        self.assertEqual((choice.selected, choice.missing), ("fast", ()))
        self.assertIs(choice.protocol, FastTlsProtocol)

    def test_eager_tcp_on_the_pinned_versions(self) -> None:
        """Everything the eager transports rely on is there."""
        choice = choose_transports({})
        self.assertEqual((choice.selected, choice.missing, choice.eager), ("fast", (), True))

    def test_sent_chain_on_the_pinned_versions(self) -> None:
        """The certificates as sent can be read inside the verification."""
        self.assertTrue(sent_chain_is_readable())

    def test_stock_by_the_environment(self) -> None:
        """SVC_TRANSPORT=stock selects Twisted's own; any other value changes nothing."""
        stock = choose_tls_protocol({"SVC_TRANSPORT": "stock"})
        self.assertEqual((stock.selected, stock.protocol), ("stock", StockTlsProtocol))
        self.assertFalse(choose_transports({"SVC_TRANSPORT": "stock"}).eager)
        self.assertEqual(choose_tls_protocol({"SVC_TRANSPORT": "other"}).selected, "fast")

    def test_stock_where_something_is_missing(self) -> None:
        """One missing name of the binding is enough for Twisted's own path, and it is named."""
        choice = choose_tls_protocol({}, binding=object())
        self.assertEqual((choice.selected, choice.protocol), ("stock", StockTlsProtocol))
        self.assertIn("binding.SSL_read", choice.missing)
