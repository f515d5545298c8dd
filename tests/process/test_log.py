"""The log of a daemon: where it goes, and when its thread starts."""

from __future__ import annotations

import atexit
import io
import json
import os
import threading
from pathlib import Path

from twisted.application import service
from twisted.logger import ILogObserver, Logger
from twisted.python import log as legacy
from twisted.trial.unittest import SynchronousTestCase

from svc.process.log import LoggedService, log_path, process_log
from svc.telemetry.logs import RecordObserver
from svc.telemetry.records import Origin, RecordBuilder


class ProcessLogTests(SynchronousTestCase):
    """The destination of the records of a process."""

    def test_twistd_options(self) -> None:
        """The log goes where twistd's options say: standard output, a file, or twistd.log for a daemon."""
        for options, path in (
            ({"nodaemon": 1, "logfile": None}, None),
            ({"nodaemon": 1, "logfile": "-"}, None),
            ({"nodaemon": 1, "logfile": "proxy.log"}, "proxy.log"),
            ({"nodaemon": 0, "logfile": None}, "twistd.log"),
            ({"nodaemon": 0, "logfile": "proxy.log"}, "proxy.log"),
        ):
            self.assertEqual(path, log_path(options), options)

    def test_log_file(self) -> None:
        """A log file is added to, its lines are records, and its owner's group may read it."""
        path = os.path.abspath(self.mktemp())
        for _start in range(2):
            observer, log_writer = process_log(Origin("proxy", "1"), {"logfile": path}, "json")
            self.addCleanup(atexit.unregister, log_writer.flush)
            Logger(observer=observer).info("hello")
        self.assertEqual(2, len([json.loads(line) for line in Path(path).read_bytes().splitlines()]))
        self.assertEqual(0, os.stat(path).st_mode & 0o027)

    def test_the_thread_begins_with_the_service(self) -> None:
        """The log writes in its own thread once the application starts, not before: a daemon forks in between."""
        path = os.path.abspath(self.mktemp())
        observer, log_writer = process_log(Origin("proxy", "1"), {"logfile": path}, "json")
        self.addCleanup(atexit.unregister, log_writer.flush)
        top = LoggedService(observer, log_writer)
        threads = threading.active_count()
        Logger(observer=observer).info("before")
        self.assertEqual(threads, threading.active_count())
        top.startService()
        self.addCleanup(top.stopService)
        Logger(observer=observer).info("after")
        self.assertTrue(log_writer.flush(10))
        self.assertEqual(threads + 1, threading.active_count())
        self.assertEqual(2, len(Path(path).read_bytes().splitlines()))

    def test_application_gets_the_observer(self) -> None:
        """Attaching the top service to an application makes its observer the log of the application."""
        builder = RecordBuilder(Origin("proxy", "1"), random=bytes)
        observer = RecordObserver(builder.line, builder, io.BytesIO().write)
        application = service.Application("svc-test")
        LoggedService(observer).setServiceParent(application)
        self.assertIs(observer, application.getComponent(ILogObserver))
        self.assertIsNone(application.getComponent(legacy.ILogObserver, None))
