"""Registration entries of a real SPIRE server, by its Unix socket and by TCP."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from spiffe import WorkloadApiClient
from twisted.trial.unittest import SynchronousTestCase

from svc.identity import SpiffeID, X509Bundle, X509Svid
from svc.spire.entries import EntryChanges, RegistrationEntry, changes
from svc.spire.errors import BundleRefused, EntriesRefused, SpireUnavailable
from svc.spire.messages import BundleMessage
from svc.spire.server import BUNDLE_PAGE, PAGE, EntryFailure, SpireServer, server_context
from tests.peers.spire import RunningSpire, entry
from tests.peers.waiting import Shared, free_port

TD = "spiffe://example.org"
SERVER = SpiffeID.parse(f"{TD}/spire/server")
PARENT = SpiffeID.parse(f"{TD}/svc/node")


def wanted(name: str, **fields: Any) -> RegistrationEntry:
    """An entry for pods of a namespace."""
    return RegistrationEntry(SpiffeID.parse(f"{TD}/ns/{name}"), PARENT, frozenset({f"k8s:ns:{name}"}), **fields)


def _spire(stack: ExitStack) -> RunningSpire:
    return stack.enter_context(RunningSpire(entries=[entry("/plain"), entry("/admin", admin=True)]))


SPIRE = Shared(_spire)


class SpireEntriesTests(SynchronousTestCase):
    """One server for all tests; each leaves no entries of this program behind."""

    def setUp(self) -> None:
        """Take the server."""
        self.spire = SPIRE.get()

    def run_with(self, server: SpireServer, call: Callable[[SpireServer], Coroutine[Any, Any, Any]]) -> Any:
        """Run calls in a loop of their own."""

        async def run() -> Any:
            try:
                return await call(server)
            finally:
                server.close()

        return asyncio.run(run())

    def at_socket(self, call: Callable[[SpireServer], Coroutine[Any, Any, Any]]) -> Any:
        """Run calls by the Unix socket."""
        return self.run_with(SpireServer.at_socket(str(self.spire.folder / "api.sock")), call)

    def test_bundle(self) -> None:
        """The bundle has the authorities of the server, of both kinds."""
        found = self.at_socket(lambda server: server.bundle())
        keys = json.loads(self.spire.bundle())["keys"]
        authorities = {base64.b64encode(each.asn1).decode() for each in found.x509_authorities}
        self.assertEqual("example.org", found.trust_domain)
        self.assertEqual({each["x5c"][0] for each in keys if each["use"] == "x509-svid"}, authorities)
        names = {each.key_id for each in found.jwt_authorities}
        self.assertEqual({each["kid"] for each in keys if each["use"] == "jwt-svid"}, names)

    def test_federated_bundles(self) -> None:
        """Bundles are created, replaced, listed over pages and deleted, and what the server refuses is named."""
        der = [each.asn1 for each in self.at_socket(lambda server: server.bundle()).x509_authorities]

        def message(number: int, **fields: Any) -> Any:
            return BundleMessage(trust_domain=f"p{number}.example", x509_authorities=[{"asn1": der[0]}], **fields)

        async def states(server: SpireServer) -> None:
            many = {f"p{number}.example": message(number) for number in range(BUNDLE_PAGE + 2)}
            many["p1.example"] = message(1, refresh_hint=60)
            for each in (message(1), *many.values()):
                await server.set_federated_bundle(each)
            self.assertEqual(many, {each.trust_domain: each for each in await server.federated_bundles()})
            federated = wanted("f", federates_with=frozenset({"p1.example", "p2.example"}))
            self.assertEqual([], await server.apply(EntryChanges(create=(federated,))))
            for each in ("p1.example", *many):
                await server.delete_federated_bundle(each)
                (found,) = await server.entries(federated.spiffe_id)
                self.assertNotIn(each, found.federates_with)
            self.assertEqual([], await server.federated_bundles())
            await server.apply(EntryChanges(delete=(federated.id,)))
            await server.set_federated_bundle(BundleMessage(trust_domain="example.org"))

        refused = self.assertRaises(BundleRefused, self.at_socket, states)
        self.assertIn("own trust domain", str(refused))

    def own_svid(self, path: str) -> tuple[X509Svid, X509Bundle]:
        """Fetch an SVID of this process, and the bundle."""
        with WorkloadApiClient(self.spire.address) as client:
            context = client.fetch_x509_context(timeout=30.0)
        (found,) = [each for each in context.x509_svids if each.spiffe_id.path == path]
        bundle = context.x509_bundle_set.get_bundle_for_trust_domain(found.spiffe_id.trust_domain)
        assert bundle is not None
        svid = X509Svid(SpiffeID.parse(str(found.spiffe_id)), tuple(found.cert_chain), found.private_key)  # type: ignore[arg-type]
        return svid, X509Bundle.from_certificates(SERVER.trust_domain, bundle.x509_authorities)

    def test_made_equal(self) -> None:
        """Created, updated and deleted until the server has what is wanted, over pages, and nothing twice."""

        async def states(server: SpireServer) -> None:
            foreign = {each.id for each in await server.entries()}
            many = [wanted(f"n{number}", x509_svid_ttl=60) for number in range(PAGE + 5)]
            changed = [replace(many[0], hint="internal", dns_names=("b.example", "a.example")), *many[1:3]]
            for state in (many, many, changed, []):
                todo = changes(await server.entries(), state)
                self.assertEqual([], await server.apply(todo))
                stored = await server.entries()
                self.assertFalse(changes(stored, state))
                self.assertEqual({*foreign, *(each.id for each in state)}, {each.id for each in stored})
                if state is changed:
                    self.assertEqual((0, 1, PAGE + 2), (len(todo.create), len(todo.update), len(todo.delete)))

        self.at_socket(states)

    def test_refused_entries(self) -> None:
        """An entry that the server refuses is named with its reason, and the others are made."""

        async def apply(server: SpireServer) -> list[EntryFailure]:
            # A trust domain that the server does not federate with; one that somebody else has made.
            bad, good = wanted("bad", federates_with=frozenset({"unknown.example"})), wanted("good")
            failures = await server.apply(EntryChanges(create=(bad, good)))
            self.assertEqual([], await server.apply(EntryChanges(delete=(good.id, "svc.absent"))))
            self.assertEqual(
                (["create"], [bad.id]), ([each.action for each in failures], [each.id for each in failures])
            )
            return failures

        (failure,) = self.at_socket(apply)
        self.assertIn("unknown.example", failure.detail)

    def test_by_tcp(self) -> None:
        """With the SVID of an administrator, to a server that is the expected one; others are refused."""
        svid, bundle = self.own_svid("/admin")
        port = self.spire.port

        def server(server_id: SpiffeID = SERVER, own: X509Svid = svid, roots: X509Bundle = bundle) -> SpireServer:
            return SpireServer.at_port("127.0.0.1", port, lambda: server_context(own, roots, server_id))

        async def read(connected: SpireServer) -> list[Any]:
            await connected.entries()
            # The connection is closed by a rotation, say.
            connected.close()
            return await connected.entries()

        self.assertIn("/admin", [each.spiffe_id.path for each in self.run_with(server(), read)])
        plain, _bundle = self.own_svid("/plain")
        refused = self.assertRaises(EntriesRefused, self.run_with, server(own=plain), read)
        self.assertIn("admin", refused.hint)
        other = SpiffeID.parse(f"{TD}/spire/other")
        wrong = self.assertRaises(SpireUnavailable, self.run_with, server(other), read)
        self.assertIn(f"it is {SERVER}", str(wrong))
        unknown = X509Bundle.from_certificates(SERVER.trust_domain, svid.chain)
        self.assertRaises(SpireUnavailable, self.run_with, server(roots=unknown), read)

    def test_unreachable(self) -> None:
        """A server that is not there is named."""
        port = free_port()
        svid, bundle = self.own_svid("/plain")
        server = SpireServer.at_port("127.0.0.1", port, lambda: server_context(svid, bundle, SERVER))
        error = self.assertRaises(SpireUnavailable, self.run_with, server, lambda each: each.entries())
        self.assertIn(f"127.0.0.1:{port}", str(error))
        absent = SpireServer.at_socket("/nowhere/api.sock")
        error = self.assertRaises(SpireUnavailable, self.run_with, absent, lambda each: each.entries())
        self.assertIn("unix:///nowhere/api.sock", str(error))
