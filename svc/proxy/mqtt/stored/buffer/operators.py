"""
The dead letters of a buffer as an operator sees them: read and marked beside the proxy that uses it, or without one.

What is marked is done by the proxy, which alone knows its sessions. Everything blocks.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import quote

from svc.proxy.mqtt.stored.buffer.errors import DeadLettersUnavailable
from svc.proxy.mqtt.stored.buffer.keys import BufferKeys
from svc.proxy.mqtt.stored.buffer.reader import load_dead_letters, read_dead_letters
from svc.proxy.mqtt.stored.buffer.records import ReadLetter, Wanted
from svc.proxy.mqtt.stored.buffer.schema import BUFFER
from svc.sqlite.connection import open_connection
from svc.sqlite.disk import message_of
from svc.sqlite.quarantine import read_version
from svc.sqlite.writer import transaction

#: Dead letters that are read at once.
PAGE: Final = 64


class DeadLetters:
    """
    The dead letters of a buffer.

    Args:
        path: the database.
        keys: the files of its keys.

    Raises:
        SvcError: it cannot be opened.
    """

    def __init__(self, path: str, keys: Sequence[str]) -> None:
        self._path = path
        self._keys = BufferKeys.read(keys)
        with self._explained():
            if not os.path.exists(path):
                raise DeadLettersUnavailable("mqtt_buffer_absent", path=path)
            address = f"file:{quote(os.fsencode(os.path.abspath(path)))}?mode=rw"
            self._connection = open_connection(address, uri=True)
        try:
            with self._explained():
                version = read_version(path, self._connection, BUFFER)
                if version < BUFFER.version:
                    raise DeadLettersUnavailable("mqtt_buffer_outdated", path=path)
                self._connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @property
    def served(self) -> bool:
        """Whether a proxy uses the buffer."""
        with self._explained():
            try:
                descriptor = os.open(f"{os.path.realpath(self._path)}.reserve", os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(descriptor)
            return False

    def __iter__(self) -> Iterator[ReadLetter]:
        """All dead letters in the order of their numbers; raises DeadLettersUnavailable."""
        after = 0
        while True:
            with self._explained():
                page = read_dead_letters(self._connection, self._keys, after, PAGE, wanted=False)
            yield from page
            if not page:
                return
            after = page[-1].number

    def present(self, numbers: Collection[int]) -> set[int]:
        """Which of these numbers are dead letters; raises DeadLettersUnavailable."""
        with self._explained():
            return load_dead_letters(self._connection).keys() & set(numbers)

    def mark(self, numbers: Collection[int], wanted: Wanted) -> None:
        """Have the proxy do something with dead letters; raises DeadLettersUnavailable."""
        rows = [(int(wanted), number) for number in numbers]
        with self._explained(), transaction(self._connection) as connection:
            connection.executemany("UPDATE dead_letter SET wanted = ? WHERE number = ?", rows)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            detail = (error.strerror or str(error)).lower() if isinstance(error, OSError) else message_of(error)
            raise DeadLettersUnavailable(path=self._path, detail=detail) from error
