"""``bin/cluster``: a real cluster of one node, its life and its network."""

from __future__ import annotations

import contextlib
import os
import signal
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from clusters.cluster import Cluster
from clusters.kubernetes import folder_of
from images.archive import Image, write_archive, write_layer
from tests.peers.folders import short_folder
from tests.peers.programs import run
from tests.peers.running_cluster import cluster_up
from tests.peers.waiting import TOP, Shared, eventually, runs

NAME = "test-cluster"
IMAGE = "svc.internal/dns:1"
#: CoreDNS as an application: a static program that answers HTTP at /health.
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
  volumes: [{name: config, configMap: {name: web}}]
  containers:
    - name: web
      image: svc.internal/dns:1
      imagePullPolicy: Never
      command: [/coredns, -conf, /etc/web/Corefile]
      volumeMounts: [{name: config, mountPath: /etc/web}]
      readinessProbe: {httpGet: {port: 8080, path: /health}, periodSeconds: 1}
      securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web}
data: {Corefile: ".:1053 {\\n health :8080\\n}\\n"}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
"""


def _make(stack: ExitStack) -> Cluster:
    cluster = cluster_up(NAME)
    stack.callback(cluster.down)
    return cluster


CLUSTER = Shared(_make)


def processes_in(namespace: str) -> list[str]:
    """The processes in a network namespace, as /proc names it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):
            if os.readlink(path) == namespace:
                found.append(path.parts[2])
    return found


class ClusterTests(SynchronousTestCase):
    """A cluster that runs."""

    def setUp(self) -> None:
        """Start it once."""
        self.cluster: Cluster = CLUSTER.get()

    def load(self) -> None:
        """Import an image with a static program."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            layer = write_layer(folder / "layer", [("coredns", folder_of("coredns") / "coredns")])
            write_archive(folder / "dns.tar", Image(IMAGE, [layer], {}))
            self.cluster.load(folder / "dns.tar")

    def test_pod(self) -> None:
        """A pod of a loaded image runs under the profile restricted; the host reaches it, and its Service."""
        self.load()
        self.cluster.kubectl("apply", "-f", "-", data=POD)
        self.cluster.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=60s")
        pod = self.cluster.kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
        service = self.cluster.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
        self.assertEqual(b"OK", self.get(f"http://{pod}:8080/health"))
        self.assertEqual(b"OK", eventually(lambda: self.get(f"http://{service}/health")))
        self.assertIn("reload", self.cluster.kubectl("exec", "web", "--", "/coredns", "-plugins"))

    def get(self, url: str) -> bytes:
        """Ask a server; nothing where it does not answer."""
        try:
            with urllib.request.urlopen(url, timeout=5.0) as answer:
                return bytes(answer.read())
        except OSError:
            return b""

    def test_command(self) -> None:
        """The command says what runs, passes flags on to kubectl, and starts no cluster twice."""
        command = str(TOP / "bin" / "cluster")
        ran = run([command, "--name", NAME, "status"])
        self.assertEqual(0, ran.returncode, ran.stderr)
        self.assertIn(b" Ready ", ran.stdout)
        self.assertEqual(f"{self.cluster.kubeconfig}\n".encode(), run([command, "--name", NAME, "kubeconfig"]).stdout)
        ran = run([command, "--name", NAME, "kubectl", "-n", "kube-system", "get", "nodes", "-o", "name"])
        self.assertEqual((b"node/node0\n", 0), (ran.stdout, ran.returncode))
        ran = run([command, "--name", NAME, "up"])
        runs_already = f"svc: the cluster {NAME} runs already\n     bin/cluster --name {NAME} down ends it\n"
        self.assertEqual((1, runs_already), (ran.returncode, ran.stderr.decode()))
        ran = run([command, "--name", NAME, "load", "/no/such.tar"])
        self.assertEqual(b"svc: /no/such.tar cannot be read: No such file or directory\n", ran.stderr[:60])

    def test_own_folders(self) -> None:
        """The node has a ``/run`` and a folder of the kubelet of its own, and kernel settings are not the host's."""
        before = Path("/proc/sys/vm/overcommit_memory").read_text()
        self.assertNotIn("svc-marker", os.listdir("/run"))
        self.cluster.node_exec("touch", "/run/svc-marker")
        self.assertNotIn("svc-marker", os.listdir("/run"))
        self.assertIn("pods", self.cluster.node_exec("ls", "/var/lib/kubelet").split())
        self.assertEqual(before, Path("/proc/sys/vm/overcommit_memory").read_text())

    def test_beside_another(self) -> None:
        """A second cluster has other addresses; what a killed one left is removed by the next of its name."""
        name = f"{NAME}-two"
        second = cluster_up(name)
        try:
            self.assertNotEqual(self.cluster.node_address, second.node_address)
            pid = second.pid
            namespace = os.readlink(f"/proc/{pid}/ns/net")
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: not runs(pid))
            eventually(lambda: not processes_in(namespace))
            self.assertTrue(second.folder.exists())
            again = cluster_up(name)
            self.assertEqual("node/node0\n", again.kubectl("get", "nodes", "-o", "name"))
        finally:
            second.down()
        self.assertFalse(second.folder.exists())
        self.assertEqual("node/node0\n", self.cluster.kubectl("get", "nodes", "-o", "name"))

    def test_api_only(self) -> None:
        """
        Without a node, namespaces, accounts and custom resources can be made, a pod stays pending, and nothing is left.
        """
        cluster = cluster_up(f"{NAME}-api", api_only=True)
        try:
            self.assertEqual("", cluster.kubectl("get", "nodes", "-o", "name"))
            self.assertEqual("", cluster.kubectl("get", "svclicensestatuses", "-o", "name"))
            cluster.kubectl("apply", "-f", "-", data=POD)
            self.assertEqual("Pending", cluster.kubectl("get", "pod", "web", "-o", "jsonpath={.status.phase}"))
            namespace = os.readlink(f"/proc/{cluster.pid}/ns/net")
        finally:
            cluster.down()
        self.assertFalse(cluster.folder.exists())
        self.assertEqual([], processes_in(namespace))
        self.assertNotIn(str(cluster.folder), Path("/proc/self/mountinfo").read_text())


class NoClusterTests(SynchronousTestCase):
    """What is said where none runs."""

    def test_none(self) -> None:
        """The status is 1, and a command names the one that starts it; ending none is no error."""
        if os.geteuid() != 0:
            raise SkipTest("a cluster needs root")
        command = [str(TOP / "bin" / "cluster"), "--name", "test-none"]
        ran = run([*command, "status"])
        self.assertEqual((1, b"no cluster test-none runs\n"), (ran.returncode, ran.stdout))
        ran = run([*command, "kubectl", "get", "pods"])
        said = b"svc: no cluster test-none runs\n     bin/cluster --name test-none up starts it\n"
        self.assertEqual((1, said), (ran.returncode, ran.stderr))
        self.assertEqual(0, run([*command, "down"]).returncode)

    def test_name(self) -> None:
        """A name that cannot be one of a folder is refused."""
        if os.geteuid() != 0:
            raise SkipTest("a cluster needs root")
        ran = run([TOP / "bin" / "cluster", "--name", "../x", "down"])
        self.assertEqual((1, b"svc: a cluster cannot be named '../x'"), (ran.returncode, ran.stderr.splitlines()[0]))
