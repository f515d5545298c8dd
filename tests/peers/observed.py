"""A proxy and a broker in use, with everything that has a metric, and a Prometheus that scrapes both."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from svc.testing.ca import TestAuthority, chain_pem, key_pem
from svc.wire.mqtt import Publish, Subscribe, Subscription
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.mqttclient import RawClient
from tests.peers.partner import attempt
from tests.peers.prometheus import RunningPrometheus
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import free_port

_LEVELS = ("workload", "logRequest", "signRequest")


class Observed:
    """
    The processes and their clients.

    The outbound listener of the proxy calls its inbound one.

    Args:
        stack: ends everything.
        rules: the file of the alerts of Prometheus.
    """

    def __init__(self, stack: ExitStack, rules: Path) -> None:
        self.folder = short_folder(stack)
        entries = [entry("/ns/shop/sa/api"), entry("/ns/shop/sa/web")]
        authority = stack.enter_context(RunningAuthority(entries=entries))
        self.out = free_port()
        self.proxy = RunningProxy(authority, f"127.0.0.1:{webapp.start(stack)}")
        self.proxy.config["listeners"].append(
            {
                "name": "out",
                "protocol": "http",
                "direction": "outbound",
                "listen": f"127.0.0.1:{self.out}",
                "upstream": f"127.0.0.1:{self.proxy.port}",
                "peer": "spiffe://example.org/ns/shop/sa/api",
            }
        )
        stack.enter_context(self.proxy)
        self.broker = stack.enter_context(self._broker(authority))
        self.web = Credentials.fetch(authority, self.folder / "web", "/ns/shop/sa/web")
        self.prometheus = RunningPrometheus(
            stack,
            {"svc-proxy": self.proxy.metrics_port, "svc-broker": self.broker.metrics_port},
            rules,
            interval=1,
        )
        self._subscriber = stack.enter_context(RawClient(self.broker.port))
        self._subscriber.connect("subscriber")
        self._subscriber.send(Subscribe(1, [Subscription("#", 1)]))
        self._publisher = stack.enter_context(RawClient(self.broker.port))
        self._publisher.connect("publisher")

    def _broker(self, authority: RunningAuthority) -> RunningBroker:
        svid = TestAuthority("example.org", now=datetime.now(UTC)).svid("/displays")
        pair = {"certificate": self.folder / "c.pem", "key": self.folder / "k.pem"}
        pair["certificate"].write_bytes(chain_pem(svid))
        pair["key"].write_bytes(key_pem(svid))
        pair["key"].chmod(0o600)
        acl = [{"who": "anonymous", "subscribe": ["public/#"]}]
        return RunningBroker(
            listeners=[
                {
                    "name": "devices",
                    "listen": f"127.0.0.1:{free_port()}",
                    "tls": {"spiffe": True},
                    "acl": [{"who": "spiffe://example.org/*", "publish": ["#"], "subscribe": ["#"]}],
                },
                {
                    "name": "displays",
                    "listen": f"127.0.0.1:{free_port()}",
                    "tls": {name: str(path) for name, path in pair.items()},
                    "acl": acl,
                },
            ],
            persistence={"path": str(self.folder / "broker.db")},
            settings={"trustDomain": "example.org", "spiffeSocketPath": authority.address},
        )

    def use(self, times: int = 1) -> None:
        """
        Send requests and messages of each kind.

        Args:
            times: how often.
        """
        with RawConnection(self.proxy.port, self.web) as inbound, RawConnection(self.out, None) as outbound:
            for number in range(times):
                for level in _LEVELS:
                    inbound.request(f"/bytes/{1000 * (number + 1)}", fields=f"Svc-Notarization-Level: {level}\r\n")
                inbound.request("/.well-known/svc-notary")
                outbound.request("/bytes/10")
        for number in range(times):
            self._publisher.send(Publish(f"readings/{number % 10}", b"x" * 100, 1, retain=True, packet_id=number + 1))
        self._publisher.sync()
        self._subscriber.acknowledge(self._subscriber.sync())
        with RawClient(self.broker.port) as visitor:
            visitor.connect("visitor")

    def refuse(self) -> None:
        """Let the proxy refuse a client without a certificate, and the broker one that does not use MQTT."""
        attempt(self.proxy.port, None)
        with RawClient(self.broker.port) as stranger:
            stranger.octets(b"GET / HTTP/1.1\r\n\r\n")
            stranger.until_end()
