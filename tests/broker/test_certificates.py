"""When the files of certificates are checked, and what is logged of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from svc.broker.certificates import CHECK_EVERY, CertificateRenewal
from svc.broker.reports import BrokerMetrics
from svc.telemetry.events.base import Event
from svc.telemetry.events.broker import BrokerEvent
from svc.transport.certificates import CertificateUnusable
from tests.broker.rig import Rig

RENEWED, REJECTED = BrokerEvent.CERTIFICATE_RENEWED, BrokerEvent.CERTIFICATE_REJECTED


class Scripted:
    """A creator with a result that the test sets."""

    not_after: datetime | None = datetime(2030, 1, 1, tzinfo=UTC)
    verifies_clients = False

    def __init__(self) -> None:
        self.outcome: bool | str = False
        self.looks = 0

    def renew(self) -> bool:
        """Record the result; a text is an error."""
        self.looks += 1
        if isinstance(self.outcome, str):
            raise CertificateUnusable(certificate="c.pem", key="k.pem", what=self.outcome)
        return self.outcome


class CertificatesTests(SynchronousTestCase):
    """Looks and reports."""

    def setUp(self) -> None:
        """Two listeners, and what is logged of them."""
        self.events: Any = self.enterContext(capturedLogs())
        self.clock = Clock()
        self.one, self.two = Scripted(), Scripted()
        self.decided = 0
        self.certificates = CertificateRenewal(self.clock, self.decide)
        self.certificates.add("one", self.one)  # type: ignore[arg-type]
        self.certificates.add("two", self.two)  # type: ignore[arg-type]
        self.certificates.startService()

    def decide(self) -> None:
        """Count it."""
        self.decided += 1

    def logged(self, outcome: bool | str) -> list[tuple[Event, str]]:
        """Let one check return a result for the first listener; return what was logged."""
        self.one.outcome = outcome
        self.events.clear()
        self.clock.advance(CHECK_EVERY)
        return self.new_events()

    def new_events(self) -> list[tuple[Event, str]]:
        """The events and listeners so far."""
        return [(each["svc_event"], each["svc_attributes"]["listener"]) for each in self.events if "svc_event" in each]

    def test_looks(self) -> None:
        """Both are checked every five seconds until the stop, and at once on request."""
        self.clock.advance(CHECK_EVERY - 0.1)
        self.assertEqual(self.one.looks, 0)
        self.clock.advance(0.1)
        self.certificates.check_now()
        self.assertEqual((self.one.looks, self.two.looks), (2, 2))
        self.certificates.stopService()
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_reports(self) -> None:
        """A new pair is logged; a failure is logged once for each cause, and again on request."""
        self.assertEqual(self.logged(False), [])
        self.assertEqual(self.logged(True), [(RENEWED, "one")])
        self.assertEqual(self.logged("half"), [(REJECTED, "one")])
        self.assertEqual(self.logged("half"), [])
        self.assertEqual(self.logged("other"), [(REJECTED, "one")])
        self.events.clear()
        self.certificates.check_now()
        self.assertEqual(self.new_events(), [(REJECTED, "one")])
        self.assertEqual(self.logged(True), [(RENEWED, "one")])
        self.assertEqual(self.logged("other"), [(REJECTED, "one")])

    def test_one_does_not_hinder_the_other(self) -> None:
        """A listener whose files fail leaves the next one its look."""
        self.two.outcome = True
        self.assertEqual(self.logged("half"), [(REJECTED, "one"), (RENEWED, "two")])

    def test_metric(self) -> None:
        """The end of each certificate is shown by the name of its listener."""
        registry = CollectorRegistry()
        registry.register(BrokerMetrics(Rig().hub, None, self.certificates.expiries))
        name = "svc_broker_certificate_not_after_seconds"
        assert Scripted.not_after is not None
        self.assertEqual(registry.get_sample_value(name, {"listener": "two"}), Scripted.not_after.timestamp())
        self.two.not_after = None
        self.assertIsNone(registry.get_sample_value(name, {"listener": "two"}))

    def test_clients_with_certificates(self) -> None:
        """They are decided on again when their files change, also where the listener has no certificate of its own."""
        self.logged(True)
        self.assertEqual(self.decided, 0)
        self.one.verifies_clients, self.one.not_after = True, None
        self.assertEqual(self.logged(True), [(RENEWED, "one")])
        self.logged(False)
        self.logged("half")
        self.assertEqual(self.decided, 1)
