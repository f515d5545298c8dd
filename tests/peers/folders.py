"""Folders with short names for what tests start, and the logs in them, which a failed test shows."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

_SUFFIXES = (".out", ".err", ".log")
#: What is shown of one file, from its end.
_SHOWN_OCTETS = 16_000
_SHOWN_LINES, _SHOWN_WIDTH = 20, 600
_live: dict[Path, dict[Path, int]] = {}
_ended: list[tuple[Path, str]] = []


def make_folder(prefix: str) -> Path:
    """Make a folder; ``*.out``, ``*.err`` and ``*.log`` in it are logs."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    _live[folder] = {}
    return folder


def remove_folder(folder: Path) -> None:
    """Remove a folder, and keep the end of its logs until the next test begins."""
    if folder in _live:
        _ended.extend(_written(folder, _live.pop(folder)))
    shutil.rmtree(folder, ignore_errors=True)


def short_folder(stack: ExitStack, prefix: str = "svc-it-") -> Path:
    """Make a folder whose name leaves room for the 107 octets of a socket's path; the stack removes it."""
    folder = make_folder(prefix)
    stack.callback(remove_folder, folder)
    return folder


def begin_test() -> None:
    """Forget what was written before."""
    _ended.clear()
    for folder, sizes in _live.items():
        sizes.clear()
        sizes.update({path: path.stat().st_size for path in _logs(folder)})


def written_logs() -> list[tuple[Path, str]]:
    """Give the path and the end of each log that was written to since :func:`begin_test`."""
    return _ended + [each for folder, sizes in _live.items() for each in _written(folder, sizes)]


def _logs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES and path.is_file())


def _written(folder: Path, sizes: dict[Path, int]) -> list[tuple[Path, str]]:
    found = []
    for path in _logs(folder):
        with path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(sizes.get(path, 0), size - _SHOWN_OCTETS))
            lines = log.read(_SHOWN_OCTETS).decode(errors="replace").splitlines()[-_SHOWN_LINES:]
        if lines:
            found.append((path, "\n".join(line[:_SHOWN_WIDTH] for line in lines)))
    return found
