"""Tests of ``svc mqtt dead-letters``; what the proxy does then is in ``tests.proxy.mqtt.stored.test_forwarders``."""

from __future__ import annotations

import io
import json
import os
import sqlite3
from contextlib import closing
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.cli.errors import CliError
from svc.cli.globals import Invocation
from svc.cli.main import main
from svc.cli.mqtt.dead_letters import WAIT, Choice, run_decision
from svc.cli.output import Console
from svc.proxy.mqtt.stored.buffer.keys import BufferKeys
from svc.proxy.mqtt.stored.buffer.records import Wanted
from tests.proxy.mqtt.stored.buffering import NOW, OpenedBuffer, message, session

KEY = bytes(range(32))


class DeadLetterCase(SynchronousTestCase):
    """Three dead letters of two clients."""

    def setUp(self) -> None:
        """Make the buffer and its configuration."""
        self.opened = OpenedBuffer(self.mktemp())
        self.keys: list[str] = []
        self.config = os.path.abspath(self.mktemp())
        self.write_config()

    def write_config(self) -> None:
        """Write the configuration, of which only one section matters."""
        section = {"path": self.opened.path, "keys": self.keys, "sessions": 7}
        with open(self.config, "w", encoding="utf-8") as file:
            json.dump({"listeners": "not checked", "mqttBuffer": section}, file)

    def reject(self) -> None:
        """Make the dead letters, and end the proxy."""
        self.opened.begin()
        for client, topic, cause, code in (
            ("meter-1", "a/\u202e", "rejected", 0x87),
            ("meter-1", "b", "age", 0),
            ("meter-2", "c", "too_large", 0x95),
        ):
            owner = session(client)
            self.opened.buffer.session(owner)
            letter = message(b"payload", topic=topic)
            self.opened.buffer.store(owner, letter)
            self.opened.buffer.dead_letter(owner, letter, cause, code, NOW)  # type: ignore[arg-type]
            self.opened.buffer.remove(owner, letter)
        self.opened.settle()
        self.opened.close()

    def run_command(self, *words: str) -> tuple[int, str, str]:
        """Run the command below ``svc mqtt dead-letters``: its status, standard output and standard error."""
        out, err = io.BytesIO(), io.BytesIO()
        invocation = Invocation(Console(out, err, {}), {}, None)
        status = main(["mqtt", "dead-letters", *words, "--config", self.config], invocation=invocation)
        return status, out.getvalue().decode(), err.getvalue().decode()

    def listed(self, *words: str) -> list[dict[str, Any]]:
        """What is listed as JSON."""
        status, out, _err = self.run_command("list", "-o", "json", *words)
        self.assertEqual(0, status)
        return [json.loads(line) for line in out.splitlines()]


class ListTests(DeadLetterCase):
    """``list``."""

    def test_text(self) -> None:
        """A line for each, without what a terminal would carry out; none are said to be none."""
        self.reject()
        status, out, err = self.run_command("list")
        self.assertEqual((0, ""), (status, err))
        head, *lines = out.splitlines()
        self.assertTrue(head.startswith("NUMBER  REJECTED "), head)
        self.assertEqual(3, len(lines))
        self.assertNotIn("\u202e", out)
        self.assertRegex(
            lines[0], r"^1 +20\d\d-\d\d-\d\dT\S+Z +iot +meter-1 +a/\S+ +1 +rejected +not_authorized +7 +-$"
        )
        self.assertRegex(lines[1], r" b +1 +age +- +7 +-$")
        status, out, err = self.run_command("list", "--client", "meter-9")
        self.assertEqual((0, ""), (status, out))
        self.assertIn("no dead letters of this client", err)

    def test_json(self) -> None:
        """An object for each, with the payload."""
        self.reject()
        self.assertEqual([1, 2, 3], [each["number"] for each in self.listed()])
        [found] = self.listed("--client", "meter-2")
        expected = {"topic": "c", "code": "packet_too_large", "octets": 7, "payload": "cGF5bG9hZA", "wanted": None}
        self.assertEqual(expected, {name: found[name] for name in expected})

    def test_beside_the_proxy(self) -> None:
        """The buffer of a running proxy is read, more than a page of it too."""
        self.opened.begin()
        owner = session()
        self.opened.buffer.session(owner)
        for _letter in range(150):
            letter = message()
            self.opened.buffer.store(owner, letter)
            self.opened.buffer.dead_letter(owner, letter, "age", 0, NOW)
            self.opened.buffer.remove(owner, letter)
        self.opened.settle()
        self.assertEqual(150, len(self.listed()))
        self.opened.close()

    def test_keys(self) -> None:
        """With the keys of the configuration; what cannot be read is listed as such."""
        self.opened.more["keys"] = BufferKeys([KEY])
        self.reject()
        self.assertEqual([True] * 3, [each["unreadable"] for each in self.listed()])
        self.assertIn("(unreadable)", self.run_command("list")[1])
        path = os.path.abspath(self.mktemp())
        with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(KEY)
        self.keys = [path]
        self.write_config()
        self.assertEqual(["a/\u202e", "b", "c"], [each["topic"] for each in self.listed()])

    def test_no_buffer(self) -> None:
        """Without a buffer, with one of an older version, or with another file nothing is created or listed."""
        for make, reason in ((lambda: None, "mqtt_buffer_absent"), (self.older, "mqtt_buffer_outdated")):
            make()
            before = os.path.exists(self.opened.path)
            status, out, err = self.run_command("list")
            self.assertEqual((1, "", before), (status, out, os.path.exists(self.opened.path)))
            self.assertIn(reason, err)
        with open(self.opened.path, "wb") as file:
            file.write(b"no database at all " * 100)
        status, _out, err = self.run_command("list")
        self.assertEqual(1, status)
        self.assertIn("mqtt_buffer_inaccessible", err)

    def older(self) -> None:
        """A buffer of an older version."""
        self.opened.begin()
        self.opened.close()
        with closing(sqlite3.connect(self.opened.path)) as connection, connection:
            connection.execute("PRAGMA user_version = 2")


class DecisionTests(DeadLetterCase):
    """``send`` and ``delete``."""

    def marks(self) -> list[int]:
        """What is wanted of each."""
        with closing(sqlite3.connect(self.opened.path)) as connection:
            return [wanted for (wanted,) in connection.execute("SELECT wanted FROM dead_letter ORDER BY number")]

    def test_without_a_proxy(self) -> None:
        """They are marked for the next start, and the last decision counts."""
        self.reject()
        for words, expected in (
            (("send", "1", "3"), [1, 0, 1]),
            (("delete", "--client", "meter-1"), [2, 2, 1]),
            (("send", "--all"), [1, 1, 1]),
        ):
            status, out, err = self.run_command(*words)
            self.assertEqual((0, ""), (status, out))
            self.assertIn("when a proxy starts", err)
            self.assertEqual(expected, self.marks())
        self.assertEqual(["send"] * 3, [each["wanted"] for each in self.listed()])

    def test_with_a_proxy(self) -> None:
        """The command waits until the proxy has done it."""
        self.reject()
        self.opened.begin()
        numbers: list[int] = []

        def work(_seconds: float) -> None:
            for read in self.opened.result(self.opened.buffer.wanted_dead_letters(0)):
                self.assertIs(Wanted.DELETE, read.wanted)
                numbers.append(read.number)
                self.opened.buffer.dead_letter_over(read.number)
            self.opened.settle()

        out, err = io.BytesIO(), io.BytesIO()
        console = Console(out, err, {})
        run_decision(self.config, Choice((2, 3)), "delete", console, sleep=work, seconds=lambda: 0.0)
        self.assertEqual(([2, 3], [0]), (numbers, self.marks()))
        self.assertIn("2 dead letters were deleted", err.getvalue().decode())
        self.opened.close()

    def test_that_stay(self) -> None:
        """Where the proxy does not do it in time, the command says so and they stay marked."""
        self.reject()
        self.opened.begin()
        times = iter((0.0, WAIT - 0.1, WAIT))
        console = Console(io.BytesIO(), io.BytesIO(), {})
        with self.assertRaises(CliError) as caught:
            run_decision(
                self.config, Choice((1,)), "send", console, sleep=lambda _seconds: None, seconds=lambda: next(times)
            )
        self.assertIn("1 of 1 dead letters are not sent yet", str(caught.exception))
        self.assertEqual([1, 0, 0], self.marks())
        self.opened.close()

    def test_refused(self) -> None:
        """It is said which ones, by numbers that exist; otherwise nothing is changed."""
        self.reject()
        for words in ((), ("--all", "1"), ("--client", "c", "1"), ("x",), ("-1",), ("1" * 19,)):
            self.assertEqual(1, self.run_command("delete", *words)[0], words)
        status, _out, err = self.run_command("delete", "1", "4", "9")
        self.assertEqual(1, status)
        self.assertIn("4, 9", err)
        self.assertEqual([0, 0, 0], self.marks())
