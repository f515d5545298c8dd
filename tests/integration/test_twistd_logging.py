"""Under ``twistd -n`` standard output holds log records and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.daemon import environment
from tests.telemetry.schema import defects

_APPLICATION = """
import warnings

from twisted.application import service
from twisted.internet import reactor
from twisted.internet.defer import fail
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger
from twisted.python import log as legacy

from svc.telemetry.events.daemon import DaemonEvent
from svc.process.log import LoggedService
from svc.telemetry.logs import emit, log_observer
from svc.telemetry.records import Origin

log = Logger()
legacy.msg("said before anything runs")


class Noisy(service.Service):
    def startService(self):
        super().startService()
        emit(log, DaemonEvent.PROCESS_STARTED)
        print("printed by a careless library")
        warnings.warn("warned by a careless library")
        fail(ValueError("nobody awaited this"))
        self.port = reactor.listenTCP(0, ServerFactory(), interface="127.0.0.1")
        reactor.callLater(0, self.leave)

    def leave(self):
        legacy.err(RuntimeError("old style"), "it broke")
        reactor.stop()


application = service.Application("svc-test")
top = LoggedService(log_observer(Origin("test", "1")))
top.setServiceParent(application)
Noisy().setServiceParent(top)
"""


class TwistdLoggingTests(SynchronousTestCase):
    """A whole run of twistd."""

    def test_only_records(self) -> None:
        """Every line from the first to the last is a valid record; there is no other output."""
        folder = Path(self.mktemp())
        folder.mkdir()
        (folder / "app.py").write_text(_APPLICATION)
        command = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
        ran = subprocess.run(
            [*command, "-n", "--pidfile=", "-y", "app.py"],
            cwd=folder,
            env=environment(),
            capture_output=True,
            timeout=180,
            check=False,
        )
        self.assertEqual((0, b""), (ran.returncode, ran.stderr))
        records = [json.loads(line) for line in ran.stdout.decode("ascii").splitlines()]
        for record in records:
            self.assertEqual([], defects(record), record)
        logged = "\n".join(record["message"] for record in records)
        for text in (
            "said before anything runs",
            "starting up",
            "started",
            "printed by a careless library",
            "warned by a careless library",
            "it broke",
            "Server Shut Down",
        ):
            self.assertIn(text, logged)
        # Twisted's words for a port, by the name of a class.
        self.assertNotIn("starting on", logged)
        self.assertNotIn(" Closed)", logged)
        failures = [record for record in records if record["event"]["name"] == "svc.runtime.failure"]
        kinds = {record.get("attributes", {}).get("exception.type") for record in failures}
        self.assertTrue({"ValueError", "RuntimeError"} <= kinds, kinds)
