"""
A real ``twistd svc-authority`` in a temporary folder.

::

    authority = RunningAuthority("example.org", entries=[entry("/ns/pay/sa/api")])
    authority.start()
    ...                      # authority.address is unix:///…/agent.sock, authority.pq_address the PQ issuer's
    authority.stop()
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.peers.daemon import MonitoredDaemon
from tests.peers.waiting import free_port


def entry(path: str, **keys: object) -> dict[str, object]:
    """
    Make a registration entry for the user that runs the tests.

    Args:
        path: the path of the SPIFFE ID, or a whole SPIFFE ID.
        keys: further keys; ``uid=None`` leaves the selector out.

    Returns:
        The entry as the configuration has it; a bare path is completed by :class:`RunningAuthority`.
    """
    made: dict[str, object] = {"spiffeID": path, "uid": os.geteuid(), **keys}
    return {name: value for name, value in made.items() if value is not None}


class RunningAuthority(MonitoredDaemon):
    """
    One authority and its folder.

    Args:
        trust_domain: its name.
        entries: registration entries, see :func:`entry`; by default one that gives ``/workload`` to this user.
        ttl: the life of X.509-SVIDs where an entry does not say it.
        pq: whether it runs a PQ issuer at ``pq.sock``.
        settings: further top-level keys of the configuration, replacing what is built here.
        folder: of all its files; a short temporary folder by default, since socket paths are short.
    """

    def __init__(
        self,
        trust_domain: str = "example.org",
        *,
        entries: Sequence[Mapping[str, object]] | None = None,
        ttl: str = "1h",
        pq: bool = True,
        settings: Mapping[str, object] | None = None,
        folder: str | Path | None = None,
    ) -> None:
        super().__init__("authority", None if folder is None else Path(folder))
        self.trust_domain = trust_domain
        self.socket_path = self.folder / "agent.sock"
        self.pq_socket_path = self.folder / "pq.sock"
        self.bundle_path = self.folder / "bundle.json"
        self.pq_bundle_path = self.folder / "pq-bundle.json"
        self.archive_path = self.folder / "bundle-archive.json"
        self.admin_port = free_port()
        self.config = {
            "trustDomain": trust_domain,
            "adminAddr": f"127.0.0.1:{self.admin_port}",
            "socket": self.address,
            "bundleFile": str(self.bundle_path),
            "entries": [self._completed(each, ttl) for each in ([entry("/workload")] if entries is None else entries)],
        }
        if pq:
            self.config["pqIssuer"] = {"socket": self.pq_address}
        self.config.update(settings or {})

    @property
    def address(self) -> str:
        """The address of the Workload API."""
        return f"unix://{self.socket_path}"

    @property
    def pq_address(self) -> str:
        """The address of the PQ issuer."""
        return f"unix://{self.pq_socket_path}"

    def is_ready(self) -> bool:
        """Whether all of its sockets accept connections."""
        return all(_accepts(Path(path)) for path in self._sockets())

    def _completed(self, each: Mapping[str, object], ttl: str) -> dict[str, object]:
        spiffe_id = str(each["spiffeID"])
        whole = spiffe_id if spiffe_id.startswith("spiffe://") else f"spiffe://{self.trust_domain}{spiffe_id}"
        return {"ttl": ttl, **each, "spiffeID": whole}

    def _sockets(self) -> list[str]:
        pq = self.config.get("pqIssuer") or {}
        addresses = [self.config.get("socket"), pq.get("socket")]
        # Without any it cannot start: the wait then ends with the process.
        return [str(each).removeprefix("unix://") for each in addresses if each] or [str(self.socket_path)]


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
