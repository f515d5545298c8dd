"""A real Mosquitto on a loopback port, with a configuration made here."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.peers.folders import short_folder
from tests.peers.programs import find
from tests.peers.waiting import answers, end_process, eventually, free_port

#: What :class:`tests.peers.broker.RunningBroker` gets too, where both are compared.
INFLIGHT, ALIASES = 20, 10


class RunningMosquitto:
    """
    One Mosquitto.

    Args:
        stack: ends it and removes its folder.
        settings: lines of its configuration beside those made here; a list gives a key several times.

    Attributes:
        port: where it listens.
        folder: where its files lie.
    """

    def __init__(self, stack: ExitStack, settings: Mapping[str, str | Sequence[str]] | None = None) -> None:
        self._program = find("mosquitto")
        self.port = free_port()
        self.folder = short_folder(stack, "svc-mosquitto-")
        self.log_path = self.folder / "mosquitto.log"
        lines = [f"listener {self.port} 127.0.0.1", "allow_anonymous true", f"max_inflight_messages {INFLIGHT}"]
        # Started by root, it changes to another user unless configured otherwise.
        lines += ["user root"] if os.geteuid() == 0 else []
        for key, value in (settings or {}).items():
            lines += [f"{key} {each}" for each in ([value] if isinstance(value, str) else value)]
        self._config = self.folder / "mosquitto.conf"
        self._config.write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        stack.callback(self.stop)

    def start(self) -> RunningMosquitto:
        """
        Start it and wait until it answers.

        Returns:
            Itself.
        """
        with Path(self.log_path).open("ab") as log:
            process = subprocess.Popen(
                [self._program, "-c", str(self._config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._process = process
        eventually(lambda: answers(self.port) or process.poll() is not None, 60, f"mosquitto at {self.port}")
        if process.poll() is not None:
            raise AssertionError(f"mosquitto ended: {self.log_path.read_text(errors='replace')[-2000:]}")
        return self

    def stop(self) -> None:
        """End it as an operator does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            end_process(process, number)
