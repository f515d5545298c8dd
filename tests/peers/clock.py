"""
A clock on the wall that a test sets, for processes that it starts; the monotonic clock is left alone.

Needs Debian's ``faketime``, whose library is loaded before the C library and reads a file each time the clock is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twisted.trial.unittest import SkipTest

_LIBRARY = "faketime/libfaketimeMT.so.1"


class SetClock:
    """
    The clock.

    Args:
        folder: the folder of its file.

    Raises:
        SkipTest: the library is not installed.
    """

    def __init__(self, folder: Path) -> None:
        found = next((path for path in sorted(Path("/usr/lib").glob(f"*/{_LIBRARY}"))), None)
        if found is None:
            raise SkipTest("libfaketime is missing: apt-get install faketime")
        self._file = folder / "clock"
        self._variables = {
            "LD_PRELOAD": str(found),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }
        self.set(0)

    def set(self, seconds: int) -> None:
        """
        Set it.

        Args:
            seconds: how far it is ahead of the right time; negative for behind.
        """
        fresh = self._file.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.replace(self._file)

    @contextmanager
    def for_children(self) -> Iterator[None]:
        """Let processes that are started meanwhile go by it."""
        before = {name: os.environ.get(name) for name in self._variables}
        os.environ.update(self._variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
