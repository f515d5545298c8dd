"""Tests of :mod:`svc.kube.events`: what is remembered."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.events import MAX_RECORDED, EventRecorder


class _Client:
    def __init__(self) -> None:
        self.created: list[str] = []

    async def create(self, _kind: object, body: Any) -> None:
        self.created.append(body["regarding"]["uid"])


class RememberedTests(SynchronousTestCase):
    """The bound of memory."""

    def test_oldest_is_forgotten(self) -> None:
        """So many objects are remembered; of one more, the oldest is recorded again."""
        for count, again in ((MAX_RECORDED, 0), (MAX_RECORDED + 1, 1)):
            client = _Client()

            async def record(client: Any = client, count: int = count) -> None:
                recorder = EventRecorder(client, "c", "i", lambda: datetime.now(UTC), self.fail, interval=600.0)
                for number in (*range(count), 0):
                    about = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": str(number)}}
                    await recorder.record(about, "Normal", "Seen", "See", "x")

            asyncio.run(record())
            self.assertEqual(count + again, len(client.created))
