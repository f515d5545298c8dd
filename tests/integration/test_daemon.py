"""The example daemon as a process of ``twistd``: what all daemons share."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.daemon import MonitoredDaemon, environment
from tests.peers.waiting import eventually, free_port

_PLUGIN = """
from svc.process.plugin import DaemonMaker

example = DaemonMaker("svc example", "tests.process.example", "Says hello.", "svc-example")
"""


class RunningExample(MonitoredDaemon):
    """The example daemon and its folder."""

    executed = True

    def __init__(self) -> None:
        super().__init__("example", None)
        plugins = self.folder / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "svc_example.py").write_text(_PLUGIN)
        self.variables = {"PYTHONPATH": f"{self.folder}{os.pathsep}{environment()['PYTHONPATH']}"}
        self.port, self.admin_port = free_port(), free_port()
        self.config = {"listen": f"127.0.0.1:{self.port}", "adminAddr": f"127.0.0.1:{self.admin_port}"}

    def greeting(self) -> str:
        """What it sends."""
        with socket.create_connection(("127.0.0.1", self.port), 60) as client, client.makefile() as answer:
            return answer.read()


class DaemonTests(SynchronousTestCase):
    """Start, reload and end."""

    def setUp(self) -> None:
        self.daemon = RunningExample()
        self.addCleanup(self.daemon.stop)

    def told(self) -> socket.socket:
        """Be the service manager."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(listening.close)
        listening.bind(str(self.daemon.folder / "notify"))
        listening.settimeout(60)
        self.daemon.variables["NOTIFY_SOCKET"] = str(self.daemon.folder / "notify")
        return listening

    def test_life(self) -> None:
        """The service manager is told when it serves; SIGHUP reads the file again; SIGTERM ends with status 0."""
        manager = self.told()
        self.daemon.launch()
        self.assertEqual(b"READY=1", manager.recv(100))
        self.assertEqual("hello", self.daemon.greeting())
        self.daemon.config["greeting"] = "good day"
        self.daemon.write_config()
        self.daemon.signal(signal.SIGHUP)
        eventually(lambda: self.daemon.greeting() == "good day", what="another greeting")
        shown = self.daemon.page("/config")[1]
        self.assertEqual(("good day", str(self.daemon.config_path)), (shown["greeting"], shown["config"]))
        self.assertEqual("example", self.daemon.page("/status")[1]["process"])
        self.assertEqual(0, self.daemon.halt())
        self.assertEqual(b"STOPPING=1", manager.recv(100))
        for event in ("svc.process.started", "svc.config.reloaded", "svc.process.stopped"):
            self.assertEqual(1, len(self.daemon.records(event)), event)

    def test_environment(self) -> None:
        """The configuration may be an environment variable; the pages and the errors of a start name it."""
        config = f'{{listen: "127.0.0.1:{self.daemon.port}", adminAddr: "127.0.0.1:{self.daemon.admin_port}"}}'
        self.daemon.variables["EXAMPLE"] = config
        self.daemon.arguments = lambda: ["svc-example", "--config", "env:EXAMPLE"]
        self.daemon.start()
        self.assertEqual("env:EXAMPLE", self.daemon.page("/config")[1]["config"])
        self.daemon.signal(signal.SIGHUP)
        eventually(lambda: self.daemon.records("svc.config.reloaded"), what="a reload")
        self.assertEqual("hello", self.daemon.greeting())
        self.daemon.halt()
        self.daemon.variables["EXAMPLE"] = config.replace("listen", "listens")
        self.assertEqual(1, self.daemon.launch().wait())
        self.assertIn("svc: env:EXAMPLE: listen: missing: expected a value\n", self.daemon.errors)

    def test_failed_start(self) -> None:
        """A start that fails says why and what to do, and ends with status 1."""
        with socket.create_server(("127.0.0.1", self.daemon.admin_port)):
            self.daemon.launch()
            self.assertEqual(1, self.daemon.wait())
        [failed] = self.daemon.records("svc.process.start_failed")
        self.assertIn("could not start: adminAddr cannot be opened", failed["message"])
        self.assertIn("choose another one in adminAddr", failed["detail"])

    def test_signals_that_come_early(self) -> None:
        """Signals for handlers that do not stand yet end nothing: here while the configuration is being read."""
        os.mkfifo(self.daemon.config_path)
        self.daemon.write_config = lambda: None
        self.daemon.launch()
        # Opened once the daemon opens it, too.
        with Path(self.daemon.config_path).open("w") as config:
            for number in (signal.SIGHUP, signal.SIGUSR1):
                self.daemon.signal(number)
            config.write(f'listen: "127.0.0.1:{self.daemon.port}"\n')
        eventually(lambda: self.daemon.records("svc.process.started"), what="a start")
        self.assertEqual("hello", self.daemon.greeting())
        self.assertEqual(0, self.daemon.halt())
