"""``bin/release`` in a clone: what it refuses, what it makes, what it would tag."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from svc import __version__ as installed
from svc import strictyaml
from tests.license.material import LICENSE, STRANGER, envelope, text_of, vendor_key
from tests.peers.waiting import TOP

#: Newer than all.
VERSION = "9.0.0"


class ReleaseTests(SynchronousTestCase):
    """The steps of a release, in their order."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.clone = self.folder / "clone"
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, text=True, check=True).stdout
        archive = self.folder / "tree.tar"
        with tarfile.open(archive, "w") as tar:
            for name in filter(None, listed.split("\0")):
                if (TOP / name).exists():
                    tar.add(TOP / name, name)
        self.clone.mkdir()
        subprocess.run(["tar", "-xf", str(archive)], cwd=self.clone, check=True)
        archive.unlink()
        sources = self.clone / "svc" / "__init__.py"
        self.assertIn(f'__version__ = "{installed}"', sources.read_text())
        sources.write_text(sources.read_text().replace(installed, VERSION))
        self.git("init", "--quiet")
        self.commit()

    def git(self, *arguments: str) -> str:
        """Run git in the clone, as nobody in particular."""
        who = ("-c", "user.name=tests", "-c", "user.email=tests@example.org", "-c", "commit.gpgsign=false")
        ran = subprocess.run(["git", *who, *arguments], cwd=self.clone, capture_output=True, text=True, check=True)
        return ran.stdout

    def commit(self) -> None:
        """Commit all that is there."""
        self.git("add", "--all", "--force")
        self.git("commit", "--quiet", "--message", "all", "--allow-empty")

    def release(self, *arguments: str, status: int = 0) -> str:
        """Run it; gives what it printed."""
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(self.clone)}
        environment |= {"GIT_COMMITTER_NAME": "tests", "GIT_COMMITTER_EMAIL": "tests@example.org"}
        ran = subprocess.run(
            [sys.executable, "-m", "release", *arguments],
            cwd=self.clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(status, ran.returncode, ran.stderr)
        return ran.stdout + ran.stderr

    def test_release(self) -> None:
        """Fragments become a section; the artifacts are made twice, with the same content; the commit is tagged."""
        (self.clone / "docs" / "newsfragments" / "zzz.feature").write_text("A thing\nof two lines.\n")
        said = self.release(status=1)
        self.assertIn("1 files are not committed", said)
        for line in ("no vendor key is built in", "no release key is built in"):
            self.assertIn(line, said)
        self.commit()
        self.assertIn("fragments are not in CHANGELOG.md", self.release(status=1))
        self.release("--write-changelog", "--date", "2026-11-27")
        self.assertIn("\n- A thing of two lines.\n", (self.clone / "CHANGELOG.md").read_text())
        self.assertIn("has a section of 9.0.0 already", self.release("--write-changelog", status=1))
        self.commit()
        made = self.folder / "made"
        key = self.folder / "vendor.pem.pub"
        key.write_text(vendor_key(STRANGER, "A vendor").render())
        given = ("--plugin-url", "https://example.org/r/", "--vendor-key", str(key), "--release-key", str(key))
        said = self.release("--output", str(made), *given)
        self.assertNotIn("is built in", said)
        self.assertIn(f"would tag {self.git('rev-parse', '--short', 'HEAD').strip()} as v{VERSION}", said)
        self.assertEqual("", self.git("tag"))
        self.check_made(made)
        self.assertEqual("", self.git("status", "--porcelain"))
        again = self.folder / "again"
        self.assertIn("tagged", self.release("--tag", "--output", str(again), *given))
        self.assertEqual(digests(made), digests(again))
        self.assertIn("A thing of two lines.", self.git("tag", "--list", "--format=%(contents)", f"v{VERSION}"))
        self.assertIn("is not newer than", self.release(status=1))

    def check_made(self, folder: Path) -> None:
        """The wheel has the program, not the vendor of tests; the manifest has the digest of the plugin's archive."""
        with zipfile.ZipFile(folder / f"svc-{VERSION}-py3-none-any.whl") as wheel:
            names = wheel.namelist()
            wheel.extractall(folder.parent / "installed")
        self.check_license(folder.parent / "installed")
        self.assertIn("svc/data/chart/Chart.yaml", names)
        self.assertFalse([name for name in names if "testvendor" in name or name.startswith("release/")])
        manifest = strictyaml.loads((folder / "mls.yaml").read_text())
        assert isinstance(manifest, dict)
        [platform] = [
            each for each in manifest["spec"]["platforms"] if each["selector"]["matchLabels"]["os"] == "linux"
        ]
        archive = folder / f"kubectl-mls-{VERSION}.tar.gz"
        self.assertEqual(f"https://example.org/r/{archive.name}", platform["uri"])
        self.assertEqual(hashlib.sha256(archive.read_bytes()).hexdigest(), platform["sha256"])
        with tarfile.open(archive) as tar:
            tar.extractall(folder.parent / "plugin", filter="data")
        for each in platform["files"]:
            self.assertTrue((folder.parent / "plugin" / each["from"]).is_file())
        plugin = folder.parent / "plugin" / platform["bin"]
        path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
        ran = subprocess.run([str(plugin), "version"], env={"PATH": path}, capture_output=True, text=True, check=True)
        self.assertIn(installed, ran.stdout)
        ran = subprocess.run([str(plugin)], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False)
        self.assertEqual(1, ran.returncode)
        self.assertIn("is not on the PATH", ran.stderr)

    def check_license(self, installed: Path) -> None:
        """What is installed accepts a license of the key that was built in; a checkout says which key it lacks."""
        path = self.folder / "acme.license"
        license_file = text_of(envelope(dataclasses.replace(LICENSE, issuer="A vendor"), STRANGER))
        path.write_text(license_file)
        entry = "from svc.cli.entry import main; raise SystemExit(main())"
        command = [sys.executable, "-c", entry, "license", "info", str(path)]
        for folder, status, said in ((installed, 0, "Key: A vendor"), (TOP, 1, "(license_keys_none)")):
            environment = {**os.environ, "PYTHONPATH": str(folder)}
            ran = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
            self.assertEqual(status, ran.returncode, ran.stderr)
            self.assertIn(said, ran.stdout + ran.stderr)


def digests(folder: Path) -> dict[str, str]:
    """The digest of each file of a folder."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}
