"""
Peers that come from the Python package index, in an environment of their own beside the builds of the benchmark.

Owns that environment. It is made once; what cannot be installed is left out with a word.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.peers import Device, Stage

_SCRIPTS: Final = {"aiohttp": "aiohttpproxy.py", "mitmproxy": "mitmproxy.sh"}


def start(stage: Stage, folder: Path, say: Callable[[str], None]) -> list[Device]:
    """
    Start aiohttp and mitmproxy as reverse proxies.

    Args:
        stage: starts processes.
        folder: where environments are kept, one for each package.
        say: prints progress.

    Returns:
        The devices that could be started.
    """
    devices = []
    for package, script in _SCRIPTS.items():
        python = environment(package, folder / package, say)
        if python is None:
            continue
        source = Path(__file__).with_name(script)
        command = [str(python), str(source)] if source.suffix == ".py" else ["sh", str(source), str(python.parent)]
        devices.append(stage.script(package, command))
    return devices


def environment(package: str, folder: Path, say: Callable[[str], None]) -> Path | None:
    """
    Make a package's environment, or take the one that is there.

    Args:
        package: its name.
        folder: where the environment is kept.
        say: prints progress.

    Returns:
        Its interpreter, or None where the package cannot be installed.
    """
    python = folder / "bin" / "python"
    done = folder / "installed"
    if done.exists():
        return python
    say(f"installing {package}")
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError):
        say(f"{package} cannot be installed; its row is left out")
        return None
    done.touch()
    return python
