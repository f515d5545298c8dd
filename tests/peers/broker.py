"""
A real ``twistd svc-broker`` in a temporary folder.

::

    broker = RunningBroker(persistence={"path": str(folder / "broker.db")}) broker.start() ...                  #
    broker.port takes plain MQTT; broker.metric(), broker.readiness(), broker.records() inspect it broker.kill()
    # a crash; start() begins again on what is left broker.stop()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.peers.daemon import MonitoredDaemon
from tests.peers.waiting import free_port


class RunningBroker(MonitoredDaemon):
    """
    One broker and its folder.

    Args:
        listener: further keys of the plain loopback listener.
        listeners: listeners beside it.
        limits: keys of the section ``limits``.
        settings: further top-level keys, replacing what is built here; None removes one.
        folder: of all its files; a short temporary folder by default.
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
        super().__init__("broker", folder, python)
        self.port, self.metrics_port, self.admin_port = free_port(), free_port(), free_port()
        self.config = {
            "metricsAddr": f"127.0.0.1:{self.metrics_port}",
            "adminAddr": f"127.0.0.1:{self.admin_port}",
            "limits": dict(limits or {}),
            "persistence": None if persistence is None else dict(persistence),
            "listeners": [{"name": "plain", "listen": f"127.0.0.1:{self.port}", **(listener or {})}, *listeners],
            **(settings or {}),
        }
