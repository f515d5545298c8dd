"""A new post-quantum root of ``twistd svc-authority``, and agents of two nodes that report which bundle they serve."""

from __future__ import annotations

import json
import os
import time
import urllib.request
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.x509 import load_pem_x509_certificates
from twisted.trial.unittest import SynchronousTestCase

from svc.authority.keystore import serialized_keys
from svc.identity import BundleSet, TrustDomain, X509Bundle, verify_svid
from svc.identity.errors import SvidInvalid
from svc.identity.pqbundle import PqBundles
from svc.notary.pqissuer import PqIssuer
from svc.pqissuer.roots import PqRootRing
from svc.pqissuer.rotation import Slot
from tests.integration.test_agent import RunningAgent
from tests.peers.authority import RunningAuthority, entry
from tests.peers.waiting import eventually, free_port

DOMAIN = TrustDomain("example.org")
#: All processes of this test have one user, and so one identity.
IDENTITY = "spiffe://example.org/workload"


class NodeRootsTests(SynchronousTestCase):
    """An issuer with its keys in a file that a manager writes, and two nodes."""

    def setUp(self) -> None:
        """Start the Workload API; SVIDs are renewed every three seconds, and with each a leaf is issued."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.workload_api = RunningAuthority(entries=[entry("/workload", ttl="6s")], pq=False)
        self.stack.callback(self.workload_api.stop)
        self.workload_api.start()
        self.issuer = RunningAuthority()
        self.stack.callback(self.issuer.stop)
        self.keys = Path(self.issuer.folder) / "secret-keys.json"
        self.address = f"127.0.0.1:{free_port()}"

    def start_issuer(self, life: str, ttl: timedelta, agents: str | None = IDENTITY) -> None:
        """Start the issuer with one root; reports count for ``life``."""
        self.roots = PqRootRing(DOMAIN, PqBundles(), ttl=ttl, algorithm="ML-DSA-65", random=os.urandom)
        self.write_roots()
        pq = {"listen": self.address, "bundleFile": str(self.issuer.pq_bundle_path), "reportLife": life}
        self.issuer.config = {
            "trustDomain": "example.org",
            "workloadApi": self.workload_api.address,
            "keysFile": str(self.keys),
            "adminAddr": self.issuer.config["adminAddr"],
            "pqIssuer": {**self.issuer.config["pqIssuer"], **pq, "agents": agents},
        }
        self.issuer.start()

    def write_roots(self) -> None:
        """Write the roots that are due, as the manager does."""
        self.roots.advance(datetime.now(UTC))
        new = self.keys.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_bytes(serialized_keys(DOMAIN, {"pq": self.roots.ring.announced}))
        new.replace(self.keys)

    def announce(self) -> Slot[PqIssuer]:
        """Add a successor that is due to sign in a sixth of the life of roots."""
        self.roots.ring.ensure(lambda _key: False, datetime.now(UTC))
        self.write_roots()
        return self.roots.ring.announced[-1]

    def agent(self, node: str) -> RunningAgent:
        """Start the agent of a node."""
        agent = RunningAgent(self.workload_api.address, csi=False)
        self.stack.callback(agent.stop)
        agent.variables["NODE_NAME"] = node
        issuer = {"issuer": self.address, "issuerID": IDENTITY}
        path = str(agent.folder / "pq-bundle.json")
        agent.config["pqBundle"] = {**issuer, "file": path, "every": "1s"}
        files = {"pqIssuer": self.address, "pqIssuerID": IDENTITY, "command": ["/bin/true"]}
        agent.config["files"] = [{"folder": str(agent.folder / "files"), **files}]
        agent.start()
        eventually(lambda: self.signed_by(agent, self.roots.ring.announced[0]), what="the first leaf")
        return agent

    def signed_by(self, agent: RunningAgent, root: Slot[PqIssuer]) -> bool:
        """Whether a root has signed the leaf that an agent has."""
        path = agent.folder / "files" / "pq_svid.pem"
        if not path.exists():
            return False
        chain = load_pem_x509_certificates(path.read_bytes())
        bundles = BundleSet.of(X509Bundle.from_certificates(DOMAIN, [root.key.certificate]))
        try:
            return verify_svid(chain, bundles, datetime.now(UTC)).post_quantum
        except SvidInvalid:
            return False

    def status(self) -> dict[str, Any]:
        """What the page of the issuer has."""
        with urllib.request.urlopen(f"http://{self.issuer.config['adminAddr']}/status", timeout=10) as answer:
            return dict(json.load(answer))

    def nodes(self) -> dict[str, int]:
        """The sequence of each node that has reported."""
        return {each["name"]: each["sequence"] for each in self.status().get("nodes", ())}

    def signs(self) -> list[bool]:
        """Which of the roots signs, the oldest first."""
        return [each["signs"] for each in self.status()["roots"]]

    def test_signs_early(self) -> None:
        """A root that each node has reported signs weeks before its time, and again soon after a restart."""
        self.start_issuer("3s", timedelta(days=365))
        agents = [self.agent(node) for node in ("node-a", "node-b")]
        eventually(lambda: len(set(self.nodes().values()) - {0}) == 1 and sorted(self.nodes()) == ["node-a", "node-b"])
        successor = self.announce()
        began = time.monotonic()
        self.assertGreater(successor.active_from - datetime.now(UTC), timedelta(days=60))
        eventually(lambda: self.signs() == [False, True], what="the signature of the new root")
        # Two fetches of the agent, a tick, and the time for verifiers.
        self.assertLess(time.monotonic() - began, 30)
        eventually(lambda: all(self.signed_by(each, successor) for each in agents), what="leaves of the new root")
        self.assertEqual([], self.issuer.records("svc.authority.nodes.behind"))
        self.issuer.kill()
        self.issuer.start()
        # Nothing says any more which nodes there are.
        self.assertEqual([True, False], self.signs())
        eventually(lambda: self.signs() == [False, True], what="the signature of the new root")

    def test_node_behind(self) -> None:
        """A root that a node does not have signs at its time, and the log names the node, once."""
        self.start_issuer("1h", timedelta(seconds=120))
        ahead, behind = (self.agent(node) for node in ("node-a", "node-b"))
        eventually(lambda: sorted(self.nodes()) == ["node-a", "node-b"] and 0 not in self.nodes().values())
        behind.kill()
        successor = self.announce()
        eventually(lambda: self.nodes()["node-a"] > self.nodes()["node-b"], what="a report of the other node")
        self.assertEqual([True, False], self.signs())
        eventually(lambda: self.signs() == [False, True], what="the signature of the new root")
        self.assertLessEqual(successor.active_from, datetime.now(UTC))
        [record] = eventually(lambda: self.issuer.records("svc.authority.nodes.behind"))
        self.assertTrue(record["detail"].startswith("node-b serve"), record)
        self.assertEqual(1, record["attributes"]["nodes"])
        eventually(lambda: self.signed_by(ahead, successor), what="a leaf of the new root")
        self.assertEqual(1, len(self.issuer.records("svc.authority.nodes.behind")))

    def test_other_callers(self) -> None:
        """What is no agent by its identity gets the bundle, and its report does not count."""
        self.start_issuer("3s", timedelta(days=365), agents=None)
        agent = self.agent("node-a")
        eventually(lambda: "svc.agent.pq_bundle.written" in agent.log)
        sequence = PqBundles.parse((agent.folder / "pq-bundle.json").read_bytes()).entries[DOMAIN].sequence
        self.announce()
        path = agent.folder / "pq-bundle.json"
        eventually(lambda: PqBundles.parse(path.read_bytes()).entries[DOMAIN].sequence > sequence)
        self.assertEqual(({}, [True, False]), (self.nodes(), self.signs()))
