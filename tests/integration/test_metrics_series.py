"""How many series one proxy has that does everything: two protocols, both directions, hostile clients and policies."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.metrics_rig import SOON, inbound, outbound, port_of, world
from tests.integration.test_policy_files import document
from tests.peers import webapp
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.octets import Octets
from tests.peers.partner import DOMAIN, PeerServer, attempt
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually, rounds

#: Beyond it Prometheus of a large installation is expensive.
MOST = 500
#: Clients, requests and changes of each kind.
EACH = rounds(20, 300)


class SeriesTests(SynchronousTestCase):
    """One proxy with every kind of listener, and what nobody may add a series with."""

    def setUp(self) -> None:
        """Start it."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        found = self.found = world(self.stack)
        octets, peer = Octets(self.stack), PeerServer(found.partner.svid())
        self.stack.callback(peer.close)
        tcp = {"protocol": "tcp"}
        listeners = {
            "http-in": inbound("http-in", webapp.start(self.stack)),
            "http-out": outbound("http-out", peer.port),
            "tcp-in": inbound("tcp-in", octets.port, **tcp, alpn=["known"]),
            "tcp-in-2": inbound("tcp-in-2", octets.port, **tcp),
            "tcp-out": outbound("tcp-out", peer.port, **tcp, limits={}),
            "tcp-out-2": outbound("tcp-out-2", peer.port, **tcp, limits={}),
        }
        self.ports = {name: port_of(each) for name, each in listeners.items()}
        self.policies = Path(found.folder, "policies.yaml")
        self.policies.write_text(self.documents(0))
        self.proxy = self.stack.enter_context(
            RunningProxy(
                found.authority,
                f"127.0.0.1:{octets.port}",
                listeners=list(listeners.values()),
                settings={"policy": {"files": [str(self.policies)]}, "accessLog": "path", "auditLog": "all"},
            )
        )
        self.web = Credentials.fetch(found.authority, found.folder / "web", "/ns/shop/sa/web")

    def documents(self, number: int) -> str:
        """Policies of all kinds, with names that are never the same."""
        partner = {"from": [{"spiffeIDs": [f"spiffe://{DOMAIN}/*"]}]}
        everybody = {"name": f"all-{number}", "from": [{"trustDomains": ["example.org", DOMAIN]}]}
        denied = {"name": f"denied-{number}", "to": [{"methods": ["DELETE"]}, {"hosts": [f"{number}.example"]}]}
        return "\n---\n".join(
            (
                document(everybody, name=f"allow-{number}"),
                document(denied, action="Deny", name=f"deny-{number}"),
                document({**partner, "name": f"tried-{number}"}, action="Deny", mode="DryRun", name=f"dry-{number}"),
                document({**everybody, "name": f"seen-{number}"}, action="Audit", name=f"audit-{number}"),
            )
        )

    def test_nothing_adds_a_series(self) -> None:
        """Identities, paths, methods, hosts, statuses, server names, protocols, rules: as many series as before."""
        before = self.series()
        self.assertLess(len(before), MOST)
        for number in range(EACH):
            self.requests(number)
            self.streams(number)
            self.handshakes(number)
        for number in range(1, 4):
            self.change(number)
            self.requests(number)
        eventually(lambda: not self.proxy.metric("svc_proxy_active_connections"), SOON)
        self.assertEqual(before, self.series())
        for protocol in ("http", "tcp"):
            for direction in ("inbound", "outbound"):
                labels = {"protocol": protocol, "direction": direction, "result": "success"}
                self.assertGreater(self.proxy.metric("svc_proxy_connections_total", **labels), 0, labels)
            self.assertGreater(self.proxy.metric("svc_proxy_policy_dry_run_total", protocol=protocol), 0)

    def series(self) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
        """Every series of the page, buckets and those of the process included."""
        return sorted((name, tuple(sorted(labels.items()))) for name, labels, _value in self.proxy.samples())

    def requests(self, number: int) -> None:
        """HTTP of own and foreign clients, in both directions."""
        with RawConnection(self.ports["http-in"], self.web) as connection:
            for method in ("GET", "DELETE", f"X{number}"):
                connection.request(f"/status/{200 + number % 400}?{number}", method=method)
        for host in (f"{number}.example", "a" * 200):
            request = f"GET /{number}/%2e%2e/x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            svid = self.found.partner.svid(f"/made-up/{number}")
            self.assertIn(b"HTTP/1.1", attempt(self.ports["http-in"], svid, send=request.encode()))
        with RawConnection(self.ports["http-out"]) as connection:
            connection.request(f"/{number}", fields=f"Svc-Notarization-Level: level{number}\r\n")

    def streams(self, number: int) -> None:
        """TCP of own and foreign clients, in both directions."""
        for listener in ("tcp-in", "tcp-in-2"):
            svid = self.found.partner.svid(f"/made-up/{number}")
            self.assertEqual(5, len(attempt(self.ports[listener], svid, send=b"get 5")))
            attempt(self.ports[listener], svid, alpn=[b"unknown%d" % number], send=b"get 5")
        for listener in ("tcp-out", "tcp-out-2"):
            with socket.create_connection(("127.0.0.1", self.ports[listener]), 60) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                self.assertTrue(connection.recv(100))

    def handshakes(self, number: int) -> None:
        """Server names, identities that are not trusted, and what is no TLS."""
        for listener in ("http-in", "tcp-in"):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.ports[listener])) as plain:
                plain.settimeout(60)
                context = self.web.context()
                with context.wrap_socket(plain, server_hostname=f"name{number}.example") as connection:
                    connection.sendall(b"get 5")
                    with contextlib.suppress(ssl.SSLError):
                        connection.unwrap()
            attempt(self.ports[listener], self.found.partner.svid(uris=(f"spiffe://foreign{number}.example/a",)))
            with socket.create_connection(("127.0.0.1", self.ports[listener]), 60) as plain:
                plain.sendall(b"%d\r\n\r\n" % number)
                with contextlib.suppress(OSError):
                    plain.recv(100)

    def change(self, number: int) -> None:
        """Put other policies into force."""
        loaded = len(self.proxy.records("svc.proxy.policy.loaded"))
        new = self.policies.with_suffix(".new")
        new.write_text(self.documents(number))
        os.rename(new, self.policies)
        eventually(lambda: len(self.proxy.records("svc.proxy.policy.loaded")) > loaded, what="other policies in force")
