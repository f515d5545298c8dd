"""Mounts of the Linux kernel, by system calls."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path
from typing import Final

from zope.interface import implementer

from svc.csi.interface import IMounts

# mount(2), linux/mount.h.
_MS_RDONLY: Final = 0x1
_MS_NOSUID: Final = 0x2
_MS_NODEV: Final = 0x4
_MS_NOEXEC: Final = 0x8
_MS_REMOUNT: Final = 0x20
_MS_BIND: Final = 0x1000
_READ_ONLY: Final = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_MOUNTINFO: Final = Path("/proc/self/mountinfo")


@implementer(IMounts)
class LinuxMounts:
    """The mounts of this process's mount namespace; needs CAP_SYS_ADMIN."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)

    def mounted(self, path: str) -> bool:
        lines = _MOUNTINFO.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        return any(_unescaped(line.split(" ")[4]) == path for line in lines)

    def bind(self, source: str, target: str) -> None:
        self._mount(source, target, _MS_BIND)
        try:
            # A bind mount takes its flags in a second call.
            self._mount("none", target, _READ_ONLY)
        except OSError:
            self.unmount(target)
            raise

    def unmount(self, target: str) -> None:
        if self._libc.umount2(os.fsencode(target), 0):
            raise self._error(target)

    def _mount(self, source: str, target: str, flags: int) -> None:
        if self._libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(flags), None):
            raise self._error(target)

    def _error(self, path: str) -> OSError:
        number = ctypes.get_errno()
        return OSError(number, os.strerror(number), path)


def _unescaped(field: str) -> str:
    """A path as proc_pid_mountinfo(5) writes it, with spaces and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)
