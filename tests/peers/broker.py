"""
A real ``twistd svc-broker`` in a temporary folder.

::

    broker = RunningBroker(persistence={"path": str(folder / "broker.db")})
    broker.start()
    ...                  # broker.port takes plain MQTT; broker.metric(), broker.readiness(), broker.records() tell
    broker.kill()        # a crash; start() begins again on what is left
    broker.stop()
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.peers.proxy import RunningProxy, twistd
from tests.peers.waiting import free_port


class RunningBroker(RunningProxy):
    """
    One broker and its folder; what it tells is asked for as with the proxy.

    Args:
        listener: further keys of the plain loopback listener.
        listeners: listeners beside it.
        limits: keys of the section ``limits``.
        settings: further top-level keys, replacing what is built here; None removes one.
        folder: where everything lies; a short temporary folder by default.
        python: the interpreter, where it matters for attestation.
        persistence: the section of this name; nothing is kept without it.
    """

    def __init__(
        self,
        *,
        listener: Mapping[str, Any] | None = None,
        listeners: Sequence[Mapping[str, Any]] = (),
        limits: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: Path | None = None,
        python: Path | None = None,
        persistence: Mapping[str, Any] | None = None,
    ) -> None:
        # Not the proxy's: it makes a configuration with an authority and an application.
        self._own_folder = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="svc-broker-"))
        self.port, self.metrics_port, self.admin_port = free_port(), free_port(), free_port()
        self.config_path = self.folder / "broker.yaml"
        self.log_path, self.error_path = self.folder / "broker.out", self.folder / "broker.err"
        self.process: subprocess.Popen[bytes] | None = None
        self._log_begins = 0
        self._python = python
        config: dict[str, Any] = {
            "metricsAddr": f"127.0.0.1:{self.metrics_port}",
            "adminAddr": f"127.0.0.1:{self.admin_port}",
            "limits": dict(limits or {}),
            "persistence": None if persistence is None else dict(persistence),
            "listeners": [{"name": "plain", "listen": f"127.0.0.1:{self.port}", **(listener or {})}, *listeners],
            **(settings or {}),
        }
        self.config = {name: value for name, value in config.items() if value is not None}

    def command(self, *options: str) -> list[str]:
        """
        Say how it is started.

        Args:
            options: further options of the plugin.

        Returns:
            The argument list.
        """
        return [*twistd(self._python), "svc-broker", "--config", str(self.config_path), *options]
