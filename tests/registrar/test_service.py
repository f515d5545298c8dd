"""The registrar, with a server in memory."""

from __future__ import annotations

import asyncio
from typing import Any

from twisted.internet.testing import MemoryReactorClock

from svc.registrar.config import RegistrarSettings
from svc.registrar.service import ENTRIES, Registrar
from svc.settings import parse
from svc.spire.entries import EntryChanges
from svc.spire.errors import SpireUnavailable
from svc.spire.server import EntryFailure
from svc.telemetry.events.registrar import RegistrarEvent
from tests.proxy.parts import LogTestCase
from tests.registrar.test_config import TEXT

SETTINGS = parse(f"{TEXT}adminAddr: '0'\n", RegistrarSettings)


class Server:
    """The entries of a server."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}
        self.away = False
        self.refuses = False

    async def entries(self) -> list[Any]:
        if self.away:
            raise SpireUnavailable(address="memory", detail="it is away")
        return list(self.stored.values())

    async def apply(self, changes: EntryChanges) -> list[EntryFailure]:
        changed = [*changes.create, *changes.update]
        if self.refuses:
            return [EntryFailure("create", each.id, "no") for each in changed]
        self.stored.update({each.id: each.message() for each in changed})
        for each in changes.delete:
            del self.stored[each]
        return []

    def close(self) -> None:
        self.away = True


class RegistrarTests(LogTestCase):
    """What it does at each attempt."""

    def setUp(self) -> None:
        """Make one that is not started."""
        super().setUp()
        self.server = Server()
        self.registrar = Registrar(
            SETTINGS, MemoryReactorClock(), lambda: None, lambda: SETTINGS, server=lambda _path: self.server
        )

    def keep(self) -> str:
        """One attempt; gives the reason of the condition."""
        asyncio.run(self.registrar.kept())
        condition = self.registrar._health.condition(ENTRIES)
        return "" if condition.holds else condition.reason

    def test_made_and_kept(self) -> None:
        """Entries are made once; what somebody deleted is made again, and those of others stay."""
        self.server.stored["other"] = SETTINGS.wanted[0].message()
        self.server.stored["other"].id = "other"
        self.assertEqual("", self.keep())
        self.assertEqual({"other", *(each.id for each in SETTINGS.wanted)}, set(self.server.stored))
        self.assertEqual("", self.keep())
        self.only(RegistrarEvent.CHANGED)
        del self.server.stored[SETTINGS.wanted[1].id]
        self.keep()
        self.assertEqual(3, len(self.server.stored))
        self.assertEqual(2, len(self.of(RegistrarEvent.CHANGED)))

    def test_server_away(self) -> None:
        """A server that is away is a condition, logged once, and its return ends it."""
        self.server.away = True
        self.assertEqual(["spire_unavailable"] * 2, [self.keep(), self.keep()])
        self.only(RegistrarEvent.FAILED)
        self.server.away = False
        self.assertEqual("", self.keep())

    def test_refused(self) -> None:
        """An entry that the server refuses is named, and nothing is said to have changed."""
        self.server.refuses = True
        self.assertEqual("entry_refused", self.keep())
        self.assertEqual([], self.of(RegistrarEvent.CHANGED))
        self.assertIn(SETTINGS.wanted[0].id[:14], self.only(RegistrarEvent.FAILED).fields["detail"])
