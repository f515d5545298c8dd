"""Metrics of handshakes on both sides: every reason, every group, results and decisions, over a real proxy."""

from __future__ import annotations

import json
import time

from tests.integration.metrics_rig import EventCase, Series, moves, series
from tests.peers.partner import attempt

#: The ways in which an SVID can be wrong; one of each is made by the partner.
WRONG = (
    "svid_malformed",
    "certificate_version",
    "critical_extension_unknown",
    "key_not_allowed",
    "signature_algorithm_not_allowed",
    "no_uri_san",
    "too_many_uri_sans",
    "spiffe_id_malformed",
    "root_path",
    "leaf_is_ca",
    "key_usage",
    "ext_key_usage",
    "leaf_is_anchor",
    "expired",
    "not_yet_valid",
    "trust_domain_unknown",
    "chain_untrusted",
    "chain_too_long",
    "signing_not_ca",
    "signing_key_usage",
    "signing_uri_san",
    "path_length",
    "name_constraints",
)
#: IANA's name, OpenSSL's name, whether post-quantum.
GROUPS = (
    ("X25519MLKEM768", "X25519MLKEM768", "true"),
    ("SecP256r1MLKEM768", "SecP256r1MLKEM768", "true"),
    ("SecP384r1MLKEM1024", "SecP384r1MLKEM1024", "true"),
    ("x25519", "X25519", "false"),
    ("secp256r1", "P-256", "false"),
    ("secp384r1", "P-384", "false"),
)
REQUEST = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def failure(role: str, reason: str) -> Series:
    """The counter of a reason."""
    return series("tls_handshake_failures_total", role=role, reason=reason)


def result(direction: str, word: str) -> Series:
    """The counter of a result of connections."""
    return series("connections_total", protocol="http", direction=direction, result=word)


def denied(role: str, reason: str) -> Series:
    """The counter of denials."""
    return series("auth_decisions_total", protocol="http", role=role, result="denied", reason=reason)


def group(role: str, name: str, post_quantum: str) -> Series:
    """The counter of a group."""
    return series("tls_connections_total", protocol="http", role=role, group=name, post_quantum=post_quantum)


CLOSED = series("connections_closed_total", protocol="http", cause="handshake")


class ClientTests(EventCase):
    """Clients of inbound listeners."""

    @moves(*(failure("server", reason) for reason in WRONG))
    @moves(result("inbound", "auth_failed"), denied("server", "svid_invalid"), CLOSED, by=len(WRONG))
    def test_wrong_svids(self) -> None:
        """Each wrong SVID is a failed handshake of its own reason, a refused connection and a denial."""
        wrong = self.found.partner.wrong()
        self.assertEqual(set(WRONG), set(wrong))
        for reason, svid in wrong.items():
            self.assertEqual(b"", attempt(self.found.ports["web"], svid), reason)

    @moves(failure("server", "certificate_missing"), denied("server", "svid_invalid"))
    def test_no_certificate(self) -> None:
        """A client without a certificate is refused for who it is."""
        self.assertEqual(b"", attempt(self.found.ports["web"], None))

    @moves(failure("server", "handshake_failed"), result("inbound", "error"), CLOSED)
    def test_no_tls(self) -> None:
        """A client without TLS is an error."""
        self.plain("web", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").recv(100)

    @moves(failure("server", "handshake_timeout"), result("inbound", "error"), CLOSED)
    def test_silent(self) -> None:
        """A client that sends nothing is an error after its time."""
        self.assertRaises(ConnectionResetError, self.plain("tight").recv, 100)

    @moves(failure("server", "alpn_refused"), result("inbound", "error"))
    def test_other_protocol(self) -> None:
        """A client with HTTP/2 only is an error."""
        self.assertEqual(b"", attempt(self.found.ports["web"], self.found.partner.svid(), alpn=[b"h2"]))

    @moves(failure("server", "pq_required"), failure("server", "group_not_allowed"))
    @moves(result("inbound", "error"), by=2)
    def test_no_common_group(self) -> None:
        """A classical client where hybrids are required, and one with a group that the proxy does not support."""
        svid = self.found.partner.svid()
        self.assertEqual(b"", attempt(self.found.ports["pq"], svid, groups="X25519"))
        self.assertEqual(b"", attempt(self.found.ports["web"], svid, groups="X448"))

    @moves(*(group("server", name, verdict) for name, _, verdict in GROUPS))
    @moves(
        series("tls_handshake_duration_seconds", protocol="http", role="server"),
        result("inbound", "auth_failed"),
        denied("server", "policy_deny"),
        by=len(GROUPS),
    )
    def test_groups(self) -> None:
        """Each group is counted with its verdict; the partner's workload is verified, and then denied by policy."""
        for name, offered, _verdict in GROUPS:
            answer = attempt(self.found.ports["web"], self.found.partner.svid(), groups=offered)
            self.assertIn(b" 403 ", answer, name)


class PeerTests(EventCase):
    """Peers of outbound listeners."""

    def setUp(self) -> None:
        super().setUp()
        self.peer = self.found.peer
        self.addCleanup(self._restore)

    def _restore(self) -> None:
        self.peer.svid, self.peer.groups, self.peer.mode = self.found.partner.svid(), None, "tls"

    def ask(self, listener: str = "out") -> int:
        """Send a request through a listener."""
        with self.connect(listener) as connection:
            return connection.request("/").status

    @moves(*(failure("client", reason) for reason in WRONG))
    @moves(result("outbound", "success"), by=0)
    @moves(result("outbound", "auth_failed"), denied("client", "svid_invalid"), by=len(WRONG))
    def test_wrong_svids(self) -> None:
        """Each wrong SVID of a peer is a failed handshake of its own reason, a refused connection and a denial."""
        for reason, svid in self.found.partner.wrong().items():
            self.peer.svid = svid
            with self.connect("out") as connection:
                answer = connection.request("/")
            self.assertEqual(502, answer.status, reason)
            problem = json.loads(answer.body)
            self.assertEqual(("upstream_identity_refused", reason), (problem["code"], problem["detail_reason"]))
            self.assertEqual(reason in ("expired", "not_yet_valid"), problem["retryable"], reason)

    @moves(failure("client", "identity_unexpected"), result("outbound", "auth_failed"), denied("client", "policy_deny"))
    def test_another_identity(self) -> None:
        """A verified peer that is not the configured one is denied."""
        self.assertEqual(502, self.ask("foreign"))

    @moves(result("outbound", "error"), by=2)
    @moves(result("outbound", "success"), by=0)
    def test_unreachable(self) -> None:
        """A peer without a listener is an error, each time that it is tried, and nothing else."""
        for _turn in range(2):
            self.assertEqual(502, self.ask("gone"))

    @moves(failure("client", "handshake_failed"), result("outbound", "error"))
    def test_no_tls(self) -> None:
        """A peer without TLS is an error."""
        self.peer.mode = "garbage"
        self.assertEqual(502, self.ask())

    @moves(failure("client", "handshake_timeout"), result("outbound", "error"))
    def test_silent(self) -> None:
        """A peer that sends nothing is an error after its time."""
        self.peer.mode = "silent"
        began = time.monotonic()
        self.assertEqual(504, self.ask())
        self.assertLess(time.monotonic() - began, 30)

    @moves(failure("client", "own_svid_refused"), result("outbound", "error"))
    @moves(result("outbound", "success"), by=0)
    def test_refuses_the_proxy(self) -> None:
        """A peer refuses the SVID of the proxy: the response has that reason, not the one of a closed connection."""
        self.peer.mode = "refusing"
        with self.connect("out") as connection:
            answer = connection.request("/")
        self.assertEqual(502, answer.status)
        self.assertIn(b'"code":"own_svid_refused"', answer.body)
        self.assertIn(b"unknown_ca", answer.body)

    @moves(failure("client", "pq_required"), result("outbound", "error"))
    def test_classical_only(self) -> None:
        """A peer without post-quantum key agreement where that is required."""
        self.peer.groups = "X25519"
        self.assertEqual(502, self.ask("outpq"))

    @moves(failure("client", "pq_required"), failure("client", "group_not_allowed"))
    @moves(result("outbound", "error"), by=2)
    def test_asked_for_another_group(self) -> None:
        """A peer requests a group that the client did not offer."""
        self.peer.mode = "retry"
        for listener in ("out", "outpq"):
            self.assertEqual(502, self.ask(listener))

    @moves(*(group("client", name, verdict) for name, _, verdict in GROUPS))
    @moves(
        series("tls_handshake_duration_seconds", protocol="http", role="client"),
        series("auth_decisions_total", protocol="http", role="client", result="allowed", reason="ok"),
        result("outbound", "success"),
        by=len(GROUPS),
    )
    def test_groups(self) -> None:
        """Each group is counted with its verdict; each verified peer is a decision."""
        for name, offered, _verdict in GROUPS:
            self.peer.groups = offered
            self.assertEqual(200, self.ask(), name)
