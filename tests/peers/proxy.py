"""
A real ``twistd svc-proxy`` in a temporary folder.

::

    proxy = RunningProxy(authority, upstream="127.0.0.1:8080")
    proxy.start()
    ...                  # proxy.port takes mutual TLS; see tests.peers.daemon for logs, pages and metrics
    proxy.stop()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.peers.authority import RunningAuthority
from tests.peers.daemon import MonitoredDaemon
from tests.peers.waiting import free_port


class RunningProxy(MonitoredDaemon):
    """
    One proxy and its folder.

    Args:
        authority: gives identities and post-quantum leaves.
        upstream: the application behind the inbound listener ``web``.
        listener: further keys of that listener.
        listeners: listeners beside it.
        notary: further keys of the section ``notary``; None removes one.
        settings: further top-level keys, replacing what is built here; None removes one.
        folder: of all its files; a short temporary folder by default.
        python: the interpreter, where it matters for attestation.
    """

    def __init__(
        self,
        authority: RunningAuthority,
        upstream: str,
        *,
        listener: Mapping[str, Any] | None = None,
        listeners: Sequence[Mapping[str, Any]] = (),
        notary: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
        folder: Path | None = None,
        python: Path | None = None,
    ) -> None:
        super().__init__("proxy", folder, python)
        self.port, self.metrics_port, self.admin_port = free_port(), free_port(), free_port()
        web = {
            "name": "web",
            "protocol": "http",
            "direction": "inbound",
            "listen": f"127.0.0.1:{self.port}",
            "upstream": upstream,
            "notarization": "workload",
            **(listener or {}),
        }
        self.config = {
            "trustDomain": authority.trust_domain,
            "spiffeSocketPath": authority.address,
            "startTimeout": "60s",
            "drainTimeout": "5s",
            "metricsAddr": f"127.0.0.1:{self.metrics_port}",
            "adminAddr": f"127.0.0.1:{self.admin_port}",
            "notary": {
                "path": str(self.folder / "notary.db"),
                "pqIssuer": authority.pq_address,
                **(notary or {}),
            },
            "workload": {"namespace": "shop", "serviceAccount": "api"},
            "policy": {"default": "allow"},
            "listeners": [web, *listeners],
        }
        self.config["notary"] = {name: value for name, value in self.config["notary"].items() if value is not None}
        self.config.update(settings or {})

    @property
    def url(self) -> str:
        """Where the inbound listener is."""
        return f"https://127.0.0.1:{self.port}"
