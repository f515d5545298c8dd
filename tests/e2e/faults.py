"""What may end, be lost or be replaced on a cluster, and the load under which it happens."""

from __future__ import annotations

import json
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from svc.kube.times import from_time
from tests.e2e.platform import Platform
from tests.peers.waiting import eventually

LOAD = Path(__file__).with_name("load.py")


class Load:
    """A load from the pod ``client`` of a namespace on its ``web``; see ``load.py``."""

    def __init__(self, platform: Platform, namespace: str, domain: str) -> None:
        target = (f"https://web.{namespace}:8443/", f"spiffe://{domain}/ns/{namespace}/sa/web")
        arguments = ("python3", "-c", LOAD.read_text(), *target, "2", "0.03")
        self._process = platform.begin("-n", namespace, "exec", "client", "--", *arguments)
        self.last: dict[str, Any] = {"kept": 0, "new": 0, "errors": []}
        self.other: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                self.last = json.loads(line)
            else:
                self.other.append(line)

    @property
    def sent(self) -> int:
        """Successful requests so far."""
        return int(self.last["kept"] + self.last["new"])

    def goes_on(self, more: int = 100) -> None:
        """Wait until so many requests more have succeeded."""
        wanted = self.sent + more
        eventually(lambda: self.sent >= wanted or self.last["errors"] or self._ended(), what=f"{more} more requests")

    def _ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


class Faults(SynchronousTestCase):
    """
    The faults, for tests of a running platform.

    Attributes:
        platform: the cluster.
        domain: its trust domain.
    """

    platform: Platform
    domain: str

    def under_load(self, namespace: str, *events: Callable[[str], None]) -> None:
        """Let things happen under load until all SVIDs were renewed; no request may fail."""
        load = Load(self.platform, namespace, self.domain)
        try:
            load.goes_on()
            began = time.monotonic()
            for event in events:
                event(namespace)
                load.goes_on()
            certificates = self.certificates(namespace)
            while not load.last["errors"] and (time.monotonic() - began < 30 or load.sent < 2000):
                load.goes_on()
            eventually(lambda: not certificates & self.certificates(namespace), what="the renewal of each SVID")
            load.goes_on()
            self.assertEqual([], load.last["errors"][:5], load.other)
            self.assertGreater(load.last["new"], load.sent / 4)
        finally:
            load.stop()

    def agent_deleted(self, _namespace: str) -> None:
        """Delete the SPIRE agent's pod."""
        self.replaced("svc-system", "app=spire-agent", "daemonset/spire-agent")

    def server_killed(self, _namespace: str) -> None:
        """Kill the SPIRE server without a chance to end."""
        self.platform.kubectl(
            "-n", "svc-system", "delete", "pod", "-l", "app=spire-server", "--force", "--grace-period=0"
        )
        self.rolled_out("svc-system", "statefulset/spire-server")

    def driver_restarted(self, _namespace: str) -> None:
        """Delete svc-agent's pod: mounts stay."""
        self.replaced("svc-system", "app=svc-agent", "daemonset/svc-agent")

    def pod_deleted(self, namespace: str) -> None:
        """Delete one of the two pods of the application."""
        names = self.platform.kubectl("-n", namespace, "get", "pods", "-l", "app=web", "-o", "name").split()
        self.platform.kubectl("-n", namespace, "delete", names[0], "--wait")
        self.rolled_out(namespace, "deployment/web")

    def rolled(self, namespace: str) -> None:
        """Replace all pods of the application."""
        self.platform.kubectl("-n", namespace, "rollout", "restart", "deployment/web")
        self.rolled_out(namespace, "deployment/web")

    def replaced(self, namespace: str, label: str, workload: str) -> None:
        """Delete pods and wait for those that replace them."""
        self.platform.kubectl("-n", namespace, "delete", "pod", "-l", label, "--wait")
        self.rolled_out(namespace, workload)

    def rolled_out(self, namespace: str, workload: str) -> None:
        """Wait until a workload is as it should be."""
        self.platform.kubectl("-n", namespace, "rollout", "status", workload, "--timeout=170s")

    def certificates(self, namespace: str) -> set[str]:
        """The certificates that the proxies show."""
        found = set()
        for pod in self.platform.json("-n", namespace, "pods", "-l", "app=web")["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                continue
            address = (pod["status"]["podIP"], 8443)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with socket.create_connection(address, timeout=10) as plain, context.wrap_socket(plain) as secured:
                found.add(str(secured.getpeercert(binary_form=True)))
        return found

    def leader_killed(self, _namespace: str) -> None:
        """Kill the leading manager; another one leads."""
        lease = ("-n", "svc-system", "get", "lease", "svc-manager", "-o", "jsonpath={.spec.holderIdentity}")
        leader = self.platform.kubectl(*lease)
        pod = leader.split("_")[0]
        self.platform.kubectl("-n", "svc-system", "delete", "pod", pod, "--force", "--grace-period=0")
        eventually(lambda: self.platform.kubectl(*lease) not in ("", leader), what="another leader")
        self.rolled_out("svc-system", "deployment/svc-manager")

    def issuer_deleted(self, namespace: str) -> None:
        """Delete the post-quantum issuer twice; its roots are in a Secret. A pod that starts meanwhile waits for it."""
        self.replaced("svc-system", "app=svc-authority", "deployment/svc-authority")
        self.platform.kubectl("-n", "svc-system", "delete", "pod", "-l", "app=svc-authority", "--wait")
        before = self.platform.kubectl("-n", namespace, "get", "pods", "-l", "app=web", "-o", "name").split()
        self.platform.kubectl("-n", namespace, "delete", before[0], "--wait=false")
        self.rolled_out("svc-system", "deployment/svc-authority")
        self.rolled_out(namespace, "deployment/web")
        after = self.platform.kubectl("-n", namespace, "get", "pods", "-l", "app=web", "-o", "name").split()
        (new,) = set(after) - set(before)
        log = self.platform.kubectl("-n", namespace, "logs", new, "-c", "svc-proxy")
        records = [json.loads(each) for each in log.splitlines() if each.startswith("{")]
        leaf = next(each for each in records if each["event"]["name"] == "svc.pq.leaf.obtained")
        first, got = (datetime.fromisoformat(each["timestamp"]) for each in (records[0], leaf))
        (issuer,) = self.platform.json("-n", "svc-system", "pods", "-l", "app=svc-authority")["items"]
        (ready,) = (each for each in issuer["status"]["conditions"] if each["type"] == "Ready")
        waited = got - max(from_time(ready["lastTransitionTime"]), first)  # type: ignore[operator, type-var]
        # Five seconds, on a machine that does nothing else.
        self.assertLess(waited.total_seconds(), 15)

    def entries_lost(self, namespace: str) -> None:
        """Take all registration entries from the SPIRE server, and kill it."""
        with closing(sqlite3.connect(self.spire_data() / "datastore.sqlite3")) as connection:
            for table in ("registered_entries", "selectors", "dns_names"):
                connection.execute(f"DELETE FROM {table}")
            connection.commit()
        self.server_killed(namespace)

    def spire_data(self) -> Path:
        """The volume of the SPIRE server, which is a folder of this machine."""
        claim = self.platform.json("-n", "svc-system", "pvc", "data-spire-server-0")["spec"]["volumeName"]
        return Path(self.platform.json("pv", claim)["spec"]["local"]["path"])
