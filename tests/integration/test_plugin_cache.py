"""A start where the installation cannot be written to: Twisted's plugin cache is made at installation."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.peers.daemon import FOREGROUND, environment, twistd
from tests.peers.faulty_disk import memory_disk
from tests.peers.waiting import eventually, free_port

_PLUGIN = """
from twisted.application.service import ServiceMaker

copy = ServiceMaker("copy", "svc.broker.tap", "a second name of the broker", "svc-copy")
"""


class PluginCacheTests(SynchronousTestCase):
    """A folder of plugins on a file system of its own, which root cannot write to either once it is read-only."""

    def setUp(self) -> None:
        """A folder with one plugin."""
        stack = ExitStack()
        self.addCleanup(stack.close)
        self.disk = memory_disk(stack, "1m")
        plugins = self.disk / "twisted" / "plugins"
        plugins.mkdir(parents=True)
        (plugins / "svc_copy.py").write_text(_PLUGIN)
        given = environment()
        self.environment = {**given, "PYTHONPATH": f"{self.disk}{os.pathsep}{given['PYTHONPATH']}"}
        self.environment["PYTHONDONTWRITEBYTECODE"] = "1"

    def remount(self, mode: str) -> None:
        """Make the file system read-only or not."""
        subprocess.run(["mount", "-o", f"remount,{mode}", str(self.disk)], check=True)

    def started(self) -> str:
        """The log of a broker from its start to its end."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        config = folder / "broker.yaml"
        listener = f'{{name: local, listen: "127.0.0.1:{free_port()}"}}'
        config.write_text(f'metricsAddr: "0"\nadminAddr: "0"\nlisteners: [{listener}]\n')
        log = folder / "log"
        with log.open("wb") as out:
            command = [*twistd(), *FOREGROUND, "svc-copy", "--config", str(config)]
            process = subprocess.Popen(command, cwd=folder, env=self.environment, stdout=out, stderr=out)
        try:
            eventually(lambda: "svc.process.started" in log.read_text(), what="a start")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        return log.read_text()

    def test_cache_of_the_installation(self) -> None:
        """Without the cache a start warns; after the command of the installation page it does not."""
        self.remount("ro")
        self.assertIn("Unable to write to plugin cache", self.started())
        self.remount("rw")
        subprocess.run([*twistd(), "--help"], env=self.environment, capture_output=True, check=True, timeout=180)
        self.remount("ro")
        self.assertNotIn("plugin cache", self.started())
