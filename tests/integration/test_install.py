"""``svc install`` with a real registry, the real Helm and a real API server, as programs of their own."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from clusters.kubernetes import ToolMissing, folder_of
from images.__main__ import NAMES
from svc import __version__
from svc.install.release.package import PackageFile, verify_package
from tests.install.material import keys, signing_key
from tests.integration.registry_rig import Authority
from tests.integration.test_install_rollout import ready_server
from tests.integration.test_release_package import write_image
from tests.peers.folders import short_folder
from tests.peers.programs import find
from tests.peers.registry import PASSWORD, USERNAME, Interference, RunningRegistry
from tests.peers.waiting import TOP, Shared, eventually

NEEDS_TOOLS = ("kubernetes", "helm")
_EPOCH: Final = "1790000000"
_DOMAIN: Final = ("--set", "trustDomain=a.example")


class Site:
    """
    A vendor's release in a registry with TLS and passwords, and what a customer was given.

    Attributes:
        port: of the registry.
        between: what stands before it, with what the customer trusts.
    """

    def __init__(self, stack: ExitStack) -> None:
        self.folder = short_folder(stack, "svc-site-")
        images = self.folder / "images"
        images.mkdir()
        self.digests = {name: write_image(images, name) for name in NAMES}
        self.key, self.public = self.folder / "key.pem", self.folder / "key.pub"
        self.key.write_text(signing_key().render(None))
        self.public.write_text(signing_key().public.render())
        self.package = self.folder / "made.tar"
        words = ("--images", images, "--key", self.key, "--upgrade-from", "0.1.0", "--output", self.package)
        self.tool("package", *words)
        authority = Authority(self.folder)
        self.authority = authority.file
        registry = RunningRegistry(stack, password=True)
        self.between = Interference(stack, registry.port, certificate=authority.server)
        self.address = f"127.0.0.1:{self.between.port}/acme"
        words = (
            "--registry",
            f"127.0.0.1:{registry.port}/acme",
            "--insecure",
            "--username",
            USERNAME,
            "--password",
            "-",
        )
        self.pushed = self.tool("push", self.package, *words, "--release-key", self.public, "--latest")

    def tool(self, *words: str | Path) -> str:
        """Run ``bin/release``."""
        ran = subprocess.run(
            [sys.executable, "-m", "release", *map(str, words)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(TOP), "SOURCE_DATE_EPOCH": _EPOCH, "HOME": str(self.folder)},
            input=f"{PASSWORD}\n",
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise AssertionError(ran.stdout + ran.stderr)
        return ran.stdout


SITE: Final = Shared(Site)


class InstallCase(SynchronousTestCase):
    """Runs of the command."""

    def setUp(self) -> None:
        """Take the site; each test has a folder of its own."""
        try:
            helm = folder_of("helm") / "helm"
        except ToolMissing as missing:
            raise SkipTest(str(missing)) from missing
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = short_folder(self.stack, "svc-install-")
        self.site: Site = SITE.get()
        self.site.between.meddle = lambda _request: False
        self.site.between.requests.clear()
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "KUBE"))},
            "HOME": str(self.folder),
            "SVC_HELM": str(helm),
            "SVC_RELEASE_KEYS": str(self.site.public),
            "SVC_REGISTRY": self.site.address,
            "SVC_CUSTOMER_DEPLOYMENT_USERNAME": USERNAME,
            "SVC_CUSTOMER_DEPLOYMENT_PASSWORD": PASSWORD,
        }
        self.registry = ("--qhx-ca-file", str(self.site.authority))

    def start(self, *words: str | Path, **environ: str) -> subprocess.Popen[str]:
        """Start the command."""
        return subprocess.Popen(
            [sys.executable, "-m", "svc.cli.entry", "install", *map(str, words)],
            cwd=self.folder,
            env={**self.environ, "PYTHONPATH": str(TOP), **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def svc(self, *words: str | Path, status: int = 0, stdin: str = "", **environ: str) -> tuple[str, str]:
        """Run the command; returns both streams."""
        process = self.start(*words, **environ)
        stdout, stderr = process.communicate(stdin, timeout=120)
        self.assertEqual(status, process.returncode, stdout[-2000:] + stderr)
        return stdout, stderr


class DownloadTests(InstallCase):
    """``--download``."""

    def test_package_of_the_vendor(self) -> None:
        """What is downloaded is what the vendor made; a second run finds it complete, and asks for no content."""
        listed, _stderr = self.svc("--download", "--dry-run", *self.registry)
        for digest in self.site.digests.values():
            self.assertIn(digest, listed)
        self.assertEqual([], list(self.folder.iterdir()))
        stdout, stderr = self.svc("--download", *self.registry)
        self.assertIn(f"latest is {__version__}", stderr)
        made = self.folder / f"svc-release-{__version__}.tar"
        self.assertEqual(self.site.package.read_bytes(), made.read_bytes())
        checked = subprocess.run(
            ["sha256sum", "--check"],
            cwd=self.folder,
            input=stdout.splitlines()[-1],
            text=True,
            check=True,
            capture_output=True,
        )
        self.assertIn("OK", checked.stdout)
        self.assertEqual([made], list(self.folder.iterdir()))
        self.assertIn("complete already", self.svc("--download", "-V", __version__, *self.registry)[0])

    def test_killed_and_continued(self) -> None:
        """A download that was killed goes on with what it had: whole content is not asked for again."""
        partial, hanging, end = self.folder / "release.tar.partial", [], threading.Event()
        self.addCleanup(end.set)

        def hang(request: Any) -> bool:
            if partial.exists() and request.command == "GET" and "/svc-manager/blobs/" in request.path:
                hanging.append(request.path)
                end.wait(60)
            return False

        self.site.between.meddle = hang
        process = self.start("--download", "--file", "release.tar", *self.registry)
        eventually(lambda: len(self._whole(partial)) >= 2 and hanging)
        process.kill()
        process.communicate()
        whole = self._whole(partial)
        self.site.between.meddle = lambda _request: False
        end.set()
        self.site.between.requests.clear()
        self.svc("--download", "--file", "release.tar", *self.registry)
        self.assertEqual(self.site.package.read_bytes(), (self.folder / "release.tar").read_bytes())
        self.assertFalse(partial.exists())
        asked = {path.rpartition(":")[2] for method, path, _fields in self.site.between.requests if method == "GET"}
        layers = {each for each in whole if each not in self._small()}
        self.assertTrue(layers)
        self.assertEqual(set(), layers & asked)

    def _whole(self, partial: Path) -> set[str]:
        """The digests of what has been downloaded."""
        return {each.name for each in partial.rglob("*") if re.fullmatch("[0-9a-f]{64}", each.name)}

    def _small(self) -> set[str]:
        """The digests of configurations, which each run reads anew, to know what the release refers to."""
        with PackageFile(self.site.package) as file:
            contents = verify_package(file, keys()).contents
        return {each.blobs[0].content.digest.removeprefix("sha256:") for each in contents.manifests if each.blobs}

    def test_refusals(self) -> None:
        """Wrong passwords, keys, versions, files and places are refused with their reason, and nothing is left."""
        taken = self.folder / "taken.tar"
        taken.write_text("mine")
        other = self.folder / "other.pub"
        other.write_text(signing_key("another", "Another vendor").public.render())
        for reason, words, environ in (
            ("registry_unauthorized", (), {"SVC_CUSTOMER_DEPLOYMENT_PASSWORD": "wrong"}),
            ("release_keys_missing", (), {"SVC_RELEASE_KEYS": ""}),
            ("release_key_unknown", ("--release-key", other), {}),
            ("registry_content_missing", ("--version", "9.9.9"), {}),
            ("release_platform_unknown", ("--platform", "linux/riscv64"), {}),
            ("package_there", ("--file", "taken.tar"), {}),
            ("download_folder_missing", ("--file", "no/where.tar"), {}),
            ("no registry is named", (), {"SVC_REGISTRY": ""}),
        ):
            with self.subTest(reason=reason):
                _stdout, stderr = self.svc("--download", *words, *self.registry, status=1, **environ)
                self.assertIn(reason, stderr)
        self.assertIn("certificate", self.svc("--download", status=1)[1])
        self.assertEqual("mine", taken.read_text())
        self.assertEqual({taken, other}, set(self.folder.iterdir()))


class OnlineTests(InstallCase):
    """``--online``, with an API server on which nothing runs."""

    def setUp(self) -> None:
        """Start the API server."""
        super().setUp()
        self.server = ready_server(self.stack)
        self.cluster = ("-K", str(self.server.kubeconfig))

    def test_dry_run(self) -> None:
        """The password comes from standard input; manifests have the digests of the release, and nothing is made."""
        words = ("--online", "-n", "-U", USERNAME, "-P", "-", *self.registry, *self.cluster, *_DOMAIN)
        self.environ |= {"SVC_CUSTOMER_DEPLOYMENT_USERNAME": "", "SVC_CUSTOMER_DEPLOYMENT_PASSWORD": ""}
        stdout, stderr = self.svc(*words, stdin=f"{PASSWORD}\n")
        with PackageFile(self.site.package) as file:
            for each in verify_package(file, keys()).contents.images:
                name = each.image.repository
                self.assertIn(f"{self.site.address}/{name}@{each.index.blob.content.digest}", stdout)
        self.assertIn("make: Secret svc-system/svc-registry", stderr)
        self.assertNotIn(PASSWORD, stdout + stderr)
        self.assertNotIn("svc-system", self.server.kubectl("get", "namespaces", "-o", "name"))

    def test_failure_and_repetition(self) -> None:
        """An installation that is not ready in time says what is not; the same command begins again."""
        words = ("--online", "--timeout", "2s", *self.registry, *self.cluster, *_DOMAIN)
        for _ in range(2):
            _stdout, stderr = self.svc(*words, status=1)
            self.assertIn("helm_failed", stderr)
            self.assertIn("custom-resources", stderr)
        listed = json.loads(self.server.kubectl("get", "secrets", "-n", "svc-system", "-o", "json"))
        states = {each["metadata"]["labels"]["status"] for each in listed["items"] if "labels" in each["metadata"]}
        self.assertEqual({"failed"}, states)

    def test_interrupted(self) -> None:
        """An interrupt leaves no release that is pending; the same command begins again."""
        process = self.start("--online", *self.registry, *self.cluster, *_DOMAIN)
        eventually(lambda: "sh.helm.release" in self._secrets())
        process.send_signal(signal.SIGINT)
        _stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(1, process.returncode)
        self.assertIn("helm_interrupted", stderr)
        self.assertNotIn("pending", self._secrets())

    def _secrets(self) -> str:
        return self.server.kubectl("get", "secrets", "-A", "--show-labels")


class OfflineTests(InstallCase):
    """``--offline-install``, with a mirror."""

    def setUp(self) -> None:
        """Start a mirror."""
        super().setUp()
        self.behind = RunningRegistry(self.stack).port
        self.mirror = Interference(self.stack, self.behind)
        self.address = f"127.0.0.1:{self.mirror.port}/inner"
        self.words = ("--offline-install", "-f", self.site.package, "-r", self.address, "-I", *_DOMAIN)

    def test_dry_run_without_a_cluster(self) -> None:
        """With the variant named nothing is asked: neither cluster nor mirror."""
        stdout, stderr = self.svc(*self.words, "--dry-run", "--kubernetes-variant", "openshift")
        self.assertIn(f"{self.address}/svc/svc-manager@sha256:", stdout)
        self.assertIn("system:openshift:scc:privileged", stdout)
        self.assertIn("push: svc/svc-manager", stderr)
        self.assertEqual([], self.mirror.requests)

    def test_mirror_has_the_images(self) -> None:
        """Images and chart are in the mirror by tag and digest; the cluster gets them from there; again is no push."""
        server = ready_server(self.stack)
        words = (*self.words, "-K", str(server.kubeconfig), "--timeout", "2s")
        self.assertIn("helm_failed", self.svc(*words, status=1)[1])
        skopeo = find("skopeo")
        for name in NAMES:
            source = f"docker://127.0.0.1:{self.behind}/inner/svc/{name}:{__version__}"
            ran = subprocess.run(
                [skopeo, "inspect", "--raw", "--tls-verify=false", source], capture_output=True, text=True, check=False
            )
            self.assertEqual(0, ran.returncode, ran.stderr)
        pod = server.kubectl("get", "job,deployment", "-n", "svc-system", "-o", "jsonpath={..image}")
        self.assertIn(f"{self.address}/svc/svc-manager@sha256:", pod)
        self.mirror.requests.clear()
        self.svc(*words, status=1)
        self.assertEqual({"HEAD"}, {method for method, path, _fields in self.mirror.requests if path != "/v2/"})

    def test_changed_package(self) -> None:
        """A package with one other octet is refused before the mirror is asked."""
        octets = bytearray(self.site.package.read_bytes())
        octets[len(octets) // 2] ^= 1
        changed = self.folder / "changed.tar"
        changed.write_bytes(octets)
        words = ("--offline-install", "-f", changed, "-r", self.address, "-I", *_DOMAIN)
        _stdout, stderr = self.svc(*words, "-n", "--kubernetes-variant", "kind", status=1)
        self.assertRegex(stderr, r"package_|release_")
        self.assertEqual([], self.mirror.requests)

    def test_other_version(self) -> None:
        """A package of another release than --version names is refused."""
        self.assertIn("package_version_other", self.svc(*self.words, "-V", "9.9.9", status=1)[1])


class WizardTests(InstallCase):
    """Without a mode, on a terminal."""

    def test_questions(self) -> None:
        """The wizard asks again where an answer is none, prints the command without the password, and asks once."""
        master, slave = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "svc.cli.entry", "install"],
            cwd=self.folder,
            env={**self.environ, "PYTHONPATH": str(TOP), "SVC_REGISTRY": ""},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.addCleanup(os.close, master)
        seen = ""
        for question, answer in (
            ("Mode", "offline"),
            ("Package", str(self.site.package)),
            ("Mirror", "not a mirror"),
            ("Mirror", "mirror.example/svc"),
            ("User", "me"),
            ("Password", PASSWORD),
            ("upgraded?", "n"),
            ("Trust domain", "not one"),
            ("Trust domain", "b.example"),
            ("Run it?", "n"),
        ):
            text = self._read(master, question)
            seen += text
            os.write(master, f"{answer}\n".encode())
        self.assertEqual(1, process.wait(30))
        self.assertIn("--mirror-username me", seen)
        self.assertIn('--mirror-password "$MIRROR_PASSWORD"', seen)
        self.assertIn("--set trustDomain=b.example", seen)
        self.assertNotIn(PASSWORD, seen)

    def _read(self, master: int, until: str) -> str:
        text = ""
        while not re.search(rf"{re.escape(until)}[^\n]*: $", text):
            text += os.read(master, 4096).decode()
        return text
