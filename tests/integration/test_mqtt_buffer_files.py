"""The buffer of MQTT messages as a file: its keys, their rotation, and damage, over starts of the proxy."""

from __future__ import annotations

import os
import random

from tests.integration.test_mqtt_forwarding import LASTING, Case, Site, deliveries, publish
from tests.peers.folders import short_folder
from tests.peers.waiting import eventually

SECRET = b"the combination is 4711"


class FilesCase(Case):
    """A proxy whose broker is down, with messages in its buffer."""

    def begin(self, *keys: str) -> None:
        """Start the proxy with keys of these names, and store two messages."""
        self.keys = short_folder(self.stack)
        self.site = Site(self.stack, {"keys": [self.key(name) for name in keys]})
        self.proxy, self.buffer = self.site.proxy, self.site.folder / "buffer" / "mqtt.db"
        self.site.subscribe()
        self.proxy.start()
        self.store(1, 2)

    def key(self, name: str) -> str:
        """Make a key where it is not there."""
        path = self.keys / name
        if not path.exists():
            path.touch(mode=0o600)
            path.write_bytes(os.urandom(32))
        return str(path)

    def store(self, *numbers: int) -> None:
        """Publish messages with QoS 2."""
        client = self.site.client()
        client.connect("c", **LASTING)
        for number in numbers:
            publish(client, "t", SECRET + b"%d" % number, 2, number)
        client.close()

    def with_keys(self, *names: str) -> None:
        """Change the configuration."""
        self.proxy.config["mqttBuffer"]["keys"] = [self.key(name) for name in names]

    def stored(self) -> bytes:
        """All octets on the disk."""
        return b"".join(path.read_bytes() for path in self.buffer.parent.iterdir())

    def assert_delivered(self, count: int) -> None:
        """The broker comes up, and gets the messages in order."""
        self.site.mosquitto.start()
        subscriber = self.site.resumed()
        expected = [SECRET + b"%d" % number for number in range(1, count + 1)]
        self.assertEqual(expected, [each.payload for each in deliveries(subscriber, count)])
        eventually(lambda: self.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)


class KeyTests(FilesCase):
    """``mqttBuffer.keys``."""

    def test_rotated(self) -> None:
        """Nothing is stored in clear; a new key in front encrypts; the old one is needed while its messages wait."""
        self.begin("old")
        self.assertNotIn(SECRET, self.stored())
        self.proxy.halt()
        self.with_keys("new")
        self.assertEqual(1, self.proxy.launch().wait())
        [failed] = self.proxy.records("svc.process.start_failed")
        self.assertEqual("mqtt_buffer_key_missing", failed["detail_reason"])
        self.assertIn(str(self.buffer), failed["message"])
        self.with_keys("new", "old")
        self.proxy.start()
        self.store(3)
        self.proxy.kill()
        self.proxy.start()
        self.assertNotIn(SECRET, self.stored())
        self.assert_delivered(3)
        # Its messages are gone, and the session that the old key encrypted is encrypted anew at its next connection.
        self.store(4)
        eventually(lambda: self.proxy.metric("svc_proxy_mqtt_buffer_messages_queued") == 0.0)
        self.proxy.halt()
        self.with_keys("new")
        self.proxy.start()

    def test_files(self) -> None:
        """A key that others can read, or that is none, is refused with its path."""
        self.begin("key")
        self.proxy.halt()
        path = self.keys / "key"
        for number, (mode, octets, defect) in enumerate(
            ((0o640, None, "other users could read it"), (0o600, b"short", "it does not hold 32 octets")), 1
        ):
            kept = path.read_bytes()
            path.chmod(mode)
            path.write_bytes(octets or kept)
            self.assertEqual(1, self.proxy.launch().wait())
            failed = self.proxy.records("svc.process.start_failed")
            self.assertEqual(number, len(failed))
            self.assertIn(str(path), failed[-1]["message"])
            self.assertIn(defect, failed[-1]["message"])
            path.chmod(0o600)
            path.write_bytes(kept)
        self.proxy.start()
        self.assert_delivered(2)


class DamageTests(FilesCase):
    """Octets of the database are destroyed."""

    def overwrite(self) -> None:
        """Destroy all but the first page."""
        size = self.buffer.stat().st_size
        with self.buffer.open("r+b") as file:
            file.seek(4096)
            file.write(random.Random(7).randbytes(size - 4096))

    def test_at_the_start(self) -> None:
        """The start fails once and names both files; the next one serves with an empty buffer, and the old is kept."""
        self.begin()
        self.proxy.halt()
        self.overwrite()
        before = self.buffer.read_bytes()
        self.assertEqual(1, self.proxy.launch().wait())
        [aside] = self.proxy.records("svc.proxy.buffer.set_aside")
        self.assertEqual(str(self.buffer), aside["attributes"]["path"])
        [failed] = self.proxy.records("svc.process.start_failed")
        self.assertIn(aside["attributes"]["aside"], failed["message"])
        with open(aside["attributes"]["aside"], "rb") as file:
            self.assertEqual(before, file.read())
        self.proxy.start()
        self.store(1)
        self.assert_delivered(1)
        self.assertEqual(1, len(self.proxy.records("svc.proxy.buffer.lies_aside")))
