"""Certificates with dates that no calendar has."""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import Encoding
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SvidMalformed, load_certificate, verify_svid
from svc.testing.ca import TestAuthority

NOW = datetime(2060, 1, 2, tzinfo=UTC)


class ImpossibleDateTests(SynchronousTestCase):
    """What a stranger can write into a certificate and no library reads."""

    def test_year_zero(self) -> None:
        """A certificate of the year 0 is malformed, not a crash."""
        authority = TestAuthority("example.org", now=NOW)
        der = authority.svid("/a").leaf.public_bytes(Encoding.DER)
        self.assertIn(b"2060", der)
        impossible = load_certificate(der.replace(b"2060", b"0000"))
        error = self.assertRaises(SvidMalformed, verify_svid, (impossible,), authority.bundles(), NOW)
        self.assertIn("no calendar", str(error))
