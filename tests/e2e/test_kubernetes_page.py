"""
``docs/kubernetes.md`` on a real cluster: what the page promises, and what happens under load when its parts end.

One cluster for all tests, in the order of their names; the last one removes what the page has made.
"""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.e2e.platform import Platform
from tests.peers.pages import Command, page, steps
from tests.peers.waiting import TOP, Shared, eventually

WEB = "spiffe://example.org/ns/shop/sa/web"
URL = "https://web.shop:8443/"
LOAD = Path(__file__).with_name("load.py")


class Story:
    """The page, run to the request of the guest."""

    def __init__(self, stack: ExitStack) -> None:
        self.platform = Platform(stack, "e2e")
        commands = [each.text for each in steps(page("kubernetes.md")) if isinstance(each, Command)]
        # The cluster is there already, under a name of its own.
        self.left = commands[commands.index("export KUBECONFIG=$(bin/cluster kubeconfig)") + 1 :]
        self.outputs: dict[str, str] = {}
        stack.callback(lambda: (TOP / "keys.json").unlink(missing_ok=True))
        began = time.monotonic()
        self.run_until("kubectl delete namespace shop --wait")
        self.seconds = time.monotonic() - began

    def run_until(self, last: str | None) -> None:
        """Run the commands that are left, up to one that is not run."""
        while self.left and self.left[0] != last:
            command = self.left.pop(0)
            status, output = self.platform.shell.run(command)
            self.outputs[command] = output
            if status and "svc curl -i" not in command:
                raise AssertionError(f"{command}: status {status}: {output}{self.state()}")

    def output(self, words: str) -> str:
        """What the only command with these words printed."""
        [found] = [output for command, output in self.outputs.items() if words in command]
        return found

    def state(self) -> str:
        """What an engineer would look at."""
        pods = self.platform.cluster.kubectl("get", "pods", "-A", "-o", "wide")
        return pods + self.platform.cluster.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")[-3000:]


STORY = Shared(Story)


class Load:
    """A load from the pod ``client``; see ``load.py``."""

    def __init__(self, platform: Platform, workers: int, pause: float) -> None:
        program = LOAD.read_text()
        arguments = ("python3", "-c", program, URL, WEB, str(workers), str(pause))
        self._process = platform.begin("-n", "shop", "exec", "client", "--", *arguments)
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


class KubernetesPageTests(SynchronousTestCase):
    """The page, and what happens afterwards."""

    def setUp(self) -> None:
        """Follow the page once."""
        self.story: Story = STORY.get()
        self.platform = self.story.platform

    def test_1_verified(self) -> None:
        """The client verified statement and receipt of the pod that answered, under a post-quantum chain."""
        said = self.story.output("--print-receipt")
        self.assertRegex(said, r"hello from web-[a-z0-9-]+\n")
        self.assertIn("Bound To Connection: yes", said)
        self.assertIn("Compared With Own Exchange: yes", said)
        self.assertEqual(2, said.count("Signatures: ES256 valid, ML-DSA-65 valid"))
        self.assertIn("Service Account: web (self-asserted)", said)

    def test_2_refused(self) -> None:
        """The guest got 403, and the log of the proxy that refused it names identity and rule."""
        self.assertIn("HTTP/1.1 403 Forbidden", self.story.output("exec guest"))
        [record] = [json.loads(line) for line in self.story.output("request.denied").splitlines() if line]
        self.assertEqual("spiffe://example.org/ns/shop/sa/guest", record["peer_spiffe_id"])
        self.assertEqual("default-deny", record["attributes"]["rule"])

    def test_3_restricted(self) -> None:
        """Pods of the application run under the profile restricted; a volume that is writable is refused by name."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "writer", "namespace": "shop"},
            "spec": self.platform.json("-n", "shop", "pod", "guest")["spec"],
        }
        pod["spec"]["volumes"] = [{"name": "workload-api", "csi": {"driver": "csi.svc.internal"}}]
        for name in ("nodeName", "tolerations"):
            pod["spec"].pop(name)
        self.platform.kubectl("apply", "-f", "-", data=json.dumps(pod))
        try:
            eventually(lambda: "it is not readOnly" in self.platform.kubectl("-n", "shop", "get", "events"))
        finally:
            self.platform.kubectl("-n", "shop", "delete", "pod", "writer", "--now")

    def test_4_no_failed_request(self) -> None:
        """
        No request fails while SVIDs of half a minute are renewed, agents and servers end, and pods are replaced.

        Requests are not repeated; half of them have a new connection each.
        """
        self.shorten_svids()
        load = Load(self.platform, workers=2, pause=0.03)
        try:
            load.goes_on()
            began = time.monotonic()
            for event in (self.agent_deleted, self.server_killed, self.driver_restarted, self.pod_deleted, self.rolled):
                event()
                load.goes_on()
            certificates = self.certificates()
            while not load.last["errors"] and (time.monotonic() - began < 30 or load.sent < 2000):
                load.goes_on()
            eventually(lambda: not certificates & self.certificates(), what="the renewal of each SVID")
            load.goes_on()
            self.assertEqual([], load.last["errors"][:5], load.other)
            self.assertGreater(load.last["new"], load.sent / 4)
        finally:
            load.stop()

    def shorten_svids(self) -> None:
        """Let SVIDs of the shop live half a minute; the registrar changes the entries."""
        config = self.platform.json("-n", "svc-system", "configmap", "spire-server")
        text = config["data"]["registrar.yaml"]
        config["data"]["registrar.yaml"] = re.sub(r"(/ns/shop/sa/\w+, )(parentID)", r"\1x509SvidTtl: 30s, \2", text)
        self.assertNotEqual(text, config["data"]["registrar.yaml"])
        self.platform.kubectl("apply", "-f", "-", data=json.dumps(config))
        self.replaced("svc-system", "app=spire-server", "statefulset/spire-server")

    def agent_deleted(self) -> None:
        """Delete the SPIRE agent's pod."""
        self.replaced("svc-system", "app=spire-agent", "daemonset/spire-agent")

    def server_killed(self) -> None:
        """Kill the SPIRE server without a chance to end."""
        self.platform.kubectl(
            "-n", "svc-system", "delete", "pod", "-l", "app=spire-server", "--force", "--grace-period=0"
        )
        self.rolled_out("svc-system", "statefulset/spire-server")

    def driver_restarted(self) -> None:
        """Delete svc-agent's pod: mounts stay."""
        self.replaced("svc-system", "app=svc-agent", "daemonset/svc-agent")

    def pod_deleted(self) -> None:
        """Delete one of the two pods of the application."""
        names = self.platform.kubectl("-n", "shop", "get", "pods", "-l", "app=web", "-o", "name").split()
        self.platform.kubectl("-n", "shop", "delete", names[0], "--wait")
        self.rolled_out("shop", "deployment/web")

    def rolled(self) -> None:
        """Replace all pods of the application."""
        self.platform.kubectl("-n", "shop", "rollout", "restart", "deployment/web")
        self.rolled_out("shop", "deployment/web")

    def replaced(self, namespace: str, label: str, workload: str) -> None:
        """Delete pods and wait for those that replace them."""
        self.platform.kubectl("-n", namespace, "delete", "pod", "-l", label, "--wait")
        self.rolled_out(namespace, workload)

    def rolled_out(self, namespace: str, workload: str) -> None:
        """Wait until a workload is as it should be."""
        self.platform.kubectl("-n", namespace, "rollout", "status", workload, "--timeout=170s")

    def certificates(self) -> set[str]:
        """The certificates that the proxies show."""
        found = set()
        for pod in self.platform.json("-n", "shop", "pods", "-l", "app=web")["items"]:
            if "deletionTimestamp" in pod["metadata"]:
                continue
            address = (pod["status"]["podIP"], 8443)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            with socket.create_connection(address, timeout=10) as plain, context.wrap_socket(plain) as secured:
                found.add(str(secured.getpeercert(binary_form=True)))
        return found

    def test_5_removed(self) -> None:
        """After the last section of the page nothing of it is left on the cluster or on the node."""
        self.story.run_until(None)
        kinds = "csidrivers,clusterroles,clusterrolebindings,namespaces"
        left = [
            each
            for each in self.platform.kubectl("get", kinds, "-o", "name").split()
            if "svc" in each or "shop" in each
        ]
        self.assertEqual([], left)
        mounts = self.platform.cluster.node_exec("cat", "/proc/mounts")
        self.assertNotIn("kubernetes.io~csi", mounts)
        registry = self.platform.cluster.node_exec("ls", "/var/lib/kubelet/plugins_registry")
        self.assertEqual("", registry.strip())
        self.assertFalse(os.path.exists(TOP / "keys.json"))
