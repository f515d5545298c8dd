"""Metrics that move only by an internal defect or by another TLS library, tested in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from svc.errors import SvcError
from svc.proxy.listener import Listener
from svc.proxy.observers import ListenerObserver, Reports
from svc.telemetry.labels import Role
from svc.testing.workload import MemorySource
from svc.transport.creators import server_creator
from svc.transport.handshake import FastTlsProtocol, TlsFactory
from tests.proxy.rig import Rig
from tests.transport.pairs import CLIENT_ADDRESS, NOW, Applications, Pair


class NewRule(SvcError):
    """nobody may connect"""

    reason = "a_word_of_tomorrow"


class InsideTests(SynchronousTestCase):
    """Metrics of a listener's observer in cases that a peer cannot cause."""

    def setUp(self) -> None:
        self.rig = Rig()
        self.reports = Reports(self.rig.metrics, Clock())
        self.addCleanup(self.reports.close)

    def observer(self, role: Role) -> ListenerObserver:
        """Create the observer of a listener whose TLS has this role."""
        return ListenerObserver(
            self.rig.metrics.listener("http", "inbound" if role == "server" else "outbound"), self.reports, "web"
        )

    def value(self, name: str, **labels: str) -> float | None:
        """Read a metric."""
        return self.rig.registry.get_sample_value(f"svc_proxy_{name}", labels)

    def refused_by(self, role: Role, authorize: Callable[[Any], None]) -> None:
        """Let one side refuse the other, and pass its report to the listener's observer."""
        pair = Pair(FastTlsProtocol, **{f"{role}_options": {"authorize": authorize}}).connect()  # type: ignore[arg-type]
        [reported] = (pair.server_observer if role == "server" else pair.client_observer).failed
        self.observer(role).handshake_failed(*cast(Any, reported))

    def test_internal_error(self) -> None:
        """An exception during the verification of a peer refuses it, with a reason of its own."""

        def authorize(_evidence: Any) -> None:
            raise ZeroDivisionError("a defect")

        for role in ("server", "client"):
            self.refused_by(cast(Role, role), authorize)  # type: ignore[redundant-cast]
            self.assertEqual(1, self.value("tls_handshake_failures_total", role=role, reason="internal_error"))
        self.assertEqual(2, len(self.flushLoggedErrors(ZeroDivisionError)))

    def test_other_reason(self) -> None:
        """A refusal with an unregistered reason is counted as ``other``, and as a policy decision of its kind."""

        def authorize(_evidence: Any) -> None:
            raise NewRule()

        for role in ("server", "client"):
            self.refused_by(cast(Role, role), authorize)  # type: ignore[redundant-cast]
            self.assertEqual(1, self.value("tls_handshake_failures_total", role=role, reason="other"))
            denied = {"result": "denied", "reason": "policy_deny", "protocol": "http", "role": role}
            self.assertEqual(1, self.value("auth_decisions_total", **denied))

    def test_other_group(self) -> None:
        """A group without a known name is counted as ``other`` and not as post-quantum."""
        pair = Pair(FastTlsProtocol).connect()
        for role, observer in (("server", pair.server_observer), ("client", pair.client_observer)):
            [(_, seconds, evidence)] = observer.done
            unnamed = replace(evidence, group="unknown", post_quantum=False)
            self.observer(cast(Role, role)).handshake_done(cast(Role, role), seconds, unnamed)
            labels = {"protocol": "http", "role": role, "group": "other", "post_quantum": "false"}
            self.assertEqual(1, self.value("tls_connections_total", **labels))

    def test_credentials_missing(self) -> None:
        """A connection before there is an SVID is refused; the real proxy opens its listeners only afterwards."""
        observer = self.observer("server")
        creator = server_creator(MemorySource(), clock=lambda: NOW, observer=observer)
        factory = TlsFactory(creator, Applications(), clock=self.rig.clock, protocol=FastTlsProtocol)
        self.assertIsNone(factory.buildProtocol(CLIENT_ADDRESS))
        closed = self.value("connections_closed_total", protocol="http", cause="credentials_missing")
        self.assertEqual(1, closed)

    def test_other_cause(self) -> None:
        """A refusal by a limit with an unregistered cause is counted as ``other``."""
        self.observer("server").connection_refused("a_limit_of_tomorrow", "192.0.2.1:1")
        self.assertEqual(1, self.value("connections_closed_total", protocol="http", cause="other"))

    def test_defect(self) -> None:
        """A connection whose time limits cannot be checked is dropped."""
        rig = self.rig
        listener = Listener(rig.context, cast(Any, rig.endpoint), rig.build)
        client, wire = rig.client()
        client._end_if_expired = lambda _wall: 1 / 0  # type: ignore[assignment, return-value]
        listener._connections.add(client)
        listener.sweep(1.0, rig.wall())
        self.assertTrue(wire.aborted)
        self.assertEqual(1, self.value("connections_closed_total", protocol="http", cause="defect"))
        self.assertEqual(1, len(self.flushLoggedErrors(ZeroDivisionError)))
