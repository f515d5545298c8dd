"""Tests of ``svc.transport.fast.selection`` and of the private names that the pinned versions must have."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from svc.transport.fast.selection import Selection, select_tcp, select_tls
from svc.transport.handshake import FastTlsProtocol, StockTlsProtocol, default_tls_protocol
from svc.transport.peerchain import sent_chain_is_readable


class SelectionTests(SynchronousTestCase):
    """On the pinned versions the fast path is selected."""

    def test_fast_on_the_pinned_versions(self) -> None:
        """Every private name that the fast TLS path and the eager transports rely on exists."""
        self.assertEqual((select_tls({}), select_tcp({})), (Selection(True, ()), Selection(True, ())))
        self.assertEqual(select_tls({}).name, "fast")

    def test_sent_chain_on_the_pinned_versions(self) -> None:
        """The certificates as sent can be read inside the verification."""
        self.assertTrue(sent_chain_is_readable())

    def test_stock_by_the_environment(self) -> None:
        """SVC_TRANSPORT=stock selects Twisted's own; any other value changes nothing."""
        for select in (select_tls, select_tcp):
            stock = select({"SVC_TRANSPORT": "stock"})
            self.assertEqual((stock.fast, stock.name), (False, "stock"))
            self.assertTrue(select({"SVC_TRANSPORT": "other"}).fast)

    def test_stock_where_a_name_is_missing(self) -> None:
        """One missing name of the binding is enough for Twisted's own path, and it is listed."""
        selection = select_tls({}, binding=object())
        self.assertFalse(selection.fast)
        self.assertIn("binding.SSL_read", selection.missing)

    def test_default_tls_protocol(self) -> None:
        """Endpoints use the TLS protocol of the selected path."""
        expected = FastTlsProtocol if select_tls().fast else StockTlsProtocol
        self.assertIs(default_tls_protocol(), expected)
