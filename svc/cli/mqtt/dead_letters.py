"""``svc mqtt dead-letters``: lists dead letters, and has the proxy send or delete them."""

from __future__ import annotations

import json as json_format
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import BaseModel

from svc import naming
from svc.cli.errors import CliError, UsageRefused
from svc.cli.output import Console
from svc.errors import printable
from svc.proxy.mqtt.stored.buffer.operators import DeadLetters
from svc.proxy.mqtt.stored.buffer.records import ReadLetter, Wanted
from svc.settings import load
from svc.strictjson import b64u_encode
from svc.wire.mqtt import ReasonCode

#: Seconds that a command waits for the proxy, which looks every five, and between two looks at what it has done.
WAIT: Final = 15.0
_PAUSE: Final = 0.2
_MAX_VALUE: Final = 256
_COLUMNS: Final = ("number", "rejected", "listener", "client", "topic", "qos", "cause", "code", "octets", "wanted")
_ABSENT: Final = "-"
#: The most numbers that an error names.
_NAMED: Final = 3


class _Buffer(BaseModel):
    """The keys of ``mqttBuffer`` that matter here."""

    path: str = naming.DEFAULT_MQTT_BUFFER
    keys: tuple[str, ...] = ()


class _Configuration(BaseModel):
    """The one section that matters here; the others are the proxy's to check."""

    mqttBuffer: _Buffer = _Buffer()


@dataclass(frozen=True, slots=True)
class Choice:
    """Which dead letters are meant: these numbers, those of a client, or all."""

    numbers: tuple[int, ...] = ()
    client: str | None = None

    @classmethod
    def read(cls, words: Sequence[str], *, every: bool, client: str | None) -> Choice:
        """Check the arguments of a command, which name exactly one of the three; raises UsageRefused."""
        if sum((bool(words), every, client is not None)) != 1:
            raise UsageRefused("it is not said which dead letters", "give numbers, --client ID, or --all")
        for word in words:
            if not (word.isascii() and word.isdigit() and len(word) < 19):
                raise UsageRefused(f'"{word}" is not a number', "expected: numbers as svc mqtt dead-letters list shows")
        return cls(tuple(dict.fromkeys(map(int, words))), client)


def run_list(config: str, client: str | None, console: Console, *, json: bool) -> int:
    """Carry out ``svc mqtt dead-letters list``; returns the exit status."""
    with closing(_open(config)) as letters:
        rows = [_row(each) for each in _of_client(letters, client)]
    if json:
        console.write_text("".join(f"{json_format.dumps(row)}\n" for row in rows))
    elif rows:
        console.write_text("".join(f"{line}\n" for line in _table(rows)))
    if not rows:
        console.notice("there are no dead letters" + ("" if client is None else " of this client"))
    return 0


def run_decision(
    config: str,
    choice: Choice,
    decision: str,
    console: Console,
    *,
    sleep: Callable[[float], object] = time.sleep,
    seconds: Callable[[], float] = time.monotonic,
) -> int:
    """Have the proxy ``send`` or ``delete`` dead letters, and wait for it; returns the exit status."""
    with closing(_open(config)) as letters:
        numbers = _chosen(letters, choice)
        letters.mark(numbers, Wanted[decision.upper()])
        done = "sent" if decision == "send" else "deleted"
        if not letters.served:
            console.notice(f"{len(numbers)} dead letters are {done} when a proxy starts with this buffer; none uses it")
            return 0
        deadline, left = seconds() + WAIT, set(numbers)
        while left and seconds() < deadline:
            sleep(_PAUSE)
            left = letters.present(left)
    if left:
        raise CliError("dead_letters_wait", left=len(left), total=len(numbers), done=done)
    console.notice(f"{len(numbers)} dead letters were {done}")
    return 0


def _open(config: str) -> DeadLetters:
    buffer = load(config, _Configuration).mqttBuffer
    return DeadLetters(buffer.path, buffer.keys)


def _of_client(letters: DeadLetters, client: str | None) -> Iterator[ReadLetter]:
    for each in letters:
        if client is None or (each.letter is not None and each.letter.key.client_id == client):
            yield each


def _chosen(letters: DeadLetters, choice: Choice) -> Sequence[int]:
    if not choice.numbers:
        return [each.number for each in _of_client(letters, choice.client)]
    absent = sorted(set(choice.numbers) - letters.present(choice.numbers))
    if absent:
        named = ", ".join(map(str, absent[:_NAMED])) + (", …" if len(absent) > _NAMED else "")
        raise CliError("dead_letter_missing", numbers=named)
    return choice.numbers


def _row(read: ReadLetter) -> dict[str, Any]:
    wanted = None if read.wanted is Wanted.NOTHING else read.wanted.name.lower()
    letter = read.letter
    if letter is None:
        return {"number": read.number, "unreadable": True, "wanted": wanted}
    message = letter.message
    return {
        "number": read.number,
        "rejected": _time(letter.rejected),
        "stored": _time(message.stored),
        "listener": letter.key.listener,
        "client": letter.key.client_id,
        "identity": letter.key.owner or None,
        "topic": message.topic,
        "qos": message.qos,
        "retain": message.retain,
        "cause": letter.cause,
        "code": ReasonCode(letter.code).name.lower() if letter.code else None,
        "octets": len(message.payload),
        "payload": b64u_encode(message.payload),
        "wanted": wanted,
    }


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = [[name.upper() for name in _COLUMNS]]
    lines += [[_cell(row, name) for name in _COLUMNS] for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_COLUMNS))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]


def _cell(row: dict[str, Any], name: str) -> str:
    if name == "topic" and "unreadable" in row:
        return "(unreadable)"
    value = row.get(name)
    return _ABSENT if value is None or value == "" else printable(value, _MAX_VALUE)
