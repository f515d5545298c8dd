"""``probesAddr`` of each daemon: what a kubelet may ask, open to the network."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.daemon import MonitoredDaemon
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import eventually, free_port


def answer(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    """Status and content; status 0 where nothing listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


class ProbeTests(SynchronousTestCase):
    """All daemons alike."""

    def started(self, daemon: MonitoredDaemon) -> int:
        """Start it with a page of probes at all addresses; return the port."""
        port = free_port()
        daemon.config |= {"probesAddr": f":{port}", "drainDelay": "100ms"}
        self.addCleanup(daemon.stop)
        daemon.start()
        return port

    def check(self, port: int) -> None:
        """It is ready there, and shows and changes nothing else."""
        eventually(lambda: answer(port, "/readyz") == (200, "ok\n"), what="readiness")
        self.assertEqual((200, "ok\n"), answer(port, "/livez"))
        for path in ("/", "/status", "/config", "/drain", "/metrics", "/receipts"):
            self.assertEqual(404, answer(port, path)[0], path)
        self.assertEqual(404, answer(port, "/drain", "POST")[0])
        self.assertEqual(200, answer(port, "/readyz")[0])

    def leave(self, daemon: MonitoredDaemon) -> None:
        """SIGUSR1 ends it in order."""
        daemon.signal(signal.SIGUSR1)
        self.assertEqual(0, daemon.wait())
        self.assertEqual(1, len(daemon.records("svc.process.stopped")))

    def test_authority_and_proxy(self) -> None:
        """An authority; a proxy, which is not ready any more when it drains, and alive all the time."""
        authority = RunningAuthority(entries=[entry("/ns/shop/sa/api")])
        self.check(self.started(authority))
        proxy = RunningProxy(authority, "127.0.0.1:1")
        port = self.started(proxy)
        self.check(port)
        self.assertEqual(202, answer(proxy.admin_port, "/drain", "POST")[0])
        self.assertEqual((503, "unavailable\n"), answer(port, "/readyz"))
        self.assertEqual(200, answer(port, "/livez")[0])
        self.leave(proxy)
        self.leave(authority)

    def test_broker(self) -> None:
        """A broker."""
        broker = RunningBroker()
        self.check(self.started(broker))
        self.leave(broker)

    def test_taken(self) -> None:
        """A port that is taken ends the start, with the key."""
        broker = RunningBroker(settings={"probesAddr": f"127.0.0.1:{free_port()}"})
        broker.config["adminAddr"] = broker.config["probesAddr"]
        self.addCleanup(broker.stop)
        self.assertEqual(1, broker.launch().wait())
        [failed] = broker.records("svc.process.start_failed")
        self.assertIn("could not start: probesAddr cannot be opened", failed["message"])
        self.assertIn("choose another one in probesAddr", failed["detail"])
