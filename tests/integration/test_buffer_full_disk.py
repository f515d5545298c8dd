"""A full disk costs no stored MQTT message, and the buffer accepts new ones again when there is room."""

from __future__ import annotations

import contextlib

from twisted.trial.unittest import SynchronousTestCase

from svc.sqlite.connection import open_connection
from tests.peers.faulty_disk import fill, memory_disk
from tests.proxy.mqtt.stored.buffering import OpenedBuffer, message, session


class FullDiskTests(SynchronousTestCase):
    """A small file system in memory is filled to the last block; needs the right to mount."""

    def setUp(self) -> None:
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        folder = memory_disk(self.stack, "8m")
        self.opened = OpenedBuffer(str(folder), reserve_size=1024 * 1024, connect=open_connection)
        self.opened.begin()
        self.owner = session()
        self.opened.buffer.session(self.owner)
        self.opened.settle()
        self.filler = fill(folder)

    def test_refused_and_accepted_again(self) -> None:
        """What was recorded before the refusal is durable by the reserve; with room new messages are accepted."""
        buffer, stored, durable = self.opened.buffer, 0, []
        while buffer.accepting:
            buffer.store(self.owner, message(bytes(4096)))
            buffer.when_durable(lambda number=stored: durable.append(number))  # type: ignore[misc]
            stored += 1
            self.opened.settle()
            self.assertLess(stored, 1000)
        for _message in range(20):
            buffer.store(self.owner, message(bytes(4096)))
            stored += 1
        self.opened.settle()
        self.assertFalse(buffer.accepting)
        self.assertGreater(len(durable), 0)
        self.filler.unlink()
        self.opened.reactor.advance(1)
        self.opened.settle()
        self.assertTrue(buffer.accepting)
        self.opened.crash()
        self.assertEqual(stored, self.opened.begin()[0].messages)
        self.opened.close()
