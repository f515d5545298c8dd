"""A page in a real browser: Chromium without a window, started anew for each page."""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.peers.folders import short_folder
from tests.peers.programs import find, run

#: Nothing of its own goes to the network, and names are not resolved.
_OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
_CONSOLE = re.compile(r"CONSOLE[:(].*")


class ChromiumFailed(Exception):
    """The browser ended with an error; carries what it wrote."""


@dataclass(frozen=True)
class LoadedPage:
    """
    What became of a page.

    Attributes:
        dom: the elements, after loading, as HTML.
        console: the messages on the browser's console: errors of scripts, violations of the policy.
        hosts: the hosts and ports that the page asked something of, besides the page itself.
    """

    dom: str
    console: list[str]
    hosts: set[str]


class Chromium:
    """
    The browser.

    Args:
        stack: removes what it writes.

    Raises:
        SkipTest: it is not installed.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._program = find("chromium")
        self._folder = short_folder(stack)

    def load(self, url: str) -> LoadedPage:
        """Load a page."""
        log = self._folder / "net.json"
        loaded = self._run(url, f"--log-net-log={log}", "--enable-logging=stderr", "--dump-dom")
        console = _CONSOLE.findall(loaded.stderr.decode("utf-8", "replace"))
        return LoadedPage(loaded.stdout.decode(), console, _asked_hosts(log, url))

    def screenshot(self, url: str, path: Path, width: int, height: int, *, dark: bool = False) -> None:
        """Write a picture of a page."""
        scheme = "--blink-settings=preferredColorScheme=" + ("0" if dark else "1")
        self._run(url, f"--screenshot={path}", f"--window-size={width},{height}", scheme)

    def _run(self, url: str, *options: str) -> subprocess.CompletedProcess[bytes]:
        profile = f"--user-data-dir={self._folder / 'profile'}"
        done = run([self._program, *_OPTIONS, profile, *options, url], HOME=str(self._folder))
        if done.returncode:
            raise ChromiumFailed(done.stderr.decode("utf-8", "replace")[-2000:])
        return done


def _asked_hosts(log: Path, url: str) -> set[str]:
    """Read from the browser's log of the network what the pages of one origin asked for."""
    origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
    started = (each.get("params", {}) for each in json.loads(log.read_text())["events"])
    asked = (each["url"] for each in started if "url" in each and each.get("initiator") == origin)
    return {urlsplit(each).netloc for each in asked}
