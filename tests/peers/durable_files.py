"""
What is left of the files of a folder after a loss of power, to the sector.

Durable is what a file held when it was synchronized, and the names that a folder had when it was. Of what was written
since, a disk may have nothing, everything, or any of the sectors.
"""

from __future__ import annotations

import os
import shutil
import threading
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Final

#: What a disk writes whole or not at all.
SECTOR: Final = 512
#: Memory that the processes of a database share, which no disk keeps.
_MEMORY: Final = "-shm"


class DurableFiles:
    """
    A folder without subfolders; :class:`tests.peers.hanging_disk.HangingDisk` reports each synchronization.

    Args:
        stack: closes the files.
        folder: is not there yet, or empty; its own name counts as durable.
        random: decides on what was not synchronized.

    Attributes:
        lost: sectors that a cut has lost so far.
        torn: cuts that left a file with some of its sectors and not all.
    """

    def __init__(self, stack: ExitStack, folder: Path, random: Random) -> None:
        self.folder = folder
        self.lost = self.torn = 0
        self._random = random
        self._names: dict[str, int] = {}
        # By inode; the open descriptor keeps its number from being used for another file.
        self._durable: dict[int, tuple[int, bytes]] = {}
        self._lock = threading.Lock()
        stack.callback(self._close)

    def synchronized(self, path: Path, opened: Path) -> None:
        """Record what a file or the folder has while its process waits; ``opened`` is its descriptor in ``/proc``."""
        if self.folder not in (path, path.parent):
            return
        with self._lock:
            if path == self.folder:
                self._names = self._current_names()
            else:
                self._note(os.open(opened, os.O_RDONLY | os.O_CLOEXEC))

    def cut(self, survive: float) -> None:
        """
        Replace the files by what a disk may have after a loss of power; their process has been killed.

        Args:
            survive: the share of names and sectors that are there without having been synchronized.
        """
        with self._lock:
            current = self._current_names()
            kept: dict[str, bytes] = {}
            torn = False
            for name in sorted(current.keys() | self._names.keys()):
                inode = current.get(name), self._names.get(name)
                chosen = inode[0] if self._survives(survive) else inode[1]
                if chosen is not None and not name.endswith(_MEMORY):
                    now = (self.folder / name).read_bytes() if chosen == inode[0] else None
                    kept[name], partly = self._left(chosen, now, survive)
                    torn |= partly
            self.torn += torn
            self._close()
            shutil.rmtree(self.folder)
            self.folder.mkdir(mode=0o700)
            for name, octets in kept.items():
                path = self.folder / name
                path.write_bytes(octets)
                path.chmod(0o600)
                self._note(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            self._names = self._current_names()

    def _left(self, inode: int, now: bytes | None, survive: float) -> tuple[bytes, bool]:
        """Choose what is left of a file; gives its octets, and whether only a part of what was written is there."""
        _descriptor, before = self._durable.get(inode, (-1, b""))
        if now is None:
            return before, False
        size = (len(before), len(now))[int(survive)] if survive in (0, 1) else self._between(len(before), len(now))
        written = lost = 0
        pieces = []
        for begin in range(0, size, SECTOR):
            old, new = before[begin : begin + SECTOR], now[begin : begin + SECTOR]
            if old != new:
                written += 1
                if not self._survives(survive):
                    lost += 1
                    new = old
            pieces.append((new or old).ljust(SECTOR, b"\0"))
        # Sectors behind the end were written, too.
        behind = max(0, len(now) - size + SECTOR - 1) // SECTOR
        written, lost = written + behind, lost + behind
        self.lost += lost
        return b"".join(pieces)[:size], 0 < lost < written

    def _between(self, one: int, other: int) -> int:
        return self._random.randint(min(one, other), max(one, other))

    def _survives(self, share: float) -> bool:
        return self._random.random() < share

    def _current_names(self) -> dict[str, int]:
        if not self.folder.exists():
            return {}
        return {each.name: each.inode() for each in os.scandir(self.folder)}

    def _note(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        before = self._durable.get(status.st_ino)
        if before is not None:
            os.close(descriptor)
            descriptor = before[0]
        self._durable[status.st_ino] = descriptor, os.pread(descriptor, status.st_size, 0)

    def _close(self) -> None:
        for descriptor, _octets in self._durable.values():
            os.close(descriptor)
        self._durable.clear()
