"""Beside a real SPIRE: the source of SVIDs, the proxy, ``svc curl``, the PQ issuer and the quickstart."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography import x509
from spiffe import WorkloadApiClient
from spiffe.errors import PySpiffeError
from twisted.internet import reactor
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase, TestCase

from svc.identity import TrustDomain, verify_svid
from svc.identity.archive import BundleArchive
from svc.identity.trustbundle import parse_bundle_file
from svc.process.clock import utc_now
from svc.testing.ca import TestAuthority
from svc.workload.errors import IdentityWithdrawn, NoIdentityIssued, PqIssuerError
from svc.workload.pqclient import fetch_pq_leaf
from svc.workload.source import WorkloadSource
from tests.integration.test_proxy_rotation import RotationCase
from tests.peers import webapp
from tests.peers.authority import RunningAuthority
from tests.peers.authority import entry as authority_entry
from tests.peers.folders import short_folder
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.machine import Machine
from tests.peers.pages import File, page, steps
from tests.peers.programs import run, svc
from tests.peers.proxy import RunningProxy
from tests.peers.spire import RunningSpire, entry, programs
from tests.peers.waiting import PATIENCE, TOP, Shared, eventually, free_port

API = "/ns/shop/sa/api"
IDENTITY = f"spiffe://example.org{API}"
ONE, TWO = TrustDomain("one.example"), TrustDomain("two.example")
#: With SPIRE's ten seconds of back-dating half of the life is over after eight seconds; a restarted process has
#: fourteen more until kept connections are cut.
SHORT = 26


def _spire(stack: ExitStack) -> RunningSpire:
    return stack.enter_context(RunningSpire(entries=[entry(API)]))


SPIRE = Shared(_spire)


def issuer_beside(stack: ExitStack, spire: RunningSpire, **keys: Any) -> RunningAuthority:
    """Start ``svc-authority`` as PQ issuer only."""
    issuer = RunningAuthority(spire.trust_domain)
    stack.callback(issuer.stop)
    issuer.config = {
        "trustDomain": spire.trust_domain,
        "adminAddr": "0",
        "workloadApi": spire.address,
        "pqIssuer": {"socket": issuer.pq_address, "bundleFile": str(issuer.pq_bundle_path), **keys},
    }
    return issuer.start()


def proxy_beside(spire: RunningSpire, upstream: int, issuer: RunningAuthority | None, **keys: Any) -> RunningProxy:
    """Make a proxy with SPIRE's identities; of profile ``classical`` where there is no issuer."""
    beside = SimpleNamespace(
        trust_domain=spire.trust_domain, address=spire.address, pq_address=issuer.pq_address if issuer else None
    )
    notary = {} if issuer else {"profile": "classical", "pqIssuer": None}
    return RunningProxy(beside, f"127.0.0.1:{upstream}", notary={**notary, **keys.pop("notary", {})}, **keys)  # type: ignore[arg-type]


def _platform(stack: ExitStack) -> Any:
    # Its own: what is shared ends when the next thing is shared.
    spire = _spire(stack)
    application = webapp.start(stack)
    issuer = issuer_beside(stack, spire)
    hybrid = stack.enter_context(proxy_beside(spire, application, issuer))
    classical = stack.enter_context(proxy_beside(spire, application, None))
    return SimpleNamespace(spire=spire, issuer=issuer, hybrid=hybrid, classical=classical)


PLATFORM = Shared(_platform)


def none_if_refused(failure: Failure) -> Failure | None:
    """None for a refusal by the issuer, else the failure."""
    error = failure.value
    return None if isinstance(error, PqIssuerError) and error.reason == "pq_issuer_refused" else failure


class SourceCase(TestCase):
    """A test with sources that end with it."""

    timeout = 600

    def source(self, spire: RunningSpire, **keys: Any) -> WorkloadSource:
        """Start a source."""
        source = WorkloadSource(spire.address, reactor=reactor, **{"start_timeout": 60.0, **keys})
        source.startService()
        self.addCleanup(source.stopService)
        return source

    async def until(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        """Wait for a condition while the reactor runs."""
        deadline = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > deadline:
                self.fail(f"not within {seconds} s")
            await deferLater(reactor, 0.02)
        return found


class WorkloadApiTests(SynchronousTestCase):
    """That this is a SPIRE: what any client of the standard gets from it."""

    def test_py_spiffe(self) -> None:
        """py-spiffe gets SVID, bundle and a JWT-SVID that the agent validates."""
        spire = SPIRE.get()
        with WorkloadApiClient(spire.address, default_timeout=60) as client:
            context = client.fetch_x509_context()
            self.assertEqual([IDENTITY], [str(each.spiffe_id) for each in context.x509_svids])
            bundle = context.x509_bundle_set.get_bundle_for_trust_domain(context.default_svid.spiffe_id.trust_domain)
            self.assertEqual(1, len(bundle.x509_authorities))
            token = client.fetch_jwt_svid({"us"}).token
            self.assertEqual(API, client.validate_jwt_svid(token, "us").spiffe_id.path)
            self.assertRaises(PySpiffeError, client.validate_jwt_svid, token, "them")


class SourceTests(SourceCase):
    """The source of SVIDs and bundles."""

    async def test_first_update(self) -> None:
        """SVID and bundle arrive, verify by our rules, and are those that the server exports."""
        spire = SPIRE.get()
        source = self.source(spire, trust_domain=TrustDomain("example.org"))
        await source.when_ready()
        self.assertEqual(IDENTITY, str(source.svid.spiffe_id))
        evidence = verify_svid(source.svid.chain, source.bundles, utc_now())
        self.assertEqual(("ECDSA-P256", False), (evidence.algorithm.name, evidence.post_quantum))
        for form in ("pem", "spiffe"):
            exported = parse_bundle_file(spire.bundle(form).encode(), TrustDomain("example.org"))
            self.assertEqual(source.bundles, exported)

    async def test_entry_comes_and_goes(self) -> None:
        """
        Without an entry there is no identity; one made later arrives; one taken out is withdrawn after the grace, as
        often as that happens; one whose SPIFFE ID changes gives the new one at once.
        """
        with RunningSpire(entries=[]) as spire:
            source = self.source(spire, start_timeout=4.0, withdrawal_grace=4.0)
            phases: list[str] = []
            source.subscribe(lambda: phases.append(source.state.phase))
            error: Any = await self.assertFailure(source.when_ready(), NoIdentityIssued)
            self.assertIn("registration entry", error.hint)
            identifier = spire.add(entry("/late"))
            await self.until(lambda: source.state.phase == "connected")
            self.assertEqual("/late", source.svid.spiffe_id.path)
            spire.update(identifier, entry("/other"))
            await self.until(lambda: source.svid.spiffe_id.path == "/other")
            for path in ("/late", "/late"):
                svid = source.svid
                spire.remove(identifier)
                await self.until(lambda: source.state.phase == "stale")
                self.assertEqual(svid, source.svid)
                await self.until(lambda: source.state.phase == "withdrawn")
                self.assertIn("PERMISSION_DENIED", str(source.state.last_error))
                self.assertRaises(IdentityWithdrawn, lambda: source.svid)
                identifier = spire.add(entry(path))
                await self.until(lambda: source.state.phase == "connected")
                self.assertEqual(path, source.svid.spiffe_id.path)
            # The identity ended by a message of the Workload API only: neither was the agent away.
            self.assertEqual(2, phases.count("withdrawn"))

    async def test_archive_comes_first(self) -> None:
        """The issuer archives SPIRE's root before it issues, so that all evidence can be verified with the archive."""
        with ExitStack() as stack:
            spire = SPIRE.get()
            source = self.source(spire)
            await source.when_ready()
            issuer = issuer_beside(stack, spire)
            leaf = None
            while leaf is None:
                asked = fetch_pq_leaf(issuer.pq_address, source.svid, source, reactor, now=utc_now)
                # Before SPIRE has given the issuer its own identity, it refuses.
                leaf = await asked.addErrback(none_if_refused)
            archive = BundleArchive.parse(issuer.archive_path.read_bytes())
            (anchor,) = archive.spiffe.bundle_for(TrustDomain("example.org")).anchors
            self.assertEqual(source.bundles.bundle_for(TrustDomain("example.org")).certificates, (anchor.certificate,))

    async def test_agent_outage(self) -> None:
        """SVIDs rotate; over kill -9 of the agent the last good ones stay, and after its restart they rotate again."""
        with RunningSpire(entries=[entry("/a", ttl=SHORT)]) as spire:
            source = self.source(spire)
            await source.when_ready()
            seen = [source.svid]
            source.subscribe(lambda: seen.append(source.svid))
            await self.until(lambda: len(seen) == 2)
            verify_svid(source.svid.chain, source.bundles, utc_now())
            self.assertEqual(0, source.state.failures)

            spire.kill("agent")
            await self.until(lambda: source.state.phase == "stale")
            kept, bundles = source.svid, source.bundles
            await deferLater(reactor, 1.0)
            self.assertEqual((kept, bundles), (source.svid, source.bundles))

            spire.start_agent()
            await self.until(lambda: source.state.phase == "connected" and source.svid != kept)
            self.assertGreater(source.svid.not_after, kept.not_after)
            self.assertEqual(bundles, source.bundles)


class MainJobTests(SynchronousTestCase):
    """The proxy and ``svc curl`` with SPIRE's identities."""

    def setUp(self) -> None:
        """One SPIRE for all, a proxy of each profile."""
        found = PLATFORM.get()
        self.spire: RunningSpire = found.spire
        self.issuer: RunningAuthority = found.issuer
        self.hybrid: RunningProxy = found.hybrid
        self.classical: RunningProxy = found.classical

    def curl(self, proxy: RunningProxy, *options: str) -> tuple[int, str, str]:
        """Run ``svc curl`` with SPIRE's socket, expecting the workload by its name."""
        target = ["--spiffe-socket-path", self.spire.address, "--expect-id", IDENTITY, f"{proxy.url}/status/200"]
        ran = svc("curl", *options, *target)
        return ran.returncode, ran.stdout.decode(), ran.stderr.decode()

    def roots(self) -> list[str]:
        """Name the issuer's roots."""
        return ["--pq-bundle", str(self.issuer.pq_bundle_path)]

    def test_hybrid(self) -> None:
        """Statement and receipt bear SPIRE's signature and that of the issuer beside it; both verify, later too."""
        with ExitStack() as stack:
            evidence = str(short_folder(stack) / "evidence.json")
            options = ["-n", "signRequest", "-o", "json", "--save-evidence", evidence, *self.roots()]
            status, out, errors = self.curl(self.hybrid, *options)
            self.assertEqual((0, ""), (status, errors), out)
            found = json.loads(out)["verification"]
            self.assertEqual((True, True, "hybrid"), (found["ok"], found["postQuantum"], found["profile"]))
            self.assertEqual((IDENTITY, True), (found["serverIdentity"], found["identityPinned"]))
            archive = ["--trust-bundle", str(self.issuer.archive_path), "--pq-bundle", str(self.issuer.archive_path)]
            ran = svc("verify", *archive, "--expect-id", IDENTITY, "-o", "json", evidence)
            self.assertEqual(0, ran.returncode, ran.stderr.decode())
            self.assertTrue(json.loads(ran.stdout)["verification"]["postQuantum"])

    def test_reports(self) -> None:
        """The reports for people name the identity, and the response is the application's."""
        options = ["-n", "signRequest", "--print-workload", "--print-receipt", "-i", *self.roots()]
        status, out, errors = self.curl(self.hybrid, *options)
        self.assertEqual(0, status, errors)
        self.assertTrue(out.startswith("HTTP/1.1 200 OK"), out)
        self.assertTrue(out.endswith("as requested\n"), out)
        self.assertGreaterEqual(errors.count(IDENTITY), 2)

    def test_without_roots(self) -> None:
        """Without the issuer's roots nothing verifies: beside SPIRE's socket there is no such file."""
        status, out, errors = self.curl(self.hybrid)
        self.assertNotEqual(0, status)
        self.assertEqual("", out)
        self.assertIn("--pq-bundle", errors)

    def test_classical(self) -> None:
        """Without any authority the profile ``classical`` works with a warning, and is not accepted by default."""
        status, out, errors = self.curl(self.classical, "-n", "signRequest", "--profile", "classical", "-s")
        self.assertEqual((0, ""), (status, out), errors)
        self.assertIn("evidence is not quantum-safe", errors)
        self.assertTrue(self.classical.records("svc.notary.profile.weak"))
        status, out, errors = self.curl(self.classical, "-n", "signRequest", *self.roots())
        self.assertEqual("", out)
        self.assertNotEqual(0, status)

    def test_issuer(self) -> None:
        """The issuer takes its identity from SPIRE and serves no Workload API of its own."""
        self.assertTrue(self.issuer.records("svc.authority.started")[0]["attributes"]["pq_only"])
        eventually(lambda: self.issuer.records("svc.authority.pq_leaf.issued"))
        self.assertFalse(self.issuer.socket_path.exists())


class LoadTests(RotationCase):
    """A proxy that gets requests all the time, while SPIRE's processes restart."""

    async def test_agent_and_server_are_killed(self) -> None:
        """
        Over kill -9 and restart of the agent, and then of the server, not one request fails, on kept and new
        connections, inbound and outbound; after each the proxy rotates again.
        """
        spire = self.stack.enter_context(RunningSpire(entries=[entry(API, ttl=SHORT)]))
        issuer = await deferToThread(issuer_beside, self.stack, spire)
        beside = SimpleNamespace(trust_domain=spire.trust_domain, address=spire.address, pq_address=issuer.pq_address)
        await self.begin(beside)  # type: ignore[arg-type]
        for name, start in (("agent", spire.start_agent), ("server", spire.start_server)):
            await self.assert_service(0.5)
            await deferToThread(spire.kill, name)
            await self.assert_service(2)
            await deferToThread(start)
            await self.rotations(1, 90)
            await self.assert_service(0.5)
        await self.end()
        self.assertEqual([], self.failures()[:5])
        self.assertTrue(self.proxy.records("svc.workload.source.stale"))
        self.assertEqual([], self.proxy.records("svc.workload.identity.withdrawn"))


class RotationTests(SynchronousTestCase):
    """A proxy whose SVIDs are valid for seconds."""

    def test_open_listener(self) -> None:
        """
        New SVIDs reach the open listener, over an outage of the agent too, and no request fails. Once the entry is
        taken out, the identity ends: open connections are closed, new ones refused, inbound and outbound, and the proxy
        is not ready until there is an entry again, with which it serves by itself.
        """
        stack = ExitStack()
        self.addCleanup(stack.close)
        spire = stack.enter_context(RunningSpire(entries=[]))
        identifier = spire.add(entry(API, ttl=SHORT))
        eventually(spire.served, 60)
        issuer = issuer_beside(stack, spire)
        outbound = free_port()
        proxy = proxy_beside(
            spire,
            webapp.start(stack),
            issuer,
            listeners=[leads_to("out", outbound)],
            settings={"withdrawalGrace": "2s"},
        )
        proxy.config["listeners"][1]["upstream"] = f"127.0.0.1:{proxy.port}"
        stack.enter_context(proxy)
        folder = short_folder(stack)
        self.assertEqual(200, plain(outbound)[0])

        def ask(credentials: Credentials) -> int:
            with RawConnection(proxy.port, credentials) as connection:
                answer = connection.request("/bytes/10")
                self.assertEqual((200, 43), (answer.status, len(answer.get("svc-workload-id") or "")))
                return serial_of(connection)

        early = stack.enter_context(RawConnection(proxy.port, Credentials.fetch(spire, folder)))
        self.assertEqual(200, early.request("/bytes/10").status)
        serials = {serial_of(early)}
        deadline = time.monotonic() + 120
        while len(serials) < 3 and time.monotonic() < deadline:
            serials.add(ask(Credentials.fetch(spire, folder)))
            time.sleep(0.05)
        self.assertGreaterEqual(len(serials), 3)
        # A connection accepted with the first SVID keeps it until 80 % of its lifetime.
        self.assertEqual(200, early.request("/bytes/10").status)

        credentials = Credentials.fetch(spire, folder)
        spire.kill("agent")
        eventually(lambda: proxy.records("svc.workload.source.stale"), 60)
        kept = ask(credentials)
        time.sleep(0.5)
        self.assertEqual(kept, ask(credentials))
        spire.start_agent()
        eventually(lambda: ask(Credentials.fetch(spire, folder)) != kept, 60, "a new SVID after the restart")

        credentials = Credentials.fetch(spire, folder)
        idle = stack.enter_context(RawConnection(proxy.port, credentials))
        self.assertEqual(200, idle.request("/bytes/10").status)
        spire.remove(identifier)
        eventually(lambda: proxy.records("svc.workload.identity.withdrawn"), 60, "the end of the identity")
        self.assertTrue(idle.ended())
        self.assertRaises(OSError, ask, credentials)
        status, body = plain(outbound)
        self.assertEqual((503, "identity_withdrawn"), (status, json.loads(body)["code"]))
        self.assertFalse(proxy.is_ready())
        self.assertIn("identity_withdrawn", {each.get("reason") for each in proxy.readiness().values()})
        self.assertGreaterEqual(proxy.metric("svc_proxy_connections_closed_total", cause="identity_withdrawn"), 1)
        spire.add(entry(API, ttl=SHORT))
        eventually(proxy.is_ready, 60, "readiness with a new entry")
        ask(Credentials.fetch(spire, folder))


def leads_to(name: str, port: int, peer: str = IDENTITY, upstream: int = 1) -> dict[str, Any]:
    """Make an outbound listener."""
    return {
        "name": name,
        "protocol": "http",
        "direction": "outbound",
        "listen": f"127.0.0.1:{port}",
        "upstream": f"127.0.0.1:{upstream}",
        "peer": peer,
    }


def plain(port: int) -> tuple[int, bytes]:
    """Send a request to an outbound listener as an application does; return status and content."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/bytes/10", timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


class Download:
    """A response that is read in a thread."""

    def __init__(self, port: int, path: str) -> None:
        self.begun = False
        self._whole: bool | None = None
        self._thread = threading.Thread(target=self._read, args=(f"http://127.0.0.1:{port}{path}",), daemon=True)
        self._thread.start()

    def _read(self, url: str) -> None:
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                answer.read(1)
                self.begun = True
                answer.read()
                self._whole = True
        except (OSError, http.client.HTTPException):
            self._whole = False

    def broke_off(self) -> bool:
        """Wait for its end; return whether it was too early."""
        self._thread.join(60)
        return self._whole is False


def serial_of(connection: RawConnection) -> int:
    """The serial number of the server's certificate."""
    assert isinstance(connection.socket, ssl.SSLSocket)
    return x509.load_der_x509_certificate(connection.socket.getpeercert(True) or b"").serial_number


class FederationTests(SourceCase):
    """Two trust domains."""

    async def test_bundle_endpoints(self) -> None:
        """Over SPIRE's bundle endpoints each verifies the other's workloads and no others, over a new root too."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        one, two = (stack.enter_context(RunningSpire(str(name), entries=[])) for name in (ONE, TWO))
        one.federate(two)
        two.federate(one)
        one.add(entry("/a", federates_with=[str(TWO)]))
        two.add(entry("/b", federates_with=[str(ONE)]))
        first, second = self.source(one), self.source(two)
        await first.when_ready()
        await second.when_ready()
        for verifier, other in ((first, second), (second, first)):
            self.assertEqual([ONE, TWO], list(verifier.bundles.trust_domains))
            verify_svid(other.svid.chain, verifier.bundles, utc_now())

        proxy = stack.enter_context(proxy_beside(two, webapp.start(stack), None))
        roots = short_folder(stack) / "roots.pem"
        roots.write_text(two.bundle("pem"))
        friend = replace(Credentials.fetch(one, roots.parent / "one"), roots=roots)
        with RawConnection(proxy.port, friend) as connection:
            answer = connection.request("/bytes/10")
        # Verified, and named to the policy, which by default admits the own trust domain alone.
        self.assertEqual(403, answer.status)
        self.assertIn(b"policy_deny", answer.body)
        for name, reason in (("three.example", "trust_domain_unknown"), (str(ONE), "chain_untrusted")):
            foreign = TestAuthority(name, now=datetime.now(UTC)).svid("/a")
            credentials = Credentials.of(foreign, roots.parent / reason, roots)
            self.assertRaises(OSError, self._ask, proxy, credentials)
            failed = partial(proxy.metric, "svc_proxy_tls_handshake_failures_total", reason=reason)
            await self.until(lambda failed=failed: failed() == 1)  # type: ignore[misc]

        before = first.bundles
        two.rotate_root()
        one.refresh(two)
        await self.until(lambda: len(first.bundles.bundle_for(TWO).anchors) == 2)
        self.assertNotEqual(before, first.bundles)
        two.add(entry("/new-root", federates_with=[str(ONE)]))
        await self.until(lambda: len(second.svids) == 2)
        newest = max(second.svids, key=lambda each: each.not_before)
        verify_svid(newest.chain, first.bundles, utc_now())
        (old_root,) = before.bundle_for(TWO).anchors
        self.assertNotEqual(old_root.certificate.subject, None)

    def test_two_proxies(self) -> None:
        """
        Two proxies, each with SPIRE and application of its own, call each other through their outbound listeners, and
        admit exactly the identities that their policy names; when one SPIRE ends the federation, it ends in both
        directions at once.
        """
        stack = ExitStack()
        self.addCleanup(stack.close)
        one, two = (stack.enter_context(RunningSpire(str(name), entries=[])) for name in (ONE, TWO))
        one.federate(two)
        two.federate(one)
        near, far = free_port(), free_port()
        proxies = []
        for own, other, listening in ((one, two, near), (two, one, far)):
            own.add(entry(API, federates_with=[other.trust_domain]))
            eventually(own.served, 60)
            policy = {"default": "deny", "allow": [f"spiffe://{other.trust_domain}/ns/shop/*"]}
            leads = leads_to("out", listening, f"spiffe://{other.trust_domain}{API}")
            settings = {"policy": policy, "drainTimeout": "1s"}
            application = webapp.start(stack)
            proxies.append(proxy_beside(own, application, None, listeners=[leads], settings=settings))
        first, second = proxies
        for proxy, other in ((first, second), (second, first)):
            proxy.config["listeners"][1]["upstream"] = f"127.0.0.1:{other.port}"
            stack.enter_context(proxy)
        self.assertEqual([200, 200], [plain(port)[0] for port in (near, far)])

        folder = short_folder(stack)
        roots = folder / "roots.pem"
        roots.write_text(two.bundle("pem"))
        friend = replace(Credentials.fetch(one, folder / "one"), roots=roots)
        unnamed = Credentials(*one.mint("/ns/other/sa/api", folder / "other"), roots, "other")
        own = Credentials.fetch(two, folder / "two")
        for credentials, status in ((friend, 200), (unnamed, 403), (own, 403)):
            with RawConnection(second.port, credentials) as connection:
                self.assertEqual(status, connection.request("/bytes/10").status)
        foreign = Credentials.of(TestAuthority("three.example", now=datetime.now(UTC)).svid(API), folder / "x", roots)
        self.assertRaises(OSError, self._ask, second, foreign)

        kept, own_kept = (stack.enter_context(RawConnection(second.port, each)) for each in (friend, own))
        self.assertEqual([200, 403], [each.request("/bytes/10").status for each in (kept, own_kept)])
        download = Download(far, "/drip/2000/20")
        eventually(lambda: download.begun, 60, "the beginning of the download")
        two.part(one)
        eventually(lambda: second.metric("svc_proxy_connections_closed_total", cause="reauthorization") > 0, 60)
        self.assertTrue(kept.ended())
        self.assertEqual(403, own_kept.request("/bytes/10").status)
        self.assertRaises(OSError, self._ask, second, friend)
        self.assertGreater(second.metric("svc_proxy_tls_handshake_failures_total", reason="trust_domain_unknown"), 0)
        self.assertTrue(download.broke_off(), "a running exchange with a peer that is trusted no more")
        self.assertEqual([502, 502], [plain(port)[0] for port in (near, far)])
        self.assertTrue(second.is_ready())

    async def test_authority_by_file(self) -> None:
        """An authority follows the bundle that a SPIRE exports into a file, and SPIRE takes that of the authority."""
        spire = SPIRE.get()
        with ExitStack() as stack:
            file = short_folder(stack) / "spire.json"
            file.write_text(spire.bundle())
            file.chmod(0o644)
            federated = {"trustDomain": spire.trust_domain, "bundleFile": str(file)}
            authority = RunningAuthority(
                "two.example", entries=[authority_entry("/b")], settings={"federatesWith": [federated]}
            )
            stack.callback(authority.stop)
            authority.start()
            source, other = self.source(spire), WorkloadSource(authority.address, reactor=reactor)
            other.startService()
            self.addCleanup(other.stopService)
            await source.when_ready()
            await other.when_ready()
            verify_svid(source.svid.chain, other.bundles, utc_now())
            spire.server(
                *("bundle", "set", "-id", "spiffe://two.example", "-format", "spiffe"),
                *("-path", str(authority.bundle_path)),
            )
            identifier = spire.add(entry("/federated", federates_with=["two.example"]))
            await self.until(lambda: TWO in source.bundles)
            verify_svid(other.svid.chain, source.bundles, utc_now())
            spire.remove(identifier)

    def _ask(self, proxy: RunningProxy, credentials: Credentials) -> None:
        with RawConnection(proxy.port, credentials) as connection:
            connection.request("/bytes/10")


class DocumentationTests(SynchronousTestCase):
    """``docs/spire.md``."""

    def test_the_page(self) -> None:
        """Its files and commands, in their order, on a machine of their own, lead to the output that it shows."""
        folder = programs()
        with Machine() as machine:
            machine.run(f"ln -s {folder}/spire-server {folder}/spire-agent /usr/local/bin/")
            for step in steps(page("spire.md")):
                if isinstance(step, File):
                    machine.write(step.path, step.text)
                else:
                    machine.follow(step)


class QuickstartTests(SynchronousTestCase):
    """``bin/quickstart --spire-socket``."""

    def quickstart(self, socket: str | Path) -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        with ExitStack() as stack:
            command = [TOP / "bin" / "quickstart", "--spire-socket", socket, "--port", str(free_port())]
            folder = str(short_folder(stack))
            return run(command, seconds=180, TMPDIR=folder, SVC_CHECKOUT=folder)  # type: ignore[arg-type]

    def test_end_to_end(self) -> None:
        """It makes its verified request with SPIRE's identity, ends with status 0 and leaves nothing with SPIRE."""
        spire = SPIRE.get()
        files = sorted(spire.folder.iterdir())
        for spelled in (str(spire.socket_path), spire.address):
            ran = self.quickstart(spelled)
            self.assertEqual(0, ran.returncode, ran.stderr.decode())
            self.assertIn(b"This page came through a verified connection.", ran.stdout)
            shown = ran.stderr.decode()
            self.assertIn("trust domain example.org by the SPIRE that is there", shown)
            self.assertIn(IDENTITY, shown)
            self.assertIn("verified: the workload's statement and the receipt", shown)
        self.assertEqual(files, sorted(spire.folder.iterdir()))

    def test_no_identity(self) -> None:
        """If SPIRE has no entry for the user, or there is no socket, it reports that in one line and a hint."""
        with RunningSpire(entries=[]) as spire:
            for socket in (spire.socket_path, spire.folder / "other.sock"):
                ran = self.quickstart(socket)
                lines = ran.stderr.decode().splitlines()
                self.assertEqual((1, b""), (ran.returncode, ran.stdout))
                # It reports that before it starts anything: these two lines are all.
                self.assertEqual(2, len(lines), lines)
                self.assertIn("gives this user no identity", lines[0])
                self.assertIn("make a registration entry for uid", lines[1])
