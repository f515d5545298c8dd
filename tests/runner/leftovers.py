"""What a run leaves in the checkout: nothing but what ``bin`` and Python keep there."""

from __future__ import annotations

import os
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

from tests.runner.report import Module

#: Names at any depth: the virtual environment, what installing into it writes, Twisted's list of plugins, bytecode, and
#: the caches of ``bin/check``, which may run at the same time.
KEPT = (
    ".venv",
    "*.egg-info",
    "dropin.cache",
    "__pycache__",
    ".mypy_cache",
    ".ruff_cache",
    ".import_linter_cache",
    # What editors keep beside a file that is open.
    "*.sw?",
    "*~",
    ".#*",
)


def untracked(top: Path) -> frozenset[str] | None:
    """
    Find the files that git does not track, ignored ones too, without those of :data:`KEPT`.

    Tracked files are not looked at: people edit them while tests run, and what a test does to one is in ``git diff``.

    Returns:
        Paths relative to the checkout; None where it is no git repository, as in an unpacked sdist, or there is no git.
    """
    if not (top / ".git").exists():
        return None
    command = ["git", "--no-optional-locks", "status", "--porcelain", "-z", "--no-renames"]
    # Without the last ones, git lists all files of the virtual environment.
    command += ["--untracked-files=all", "--ignored", "--", ".", *(f":(exclude,glob)**/{name}/**" for name in KEPT)]
    try:
        ran = subprocess.run(command, cwd=top, capture_output=True, check=False)
    except OSError:
        return None
    if ran.returncode:
        return None
    paths = {line[3:] for line in os.fsdecode(ran.stdout).split("\0") if line[:2] in ("??", "!!")}
    return frozenset(path for path in paths if not _kept(path))


def failure(before: frozenset[str] | None, after: frozenset[str] | None) -> Module | None:
    """Give a failure that names the files that have come between two calls of :func:`untracked`, None without any."""
    new = sorted(after - before) if before is not None and after is not None else []
    if not new:
        return None
    found = Module("checkout")
    found.failed("unchanged", "left in the checkout; tests write into temporary folders:\n" + "\n".join(map(repr, new)))
    return found


def _kept(path: str) -> bool:
    return any(fnmatchcase(part, name) for part in Path(path).parts for name in KEPT)
