"""Losses of power under a proxy that stores and forwards: the disk has what was synchronized, and parts of the rest."""

from __future__ import annotations

from itertools import cycle
from random import Random

from tests.integration import test_mqtt_forwarding as forwarding
from tests.peers.durable_files import DurableFiles
from tests.peers.folders import short_folder
from tests.peers.hanging_disk import HangingDisk
from tests.peers.waiting import rounds

#: Losses of power without a broker, and as many with one.
CUTS = rounds(2, 20)
#: Messages between two of them, at most; in the long form the log is copied into the database between.
MESSAGES = rounds(60, 200)
#: Shares of what was not synchronized that are on the disk all the same.
SURVIVE = (0.5, 0.0, 0.9, 1.0)


class PowerCutTests(forwarding.Interrupted):
    """Messages that were acknowledged before a loss of power."""

    longest = 20_000

    def test_power_cuts(self) -> None:
        """None is lost, none with QoS 2 arrives twice, each QoS keeps its order, and every start opens the buffer."""
        self.broken_site()
        shares = cycle(SURVIVE)
        self.site.mosquitto.start()
        self.begin(self.site, self.site.mosquitto.port)
        # Only now: after a restart Mosquitto 2.0.11 sends messages again for which it had sent PUBREL.
        self.site.mosquitto.stop()
        for _ in range(CUTS):
            self.cut(next(shares))
        self.site.mosquitto.start()
        for _ in range(CUTS):
            self.cut(next(shares))
            self.subscribers.go_on(0.05)
        self.site.proxy.start()
        self.finish()
        self.verify()
        self.assertEqual([], self.site.proxy.records("svc.proxy.buffer.set_aside"))
        # Otherwise these were no losses of power.
        self.assertGreater(self.files.lost, CUTS)
        self.assertGreater(self.files.torn, 0)

    def broken_site(self) -> None:
        """A site whose proxy has its buffer on a disk that loses power."""
        self.site = site = forwarding.Site(self.stack, {"reserve": "1MiB"}, mosquitto={"max_inflight_messages": "0"})
        self.files = DurableFiles(self.stack, site.folder / "buffer", Random(5))
        self.disk = HangingDisk(self.stack, short_folder(self.stack), self.files)
        command = site.proxy.command
        site.proxy.command = lambda *options: self.disk.command(command(*options))
        site.proxy.executed = True

    def cut(self, survive: float) -> None:
        """Start the proxy, publish, and let the power fail while something is written and not yet durable."""
        self.site.proxy.launch()
        self.load(self.random.randrange(MESSAGES), self.random.random() * 0.05)
        self.disk.hang()
        written = self.publishers.go_on(60, lambda: self.publish() or self.disk.waiting)
        self.assertTrue(written, "nothing was written")
        self.publishers.go_on(self.random.random() * 0.05, self.publish)
        self.site.proxy.kill()
        self.publishers.drain()
        self.disk.go_on()
        self.files.cut(survive)
