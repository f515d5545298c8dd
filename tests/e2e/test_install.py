"""
``docs/install.md`` on a real cluster: the release of a vendor is installed, upgraded, and carried over an air gap.

One cluster for all tests, in the order of their names. Its node has no image: it pulls each from a registry with TLS
and passwords.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from clusters.kubernetes import folder_of
from svc import __version__
from tests.e2e.faults import Faults
from tests.e2e.platform import Platform
from tests.integration.registry_rig import Authority
from tests.peers.pages import Command, page, steps
from tests.peers.registry import PASSWORD, USERNAME, RunningRegistry
from tests.peers.waiting import TOP, Shared, eventually

NEEDS_TOOLS = ("helm",)
#: What a reader of the page runs.
(REGISTRY, CREDENTIALS, DRY_RUN, INSTALL, CREATE, LABEL, COPY_SECRET, DOWNLOAD, SUM, OFFLINE, UPGRADE, *REMOVAL) = (
    each.text for each in steps(page("install.md")) if isinstance(each, Command)
)
DOMAIN = "prod.example.org"
WEB = f"spiffe://{DOMAIN}/ns/shop/sa/web"
#: Nothing can be scheduled with it; the hook before an upgrade needs seconds.
IMPOSSIBLE = "--set-string manager.resources.requests.cpu=10k --timeout 40s"


def application(registry: str) -> str:
    """The application of the page about Kubernetes in the shop, with images of a registry; the client has a proxy."""
    text = (TOP / "docs" / "examples" / "kubernetes" / "injected.yaml").read_text()
    _namespace, *others, _guest = text.replace("mall", "shop").split("\n---\n")
    text = "\n---\n".join(others).replace("spiffe://example.org/", f"spiffe://{DOMAIN}/")
    text = text.replace('svc.internal/inject: "false"', 'svc.internal/ports: "8443:8080/http"')
    return text.replace("svc.internal/svc:0.2.0", f"{registry}/svc/svc:{__version__}")


class Story:
    """
    A cluster, the registry of a vendor with a release, and an empty mirror.

    Attributes:
        vendor: ends the registry of the vendor.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.platform = Platform(stack, "install", imported=False)
        self.cluster = self.platform.cluster
        self.folder = self.platform.shell.folder
        host = self.cluster.host_address
        authority = Authority(self.folder, host)
        self.vendor = stack.enter_context(ExitStack())
        registries = [
            RunningRegistry(each, host=host, certificate=authority.server, password=True)
            for each in (self.vendor, stack)
        ]
        for each in registries:
            self.cluster.allow_registry(f"{host}:{each.port}", authority.file)
        self.registry, self.mirror = (
            f"{host}:{each.port}/{prefix}" for each, prefix in zip(registries, ("acme", "svc"), strict=True)
        )
        (self.folder / "password").write_text(f"{PASSWORD}\n")
        self.replaced = {
            "registry.example.com/acme": self.registry,
            "mirror.example.org/svc": self.mirror,
            "_USERNAME=acme": f"_USERNAME={USERNAME}",
            "_PASSWORD=...": f"_PASSWORD='{PASSWORD}'",
            "-u pusher": f"-u {USERNAME}",
        }
        path = f"{folder_of('helm')}:{Path(sys.executable).parent}"
        # Both registries have certificates of an authority that this machine trusts.
        self.run(f"export PATH={path}:$PATH SSL_CERT_FILE={authority.file}")
        self.publish()

    def publish(self) -> None:
        """Make a release of the images, and push it."""
        at = self.folder
        self.run(f"bin/license-sign new-key --issuer Vendor --passphrase-file {at}/password --output {at}/vendor.pem")
        self.run(
            f"bin/release package --images {self.platform.images} --key {at}/vendor.pem"
            f" --passphrase-file {at}/password --upgrade-from 0.1.0 --output {at}/made.tar"
        )
        self.run(
            f"bin/release push {at}/made.tar --registry {self.registry} --release-key {at}/vendor.pem.pub --latest"
            f" --username {USERNAME} --password - <{at}/password"
        )
        self.run(f"mv {at}/vendor.pem.pub {at}/vendor.pub")

    def words(self, command: str) -> str:
        """A command of the page, with the registries that are there."""
        for name, value in self.replaced.items():
            command = command.replace(name, value)
        return command

    def run(self, command: str, status: int = 0) -> str:
        """Run a command; gives what it printed."""
        found, output = self.platform.shell.run(self.words(command))
        if found != status:
            raise AssertionError(f"{command}: status {found}: {output}\n{self.state()}")
        return output

    def begin(self, command: str) -> subprocess.Popen[str]:
        """Start a command in the environment of the shell, with both streams in one pipe."""
        environ = dict(
            line.partition("=")[::2] for line in self.run("env -0 | tr '\\n\\0' ' \\n'").splitlines() if "=" in line
        )
        return subprocess.Popen(
            self.words(command).split(),
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def deploy_application(self, registry: str) -> None:
        """Enable the shop as the page says, and start two pods of the application and a client."""
        for command in (CREATE, LABEL, COPY_SECRET):
            self.run(command)
        kubectl = self.platform.kubectl
        kubectl("apply", "-f", "-", data=application(registry))
        kubectl("-n", "shop", "rollout", "status", "deployment/web", "--timeout=120s")
        kubectl("-n", "shop", "wait", "pod/client", "--for=condition=Ready", "--timeout=60s")

    def release(self) -> Any:
        """What Helm says of the newest revision."""
        return json.loads(self.run("helm status svc-core --namespace svc-system -o json"))

    def revisions(self) -> dict[str, str]:
        """The status of each revision."""
        found = self.platform.json("-n", "svc-system", "secrets", "-l", "owner=helm")["items"]
        labels = [each["metadata"]["labels"] for each in found]
        return {each["version"]: each["status"] for each in labels}

    def images(self, namespace: str) -> set[str]:
        """The images of all pods of a namespace."""
        containers = ("-n", namespace, "get", "pods", "-o", "jsonpath={.items[*].spec..image}")
        return set(self.platform.kubectl(*containers).split())

    def state(self) -> str:
        """What an engineer would look at."""
        pods = self.platform.kubectl("get", "pods", "-A", "-o", "wide")
        return pods + self.platform.kubectl("get", "events", "-A", "--sort-by=.lastTimestamp")[-3000:]


STORY = Shared(Story)


class InstallTests(Faults):
    """From an empty cluster to an empty cluster, twice."""

    def setUp(self) -> None:
        """Make the release once."""
        self.story: Story = STORY.get()
        self.platform = self.story.platform
        self.domain = DOMAIN

    def test_1_installed(self) -> None:
        """A dry run changes nothing; then all images come from the registry by digest, with the pull Secret."""
        for command in (REGISTRY, CREDENTIALS, DRY_RUN):
            self.story.run(command)
        manifests = (self.story.folder / "manifests.yaml").read_text()
        self.assertIn(f'image: "{self.story.registry}/svc/svc@sha256:', manifests)
        self.assertNotIn("svc-system", self.platform.kubectl("get", "namespaces"))
        said = self.story.run(INSTALL)
        self.assertIn(f"svc-core installed: {__version__}", said)
        self.assertIn(COPY_SECRET.replace("shop", "NAME").replace("\\\n    ", ""), said)
        self.assert_images("svc-system", self.story.registry)

    def assert_images(self, namespace: str, registry: str) -> None:
        """All images of the platform are of a registry."""
        found = self.story.images(namespace)
        self.assertEqual([], [each for each in found if not each.startswith(f"{registry}/svc/")])
        self.assertTrue([each for each in found if "@sha256:" in each], found)

    def test_2_verified(self) -> None:
        """Two pods with injected proxies: one verifies statement and receipt of the other."""
        self.story.deploy_application(self.story.registry)
        self.assert_verified()

    def assert_verified(self) -> None:
        """A request of the client is verified, and its receipt."""
        command = f"svc curl -n signRequest --print-receipt --expect-id {WEB} https://web.shop:8443/ 2>&1"
        said = self.platform.kubectl("-n", "shop", "exec", "client", "--", "sh", "-c", command)
        self.assertRegex(said, r"hello from web-[a-z0-9-]+\n")
        self.assertIn("Signatures: ES256 valid, ML-DSA-65 valid", said)
        pods = self.platform.json("-n", "shop", "pods")["items"]
        injected = {each["metadata"]["labels"].get("svc.internal/proxy-injected") for each in pods}
        self.assertEqual(({"true"}, 3), (injected, len(pods)))

    def test_3_no_failed_request(self) -> None:
        """No request fails while an upgrade replaces each pod of the platform, and those of the application follow."""
        self.under_load("shop", self.upgraded, self.rolled)

    def upgraded(self, _namespace: str) -> None:
        """Upgrade with values that change each pod."""
        before = self.pods()
        parts = ("manager", "agent", "authority", "spire.server", "spire.agent", "proxy")
        changed = ",".join(f"{part}.resources.requests.memory=100Mi" for part in parts)
        said = self.story.run(f"{UPGRADE} --set {changed} --set spire.x509SvidTtl=45s")
        self.assertIn(f"svc-core upgraded to {__version__}", said)
        eventually(lambda: not before & self.pods(), what="the end of each pod that there was")

    def pods(self) -> set[str]:
        """The identifiers of the pods of the platform; those of hooks that have failed stay for their logs."""
        found = self.platform.json("-n", "svc-system", "pods", "-l", "!job-name")["items"]
        return {each["metadata"]["uid"] for each in found}

    def test_4_failed_upgrade(self) -> None:
        """An upgrade that is not ready in time says what was not, and is rolled back."""
        said = self.story.run(f"{UPGRADE} {IMPOSSIBLE}", status=1)
        self.assertIn("helm_failed", said)
        self.assertRegex(said, r"pod svc-manager-[a-z0-9-]+ is not ready: .*Insufficient cpu")
        self.assertIn("deadline exceeded", said)
        self.assertIn("rolled back", said)
        # The other parts were ready.
        self.assertEqual({"license", "pod"}, set(re.findall(r"^     ([a-z-]+)(?:: | svc-)", said, re.MULTILINE)), said)
        self.assert_as_before()

    def assert_as_before(self) -> None:
        """The values are those of the upgrade that succeeded, nothing is pending, and requests are verified."""
        self.assertEqual("deployed", self.story.release()["info"]["status"])
        values = json.loads(self.story.run("helm get values svc-core --namespace svc-system -o json"))
        self.assertEqual({"requests": {"memory": "100Mi"}}, values["manager"]["resources"])
        self.assertEqual([], [each for each in self.story.revisions().values() if each.startswith("pending")])
        self.rolled_out("svc-system", "deployment/svc-manager")
        self.assert_verified()

    def test_5_interrupted(self) -> None:
        """Ctrl-C during an upgrade leaves nothing pending: what was there before is there again."""
        process = self.story.begin(f"{UPGRADE} {IMPOSSIBLE.replace('40s', '120s')}")
        eventually(lambda: "pending-upgrade" in self.story.revisions().values() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        said, _nothing = process.communicate(timeout=120)
        self.assertEqual(1, process.returncode, said)
        self.assertIn("helm_interrupted", said)
        self.assert_as_before()

    def test_6_uninstalled(self) -> None:
        """The commands of the page remove it."""
        self.story.run(DOWNLOAD)
        self.assertIn("svc-release.tar", self.story.run(SUM))
        self.platform.kubectl("-n", "shop", "delete", "pod", "client", "--wait")
        disable, restart, *uninstall = REMOVAL
        # Without the proxy the application has to bring the name of the Secret itself.
        account = '{"imagePullSecrets": [{"name": "svc-registry"}]}'
        self.platform.kubectl("-n", "shop", "patch", "serviceaccount", "web", "-p", account)
        for command in (disable, restart):
            self.story.run(command)
        self.platform.kubectl("-n", "shop", "wait", "pod", "--for=delete", "-l", "svc.internal/proxy-injected=true")
        for command in uninstall:
            self.story.run(command)
        eventually(lambda: not self.pods(), what="the end of the pods")
        self.assertEqual({}, self.story.revisions())
        self.platform.kubectl("delete", "namespace", "shop", "--wait")

    def test_7_offline(self) -> None:
        """From the file alone, with a mirror, and no registry of the vendor any more."""
        self.story.vendor.close()
        self.story.run("unset SVC_REGISTRY SVC_CUSTOMER_DEPLOYMENT_USERNAME SVC_CUSTOMER_DEPLOYMENT_PASSWORD")
        said = self.story.run(OFFLINE)
        self.assertIn(f"svc-core installed: {__version__}", said)
        self.assert_images("svc-system", self.story.mirror)
        self.story.deploy_application(self.story.mirror)
        self.assert_images("shop", self.story.mirror)
        self.assert_verified()
