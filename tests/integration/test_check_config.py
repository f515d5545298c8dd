"""``--check-config`` of all three processes: what would be opened, and whether it can be."""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc.proxy.config import NotarySettings
from svc.proxy.stores import check_store
from svc.store.errors import DatabaseUnavailable
from tests.integration.test_store_postgresql import SERVER
from tests.peers.authority import RunningAuthority, entry
from tests.peers.broker import RunningBroker
from tests.peers.daemon import RunningDaemon, environment
from tests.peers.proxy import RunningProxy
from tests.peers.waiting import free_port


class CheckTests(SynchronousTestCase):
    """A valid configuration, and one whose files, ports and peers are missing."""

    def setUp(self) -> None:
        """An authority that a proxy can ask."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.authority = self.stack.enter_context(RunningAuthority(entries=[entry("/ns/shop/sa/api")]))

    def check(self, daemon: RunningDaemon) -> tuple[int, list[str], list[str]]:
        """Run it; return the status and the lines of standard output and error."""
        daemon.write_config()
        command = daemon.command("--check-config")
        ran = subprocess.run(
            command, capture_output=True, text=True, timeout=180, check=False, env=environment(), cwd=daemon.folder
        )
        return ran.returncode, ran.stdout.splitlines(), ran.stderr.splitlines()

    def assert_good(self, daemon: RunningDaemon, *things: str) -> None:
        """Assert that everything can be opened, and that these are named in this order."""
        status, out, errors = self.check(daemon)
        self.assertEqual((0, []), (status, errors))
        self.assertEqual([f"{daemon.config_path} is valid", *(f"ok  {each}" for each in things)], out)

    def assert_problems(self, daemon: RunningDaemon, *problems: tuple[str, str]) -> None:
        """Assert that each of these is reported in a sentence with these words and a hint."""
        status, out, errors = self.check(daemon)
        self.assertEqual(1, status)
        self.assertEqual([f"no  {what}" for what, _words in problems], [each for each in out if each[:2] == "no"])
        self.assertEqual(2 * len(problems), len(errors), errors)
        for (_what, words), sentence, hint in zip(problems, errors[::2], errors[1::2], strict=True):
            self.assertTrue(sentence.startswith("svc: "), sentence)
            self.assertIn(words, sentence)
            self.assertRegex(hint, r"^     \S")

    def test_proxy(self) -> None:
        """Ports, database, sockets and issuer of a proxy are checked; none of them is created or stays open."""
        proxy = RunningProxy(self.authority, "127.0.0.1:1")
        self.stack.callback(proxy.stop)
        database = Path(proxy.config["notary"]["path"])
        metrics, admin = proxy.config["metricsAddr"], proxy.config["adminAddr"]
        api, pq = self.authority.address, self.authority.pq_address
        self.assert_good(
            proxy,
            f"metricsAddr at {metrics}",
            f"adminAddr at {admin}",
            f"notary database {database}",
            f"post-quantum roots {Path(api.removeprefix('unix://')).with_name('pq-bundle.json')}",
            f"post-quantum issuer at {pq}",
            f"Workload API at {api}",
            f"inbound listener web at 127.0.0.1:{proxy.port}",
        )
        self.assertEqual([], list(proxy.folder.glob("notary.db*")))
        (proxy.folder / "file").touch()
        bad = str(proxy.folder / "file" / "notary.db")
        gone = "unix:///no/such.sock"
        proxy.config["notary"].update(path=bad, pqIssuer=gone)
        proxy.config.update(spiffeSocketPath=gone, workload={"podInfo": "/no/such/folder"})
        with socket.create_server(("127.0.0.1", proxy.port)):
            self.assert_problems(
                proxy,
                (f"notary database {bad}", "a file is in the place of a folder"),
                (f"post-quantum issuer at {gone}", "No such file or directory"),
                (f"Workload API at {gone}", "No such file or directory"),
                ("facts of the workload in /no/such/folder", "/no/such/folder"),
                (f"inbound listener web at 127.0.0.1:{proxy.port}", "Address already in use"),
            )

    def test_running_proxy(self) -> None:
        """While the process runs its ports and its database are in use."""
        proxy = RunningProxy(self.authority, "127.0.0.1:1")
        self.stack.callback(proxy.stop)
        proxy.start()
        self.assert_problems(
            proxy,
            (f"metricsAddr at {proxy.config['metricsAddr']}", "Address already in use"),
            (f"adminAddr at {proxy.config['adminAddr']}", "Address already in use"),
            (f"notary database {proxy.config['notary']['path']}", "in use by another process"),
            (f"inbound listener web at 127.0.0.1:{proxy.port}", "Address already in use"),
        )

    def test_outbound_only(self) -> None:
        """Without a notary nothing of a notary is checked; of what an outbound listener demands, what that needs."""
        proxy = RunningProxy(self.authority, "127.0.0.1:1", notary={"pqIssuer": "unix:///no/such.sock"})
        self.stack.callback(proxy.stop)
        [web] = proxy.config["listeners"]
        del web["notarization"]
        web.update(direction="outbound", upstream="127.0.0.1:1", peer="spiffe://example.org/x", listen="[::1]:0")
        proxy.config.update(metricsAddr="0", adminAddr=":0")
        api = self.authority.address
        checked = (f"Workload API at {api}", "outbound listener web at [::1]:0")
        self.assert_good(proxy, "adminAddr at :0", *checked)
        # What verifies needs roots, what collects a database; nothing is signed, and no issuer is asked.
        web.update(require=["receipt"])
        roots = f"post-quantum roots {self.authority.folder}/pq-bundle.json"
        self.assert_good(proxy, "adminAddr at :0", roots, *checked)
        web.update(collectReceipts=True)
        database = f"notary database {proxy.config['notary']['path']}"
        self.assert_good(proxy, "adminAddr at :0", database, roots, *checked)

    def test_broker(self) -> None:
        """The same for a broker: database, Workload API, certificate."""
        folder = self.authority.folder
        tls = {"name": "tls", "listen": f"127.0.0.1:{free_port()}", "acl": [{"who": "spiffe://example.org/*"}]}
        tls["tls"] = {"spiffe": True}  # type: ignore[assignment]
        settings = {"trustDomain": "example.org", "spiffeSocketPath": self.authority.address}
        broker = RunningBroker(
            listeners=[tls], settings=settings, persistence={"path": str(folder / "b" / "broker.db")}
        )
        self.stack.callback(broker.stop)
        self.assert_good(
            broker,
            f"metricsAddr at {broker.config['metricsAddr']}",
            f"adminAddr at {broker.config['adminAddr']}",
            f"database {folder / 'b' / 'broker.db'}",
            f"Workload API at {self.authority.address}",
            f"listener plain at 127.0.0.1:{broker.port}",
            f"listener tls at {tls['listen']}",
        )
        tls.update(tls={"certificate": "/no/cert.pem", "key": "/no/key.pem"}, acl=[{"who": "anonymous"}])  # type: ignore[call-overload]
        broker.config["listeners"] = [tls]
        broker.config["persistence"] = {"path": "/proc/broker.db"}
        self.assert_problems(
            broker, ("database /proc/broker.db", "broker's database"), ("certificate /no/cert.pem", "/no/")
        )

    def test_authority(self) -> None:
        """The same for an authority: its folder, its files, its sockets."""
        other = RunningAuthority(entries=[entry("/a")])
        self.stack.callback(other.stop)
        folder = other.socket_path.parent
        self.assert_good(
            other,
            f"adminAddr at {other.config['adminAddr']}",
            f"folder {folder}",
            f"archive of roots {folder / 'bundle-archive.json'}",
            f"post-quantum roots {folder / 'pq-bundle.json'}",
            f"SPIFFE bundle {folder / 'bundle.json'}",
            f"Workload API at unix://{folder / 'agent.sock'}",
            f"post-quantum issuer at unix://{folder / 'pq.sock'}",
        )
        self.assertEqual([], list(folder.glob("*.sock*")))
        taken, pages = self.authority.address, self.authority.config["adminAddr"]
        other.config["socket"] = taken
        other.config["adminAddr"] = pages
        other.config["federatesWith"] = [{"trustDomain": "b.example", "bundleFile": "/no/such.json"}]
        status, out, errors = self.check(other)
        self.assertEqual(1, status)
        failed = [each for each in out if each.startswith("no  ")]
        self.assertEqual(f"no  adminAddr at {pages}", failed.pop(0))
        self.assertEqual(["no  roots of b.example in /no/such.json", f"no  Workload API at {taken}"], failed)
        self.assertIn("another process serves it", errors[-2])
        self.assertIn("stop it where it is this service", errors[-1])

    def test_database_on_a_server(self) -> None:
        """A database on a server is connected to once; what fails has host and name, and no more of the address."""
        server = SERVER.get()
        check_store(NotarySettings(profile="classical", database=server.url()))
        wrong = f"postgresql://svc@127.0.0.1:{free_port()}/notary"
        error = self.assertRaises(DatabaseUnavailable, check_store, NotarySettings(profile="classical", database=wrong))
        self.assertIn("/notary", str(error))
        self.assertNotIn("svc@", str(error))
