"""Tests of svc.cli.status.run, and of the command around it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import CommandFailed, StatusUnavailable, StatusUnreachable, UsageRefused
from svc.cli.output import Console
from svc.cli.status.addresses import DEFAULTS, AdminAddress, read_addresses
from svc.cli.status.run import StatusPlan, StatusRun
from svc.settings import ConfigInvalid, ConfigUnreadable
from tests.cli.status.documents import encoded, proxy_document

PROXY, BROKER, AUTHORITY = DEFAULTS


class Terminal(io.BytesIO):
    """A terminal that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []

    def isatty(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.writes.append(bytes(data).decode())
        return len(data)


class RunCase(SynchronousTestCase):
    """A run that asks processes in memory."""

    def setUp(self) -> None:
        #: The document of each address, or why there is none; all others are not reached.
        self.found: dict[AdminAddress, bytes | StatusUnavailable] = {PROXY: encoded(proxy_document())}
        self.stdout: io.BytesIO = io.BytesIO()
        self.stderr = io.BytesIO()
        self.slept: list[float] = []
        self.size = os.terminal_size((200, 50))

    def ask(self, address: AdminAddress) -> bytes:
        found = self.found.get(address, StatusUnreachable(address=address, cause="connection refused"))
        if isinstance(found, StatusUnavailable):
            raise found
        return found

    def run_status(
        self, environ: Mapping[str, str] | None = None, between: Callable[[int], None] = lambda frame: None, **plan: Any
    ) -> int:
        """Run; a watch is interrupted after its second frame, ``between`` is called after each."""

        def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            between(len(self.slept))
            if len(self.slept) == 2:
                raise KeyboardInterrupt

        console = Console(self.stdout, self.stderr, environ or {})
        now = datetime(2026, 11, 21, 12, tzinfo=UTC)
        return StatusRun(
            StatusPlan(**plan), console, ask=self.ask, sleep=sleep, size=lambda: self.size, now=lambda: now
        ).run()

    @property
    def out(self) -> str:
        return self.stdout.getvalue().decode()

    @property
    def err(self) -> str:
        return self.stderr.getvalue().decode()


class OnceTests(RunCase):
    """Without ``--watch``."""

    def test_default_addresses(self) -> None:
        """Addresses that nobody named and where nothing listens are left out."""
        self.assertEqual(0, self.run_status())
        self.assertTrue(self.out.startswith("svc-proxy 1.2.3  ready  127.0.0.1:9902"))
        self.assertNotIn("9903", self.out)
        self.assertNotIn("\x1b", self.out)

    def test_foreign_service(self) -> None:
        """Another service on a default port is shown, and makes the status 1."""
        self.found[BROKER] = b"{}"
        self.assertEqual(1, self.run_status())
        self.assertIn("what listens at 127.0.0.1:9903 shows no status", self.out)

    def test_named_and_not_reached(self) -> None:
        """An address that was named is shown with the reason, and makes the status 1."""
        self.assertEqual(1, self.run_status(addresses=(PROXY, AUTHORITY), named=True))
        self.assertIn("\n127.0.0.1:9904 cannot be reached: connection refused\n", self.out)

    def test_nothing_answers(self) -> None:
        """Nothing is printed, and the error names what was tried; what else answers is a further line."""
        self.found = {BROKER: b"[]"}
        failed = self.assertRaises(CommandFailed, self.run_status)
        tried = "127.0.0.1:9902, 127.0.0.1:9903, 127.0.0.1:9904"
        self.assertEqual(f"no proxy, broker or authority answers at {tried}", str(failed.error))
        self.assertIn("svc status HOST:PORT", failed.error.hint)
        self.assertEqual((1, 1), (failed.status, len(failed.remarks)))
        self.assertEqual("", self.out)

    def test_json(self) -> None:
        """The documents as they came, in one array; what is not reached is an error beside it."""
        document = proxy_document(trustDomain="\x1b[2J", later={"x": [1.5, None]})
        self.found[PROXY] = encoded(document)
        self.assertEqual(0, self.run_status(json=True))
        self.assertEqual([document], json.loads(self.out))
        self.assertNotIn("\x1b", self.out)
        failed = self.assertRaises(CommandFailed, self.run_status, json=True, addresses=(PROXY, BROKER), named=True)
        self.assertEqual("127.0.0.1:9903 cannot be reached: connection refused", str(failed.error))

    def test_json_of_nothing(self) -> None:
        """Where nothing answers there is an empty array all the same."""
        self.found = {}
        self.assertRaises(CommandFailed, self.run_status, json=True)
        self.assertEqual([], json.loads(self.out))

    def test_colour(self) -> None:
        """There is colour on a terminal, and none with NO_COLOR."""
        for environ, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
            self.stdout = terminal = Terminal()
            self.run_status(environ)
            self.assertEqual(coloured, "\x1b[32mready\x1b[0m" in terminal.writes[0])


class WatchTests(RunCase):
    """With ``--watch``."""

    def test_on_a_terminal(self) -> None:
        """Each frame is one write from the top of the screen on, and an interrupt is the regular end."""
        self.stdout = terminal = Terminal()
        self.assertEqual(0, self.run_status({"NO_COLOR": "1"}, interval=5.0))
        clear, *frames = terminal.writes
        self.assertEqual(("\x1b[2J", 2, [5.0, 5.0]), (clear, len(frames), self.slept))
        for frame in frames:
            self.assertTrue(frame.startswith("\x1b[Hevery 5 s, 2026-11-21T12:00:00Z\x1b[K\n\x1b[K\nsvc-proxy 1.2.3"))
            self.assertTrue(frame.endswith("\x1b[K\n\x1b[J"))

    def test_longer_than_the_screen(self) -> None:
        """A frame never scrolls: what does not fit is counted."""
        listener = proxy_document()["listeners"][0]
        self.found[PROXY] = encoded(proxy_document(listeners=[listener] * 500))
        self.stdout = terminal = Terminal()
        self.size = os.terminal_size((200, 10))
        self.run_status({"NO_COLOR": "1"}, interval=5.0)
        lines = terminal.writes[1].split("\x1b[K\n")
        self.assertEqual((10, "\x1b[J"), (len(lines), lines[-1]))
        self.assertEqual("… 502 more lines", lines[-2])

    def test_into_a_pipe(self) -> None:
        """Frames follow one another, without anything that controls a terminal."""
        self.assertEqual(0, self.run_status(interval=2.0))
        self.assertEqual(2, self.out.count("every 2 s, 2026-11-21T12:00:00Z\n\nsvc-proxy 1.2.3"))
        self.assertTrue(self.out.endswith("/issuer)\n\n"))
        self.assertNotIn("\x1b", self.out)

    def test_processes_come_and_go(self) -> None:
        """It waits for the first process, and shows it once it answers."""
        self.found = {}
        self.run_status(interval=2.0, between=lambda _frame: self.found.update({PROXY: encoded(proxy_document())}))
        first, second = self.out.split("every 2 s")[1:]
        self.assertIn("no proxy, broker or authority answers at 127.0.0.1:9902", first)
        self.assertIn("svc-proxy 1.2.3", second)

    def test_json_lines(self) -> None:
        """One document a line; an address that stops answering is named once."""
        self.run_status(
            interval=2.0, json=True, addresses=(PROXY, BROKER), named=True, between=lambda _frame: self.found.clear()
        )
        self.assertEqual([proxy_document()], [json.loads(line) for line in self.out.splitlines()])
        refused = "cannot be reached: connection refused"
        self.assertEqual([f"svc: {each} {refused}" for each in (BROKER, PROXY)], self.err.splitlines())


class AddressesTests(SynchronousTestCase):
    """:func:`read_addresses`."""

    def config(self, text: str) -> str:
        path = Path(self.mktemp())
        path.write_text(text)
        return str(path)

    def test_arguments(self) -> None:
        """Addresses of arguments, each once; all addresses of a host are reached by loopback."""
        words = ("[::1]:1", "localhost:2", ":3", "0.0.0.0:3", "[::]:4", "[::1]:1")
        self.assertEqual(
            ["[::1]:1", "localhost:2", "127.0.0.1:3", "[::1]:4"], [str(each) for each in read_addresses(words, ())]
        )
        self.assertEqual(DEFAULTS, read_addresses((), ()))

    def test_refused(self) -> None:
        """What is no address is refused with what was expected; a number alone may be meant for --watch."""
        for word in ("proxy", "proxy:", "a:0", "a:65536", "::1:5", "http://a:1"):
            error = self.assertRaises(UsageRefused, read_addresses, (word,), ())
            self.assertIn("expected: an address host:port", error.hint)
        error = self.assertRaises(UsageRefused, read_addresses, ("5",), (), "--watch")
        self.assertEqual("did you mean 127.0.0.1:5, or --watch=5?", error.hint)

    def test_configuration(self) -> None:
        """``adminAddr`` of a file of any process; one without it, or not to be read, is an error."""
        path = self.config('adminAddr: ":9902"\nlisteners: []\n')
        self.assertEqual(["[::1]:1", "127.0.0.1:9902"], [str(each) for each in read_addresses(("[::1]:1",), (path,))])
        for text, value in (("a: 1", "not set"), ('adminAddr: "0"', "disabled"), ('adminAddr: ""', "disabled")):
            error = self.assertRaises(StatusUnavailable, read_addresses, (), (self.config(text),))
            self.assertTrue(str(error).endswith(f"adminAddr is {value}"), error)
        for value in ("x", "[1]", "false", '"a:0"'):
            self.assertRaises(ConfigInvalid, read_addresses, (), (self.config(f"adminAddr: {value}"),))
        self.assertRaises(ConfigUnreadable, read_addresses, (), ("/no/such.yaml",))
