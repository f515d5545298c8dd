"""Revocation beside a real SPIRE: exactly the refused of the open HTTP, WebSocket and TCP connections are closed."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.metrics_rig import inbound, port_of
from tests.integration.test_broker_deny_lists import deny_list
from tests.integration.test_policy_files import document
from tests.integration.test_spire import API, SHORT, proxy_beside, serial_of
from tests.peers import webapp
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.spire import RunningSpire, entry
from tests.peers.waiting import Shared, eventually

ONE, TWO = "one.example", "two.example"
UPGRADE = b"GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
#: Connections of one client, by protocol of their listener: a kept one and a WebSocket; a stream.
EACH = {"http": 2.0, "tcp": 1.0}


class Client:
    """The connections of one client: HTTP that is kept, a WebSocket, and a TCP stream, each used once."""

    def __init__(self, site: Site, credentials: Credentials) -> None:
        self.http, self.socket = (RawConnection(site.proxy.port, credentials) for _ in range(2))
        self.stream = RawConnection(site.tcp, credentials)
        self.socket.send(UPGRADE)
        assert self.socket.read().status == 101
        assert self.works()

    def works(self) -> bool:
        """Whether all of them carry data both ways."""
        self.socket.send(b"ping")
        answers = [each.request("/bytes/10").status for each in (self.http, self.stream)]
        return answers == [200, 200] and self.socket.exactly(4) == b"ping"

    def ended(self) -> bool:
        """Wait until the proxy has ended all of them."""
        return all(each.ended() for each in (self.http, self.socket, self.stream))

    def close(self) -> None:
        """Close all of them."""
        for each in (self.http, self.socket, self.stream):
            each.close()


class Site:
    """SPIRE, a federated one, and a proxy with an HTTP and a TCP listener, whose policies and deny list are files."""

    def __init__(self, stack: ExitStack, *, ttl: int = 0) -> None:
        self.stack = stack
        self.folder = short_folder(stack)
        self.one, self.two = (stack.enter_context(RunningSpire(name, entries=[])) for name in (ONE, TWO))
        self.one.federate(self.two)
        self.entry = self.one.add(entry(API, ttl=ttl, federates_with=[TWO]))
        self.two.add(entry("/ns/shop/sa/partner"))
        eventually(lambda: self.one.served() and self.two.served(), what="both agents serving their entries")
        self.write("policies.yaml", self.policies(ONE, TWO))
        self.write("deny.yaml", deny_list())
        application = webapp.start(stack)
        streams = inbound("streams", application, protocol="tcp")
        self.tcp = port_of(streams)
        settings = {
            "policy": {"default": "deny", "files": [f"{self.folder}/{name}.yaml" for name in ("policies", "deny")]},
            "withdrawalGrace": "2s",
        }
        self.proxy = stack.enter_context(
            proxy_beside(self.one, application, None, listeners=[streams], settings=settings)
        )
        self.roots = self.folder / "roots.pem"
        self.roots.write_text(self.one.bundle("pem"))
        self._minted = 0

    def policies(self, *trust_domains: str) -> str:
        """Admit workloads of these trust domains."""
        return document({"name": "shop", "from": [{"trustDomains": list(trust_domains)}]})

    def write(self, name: str, text: str) -> None:
        """Replace a file as editors do."""
        (self.folder / "new").write_text(text)
        os.rename(self.folder / "new", self.folder / name)

    def change(self, name: str, text: str) -> None:
        """Replace a file with another text and wait until it is in force."""
        if (self.folder / name).read_text() == text:
            return
        before = len(self.proxy.records("svc.proxy.policy.loaded"))
        self.write(name, text)
        eventually(lambda: len(self.proxy.records("svc.proxy.policy.loaded")) > before, what="other policies in force")

    def credentials(self, path: str, ttl: int = 3600) -> Credentials:
        """Issue an SVID of the proxy's trust domain."""
        self._minted += 1
        return Credentials(*self.one.mint(path, self.folder / str(self._minted), ttl), self.roots, path)

    def partner(self) -> Credentials:
        """The SVID of a workload of the federated trust domain."""
        return replace(Credentials.fetch(self.two, self.folder / "partner"), roots=self.roots)

    def closed(self, cause: str) -> dict[str, float]:
        """How many connections were closed for a cause, by protocol."""
        name = "svc_proxy_connections_closed_total"
        return {each: self.proxy.metric(name, protocol=each, cause=cause) for each in EACH}


SHARED = Shared(Site)


class _Case(SynchronousTestCase):
    def connect(self, site: Site, credentials: Credentials) -> Client:
        """Connect a client for the rest of the test."""
        client = Client(site, credentials)
        self.addCleanup(client.close)
        return client

    def assert_closed(self, site: Site, cause: str, before: dict[str, float], clients: int = 1) -> None:
        """Since before, all connections of so many clients were closed for a cause, each counted once."""
        expected = {each: before[each] + clients * count for each, count in EACH.items()}
        eventually(lambda: site.closed(cause) == expected, what=f"{expected}, each counted once")


class ChangeTests(_Case):
    """Files that change while three clients are connected: two of the own trust domain, one of the federated one."""

    def setUp(self) -> None:
        """Connect them."""
        self.site: Site = SHARED.get()
        active = "svc_proxy_active_connections"
        eventually(lambda: not self.site.proxy.metric(active), what="the end of the connections of other tests")
        self.stolen_credentials = self.site.credentials("/ns/shop/sa/web")
        self.stolen = self.connect(self.site, self.stolen_credentials)
        self.renewed = self.connect(self.site, self.site.credentials("/ns/shop/sa/web"))
        self.other = self.connect(self.site, self.site.credentials("/ns/shop/sa/other"))
        self.partner = self.connect(self.site, self.site.partner())
        self.before = self.site.closed("reauthorization")
        self.addCleanup(self.site.change, "deny.yaml", deny_list())

    def works(self) -> list[bool]:
        """Which of those that are connected work."""
        return [each.works() for each in (self.renewed, self.other, self.partner)]

    def assert_refused_now(self, credentials: Credentials) -> None:
        """A new connection is verified, and refused by the policy."""
        with RawConnection(self.site.proxy.port, credentials) as connection:
            self.assertEqual(403, connection.request("/bytes/10").status)

    def test_certificate(self) -> None:
        """Of one identity the connections with a listed certificate end, by digest or by issuer and serial number."""
        certificate = x509.load_pem_x509_certificate(self.stolen_credentials.certificate.read_bytes())
        other = self.site.credentials("/ns/shop/sa/web")
        second = self.connect(self.site, other)
        digest = {"sha256": certificate.fingerprint(SHA256()).hex()}
        self.site.change("deny.yaml", deny_list(certificates=[digest]))
        self.assertTrue(self.stolen.ended())
        self.assertTrue(second.works())
        issued = x509.load_pem_x509_certificate(other.certificate.read_bytes())
        serial = {"issuer": issued.issuer.rfc4514_string(), "serial": f"{issued.serial_number:x}"}
        self.site.change("deny.yaml", deny_list(certificates=[digest, serial]))
        self.assertTrue(second.ended())
        self.assertEqual([True] * 3, self.works())
        self.assert_closed(self.site, "reauthorization", self.before, clients=2)
        self.assert_refused_now(self.stolen_credentials)
        self.assert_refused_now(other)

    def test_identity(self) -> None:
        """All connections of a listed identity end; others stay."""
        self.site.change("deny.yaml", deny_list(spiffeIDs=[f"spiffe://{ONE}/ns/shop/sa/web"]))
        self.assertTrue(self.stolen.ended() and self.renewed.ended())
        self.assertTrue(self.other.works() and self.partner.works())
        self.assert_closed(self.site, "reauthorization", self.before, clients=2)

    def test_policies(self) -> None:
        """Connections of clients that new policies refuse end; others stay."""
        self.addCleanup(self.site.change, "policies.yaml", self.site.policies(ONE, TWO))
        self.site.change("policies.yaml", self.site.policies(ONE))
        self.assertTrue(self.partner.ended())
        self.assertTrue(self.stolen.works() and self.renewed.works() and self.other.works())
        self.assert_closed(self.site, "reauthorization", self.before)
        self.assert_refused_now(self.site.partner())

    def test_client_without_an_entry(self) -> None:
        """SPIRE revokes a client by not renewing its SVID: its connections end with it, those of others do not."""
        before = self.site.closed("peer_expired")
        brief = self.connect(self.site, self.site.credentials("/ns/shop/sa/web", ttl=10))
        self.assertTrue(brief.ended())
        self.assertEqual([True] * 3, self.works())
        self.assertTrue(self.stolen.works())
        self.assert_closed(self.site, "peer_expired", before)


class SpireTests(_Case):
    """What changes in SPIRE, for a proxy of its own."""

    def site(self, **keys: Any) -> Site:
        """Start it."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        return Site(stack, **keys)

    def test_federation_ends(self) -> None:
        """Without the bundle of a federated trust domain its connections end, and those of the own one stay."""
        site = self.site()
        own = self.connect(site, site.credentials("/ns/shop/sa/web"))
        partner = self.connect(site, site.partner())
        before = site.closed("reauthorization")
        site.one.part(site.two)
        self.assertTrue(partner.ended())
        self.assertTrue(own.works())
        self.assert_closed(site, "reauthorization", before)
        self.assertRaises(OSError, Client, site, site.partner())
        self.assertTrue(own.works())

    def test_rotation_and_deleted_entry(self) -> None:
        """
        A new SVID of the proxy disturbs no connection; each ends with the SVID under which it was made. When the entry
        of the proxy is deleted, all end after the grace, each counted once.
        """
        site = self.site(ttl=SHORT)
        credentials = site.credentials("/ns/shop/sa/web")
        first = self.connect(site, credentials)

        def renewed() -> bool:
            with RawConnection(site.proxy.port, credentials) as connection:
                return serial_of(connection) != serial_of(first.http)

        eventually(renewed, what="a new SVID of the proxy")
        self.assertTrue(first.works())
        second = self.connect(site, credentials)
        self.assertTrue(first.ended())
        self.assertTrue(second.works())
        self.assert_closed(site, "credentials_expired", dict.fromkeys(EACH, 0.0))
        second.close()
        newest = [self.connect(site, credentials) for _ in range(2)]
        site.one.remove(site.entry)
        self.assertEqual([True] * 2, [each.ended() for each in newest])
        self.assert_closed(site, "identity_withdrawn", dict.fromkeys(EACH, 0.0), clients=2)
        self.assertFalse(site.proxy.is_ready())
