"""Tests of the debug records: what they contain, and what they never contain."""

from __future__ import annotations

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.trust import log_roots
from svc.client import debug_log
from tests.cli.doubles import CLIENT_ID, SERVER_ID, MemoryContext, NotaryServer, default_world, run_svc


class RecordTests(SynchronousTestCase):
    """What is recorded of an exchange."""

    def setUp(self) -> None:
        self.texts: list[str] = []

        def observe(event: LogEvent) -> None:
            if event.get("log_namespace") == "svc.cli":
                self.assertEqual(event["log_level"].name, "debug")
                self.texts.append(formatEvent(event))

        globalLogPublisher.addObserver(observe)  # type: ignore[arg-type]
        self.addCleanup(globalLogPublisher.removeObserver, observe)  # type: ignore[arg-type]

    def recorded(self, beginning: str) -> list[str]:
        return [text for text in self.texts if text.startswith(beginning)]

    def test_exchange(self) -> None:
        """Requests by line and names of fields, answers by status and names, artifacts by their certificate chains."""
        server = NotaryServer(default_world(), fields=[(b"Set-Cookie", b"secret-5")])
        ran = run_svc(
            *("curl", "-n", "signRequest", "-d", "secret-1", "-H", "Authorization: secret-2", "-H", "X-Key: secret-3"),
            "https://api.test:8443/v1/pay?token=secret-4",
            context=MemoryContext(server),
        )
        self.assertEqual(ran.status, 0, ran.stderr)
        [request, statement, receipt] = self.recorded("sent to 192.0.2.7:8443: ")
        self.assertIn(
            "POST /v1/pay?[left out] HTTP/1.1; fields: Host, User-Agent, Accept, Authorization, X-Key", request
        )
        self.assertTrue(request.endswith("; 8 octets of body"))
        self.assertIn("GET /.well-known/svc-notary/v1/statements/", statement)
        self.assertIn("GET /.well-known/svc-notary/v1/receipts/by-request/", receipt)
        self.assertIn("received: 200; fields: Content-Type, Set-Cookie, ", self.recorded("received")[0])
        for artifact in ("statement", "receipt"):
            [verified] = self.recorded(f"verified the {artifact} ")
            self.assertTrue(verified.endswith(f" of {SERVER_ID} by the profile hybrid"))
            for algorithm in ("ES256", "ML-DSA-65"):
                leaf, root = self.recorded(f"certificate chain of the {algorithm} signature of the {artifact}")
                self.assertRegex(
                    leaf, rf", 1 of 2: {SERVER_ID}, SHA-256 [0-9a-f]{{64}}, valid from 2026-\S+ to 2026-\S+"
                )
                self.assertIn(", 2 of 2: root of example.org, SHA-256 ", root)
        self.assertNotIn("secret", "".join(self.texts))

    def test_connection(self) -> None:
        """The address, the identities, what TLS agreed on and the chain by which the server was verified."""
        address = IPv4Address("TCP", "192.0.2.7", 8443)
        debug_log.connecting("api.test:8443", None)
        debug_log.connecting("api.test:8443", SERVER_ID)
        debug_log.connected(address, None)
        debug_log.connected(address, default_world().peer)
        self.assertEqual(
            self.texts[:4],
            [
                "connecting to api.test:8443 without TLS",
                f"connecting to api.test:8443 with mutual TLS, expecting {SERVER_ID}",
                "connected to 192.0.2.7:8443",
                "connected to 192.0.2.7:8443: TLS 1.3, X25519MLKEM768, TLS_AES_256_GCM_SHA384; "
                f"server {SERVER_ID}, own identity {CLIENT_ID}",
            ],
        )
        self.assertEqual(len(self.recorded("certificate chain of the server, ")), 2)

    def test_roots(self) -> None:
        """The trust domains of the roots, and where they were read."""
        world = default_world()
        log_roots(world.bundles, world.anchors.pq, "unix:///s", None)
        self.assertEqual(
            self.texts,
            [
                "SPIFFE roots of example.org from unix:///s",
                "post-quantum roots of example.org from no file",
            ],
        )

    def test_addresses(self) -> None:
        """Host and port, IPv6 in brackets."""
        self.assertEqual(debug_log.address_text(IPv4Address("TCP", "192.0.2.7", 1)), "192.0.2.7:1")
        self.assertEqual(debug_log.address_text(IPv6Address("TCP", "::1", 1)), "[::1]:1")
        self.assertIn("sock", debug_log.address_text(UNIXAddress(b"/sock")))
