"""A configuration is turned into the parts of a proxy."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from twisted.internet.testing import MemoryReactorClock
from twisted.web.test.requesthelper import DummyRequest

from svc.identity import SpiffeID
from svc.identity.pqbundle import PqBundles
from svc.notary.level import Level
from svc.policy import Denied
from svc.policy.rules import ConnectionFacts, RequestFacts
from svc.policyfiles.settings import Policies
from svc.process.clock import utc_now
from svc.proxy.assembly import Assembly
from svc.proxy.config import ProxySettings
from svc.proxy.http.context import HttpContext
from svc.proxy.http.peer_verification import VerifiedEndpoint
from svc.proxy.listener import Listener
from svc.proxy.relayed_context import RelayedContext
from svc.proxy.service import ProxyService
from svc.proxy.tcp.connection import TcpConnection
from svc.settings import parse
from svc.telemetry.events.base import Event
from svc.telemetry.events.notary import NotaryEvent
from svc.telemetry.events.proxy import ProxyEvent
from svc.testing.ca import TestAuthority
from svc.transport.endpoints import (
    MutualTlsClientEndpoint,
    MutualTlsServerEndpoint,
    PlainClientEndpoint,
    PlainServerEndpoint,
)
from svc.workload.errors import PqFileMissing
from tests.proxy.parts import LogTestCase
from tests.proxy.rig import BASE, CALLER, OWN, evidence_of

WEB = (
    '{name: web, protocol: http, direction: inbound, listen: "127.0.0.1:8443", upstream: "unix:///run/web.sock",'
    " notarization: logRequest, maxNotarization: logRequest, limits: {fields: 9, idleUpstream: 3},"
    " timeouts: {idle: 7s}}"
)
PAY = (
    '{name: pay, protocol: http, direction: outbound, listen: "127.0.0.1:18443", upstream: "pay.bank:8443",'
    ' peer: "spiffe://bank.example/pay"}'
)


TCP = (
    '{name: db, protocol: tcp, direction: inbound, listen: "127.0.0.1:15432", upstream: "127.0.0.1:5432",'
    " alpn: [postgresql], timeouts: {lifetime: 1d}}"
)
TCP_OUT = (
    '{name: away, protocol: tcp, direction: outbound, listen: "127.0.0.1:5433", upstream: "db.bank:8443",'
    ' peer: "spiffe://bank.example/db", alpn: [postgresql]}'
)


def built(listener: Listener) -> Any:
    """Build the protocol of a client."""
    return listener._build(set())


class AssemblyTestCase(LogTestCase):
    """Base class: a reactor in memory, a socket path and helpers."""

    def setUp(self) -> None:
        """Create the reactor and a short directory."""
        super().setUp()
        self.reactor = MemoryReactorClock()
        # The directories of trial are too deep for the path of a Unix socket.
        folder = tempfile.TemporaryDirectory(prefix="svc-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def settings(self, *listeners: str, notary: str = "", **top: str) -> ProxySettings:
        """Parse a configuration."""
        lines = [
            "trustDomain: prod.example",
            f"spiffeSocketPath: unix://{self.folder}/agent.sock",
            f'notary: {{path: "{self.folder}/notary.db", {notary or "profile: classical"}}}',
            *(f"{key}: {value}" for key, value in top.items()),
            "listeners:",
            *(f"  - {each}" for each in listeners or (WEB, PAY)),
        ]
        return parse("\n".join(lines), ProxySettings)

    def assemble(self, settings: ProxySettings | None = None) -> Assembly:
        """Assemble a proxy."""
        self.read = settings or self.settings()
        return Assembly(self.read, self.reactor, lambda: None, lambda: self.read)

    def listener(self, name: str, settings: ProxySettings | None = None) -> Any:
        """Assemble one listener."""
        settings = settings or self.settings()
        [own] = [each for each in settings.listeners if each.name == name]
        return self.assemble(settings)._listener(settings, own)


class BuildTests(AssemblyTestCase):
    """The whole proxy."""

    def test_nothing_starts(self) -> None:
        """Building opens no port, starts no thread, schedules no call and touches no file."""
        threads = threading.active_count()
        proxy = self.assemble().build()
        self.assertIsInstance(proxy, ProxyService)
        self.assertEqual(threading.active_count(), threads)
        self.assertEqual((self.reactor.tcpServers, self.reactor.unixServers), ([], []))
        self.assertEqual(self.reactor.getDelayedCalls(), [])
        self.assertEqual(list(self.folder.iterdir()), [])
        self.assertFalse(proxy.running)

    def page(self, proxy: ProxyService, name: bytes) -> Any:
        """Return one of the admin or metrics pages."""
        proxy.servers.startService()
        factory: Any = self.reactor.tcpServers[-1][1]
        request = DummyRequest([name])
        request.setHeader = lambda *_: None
        request.requestHeaders.setRawHeaders(b"host", [b"127.0.0.1:8"])
        resource = factory.wrappedFactory.resource.getChildWithDefault(name, request)
        return json.loads(resource.render(request))

    def test_pages(self) -> None:
        """Metrics and admin pages have ports of their own; the admin page shows the configuration in force."""
        proxy = self.assemble(self.settings(metricsAddr='"127.0.0.1:9"', adminAddr='"127.0.0.1:8"')).build()
        shown = self.page(proxy, b"config")
        self.assertEqual(
            [(port, interface) for port, _factory, _backlog, interface in self.reactor.tcpServers],
            [(9, "127.0.0.1"), (8, "127.0.0.1")],
        )
        self.assertEqual(shown["trustDomain"], "prod.example")
        self.assertEqual([each["name"] for each in shown["listeners"]], ["web", "pay"])

    def test_status(self) -> None:
        """The status describes each listener of the configuration, open or not, and the database where there is one."""
        status = self.page(self.assemble(self.settings(adminAddr='"127.0.0.1:8"')).build(), b"status")
        web, pay = status["listeners"]
        expected = {
            "name": "web",
            "protocol": "http",
            "direction": "inbound",
            "listen": "127.0.0.1:8443",
            "upstream": "unix:///run/web.sock",
            "level": "logRequest",
            "maxLevel": "logRequest",
        }
        self.assertEqual((expected, "outbound"), (web, pay["direction"]))
        self.assertEqual(
            ("proxy", "prod.example", False), tuple(status[n] for n in ("process", "trustDomain", "ready"))
        )
        self.assertEqual(False, status["store"]["writable"])
        self.assertEqual([], status["identities"])

    def test_status_without_notary(self) -> None:
        """A proxy with outbound listeners alone has no database to describe, and no page of receipts."""
        proxy = self.assemble(self.settings(PAY, adminAddr='"127.0.0.1:8"')).build()
        self.assertNotIn("store", self.page(proxy, b"status"))
        root = self.reactor.tcpServers[-1][1].wrappedFactory.resource  # type: ignore[attr-defined]
        self.assertEqual({b"", b"livez", b"readyz", b"drain", b"config", b"status"}, set(root.children))

    def test_redacted_values(self) -> None:
        """Labels and annotations that must not leave the pod are shown without their values."""
        workload = "{labels: {team: pay, app: api}, annotations: {note: hunter2}, allowLabels: [app]}"
        proxy = self.assemble(self.settings(adminAddr='"127.0.0.1:8"', workload=workload)).build()
        shown = self.page(proxy, b"config")["workload"]
        self.assertEqual(shown["labels"], {"team": "<left out>", "app": "api"})
        self.assertEqual(shown["annotations"], {"note": "<left out>"})

    def test_configuration_after_a_reload(self) -> None:
        """After a reload the page shows the new configuration."""
        proxy = self.assemble(self.settings(adminAddr='"127.0.0.1:8"')).build()
        proxy.settings = self.settings(WEB, adminAddr='"127.0.0.1:8"')
        self.assertEqual(len(self.page(proxy, b"config")["listeners"]), 1)

    def test_readiness(self) -> None:
        """The readiness page lists each condition of the proxy; none holds before the start."""
        proxy = self.assemble(self.settings(adminAddr='"127.0.0.1:8"')).build()
        shown = self.page(proxy, b"readyz")
        self.assertEqual(
            [(each["name"], each["ok"]) for each in shown["conditions"]],
            [
                ("credentials", False),
                ("workloadApi", False),
                ("store", False),
                ("listeners", False),
                ("pqIssuer", False),
            ],
        )

    def test_outbound_only(self) -> None:
        """Without an inbound listener there are no notary conditions or metrics, no issuer and no database driver."""
        notary = "profile: hybrid, pqIssuer: unix:///run/pq.sock"
        assembly = self.assemble(self.settings(PAY, notary=notary, adminAddr='"127.0.0.1:8"'))
        proxy = assembly.build()
        names = [each["name"] for each in self.page(proxy, b"readyz")["conditions"]]
        self.assertEqual(names, ["credentials", "workloadApi", "listeners"])
        self.assertEqual(self.reactor.unixClients, [])
        self.assertIsNone(assembly._rotation._obtain_leaf)
        families = [each.name for each in assembly._registry.collect()]
        self.assertEqual([name for name in families if "notary" in name], [])

    def test_collecting_only(self) -> None:
        """Outbound listeners that collect receipts have a database and its metrics, and no issuer."""
        for require, required in (("[workload]", False), ("[receipt]", True)):
            collecting = PAY[:-1] + f", require: {require}, collectReceipts: true}}"
            assembly = self.assemble(self.settings(collecting, notary="profile: hybrid", adminAddr='"127.0.0.1:8"'))
            proxy = assembly.build()
            assembly._configure_reports(self.read)
            conditions = {each["name"]: each["required"] for each in self.page(proxy, b"readyz")["conditions"]}
            self.assertEqual(["credentials", "workloadApi", "store", "listeners"], list(conditions))
            self.assertEqual(required, conditions["store"])
            families = [each.name for each in assembly._registry.collect()]
            self.assertIn("svc_proxy_notary_writable", families)
            self.assertEqual((self.reactor.unixClients, assembly._rotation._store), ([], None))

    def test_issuer_is_contacted(self) -> None:
        """With an inbound listener and a post-quantum profile the issuer is contacted at once."""
        notary = "profile: hybrid, pqIssuer: unix:///run/pq.sock"
        proxy = self.assemble(self.settings(WEB, notary=notary, adminAddr='"127.0.0.1:8"')).build()
        self.page(proxy, b"readyz")
        self.assertEqual([each[0] for each in self.reactor.unixClients], ["/run/pq.sock"])

    def test_disabled_pages(self) -> None:
        """An address that is disabled opens no port."""
        proxy = self.assemble(self.settings(metricsAddr='"0"', adminAddr='""')).build()
        proxy.servers.startService()
        self.assertEqual(self.reactor.tcpServers, [])

    def test_facts_follow_a_reload(self) -> None:
        """The facts of the statement come from the configuration in force."""
        assembly = self.assemble(self.settings(workload="{namespace: one}"))
        proxy = assembly.build()
        self.assertEqual(assembly._rotation._facts().namespace, "one")
        proxy.settings = self.settings(workload="{namespace: two}")
        self.assertEqual(assembly._rotation._facts().namespace, "two")

    def test_wall_clock(self) -> None:
        """The wall clock returns aware UTC times."""
        self.assertEqual(utc_now().utcoffset(), timedelta(0))


class ListenerTests(AssemblyTestCase):
    """The parts of one listener."""

    def test_inbound(self) -> None:
        """Inbound: mutual TLS from clients, plain to the application; policy, levels and limits come from the file."""
        listener = self.listener("web")
        context = listener.context
        self.assertIsInstance(listener._endpoint, MutualTlsServerEndpoint)
        self.assertIsInstance(context.pool._endpoint, PlainClientEndpoint)
        self.assertEqual((context.name, context.inbound), ("web", True))
        self.assertEqual((context.demanded, context.maximum), (Level.LOG_REQUEST, Level.LOG_REQUEST))
        self.assertEqual((context.message_limits.fields, context.timeouts.idle), (9, 7.0))
        assert context.policies is not None
        self.assertEqual(context.policies.files.policies, ())
        self.assertIsNotNone(built(listener)._endpoint)

    def test_outbound(self) -> None:
        """Outbound: plain from the application, mutual TLS to the peer; neither policy nor notary."""
        listener = self.listener("pay")
        self.assertIsInstance(listener._endpoint, PlainServerEndpoint)
        self.assertIsInstance(listener.context.pool._endpoint, MutualTlsClientEndpoint)
        self.assertEqual(
            (listener.context.inbound, listener.context.policies, built(listener)._endpoint), (False, None, None)
        )
        self.assertEqual(listener.context.maximum, Level.SIGN_REQUEST)

    def test_verifying(self) -> None:
        """Peers are verified by the profile of the notary and the roots beside the Workload API, or by a named file."""
        for notary, path in (
            ("profile: hybrid", f"{self.folder}/pq-bundle.json"),
            ("profile: pq, pqBundle: /run/roots.json", "/run/roots.json"),
            ("profile: classical", None),
        ):
            settings = self.settings(PAY[:-1] + ", require: [receipt], timeouts: {connect: 3s}}", notary=notary)
            context: Any = self.listener("pay", settings).context
            peers = context.peers
            self.assertIsInstance(context.pool._endpoint, VerifiedEndpoint)
            self.assertEqual((context.demanded, peers.level, peers.collector), (Level.SIGN_REQUEST,) * 2 + (None,))
            self.assertEqual((peers._profile.value, peers._pq_path), (settings.notary.profile, path))
            self.assertEqual((peers._host, peers._statement_seconds, peers._receipt_seconds), (b"pay.bank:8443", 3, 60))
            self.assertIs(context.pool._peers, peers)

    def test_new_roots(self) -> None:
        """Other post-quantum roots are applied to open connections, as soon as the file has them."""
        settings = self.settings(PAY[:-1] + ", require: [workload]}", notary="profile: hybrid")
        assembly = self.assemble(settings)
        proxy = assembly.build()
        assembly._listener(settings, settings.listeners[0])
        roots = assembly._http.pq_roots
        assert roots is not None
        self.assertRaises(PqFileMissing, lambda: roots.bundles)
        changes: list[object] = []
        self.patch(proxy.listeners, "reauthorize", lambda: changes.append(None))
        bundle = TestAuthority("prod.example", now=BASE, algorithm="ML-DSA-65").bundle(first_seen=BASE, last_seen=BASE)
        (self.folder / "pq-bundle.json").write_bytes(PqBundles().with_bundle(bundle).serialize())
        roots.check()
        self.assertEqual((1, 1), (len(changes), len(roots.bundles)))

    def test_tcp_inbound(self) -> None:
        """A TCP listener relays to the application, accepts the protocols of its own, and notarizes nothing."""
        settings = self.settings(TCP)
        listener = self.listener("db", settings)
        context = listener.context
        assert isinstance(context, RelayedContext)
        self.assertIsInstance(context.endpoint, PlainClientEndpoint)
        self.assertIsInstance(built(listener), TcpConnection)
        self.assertEqual(listener._endpoint._creator.alpn, (b"postgresql",))
        self.assertEqual((context.idle, context.timeouts.lifetime, context.metrics.protocol), (3600.0, 86400.0, "tcp"))
        self.assertIsNotNone(context.policies)
        self.assertFalse(settings.notarizes)

    def test_tcp_outbound(self) -> None:
        """Outbound it connects to the peer with the protocols that it offers."""
        context = self.listener("away", self.settings(TCP_OUT)).context
        assert isinstance(context, RelayedContext)
        endpoint: Any = context.endpoint
        self.assertEqual((endpoint._creator.alpn, context.policies), ((b"postgresql",), None))
        self.assertEqual(context.upstream, "the peer at db.bank:8443")

    def test_fields_of_requests(self) -> None:
        """``forwarded`` and ``host`` reach the connections; without them nothing changes."""
        web, pay = self.listener("web").context, self.listener("pay").context
        self.assertEqual((web.forwarded, web.host, pay.forwarded, pay.host), (False, None, False, None))
        keys = "{forwarded: rfc7239, ", '{host: "pay.bank:8443", '
        settings = self.settings(*(each.replace("{", key, 1) for each, key in zip((WEB, PAY), keys, strict=True)))
        web, pay = self.listener("web", settings).context, self.listener("pay", settings).context
        self.assertEqual((web.forwarded, web.host, pay.forwarded, pay.host), (True, None, False, b"pay.bank:8443"))

    def test_policy(self) -> None:
        """``default: allow`` admits the own trust domain and no other."""
        policies = self.listener("web", self.settings(policy="{default: allow}")).context.policies
        assert policies is not None
        self.admits(policies, "spiffe://prod.example/a", "default allow")
        self.assertRaises(Denied, self.admits, policies, "spiffe://bank.example/a", "")

    def admits(self, policies: Policies, identity: str, rule: str) -> None:
        """Assert that an identity is admitted, and by which rule."""
        facts = ConnectionFacts("web", 1, SpiffeID.parse(identity))
        self.assertEqual(rule, policies.rules.connection(facts).authorize(RequestFacts()).rule)

    def test_deny_list(self) -> None:
        """Peers of outbound listeners that are on a deny list are refused in the handshake."""
        path = Path(self.mktemp()).resolve()
        path.write_text(
            "{apiVersion: svc.internal/v1alpha1, kind: SvcDenyList, metadata: {name: stolen},"
            f" spec: {{spiffeIDs: ['{CALLER.spiffe_id}']}}}}"
        )
        endpoint: Any = self.listener("pay", self.settings(policy=f"{{files: ['{path}']}}")).context.pool._endpoint
        authorize = endpoint._creator._rules.authorize
        self.assertRaises(Denied, authorize, evidence_of(CALLER).svid)
        authorize(evidence_of(OWN).svid)

    def test_deny_list_of_statements(self) -> None:
        """Peers whose verified statement is on a deny list are refused."""
        path = Path(self.mktemp()).resolve()
        listed = "A" * 43
        path.write_text(
            "{apiVersion: svc.internal/v1alpha1, kind: SvcDenyList, metadata: {name: stolen},"
            f" spec: {{workloadStatements: ['{listed}']}}}}"
        )
        settings = self.settings(PAY[:-1] + ", require: [workload]}", policy=f"{{files: ['{path}']}}")
        refusal = cast(Any, self.listener("pay", settings).context).peers._listed
        found = refusal(SimpleNamespace(id=listed, subject=CALLER.spiffe_id))
        self.assertEqual((found.policy, found.rule), ("stolen", f"statement {listed}"))
        self.assertIsNone(refusal(SimpleNamespace(id="B" * 43, subject=CALLER.spiffe_id)))

    def test_policy_with_a_list(self) -> None:
        """The list is added to what ``allow`` admits; with ``deny`` only the list is admitted."""
        own, foreign = "spiffe://prod.example/a", "spiffe://bank.example/a"
        for default in ("allow", "deny"):
            section = f"{{default: {default}, allow: [spiffe://bank.example/*]}}"
            policies = self.listener("web", self.settings(policy=section)).context.policies
            assert policies is not None
            self.admits(policies, foreign, "allow spiffe://bank.example/*")
            if default == "allow":
                self.admits(policies, own, "default allow")
            else:
                self.assertRaises(Denied, self.admits, policies, own, "")

    def test_shared(self) -> None:
        """All listeners share credentials and notary; each has its own pool."""
        settings = self.settings()
        assembly = self.assemble(settings)
        web, pay = (cast(Any, assembly._listener(settings, each)) for each in settings.listeners)
        self.assertIs(web.context.rotation, pay.context.rotation)
        self.assertIs(web.context.notarizer, pay.context.notarizer)
        self.assertIsNot(web.context.pool, pay.context.pool)

    def test_host_of_the_upstream(self) -> None:
        """Host of requests that have none is the upstream's address, and localhost for a socket."""
        for upstream, host in (
            ("127.0.0.1:8080", b"127.0.0.1:8080"),
            ("[::1]:8080", b"[::1]:8080"),
            ("unix:///run/app.sock", b"localhost"),
        ):
            web = f'{{name: web, protocol: http, direction: inbound, listen: "127.0.0.1:8443", upstream: "{upstream}"}}'
            context = self.listener("web", self.settings(web)).context
            assert isinstance(context, HttpContext)
            self.assertEqual(host, context.upstream_host)


class ConfigurationLogTests(AssemblyTestCase):
    """Log records about the configuration in force, and the switch of the access log."""

    def test_access_log(self) -> None:
        """Each configuration that takes effect turns the access log and the audit of records on or off."""
        assembly = self.assemble(self.settings())
        reporter = assembly._listener(self.settings(), self.settings().listeners[0]).context.reporter
        for value in ("off", "on", "path", "off"):
            assembly._configure_reports(self.settings(accessLog=value))
            self.assertEqual(reporter.every_exchange, value != "off")
        for audited, recorded in (("off", False), ("denials", False), ("all", True)):
            assembly._configure_reports(self.settings(auditLog=audited))
            self.assertEqual(recorded, reporter.recorded_exchanges)

    def logged_events(self, settings: ProxySettings) -> list[Event]:
        """Return the events that are logged for a configuration."""
        self.assemble(settings)._configure_reports(settings)
        return [each.event for each in self.logged if each.event is not ProxyEvent.POLICY_LOADED]

    def test_nothing(self) -> None:
        """A configuration without risky settings logs no warning."""
        notary = 'pqIssuer: "unix:///pq.sock"'
        self.assertEqual(self.logged_events(self.settings(notary=notary)), [])
        self.assertEqual(self.logged_events(self.settings(PAY, notary=notary, policy="{default: allow}")), [])

    def test_admits_all(self) -> None:
        """A policy that admits a whole trust domain to an inbound listener is logged with the trust domain."""
        settings = self.settings(notary='pqIssuer: "unix:///pq.sock"', policy="{default: allow}")
        self.assertEqual(self.logged_events(settings), [ProxyEvent.POLICY_DEFAULT_ALLOW])
        self.assertEqual(self.only(ProxyEvent.POLICY_DEFAULT_ALLOW).attributes, {"trust_domain": "prod.example"})

    def test_database_that_is_needed(self) -> None:
        """Readiness depends on the notary database if a listener requires records; a reload updates this."""
        assembly = self.assemble()
        for settings, required in (
            (self.settings(PAY), False),
            (self.settings(WEB), True),
            (self.settings(PAY), False),
        ):
            assembly._configure_reports(settings)
            self.assertEqual(assembly._health.condition("store").required, required)

    def test_no_issuer(self) -> None:
        """With profile classical readiness does not depend on a post-quantum issuer."""
        assembly = self.assemble()
        assembly._configure_reports(self.settings())
        found = assembly._health.condition("pqIssuer")
        self.assertEqual((found.holds, found.message), (True, "the profile classical needs none"))

    def test_classical(self) -> None:
        """A profile whose signatures a quantum computer could forge is logged."""
        self.assertEqual(self.logged_events(self.settings()), [NotaryEvent.PROFILE_WEAK])


class PqBundleTests(AssemblyTestCase):
    """The roots to which a post-quantum leaf must chain."""

    def bundles(self, extra: str = "") -> object:
        """Return the roots that are read."""
        return self.assemble(self.settings(notary=f'pqIssuer: "unix:///pq.sock"{extra}'))._pq_bundles()

    def test_beside_the_socket(self) -> None:
        """The default file beside the socket may be missing."""
        self.forget_the_variable()
        self.assertIsNone(self.bundles())

    def test_named(self) -> None:
        """A file that the configuration names must exist."""
        self.forget_the_variable()
        self.assertRaises(PqFileMissing, self.bundles, f", pqBundle: {self.folder}/pq.json")

    def forget_the_variable(self) -> None:
        """Remove the environment variable of the user who runs the tests."""
        before = os.environ.pop("SVC_PQ_BUNDLE", None)
        if before is not None:
            self.addCleanup(os.environ.__setitem__, "SVC_PQ_BUNDLE", before)
