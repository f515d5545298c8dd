"""The post-quantum issuer with callers that take what they can get, over its real sockets."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.trial.unittest import SkipTest

from svc.identity import SpiffeID, TrustDomain
from svc.identity.matchers import MemberOf
from svc.notary.pqissuer import MAX_CHALLENGES
from svc.pages.callers import MAX_CONNECTIONS
from svc.process.clock import utc_now
from svc.workload.errors import PqIssuerError
from svc.workload.pqclient import fetch_pq_leaf
from svc.workload.source import WorkloadSource
from tests.integration.test_workload_source import SourceCase
from tests.peers.authority import RunningAuthority, entry
from tests.peers.waiting import TOP, free_port

NOBODY = 65534
#: As another user: holds idle connections, then requests challenges and never uses one, until it is stopped.
GREEDY = f"""
import os, socket, sys
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})

def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(sys.argv[1])
    return connection

held = [connect() for _ in range(int(sys.argv[2]))]
asked = 0
while True:
    with connect() as connection:
        answers = connection.makefile("rb")
        for _ in range(100):
            connection.sendall(b"GET /v1/challenge HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n")
            status = answers.readline().split()[1]
            length = 0
            while (line := answers.readline()) != b"\\r\\n":
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            answers.read(length)
            asked += 1
            if asked == int(sys.argv[3]) or status != b"200":
                print(status.decode(), flush=True)
                if status != b"200":
                    sys.exit()
"""


class SharingTests(SourceCase):
    """An honest workload beside a caller that asks without end."""

    def setUp(self) -> None:
        """Other users are needed."""
        if os.geteuid() != 0:
            raise SkipTest("needs root to become another user")

    def issuer(self, *entries: dict[str, object], **pq: Any) -> RunningAuthority:
        """Start an authority whose PQ socket everybody may connect to."""
        authority = RunningAuthority(entries=[entry("/a"), *entries])
        self.addCleanup(authority.stop)
        authority.folder.chmod(0o755)
        authority.config["pqIssuer"] = {"socket": authority.pq_address, "socketMode": "0666", **pq}
        return authority.start()

    async def greedy(self, authority: RunningAuthority) -> tuple[subprocess.Popen[str], str]:
        """Start a greedy caller; return its responses once it has taken more than there is."""
        arguments = [str(authority.pq_socket_path), str(MAX_CONNECTIONS + 20), str(MAX_CHALLENGES + 100)]
        process = subprocess.Popen(
            [sys.executable, "-c", GREEDY, *arguments], stdout=subprocess.PIPE, text=True, cwd=TOP
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        assert process.stdout is not None
        self.addCleanup(process.stdout.close)
        return process, (await deferToThread(process.stdout.readline)).strip()

    def leaf(self, address: str, source: WorkloadSource, **keys: Any) -> Deferred[Any]:
        """Ask for a leaf."""
        return fetch_pq_leaf(address, source.svid, source, reactor, now=utc_now, **keys)

    async def test_greedy_user(self) -> None:
        """A user that holds all connections and takes all challenges keeps no other user from a leaf, on both paths."""
        port = free_port()
        authority = self.issuer(entry("/greedy", uid=NOBODY), listen=f"127.0.0.1:{port}")
        source = self.source(authority.address)
        await source.when_ready()
        process, status = await self.greedy(authority)
        self.assertEqual(status, "200")
        for address in (authority.pq_address, f"127.0.0.1:{port}") * 5:
            leaf = await self.leaf(address, source)
            self.assertEqual(leaf.not_after, source.svid.not_after)
        self.assertIsNone(process.poll())

    async def test_unattested_user(self) -> None:
        """A user without an entry gets no challenge, and is named in the log."""
        authority = self.issuer()
        process, status = await self.greedy(authority)
        self.assertEqual(status, "403")
        [record] = await self.until(lambda: authority.records("svc.authority.refused"))
        self.assertEqual((record["detail_reason"], record["attributes"]["uid"]), ("caller_refused", NOBODY))
        self.assertEqual(await deferToThread(process.wait), 0)


class FederatedTests(SourceCase):
    """Identities of another trust domain, which the issuer's bundles verify."""

    async def test_federated(self) -> None:
        """A client is refused in the handshake, before it gets a challenge; both sides log the reason."""
        port = free_port()
        one, two = RunningAuthority("one.example"), RunningAuthority("two.example")
        for own, other in ((one, two), (two, one)):
            self.addCleanup(own.stop)
            own.config["federatesWith"] = [{"trustDomain": other.trust_domain, "bundleFile": str(other.bundle_path)}]
        one.config["pqIssuer"]["listen"] = f"127.0.0.1:{port}"
        for own in (one, two):
            own.start()
        home, foreign = self.source(one.address), self.source(two.address)
        for source in (home, foreign):
            await source.when_ready()
            await self.until(lambda source=source: len(list(source.bundles.trust_domains)) == 2)  # type: ignore[misc]
        asked = fetch_pq_leaf(
            f"127.0.0.1:{port}",
            foreign.svid,
            foreign,
            reactor,
            now=utc_now,
            expected=MemberOf(TrustDomain("one.example")),
        )
        error: Any = await self.assertFailure(asked, PqIssuerError)
        self.assertEqual(error.reason, "pq_issuer_unavailable")
        self.assertIn("bad_certificate", str(error))
        [record] = await self.until(lambda: one.records("svc.authority.refused"))
        self.assertEqual(record["detail_reason"], "wrong_trust_domain")
        expected = MemberOf(SpiffeID.parse("spiffe://one.example/svc/authority").trust_domain)
        own_leaf = await fetch_pq_leaf(f"127.0.0.1:{port}", home.svid, home, reactor, now=utc_now, expected=expected)
        self.assertEqual(own_leaf.not_after, home.svid.not_after)
