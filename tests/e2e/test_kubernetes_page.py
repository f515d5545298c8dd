"""
``docs/kubernetes.md`` on a real cluster: what the page promises, and what happens under load when its parts end.

One cluster for all tests, in the order of their names; the last one removes what the page has made.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path

from svc import __version__
from svc.kube.times import from_time
from tests.e2e.faults import Faults
from tests.e2e.platform import Platform
from tests.e2e.wrapped import Wrapped
from tests.peers.pages import Command, page, steps
from tests.peers.waiting import Shared, eventually

BURST = Path(__file__).with_name("burst.py")

#: It prints a line and serves its ``/etc``.
POD = f"""
apiVersion: v1
kind: Pod
metadata: {{name: alpha}}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: svc.internal/svc:{__version__}
      workingDir: /etc
      command: [sh, -c, "python3 -m http.server 8000 >/dev/null 2>&1 & echo begun; wait"]
      readinessProbe: {{tcpSocket: {{port: 8000}}, periodSeconds: 1}}
"""


class Story:
    """The page, run to the request of the guest."""

    def __init__(self, stack: ExitStack) -> None:
        self.platform = Platform(stack, "e2e")
        commands = [each.text for each in steps(page("kubernetes.md")) if isinstance(each, Command)]
        # The cluster is there already, under a name of its own.
        self.left = commands[commands.index("export KUBECONFIG=$(bin/cluster kubeconfig)") + 1 :]
        self.outputs: dict[str, str] = {}
        began = time.monotonic()
        self.run_until("kubectl delete namespace shop mall --wait")
        self.seconds = time.monotonic() - began

    def run_until(self, last: str | None) -> None:
        """Run the commands that are left, up to one that is not run."""
        while self.left and self.left[0] != last:
            command = self.left.pop(0)
            status, output = self.platform.shell.run(command)
            self.outputs[command] = output
            if status and "svc curl -i" not in command:
                raise AssertionError(f"{command}: status {status}: {output}{self.state()}")

    def output(self, *words: str) -> str:
        """What the only command with these words printed."""
        [found] = [output for command, output in self.outputs.items() if all(each in command for each in words)]
        return found

    def state(self) -> str:
        """What an engineer would look at."""
        pods = self.platform.cluster.kubectl("get", "pods", "-A", "-o", "wide")
        return pods + self.platform.cluster.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")[-3000:]


STORY = Shared(Story)


class KubernetesPageTests(Faults):
    """The page, and what happens afterwards."""

    def setUp(self) -> None:
        """Follow the page once."""
        self.story: Story = STORY.get()
        self.platform = self.story.platform
        self.domain = "example.org"

    def test_1_verified(self) -> None:
        """The client verified statement and receipt of the pod that answered, under a post-quantum chain."""
        self.assert_verified(self.story.output("--print-receipt", "shop"))

    def assert_verified(self, said: str) -> None:
        """A page, a statement and a receipt of the pod that answered."""
        self.assertRegex(said, r"hello from web-[a-z0-9-]+\n")
        self.assertIn("Bound To Connection: yes", said)
        self.assertIn("Compared With Own Exchange: yes", said)
        self.assertEqual(2, said.count("Signatures: ES256 valid, ML-DSA-65 valid"))
        self.assertIn("Service Account: web (self-asserted)", said)

    def test_2_refused(self) -> None:
        """The guest got 403, and the log of the proxy that refused it names identity and rule."""
        self.assertIn("HTTP/1.1 403 Forbidden", self.story.output("shop exec guest"))
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

    def test_3_wrapper(self) -> None:
        """exec, logs, cp and port-forward of a running pod: as kubectl in its compartment, guarded in another one."""
        with ExitStack() as stack:
            wrapped = Wrapped(stack, self.platform)
            self.assertEqual("pod/alpha created\n", wrapped.run("apply -f -", data=POD).stdout)
            stack.callback(wrapped.run, "delete pod alpha --force --kubectl-force --ignore-not-found")
            self.platform.kubectl("wait", "pod/alpha", "--for=condition=Ready", "--timeout=60s")
            for line, status, output in (
                ("exec alpha -- cat /etc/hostname", 0, "alpha\n"),
                ("exec -i alpha -- cat", 0, "typed"),
                ("exec alpha -- false", 1, ""),
                ("logs alpha --tail=1", 0, "begun\n"),
                ("cp alpha:hostname own", 0, ""),
            ):
                ran = wrapped.run(line.replace(" own", f" {wrapped.home}/own"), data="typed")
                self.assertEqual((status, output), (ran.returncode, ran.stdout), ran.stderr)
                self.assertNotIn("svc:", ran.stderr)
            self.assertEqual("alpha\n", wrapped.read("own"))
            self.assertEqual("alpha\n", wrapped.forwarded("alpha", 8000))
            self.assertEqual(0, wrapped.run("context use bravo").returncode)
            compared = 'pod "alpha" is in compartment DE-S-ALPHA, current compartment is US-TS-BRAVO'
            ran = wrapped.run("exec alpha -- cat /etc/hostname")
            self.assertEqual((1, ""), (ran.returncode, ran.stdout))
            self.assertIn(compared, ran.stderr)
            for line, output in (
                ("exec --force alpha -- cat /etc/hostname", "alpha\n"),
                ("logs alpha --tail=1", "begun\n"),
                (f"cp alpha:hostname {wrapped.home}/other", ""),
            ):
                ran = wrapped.run(line)
                self.assertEqual((0, output), (ran.returncode, ran.stdout), ran.stderr)
                self.assertIn(compared, ran.stderr)
            self.assertEqual("alpha\n", wrapped.read("other"))

    def test_3_burst(self) -> None:
        """Of 128 requests for receipts at once, three times, each is answered with its receipt."""
        target = ("https://web.shop:8443/", "spiffe://example.org/ns/shop/sa/web")
        words = ("python3", "-c", BURST.read_text(), "unix:///spiffe-workload-api/agent.sock", *target, "128", "3")
        output = self.platform.kubectl("-n", "shop", "exec", "client", "--", *words)
        self.assertEqual([{"200": 128}] * 3, [json.loads(line) for line in output.splitlines()])

    def test_4_no_failed_request(self) -> None:
        """
        No request fails while SVIDs of half a minute are renewed, agents and servers end, and pods are replaced.

        Requests are not repeated; half of them have a new connection each.
        """
        self.shorten_svids()
        self.under_load(
            "shop", self.agent_deleted, self.server_killed, self.driver_restarted, self.pod_deleted, self.rolled
        )

    def shorten_svids(self) -> None:
        """Let SVIDs of the shop live half a minute; the registrar changes the entries."""
        config = self.platform.json("-n", "svc-system", "configmap", "spire-server")
        text = config["data"]["registrar.yaml"]
        config["data"]["registrar.yaml"] = re.sub(r"(/ns/shop/sa/\w+, )(parentID)", r"\1x509SvidTtl: 30s, \2", text)
        self.assertNotEqual(text, config["data"]["registrar.yaml"])
        self.platform.kubectl("apply", "-f", "-", data=json.dumps(config))
        self.replaced("svc-system", "app=spire-server", "statefulset/spire-server")

    def test_5_injected(self) -> None:
        """An ordinary Deployment is verified and receipted, and refuses who has no permission; a Job ends."""
        self.assert_verified(self.story.output("--print-receipt", "mall"))
        self.assertIn("HTTP/1.1 403 Forbidden", self.story.output("mall exec guest"))
        for pod in self.platform.json("-n", "mall", "pods", "-l", "app=web")["items"]:
            times = {each["type"]: from_time(each["lastTransitionTime"]) for each in pod["status"]["conditions"]}
            # Ten seconds, on a machine that does nothing else.
            self.assertLess((times["Ready"] - from_time(pod["metadata"]["creationTimestamp"])).total_seconds(), 30)  # type: ignore[operator]
        self.run_job("before")

    def run_job(self, name: str) -> None:
        """Run a Job in the namespace with the webhook."""
        template = self.platform.json("-n", "mall", "deployment", "web")["spec"]["template"]
        template["spec"]["restartPolicy"] = "Never"
        (container,) = template["spec"]["containers"]
        container |= {"args": ["print('done')"]}
        container.pop("startupProbe")
        template["metadata"].pop("labels")
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "mall"}}
        self.platform.kubectl("apply", "-f", "-", data=json.dumps({**job, "spec": {"template": template}}))
        self.platform.kubectl("-n", "mall", "wait", "--for=condition=Complete", f"job/{name}", "--timeout=60s")

    def test_6_managers_away(self) -> None:
        """Without managers pods of the namespace wait with an event that says why, and others start."""
        self.platform.kubectl("-n", "svc-system", "scale", "deployment/svc-manager", "--replicas=0")
        self.platform.kubectl(
            "-n", "svc-system", "wait", "pod", "-l", "app=svc-manager", "--for=delete", "--timeout=60s"
        )
        self.platform.kubectl("-n", "mall", "rollout", "restart", "deployment/web")
        events = ("-n", "mall", "get", "events", "--field-selector=reason=FailedCreate", "-o", "jsonpath={..message}")
        eventually(lambda: "failed calling webhook" in self.platform.kubectl(*events))
        self.platform.kubectl("-n", "shop", "rollout", "restart", "deployment/web")
        self.rolled_out("shop", "deployment/web")
        self.platform.kubectl("-n", "svc-system", "scale", "deployment/svc-manager", "--replicas=2")
        self.rolled_out("svc-system", "deployment/svc-manager")
        self.rolled_out("mall", "deployment/web")

    def test_7_removed(self) -> None:
        """After the last section of the page nothing of it is left on the cluster or on the node."""
        self.story.run_until(None)
        kinds = "csidrivers,clusterroles,clusterrolebindings,namespaces"
        left = [
            each
            for each in self.platform.kubectl("get", kinds, "-o", "name").split()
            if "svc" in each or "shop" in each or "mall" in each
        ]
        self.assertEqual([], left)
        mounts = self.platform.cluster.node_exec("cat", "/proc/mounts")
        self.assertNotIn("kubernetes.io~csi", mounts)
        registry = self.platform.cluster.node_exec("ls", "/var/lib/kubelet/plugins_registry")
        self.assertEqual("", registry.strip())
        self.assertFalse((self.platform.shell.folder / "keys.json").exists())
