"""
What ``twistd svc-manager`` needs for many peers that rotate, with a real API server and a real SPIRE.

The short form has a dozen peers and takes half a minute; with ``bin/test --long`` there are a hundred with the refresh
hint that managers publish, which takes six minutes.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Final

from svc.manager.federation.exchange import JITTER
from tests.integration.test_manager import ManagerCase, RunningManager
from tests.peers.federation import SimulatedPeers
from tests.peers.folders import make_folder, remove_folder
from tests.peers.spire import RunningSpire, entry
from tests.peers.waiting import eventually, rounds

#: Of one core, and resident MiB.
CORE: Final = 0.05
MEMORY: Final = 200.0


class ManyPeersTests(ManagerCase):
    """Peers that show another SVID at each request, and one of another root at each second one."""

    def setUp(self) -> None:
        """Start SPIRE and the peers."""
        super().setUp()
        self.count, self.hint = rounds(12, 100), rounds(20, 300)
        self.spire = RunningSpire("prod.example.org", entries=[entry("/svc/manager", admin=True)])
        self.stack.callback(self.spire.stop)
        self.spire.start()
        folder = make_folder("svc-peers-")
        self.stack.callback(remove_folder, folder)
        self.peers = self.stack.enter_context(SimulatedPeers(self.count, self.hint, folder))

    def ready(self) -> bool:
        """Whether all peers are federated."""
        listed = json.loads(self.server.kubectl("get", "svcforeignclusters", "-o", "json"))["items"]
        conditions = [each.get("status", {}).get("conditions", ()) for each in listed]
        return all(any(c["type"] == "Ready" and c["status"] == "True" for c in each) for each in conditions)

    def test_costs(self) -> None:
        """The time of the processor and the memory are bounded, and each peer is asked once for each refresh hint."""
        spire = {"server": f"127.0.0.1:{self.spire.port}", "spiffeSocketPath": self.spire.address}
        cluster = {"trustDomain": "prod.example.org", "spire": spire, "federation": {}}
        manager = self.manager(m2mAddr="0", cluster=cluster)
        body = {"apiVersion": "v1", "kind": "List", "items": self.peers.objects()}
        self.server.kubectl("create", "-f", "-", data=json.dumps(body))
        eventually(self.ready, 120, what="federation with all peers")
        polled = [len(each.asked) for each in self.peers.peers]
        began, used = time.monotonic(), processor_seconds(manager)
        window = (1 + JITTER) * self.hint + 10
        time.sleep(window)
        seconds = time.monotonic() - began
        share = (processor_seconds(manager) - used) / seconds
        resident, most = manager.memory()
        print(f"{self.count} peers, hint {self.hint} s: {share:.4f} core, {resident:.0f} MiB, at most {most:.0f} MiB")
        asked = [len(each.asked) - before for each, before in zip(self.peers.peers, polled, strict=True)]
        self.assertLessEqual(1, min(asked))
        self.assertLessEqual(max(asked), 1 + seconds / ((1 - JITTER) * self.hint))
        self.assertTrue(self.ready())
        self.assertEqual(0, manager.value("bundle_exchange_total", result="error"))
        self.assertLess(share, CORE)
        self.assertLess(most, MEMORY)


def processor_seconds(manager: RunningManager) -> float:
    """The time of the processor that a manager has used."""
    assert manager.process is not None
    fields = Path(f"/proc/{manager.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
