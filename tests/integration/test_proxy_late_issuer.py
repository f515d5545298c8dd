"""A proxy whose identity and post-quantum issuer come long after it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.authority import RunningAuthority, entry
from tests.peers.folders import short_folder
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually, free_port, rounds
from tests.telemetry.schema import defects

#: Seconds after which the issuer comes: in a long pause between two attempts to get a leaf.
LATE = rounds(13, 30)
#: Promised are two; without looking for the issuer it would be eight or more.
LIMIT = 5.0


class LateIssuerTests(SynchronousTestCase):
    """``startTimeout: never``."""

    def setUp(self) -> None:
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.folder = short_folder(stack)

    def authority(self, folder: Path, **settings: object) -> RunningAuthority:
        """One that ends with the test; not started."""
        folder.mkdir(exist_ok=True)
        authority = RunningAuthority(entries=[entry("/ns/shop/sa/api")], pq=False, folder=folder, settings=settings)
        self.addCleanup(authority.stop)
        return authority

    def seconds_between(self, issuer: RunningAuthority, proxy: RunningProxy) -> float:
        """From the moment in which the issuer serves until the proxy does."""
        began, ended = (
            datetime.fromisoformat(each.records("svc.process.started")[0]["timestamp"]) for each in (issuer, proxy)
        )
        return (ended - began).total_seconds()

    def test_issuer_by_tcp(self) -> None:
        """It waits, alive and not ready, says why in one line, and serves within seconds of the issuer's start."""
        spire = self.authority(self.folder / "spire").start()
        port = free_port()
        proxy = RunningProxy(
            spire,
            "127.0.0.1:1",
            notary={"pqIssuer": f"127.0.0.1:{port}", "pqIssuerID": "spiffe://example.org/ns/shop/sa/api"},
            settings={"startTimeout": "never"},
        ).launch()
        self.addCleanup(proxy.stop)
        eventually(lambda: proxy.records("svc.pq.leaf.failed"), what="a failed attempt")
        time.sleep(LATE)
        self.assertEqual((200, 503), (proxy.page("/livez")[0], proxy.page("/readyz")[0]))
        sentence = f"the PQ issuer at 127.0.0.1:{port} cannot be reached: connection refused"
        self.assertEqual(sentence, proxy.readiness()["credentials"]["message"])
        self.assertEqual({sentence}, {each["detail"] for each in proxy.records("svc.pq.leaf.failed")})
        issuer = self.authority(
            self.folder / "issuer",
            socket=None,
            bundleFile=None,
            entries=None,
            workloadApi=spire.address,
            pqIssuer={"listen": f"127.0.0.1:{port}", "bundleFile": str(self.folder / "issuer" / "pq-bundle.json")},
        )
        issuer.launch()
        eventually(proxy.is_ready, what="readiness")
        eventually(lambda: proxy.records("svc.process.started"), what="a start")
        self.assertLess(self.seconds_between(issuer, proxy), LIMIT)
        for record in proxy.records():
            self.assertEqual([], defects(record), record)

    def test_nothing_there(self) -> None:
        """Without identity and issuer it waits too, and ends in order on SIGTERM."""
        nobody = self.authority(self.folder)
        proxy = RunningProxy(nobody, "127.0.0.1:1", settings={"startTimeout": "never"}).launch()
        self.addCleanup(proxy.stop)
        eventually(lambda: proxy.page("/readyz")[0] == 503, what="its pages")
        self.assertEqual("no SVID has arrived yet", proxy.readiness()["credentials"]["message"])
        self.assertEqual(0, proxy.halt())
