"""Tests of the log records: which verbosity shows what."""

from __future__ import annotations

import io
import json

from twisted.logger import Logger
from twisted.trial.unittest import SynchronousTestCase

from svc.cli.globals import GlobalOptions
from svc.cli.logs import make_observer
from svc.cli.output import Console
from svc.telemetry.events.base import Severity


class LogTests(SynchronousTestCase):
    """Which verbosity shows what."""

    def shown(self, verbosity: int, log_format: str = "text") -> list[str]:
        stderr = io.BytesIO()
        options = GlobalOptions(verbosity=verbosity, log_format=log_format)
        observer = make_observer(options, Console(io.BytesIO(), stderr, {}))
        log = Logger(namespace="svc.test", observer=observer)
        for level in ("error", "warn", "info", "debug"):
            getattr(log, level)(level)
        log.debug("trace", svc_severity=Severity.TRACE)
        Logger(namespace="twisted.internet", observer=observer).info("noise")
        return stderr.getvalue().decode().splitlines()

    def test_verbosity(self) -> None:
        """-2 shows errors, each step one severity more, 2 and above the trace and Twisted's own messages."""
        for verbosity, count in ((-9, 1), (-2, 1), (-1, 2), (0, 3), (1, 4), (2, 6), (9, 6)):
            self.assertEqual(len(self.shown(verbosity)), count, verbosity)

    def test_json(self) -> None:
        """With the format json records are JSON of the common schema."""
        (record,) = [json.loads(line) for line in self.shown(-2, "json")]
        self.assertEqual((record["schema"], record["severity"], record["component"]), ("svc.log/1", "ERROR", "svc"))
