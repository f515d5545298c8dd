"""``bin/release package``: what it makes of images and chart, as other programs read it, and what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from clusters.kubernetes import ToolMissing, folder_of
from images.__main__ import NAMES
from images.archive import Content, Image, write_archive, write_layer
from svc import __version__
from svc.install.release.layout import INDEX_FILE
from svc.install.release.manifests import read_all, read_contents
from svc.install.release.package import PackageFile, VerifiedPackage, verify_package, write_package
from svc.naming import DOMAIN
from tests.chart.rendering import VALUES
from tests.install.material import PLATFORMS, keys, signing_key, write_small_release
from tests.peers.folders import short_folder
from tests.peers.programs import find
from tests.peers.waiting import TOP, answers, end_process, eventually, free_port

NEEDS_TOOLS = ("containerd", "helm")
_EPOCH: Final = "1790000000"
_VERSION: Final = "org.opencontainers.image.version"


def write_image(folder: Path, name: str, version: str = __version__) -> str:
    """Write what ``bin/image`` writes, of an image with one small layer; gives the digest of the image."""
    layer = write_layer(folder / "layer.tar.gz", [("name", Content(name.encode()))])
    image = Image(f"{DOMAIN}/{name}:{version}", [layer], {"Cmd": [name]}, annotations={_VERSION: version})
    (folder / f"{name}.spdx.json").write_text(json.dumps({"name": name}))
    return write_archive(folder / f"{name}.tar", image)


def tool(name: str) -> Path:
    """The folder of a tool of ``bin/tools``."""
    try:
        return folder_of(name)
    except ToolMissing as missing:
        raise SkipTest(str(missing)) from missing


class ReleasePackageTests(SynchronousTestCase):
    """A package of small images and of the chart of this checkout."""

    def setUp(self) -> None:
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = short_folder(self.stack)
        self.images = self.folder / "images"
        self.images.mkdir()
        self.digests = {name: write_image(self.images, name) for name in NAMES}
        (self.folder / "key.pem").write_text(signing_key().render(None))
        self.path = self.folder / "release.tar"

    def package(self, *arguments: str, status: int = 0) -> str:
        """Run it; gives what it said."""
        words = ("package", "--images", str(self.images), "--key", str(self.folder / "key.pem"), *arguments)
        if "--upgrade-from" not in words:
            words = (*words, "--upgrade-from", "0.1.0")
        ran = subprocess.run(
            [sys.executable, "-m", "release", *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(TOP), "SOURCE_DATE_EPOCH": _EPOCH},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(status, ran.returncode, ran.stdout + ran.stderr)
        return ran.stdout + ran.stderr

    def made(self, *arguments: str) -> VerifiedPackage:
        """Make a package, and verify it."""
        self.package("--output", str(self.path), *arguments)
        return verify_package(self.stack.enter_context(PackageFile(self.path)), keys())

    def run_tool(self, *command: str | Path) -> str:
        """Run another program; gives what it printed."""
        ran = subprocess.run(list(map(str, command)), cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(0, ran.returncode, ran.stderr)
        return ran.stdout

    def test_made(self) -> None:
        """It has the images of bin/image with their digests, the chart, the lists of contents and helm."""
        helm = self.folder / "helm"
        helm.write_text("#!/bin/sh\n")
        release = self.made("--helm", f"linux-amd64={helm}", "--channel", "candidate").signed.release
        self.assertEqual((__version__, "candidate", "0.1.0"), (release.version, release.channel, release.upgrade_from))
        [platform] = release.platforms
        self.assertEqual(
            {name: (f"svc/{name}", digest) for name, digest in self.digests.items()},
            {each.name: (each.repository, each.platforms[platform].digest) for each in release.images},
        )
        self.assertEqual(("svc-core", "svc/charts/svc-core"), (release.chart.name, release.chart.repository))
        lists = [f"sbom/{name}-{platform.replace('/', '-')}.spdx.json" for name in NAMES]
        self.assertEqual(sorted([*lists, "tools/helm-linux-amd64"]), sorted(release.files))
        self.assertEqual(_EPOCH, str(int(release.created_at.timestamp())))
        # The document, which is signed, and all but the signature, are the same each time.
        with tarfile.open(self.path) as first:
            names = first.getnames()
        document = release.to_octets()
        again = self.made("--helm", f"linux-amd64={helm}", "--channel", "candidate")
        self.assertEqual(document, again.signed.document)
        self.assertEqual(names, list(again.file.entries))

    def test_checksums(self) -> None:
        """What is no blob is verified without svc too."""
        self.made()
        with tarfile.open(self.path) as archive:
            archive.extractall(self.folder / "unpacked", filter="data")
        ran = subprocess.run(
            ["sha256sum", "--check", "--strict", "checksums.txt"],
            cwd=self.folder / "unpacked",
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual((0, ""), (ran.returncode, ran.stderr))
        self.assertEqual(8, len(ran.stdout.splitlines()))

    def test_skopeo(self) -> None:
        """skopeo finds each image and the chart by its full name, and copies it with all that it refers to."""
        skopeo = find("skopeo")
        self.made()
        of = f"oci-archive:{self.path}:{DOMAIN}"
        for name, digest in self.digests.items():
            self.run_tool(
                *(skopeo, "--insecure-policy", "copy", "--all", f"{of}/svc/{name}:{__version__}"),
                f"oci:{self.folder / 'copied'}:{name}",
            )
            index = json.loads(self.run_tool(skopeo, "inspect", "--raw", f"{of}/svc/{name}:{__version__}"))
            self.assertEqual([digest], [each["digest"] for each in index["manifests"]])
            self.assertTrue((self.folder / "copied" / "blobs" / digest.replace(":", "/")).is_file())

    def test_containerd(self) -> None:
        """containerd imports all platforms of a package, also of one that has some platforms of the release only."""
        folder = tool("containerd")
        if os.geteuid() != 0:
            raise SkipTest("containerd runs as root")
        small = write_small_release(self.folder)
        subset = self.folder / "subset.tar"
        with PackageFile(small) as file:
            verified = verify_package(file, keys())
            reading = read_contents(verified.signed.release, PLATFORMS[:1])
            contents = read_all(reading, lambda blob: file.read(blob.content.entry))
            write_package(subset, verified.signed, contents, file.open)
        config, socket = self.folder / "containerd.toml", self.folder / "s"
        config.write_text(
            f'version = 3\nroot = "{self.folder}/root"\nstate = "{self.folder}/state"\n'
            'disabled_plugins = ["io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", '
            f'"io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{socket}"\n'
        )
        process = subprocess.Popen(
            [str(folder / "containerd"), "--config", str(config)],
            env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.stack.callback(end_process, process)
        ctr = [str(folder / "ctr"), "--address", str(socket)]
        eventually(lambda: subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode == 0)
        self.made()
        for number, path in enumerate((self.path, small, subset)):
            namespace = ["--namespace", f"n{number}", "images"]
            self.run_tool(*ctr, *namespace, "import", "--all-platforms", "--no-unpack", path)
            found = self.run_tool(*ctr, *namespace, "list", "--quiet").split()
            with PackageFile(path) as file:
                index = json.loads(file.read(INDEX_FILE))
            names = [each["annotations"]["io.containerd.image.name"] for each in index["manifests"]]
            self.assertEqual(sorted(names), sorted(found))

    def test_helm(self) -> None:
        """helm pulls the chart from a registry to which skopeo copied it, as it pulls its own, and renders it."""
        skopeo, registry = find("skopeo"), find("docker-registry")
        helm = tool("helm") / "helm"
        self.made()
        port = free_port()
        config = self.folder / "registry.yml"
        config.write_text(
            f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {self.folder / 'stored'}}}}}\n"
            f"http: {{addr: 127.0.0.1:{port}}}\n"
        )
        process = subprocess.Popen(
            [registry, "serve", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.stack.callback(end_process, process)
        eventually(lambda: answers(port))
        chart = f"svc/charts/svc-core:{__version__}"
        self.run_tool(
            *(skopeo, "--insecure-policy", "copy", "--dest-tls-verify=false"),
            *(f"oci-archive:{self.path}:{DOMAIN}/{chart}", f"docker://127.0.0.1:{port}/{chart}"),
        )
        where = f"oci://127.0.0.1:{port}/svc/charts/svc-core"
        self.run_tool(helm, "pull", where, "--version", __version__, "--plain-http", "--destination", self.folder)
        pulled = self.folder / f"svc-core-{__version__}.tgz"
        values = self.folder / "values.yaml"
        values.write_text(json.dumps(VALUES))
        said = [
            self.run_tool(helm, "template", "svc-core", each, "--namespace", "svc-system", "--values", values)
            for each in (pulled, TOP / "svc" / "data" / "chart")
        ]
        self.assertEqual(said[0], said[1])
        self.assertIn("kind: DaemonSet", said[0])

    def test_refused(self) -> None:
        """What is missing, of another version or no image; names and versions that no release has. Nothing is left."""
        key = self.folder / "key.pem"
        for said, *words in (
            ("cannot be read: no such file", "--images", str(self.folder)),
            ("--helm linux-amd64 names no file", "--helm", "linux-amd64"),
            ("(release_malformed)", "--helm", f"Linux={key}"),
            ("(release_malformed)", "--upgrade-from", "1"),
            ("(release_malformed)", "--channel", "A B"),
            ("(file_unreadable)", "--key", str(self.folder / "none")),
            ("(passphrase_unfit)", "--passphrase-file", str(self.images / "svc.spdx.json")),
            ("(package_unwritable)", "--output", str(self.folder / "none" / "release.tar")),
        ):
            self.assertIn(said, self.package("--output", str(self.path), *words, status=1))
        write_image(self.images, "svc", "9.9.9")
        self.assertIn(f"is of version 9.9.9, not {__version__}", self.package(status=1))
        (self.images / "svc.tar").write_bytes(b"x" * 2000)
        self.assertIn("svc.tar is no archive of an image", self.package(status=1))
        write_image(self.images, "svc")
        (self.images / "svc.spdx.json").unlink()
        self.assertIn("svc.spdx.json is missing", self.package(status=1))
        self.assertEqual(["images", "key.pem"], sorted(each.name for each in self.folder.iterdir()))
