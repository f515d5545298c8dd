"""What is made once and kept outside the checkout: layers with the files they were made from, keyed by their inputs."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from images.archive import Layer

TOP: Final = Path(__file__).resolve().parents[1]


class ImageFailed(Exception):
    """
    An image could not be made.

    Args:
        sentence: what happened.
        hint: what to do about it.
    """

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(f"{sentence}; {hint}" if hint else sentence)
        self.sentence = sentence
        self.hint = hint


@dataclass(frozen=True)
class Kept:
    """
    A layer in the cache.

    Args:
        files: the tree that it was made from.
        layer: the layer.
    """

    files: Path
    layer: Layer


def cache_folder() -> Path:
    """The folder of ``bin/tools``."""
    given = os.environ.get("SVC_TOOLS")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "svc-tools"


def kept(name: str, inputs: Sequence[str], make: Callable[[Path, Path], Layer]) -> Kept:
    """
    Find a layer, or make it.

    Args:
        name: of the layer.
        inputs: what it is made from; others give another layer.
        make: gets an empty folder for the files and the path of the layer, and writes both.

    Returns:
        The layer.
    """
    cache = cache_folder()
    key = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:16]
    folder = cache / f"image-{name}-{key}"
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / f".image-{name}.lock"):
        if not folder.is_dir():
            # What a run that was killed left behind.
            for each in cache.glob(f".image-{name}.*/"):
                shutil.rmtree(each, ignore_errors=True)
            work = Path(tempfile.mkdtemp(prefix=f".image-{name}.", dir=cache))
            try:
                (work / "files").mkdir()
                layer = make(work / "files", work / "layer.tar.gz")
                (work / "layer.json").write_text(json.dumps({"digest": layer.digest, "diff_id": layer.diff_id}))
                work.chmod(0o755)
                work.rename(folder)
            except BaseException:
                shutil.rmtree(work, ignore_errors=True)
                raise
    return Kept(folder / "files", Layer(folder / "layer.tar.gz", **json.loads((folder / "layer.json").read_text())))


def report(line: str) -> None:
    """Print a line of progress."""
    print(f"svc: {line}", file=sys.stderr, flush=True)


def checked(command: Sequence[str | Path], what: str, **environment: str) -> str:
    """
    Run a command.

    Args:
        command: the argument list.
        what: names the step in the error.
        environment: further variables.

    Returns:
        What it printed.

    Raises:
        ImageFailed: it failed; carries the last line that it wrote.
    """
    try:
        ran = subprocess.run(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
    except FileNotFoundError as error:
        raise ImageFailed(f"{what} needs {command[0]}", f"as root: apt-get install {command[0]}") from error
    if ran.returncode != 0:
        lines = [line for line in (ran.stdout + ran.stderr).splitlines() if line.strip()]
        raise ImageFailed(f"{what}: {lines[-1] if lines else f'status {ran.returncode}'}"[:400])
    return ran.stdout


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
