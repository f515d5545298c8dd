"""
Impersonation within a trust domain: a workload with a valid SVID cannot issue artifacts for another one.

``svc curl`` verifies; the dishonest workload has keys and certificates of its own and everything that the honest
one ever published.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import TestCase

from svc.identity import SpiffeID
from svc.notary.exchange import Peer
from svc.workload.source import WorkloadSource
from tests.peers import webapp
from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.impersonator import BODY, Impersonator, Request
from tests.peers.independent_clients import Credentials, RawConnection
from tests.peers.programs import other_python, svc
from tests.peers.proxy import RunningProxy

VICTIM = SpiffeID.parse("spiffe://example.org/ns/shop/sa/victim")
OTHER_WORKLOAD = SpiffeID.parse("spiffe://example.org/ns/shop/sa/neighbour")
NONCE = "AAECAwQFBgcICQoLDA0ODw"
STATEMENTS = "/.well-known/svc-notary/v1/statements/current"
RECEIPTS = "/.well-known/svc-notary/v1/receipts/by-request/"


class NeighbourTests(TestCase):
    """An honest proxy, a dishonest workload, and a replica of the honest one that is dishonest too."""

    timeout = 900

    async def _begin(self) -> None:
        stack = ExitStack()
        self.addCleanup(stack.close)
        folder = short_folder(stack)
        python = other_python(folder / "python")
        entries = [
            entry(VICTIM.path, executable=str(python)),
            entry(OTHER_WORKLOAD.path),
            # The same identity for this process, with another key: a second replica.
            {**entry(VICTIM.path), "hint": "replica"},
        ]
        self.authority = stack.enter_context(RunningAuthority(entries=entries))
        application = webapp.start(stack)
        self.proxy = stack.enter_context(RunningProxy(self.authority, f"127.0.0.1:{application}", python=python))
        self.credentials = Credentials.fetch(self.authority, folder / "id")
        self.source = WorkloadSource(self.authority.address, reactor=reactor)
        self.source.startService()
        self.addCleanup(self.source.stopService)
        await self.source.when_ready()
        self.folder: Path = folder

    async def _imposter(self, spiffe_id: SpiffeID) -> Impersonator:
        svid = next(each for each in self.source.svids if each.spiffe_id == spiffe_id)
        imposter = await Impersonator.make(reactor, self.source, svid, self.authority.pq_address)
        port = await imposter.listen()
        self.addCleanup(port.stopListening)
        self.url = f"https://127.0.0.1:{port.getHost().port}/page?x=1"
        return imposter

    async def _victims_statement(self) -> tuple[str, bytes]:
        def ask() -> tuple[str, bytes]:
            with RawConnection(self.proxy.port, self.credentials) as connection:
                identifier = connection.request("/bytes/1").get("svc-workload-id")
                return str(identifier), connection.request(STATEMENTS).body

        found: tuple[str, bytes] = await deferToThread(ask)
        return found

    def _victims_receipt(self, request: Request) -> Deferred[bytes]:
        """Send the very request on to the victim, with its nonce, and take its receipt."""

        def ask() -> bytes:
            nonce = request.get("svc-notary-nonce")
            notary_fields = f"Svc-Notarization-Level: signRequest\r\nSvc-Notary-Nonce: {nonce}\r\n"
            with RawConnection(self.proxy.port, self.credentials) as connection:
                connection.request(request.target, fields=notary_fields)
                return connection.request(RECEIPTS + nonce).body

        return deferToThread(ask)

    async def _curl(self, *arguments: str, level: str = "workload") -> CompletedProcess[bytes]:
        socket = ["--spiffe-socket-path", self.authority.address]
        ran: CompletedProcess[bytes] = await deferToThread(svc, "curl", *socket, "-n", level, *arguments, self.url)
        return ran

    async def _refused(self, reason: str, status: int, *, level: str = "workload") -> None:
        """Assert that it is refused for exactly this reason, and nothing of the response is shown."""
        ran = await self._curl("--detailed-exit-codes", level=level)
        self.assertEqual((status, b""), (ran.returncode, ran.stdout), ran.stderr)
        self.assertIn(f"({reason})\n", ran.stderr.decode())

    async def test_own_word(self) -> None:
        """The dishonest workload's own statement and receipts verify; the following tests refuse those about others."""
        await self._begin()
        await self._imposter(OTHER_WORKLOAD)
        ran = await self._curl("--expect-id", str(OTHER_WORKLOAD), level="signRequest")
        self.assertEqual((0, BODY), (ran.returncode, ran.stdout), ran.stderr)
        pinned = await self._curl("--expect-id", str(VICTIM))
        self.assertEqual(1, pinned.returncode)
        self.assertIn(b"(identity_unexpected)", pinned.stderr)

    async def test_statements(self) -> None:
        """Another workload's statement, a forged one, and a replica's are each refused for their own reason."""
        await self._begin()
        identifier, statement = await self._victims_statement()
        other_workload = await self._imposter(OTHER_WORKLOAD)
        other_workload.statement_id, other_workload.statement = identifier, statement
        await self._refused("subject_mismatch", 2)
        forged = other_workload.forged_statement(VICTIM)
        other_workload.statement_id, other_workload.statement = forged.id, forged.envelope.serialize()
        await self._refused("issuer_mismatch", 2)
        other_workload.statement = statement
        await self._refused("id_mismatch", 2)
        replica = await self._imposter(VICTIM)
        replica.statement_id, replica.statement = identifier, statement
        await self._refused("key_mismatch", 2)

    async def test_receipts(self) -> None:
        """Receipts of another workload, of a replica, of another request, or forged ones are refused."""
        await self._begin()
        other_workload = await self._imposter(OTHER_WORKLOAD)
        other_workload.receipt = self._victims_receipt
        await self._refused("issuer_mismatch", 3, level="signRequest")
        for reason, lie in (
            ("issuer_mismatch", {"issuer": VICTIM}),
            ("issuer_mismatch", {"server": Peer(VICTIM, other_workload.generation.server.thumbprint)}),
            ("key_mismatch", {"server": Peer(OTHER_WORKLOAD, NONCE + "A" * 21)}),
            ("statement_mismatch", {"statement_id": (await self._victims_statement())[0]}),
            ("nonce_mismatch", {"nonce": NONCE}),
            ("request_mismatch{path}", {"target": "/other?x=1"}),
            ("response_mismatch{body}", {"body": b"something else\n"}),
        ):
            other_workload.receipt = _lying(other_workload, lie)
            await self._refused(reason, 3, level="signRequest")
        replica = await self._imposter(VICTIM)
        replica.receipt = self._victims_receipt
        await self._refused("key_mismatch", 3, level="signRequest")


def _lying(imposter: Impersonator, lie: dict[str, Any]) -> Any:
    def receipt(request: Request) -> Deferred[bytes]:
        return deferToThread(imposter.signed_receipt, request, **lie)

    return receipt
