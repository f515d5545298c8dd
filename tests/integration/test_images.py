"""``bin/image``: layers, archives, lists of contents, and the images themselves."""

from __future__ import annotations

import json
import os
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from images import sbom
from images.__main__ import NAMES, PYTHON, STATIC, USER, build
from images.archive import Content, Image, Layer, tree, write_archive, write_layer
from images.base import base
from images.cache import ImageFailed
from images.pinned import MODULE
from svc import __version__
from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import TOP, Shared

NEEDS_TOOLS = ("spire",)
_STATUS = """Package: libc6
Status: install ok installed
Version: 2.36-9+deb12u14
Description: GNU C Library
 Version: not this

Package: gone
Status: deinstall ok config-files
Version: 1
"""


#: The module of the vendor's keys, with a mark.
PINNED = f"{(TOP / MODULE).read_text()}# built in\n"


class Built:
    """All images of this checkout."""

    def __init__(self, stack: ExitStack) -> None:
        self.folder = short_folder(stack)
        try:
            self.digests = {name: build(name, self.folder, pinned=PINNED) for name in NAMES}
        except ImageFailed as error:
            raise SkipTest(str(error)) from error

    def config(self, name: str) -> dict[str, Any]:
        """The configuration of an image."""
        found: dict[str, Any] = self._blob(name, self._manifest(name)["config"]["digest"])["config"]
        return found

    def unpack(self, name: str, into: Path) -> None:
        """Apply the layers of an image to a folder, as a container runtime does."""
        with tarfile.open(self.folder / f"{name}.tar") as archive:
            for layer in self._manifest(name)["layers"]:
                blob = archive.extractfile(f"blobs/{layer['digest'].replace(':', '/')}")
                with tarfile.open(fileobj=blob, mode="r|gz") as entries:
                    entries.extractall(into, numeric_owner=True, filter="fully_trusted")

    def _manifest(self, name: str) -> dict[str, Any]:
        return self._blob(name, self.digests[name])

    def _blob(self, name: str, digest: str) -> dict[str, Any]:
        with tarfile.open(self.folder / f"{name}.tar") as archive:
            blob = archive.extractfile(f"blobs/{digest.replace(':', '/')}")
            assert blob is not None
            found: dict[str, Any] = json.load(blob)
            return found


BUILT = Shared(Built)


class LayerTests(SynchronousTestCase):
    """Layers and archives from files that are given."""

    def setUp(self) -> None:
        """Make folders with the same files, made in another order and at another time."""
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = short_folder(self.stack)
        names = ["a", "b/c", "b/d"]
        for folder, order, time in (("one", names, 1), ("two", reversed(names), 2)):
            for name in order:
                path = self.folder / folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(name)
                path.chmod(0o755)
                os.utime(path, (time, time))
            (self.folder / folder / "link").symlink_to("b/c")

    def layer(self, name: str) -> Layer:
        """A layer from one of the folders."""
        return write_layer(
            self.folder / f"{name}.layer", [*tree(self.folder / name, "opt"), ("tmp", Content(mode=0o1777))]
        )

    def test_same_digest(self) -> None:
        """Order and times of files make no difference, to a layer and to an image."""
        one, two = self.layer("one"), self.layer("two")
        self.assertEqual((one.digest, one.diff_id), (two.digest, two.diff_id))
        digests = [
            write_archive(self.folder / f"{number}.tar", Image("svc.internal/x:1", [each], {"User": "1"}))
            for number, each in enumerate((one, two))
        ]
        self.assertEqual(digests[0], digests[1])
        self.assertEqual((self.folder / "0.tar").read_bytes(), (self.folder / "1.tar").read_bytes())
        (self.folder / "two" / "a").write_text("other")
        self.assertNotEqual(one.diff_id, self.layer("two").diff_id)

    def test_entries(self) -> None:
        """All belong to root and have no time; folders that nothing names are there, and no setuid bit."""
        (self.folder / "one" / "a").chmod(0o4755)
        with tarfile.open(self.layer("one").path) as archive:
            entries = {each.name: each for each in archive}
        self.assertEqual(["opt", "opt/a", "opt/b", "opt/b/c", "opt/b/d", "opt/link", "tmp"], list(entries))
        self.assertEqual({(0, 0, "", "", 0)}, {(e.uid, e.gid, e.uname, e.gname, e.mtime) for e in entries.values()})
        self.assertEqual((0o755, 0o755, 0o1777), tuple(entries[name].mode for name in ("opt", "opt/a", "tmp")))
        self.assertEqual("b/c", entries["opt/link"].linkname)

    def test_read_by_skopeo(self) -> None:
        """An independent implementation reads the archive and finds the digest."""
        path = self.folder / "x.tar"
        config = {"User": "65532:65532", "Labels": {"a": "b"}}
        digest = write_archive(path, Image("svc.internal/x:1", [self.layer("one")], config))
        ran = run([find("skopeo"), "inspect", f"oci-archive:{path}"])
        self.assertEqual(0, ran.returncode, ran.stderr)
        found = json.loads(ran.stdout)
        self.assertEqual((digest, {"a": "b"}, "linux"), (found["Digest"], found["Labels"], found["Os"]))

    def test_special_file(self) -> None:
        """What is neither a file, nor a folder, nor a link is refused."""
        os.mkfifo(self.folder / "one" / "pipe")
        self.assertRaises(ValueError, self.layer, "one")


class SbomTests(SynchronousTestCase):
    """Lists of contents."""

    def test_debian(self) -> None:
        """Packages that are installed are listed; what was removed is not."""
        with ExitStack() as stack:
            path = short_folder(stack) / "status"
            path.write_text(_STATUS)
            [found] = sbom.debian_packages(path)
        self.assertEqual("pkg:deb/debian/libc6@2.36-9%2Bdeb12u14", found.url)

    def test_python(self) -> None:
        """Names are normalized as package URLs ask for it, and a licence that is a whole text is left out."""
        with ExitStack() as stack:
            folder = short_folder(stack)
            for name, licence in (("zope.interface", "ZPL-2.1"), ("Other_One", "x" * 200)):
                (folder / f"{name}.dist-info").mkdir()
                text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nLicense: {licence}\n\nbody"
                (folder / f"{name}.dist-info" / "METADATA").write_text(text)
            found = sorted(sbom.python_packages(folder))
        self.assertEqual(["pkg:pypi/other-one@1.0", "pkg:pypi/zope-interface@1.0"], [each.url for each in found])
        self.assertEqual(["", "ZPL-2.1"], [each.licence for each in found])

    def test_not_go(self) -> None:
        """A program without the build information of Go is refused."""
        self.assertRaises(ValueError, lambda: list(sbom.go_packages(TOP / "LICENSE")))

    def test_document(self) -> None:
        """Each package is contained in the image, under an identifier that occurs once."""
        packages = [sbom.Package("deb", "a", "1"), sbom.Package("pypi", "b", "2", "MIT OR Apache-2.0")]
        packages += [sbom.Package("pypi", "c", "2", "See the file"), packages[0]]
        made = sbom.document("x", "1", packages, "1970-01-01T00:00:00Z")
        self.assertEqual(("SPDX-2.3", "CC0-1.0"), (made["spdxVersion"], made["dataLicense"]))
        licences = [each["licenseDeclared"] for each in made["packages"]]
        self.assertEqual(["Apache-2.0", "NOASSERTION", "MIT OR Apache-2.0", "NOASSERTION"], licences)
        identifiers = [each["SPDXID"] for each in made["packages"]]
        self.assertEqual(identifiers, [each["relatedSpdxElement"] for each in made["relationships"]])
        self.assertEqual(len(set(identifiers)), len(identifiers))
        self.assertEqual(made, sbom.document("x", "1", reversed(packages), "1970-01-01T00:00:00Z"))


class ImageTests(SynchronousTestCase):
    """The images of this checkout."""

    def setUp(self) -> None:
        """Build them once."""
        self.built: Built = BUILT.get()
        self.stack = ExitStack()
        self.addCleanup(self.stack.close)

    def unpacked(self, name: str) -> Path:
        """The files of an image."""
        folder = short_folder(self.stack)
        folder.chmod(0o755)
        self.built.unpack(name, folder)
        return folder

    def inside(self, folder: Path, *command: str, status: int = 0) -> str:
        """Run a program of an image as the user of its containers; they cannot write to its files."""
        ran = run(
            [find("chroot"), f"--userspec={USER}:{USER}", folder, *command],
            PATH="/usr/local/bin:/usr/bin:/bin",
            PYTHONPATH="",
        )
        self.assertEqual(status, ran.returncode, ran.stdout + ran.stderr)
        return (ran.stdout + ran.stderr).decode()

    def test_same_digest(self) -> None:
        """A second build gives the same image."""
        again = build("svc", short_folder(self.stack), pinned=PINNED)
        self.assertEqual(self.built.digests["svc"], again)

    def test_pinned(self) -> None:
        """Images of the product have the keys that were given, compiled too."""
        for name in PYTHON:
            folder = self.unpacked(name)
            [module] = folder.glob(f"usr/local/lib/python3*/dist-packages/{MODULE}")
            self.assertEqual(PINNED, module.read_text())
            self.assertEqual(
                "()\n", self.inside(folder, "python3", "-c", "import svc.pinned as p; print(p.VENDOR_KEYS)")
            )

    def test_given_base(self) -> None:
        """Another base than that of debootstrap is taken as it is; one without an interpreter is refused."""
        files = base().files
        image = build("svc", short_folder(self.stack), files, PINNED)
        self.assertEqual(self.built.digests["svc"], image)
        empty = short_folder(self.stack)
        self.assertRaises(ImageFailed, build, "svc", short_folder(self.stack), empty)

    def test_check_config(self) -> None:
        """A configuration is tested in the image, whose files cannot be written, without a warning."""
        folder = self.unpacked("svc")
        (folder / "tmp/proxy.yaml").write_text(
            "trustDomain: example.org\npolicy: {default: allow}\nlisteners:\n"
            "  - {name: a, protocol: tcp, direction: inbound, listen: '127.0.0.1:0', upstream: '127.0.0.1:1'}\n"
        )
        said = self.inside(folder, "twistd", "svc-proxy", "--config", "/tmp/proxy.yaml", "--check-config", "--offline")
        self.assertEqual("/tmp/proxy.yaml is valid\n", said)

    def test_config(self) -> None:
        """No image runs as root, each names its version, and those of one program begin it."""
        for name in NAMES:
            config = self.built.config(name)
            self.assertEqual(f"{USER}:{USER}", config["User"], name)
            self.assertEqual(__version__, config["Labels"]["org.opencontainers.image.version"])
            if name in STATIC:
                self.assertEqual([f"/usr/local/bin/{STATIC[name][0]}"], config["Entrypoint"])

    def test_svc(self) -> None:
        """The programs run without writing to their files; their plugins are listed, and modules compiled."""
        folder = self.unpacked("svc")
        self.assertEqual(f"svc {__version__}\n", self.inside(folder, "svc", "--version"))
        listed = self.inside(folder, "twistd", "--help")
        for name in ("svc-proxy", "svc-authority", "svc-broker"):
            self.assertIn(name, listed)
        log = "import sys, twisted.python.log as l, twisted.plugin as p, twisted.plugins as s; "
        log += "l.startLogging(sys.stdout); p.getCache(s)"
        self.assertNotIn("Unable to write", self.inside(folder, "python3", "-c", log))
        found = self.inside(
            folder, "python3", "-c", "import svc.proxy, json; print(svc.proxy.__cached__, json.__cached__)"
        )
        for path in found.split():
            # A header whose flags say: never compared with the source (PEP 552).
            self.assertEqual(1, int.from_bytes((folder / path[1:]).read_bytes()[4:8], "little"), path)

    def test_svc_files(self) -> None:
        """Nothing is setuid, and there is no package manager, no interpreter but one, no test and no type stub."""
        folder = self.unpacked("svc")
        files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
        self.assertEqual([], [path for path in files if path.stat().st_mode & 0o6000])
        for name in ("apt-get", "perl", "mount", "passwd", "pip3"):
            self.assertFalse((folder / "usr/bin" / name).exists(), name)
        own = [path for path in files if "dist-packages" in path.parts]
        # Its keys are those of tests, which wheels leave out as well.
        self.assertEqual([], [path for path in own if "testvendor" in path.parts])
        self.assertEqual([], [path for path in own if path.suffix == ".pyi" or "tests" in path.parts])
        self.assertEqual([], list((folder / "var/log").iterdir()) + list((folder / "tmp").iterdir()))

    def test_svc_contents(self) -> None:
        """The list of contents, in the image and beside it, has the packages of Debian, of Python and svc."""
        text = (self.built.folder / "svc.spdx.json").read_text()
        self.assertEqual(text, (self.unpacked("svc") / "usr/share/sbom/svc.spdx.json").read_text())
        versions = {each["name"]: each["versionInfo"] for each in json.loads(text)["packages"]}
        self.assertEqual(__version__, versions["svc"])
        constraints = dict(
            line.split("==") for line in (TOP / "constraints.txt").read_text().splitlines() if "==" in line
        )
        for name in ("Twisted", "cryptography"):
            self.assertEqual(constraints[name], versions[name])
        self.assertLessEqual({"libc6", "python3.11-minimal", "libssl3"}, versions.keys())
        self.assertFalse({"hypothesis", "pip", "mypy", "apt", "perl-base", "kubernetes"} & versions.keys())
        listed = json.loads((self.built.folder / "svc-manager.spdx.json").read_text())["packages"]
        manager = {each["name"]: each["versionInfo"] for each in listed}
        self.assertEqual(constraints["kubernetes"], manager["kubernetes"])
        self.assertLessEqual(versions.keys(), manager.keys())

    def test_manager(self) -> None:
        """The Kubernetes client of the image of the manager can be imported; that of the proxies has none."""
        command = ("python3", "-c", "from kubernetes.aio import client, config, dynamic")
        self.inside(self.unpacked("svc-manager"), *command)
        self.assertIn("No module named 'kubernetes'", self.inside(self.unpacked("svc"), *command, status=1))

    def test_sizes(self) -> None:
        """The files of each image stay below a bound: every node stores them."""
        for name, bound in (("svc", 215e6), ("svc-manager", 340e6)):
            files = [path.lstat() for path in self.unpacked(name).rglob("*") if not path.is_dir()]
            self.assertLess(sum(each.st_size for each in files), bound, name)

    def test_static(self) -> None:
        """Each other image has its program, which runs without any library, and lists the modules in it."""
        for name, (program, _tool) in STATIC.items():
            folder = self.unpacked(name)
            # The CSI driver has no such flag; it prints its usage with its version.
            flag = "-help" if name == "spiffe-csi" else "--version"
            self.assertRegex(self.inside(folder, f"/usr/local/bin/{program}", flag), r"\d+\.\d+\.\d+")
            listed = json.loads((folder / f"usr/share/sbom/{name}.spdx.json").read_text())["packages"]
            found = {each["name"]: each["versionInfo"] for each in listed}
            self.assertIn("google.golang.org/grpc", found)
            self.assertTrue(found["stdlib"].startswith("go1."), found["stdlib"])


class CommandTests(SynchronousTestCase):
    """``bin/image``."""

    def test_unknown_name(self) -> None:
        """An image that there is not is refused, with the names of those that there are."""
        ran = run([TOP / "bin" / "image", "--only", "other"])
        self.assertEqual(2, ran.returncode)
        self.assertIn(b"spire-server", ran.stderr)
