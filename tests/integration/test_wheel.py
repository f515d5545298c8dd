"""A wheel of this checkout: what is in it, and that it works where it is installed."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from docs.generator.pages import TOP
from svc.cli.files import KINDS
from svc.data import FOLDER
from tests.license.material import envelope, text_of
from tests.peers.daemon import environment
from tests.peers.folders import short_folder
from tests.peers.programs import find, run
from tests.peers.waiting import Shared

#: What a wheel is made of.
_SOURCES = ("svc", "twisted", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")


class Wheel:
    """A wheel of a copy of the sources, so that nothing is written to the checkout, and what pip installed from it."""

    def __init__(self, stack: ExitStack) -> None:
        if tuple(map(int, version("setuptools").split(".")[:2])) < (70, 1):
            raise SkipTest("setuptools is older than 70.1, which builds wheels: bin/test installs it")
        folder = short_folder(stack)
        sources, self.target = folder / "sources", folder / "target"
        sources.mkdir()
        for name in _SOURCES:
            copy = shutil.copytree if (TOP / name).is_dir() else shutil.copy
            copy(TOP / name, sources / name)
        pip = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check"]
        offline = ["--quiet", "--no-deps", "--no-index"]
        self._checked([*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", str(folder), str(sources)])
        [self.path] = folder.glob("*.whl")
        self._checked([*pip, "install", *offline, "--target", str(self.target), str(self.path)])

    def _checked(self, command: list[str]) -> None:
        ran = run(command)
        assert ran.returncode == 0, ran.stdout.decode() + ran.stderr.decode()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run the installed command line, which finds the other packages of this interpreter behind its own."""
        path = f"{self.target}:{environment()['PYTHONPATH'].partition(':')[2]}"
        return run([self.target / "bin" / "svc", *arguments], PYTHONPATH=path)

    def svc(self, *arguments: str) -> str:
        """Run it; returns what it prints."""
        ran = self.run(*arguments)
        assert ran.returncode == 0, ran.stderr.decode()
        return ran.stdout.decode()


WHEEL = Shared(Wheel)


class WheelTests(SynchronousTestCase):
    """The wheel and the installed command."""

    def setUp(self) -> None:
        """Build it once."""
        self.wheel: Wheel = WHEEL.get()

    def test_contents(self) -> None:
        """It has every file for other programs, what Twisted and type checkers look for, and nothing of the tests."""
        with zipfile.ZipFile(self.wheel.path) as archive:
            names = set(archive.namelist())
            [metadata] = [archive.read(name) for name in names if name.endswith("/METADATA")]
        data = {
            f"svc/data/{path.relative_to(FOLDER)}"
            for path in FOLDER.rglob("*")
            if path.is_file() and path.suffix not in (".py", ".pyc")
        }
        self.assertEqual({name.split("/")[2] for name in data}, set(KINDS))
        self.assertEqual(data, {n for n in names if n.startswith("svc/data/") and not n.endswith(".py")})
        self.assertLessEqual({"svc/py.typed", "svc/data/__init__.py", "twisted/plugins/svc_plugins.py"}, names)
        self.assertEqual({"svc", "twisted"}, {n.split("/")[0] for n in names if ".dist-info/" not in n})
        self.assertFalse([name for name in names if name.endswith(".pyc")])
        # What a checkout accepts for tests, a release does not.
        self.assertEqual([], [name for name in names if "testvendor" in name])
        self.assertIn("svc/license/vendors.py", names)
        head = email.message_from_bytes(metadata)
        self.assertEqual((head["Author"], head["Home-page"]), ("The svc project", "https://svc.internal/"))

    def test_installed(self) -> None:
        """The installed command prints the folders of the installation, and the files are there as in the checkout."""
        table = self.wheel.svc("files")
        for kind in KINDS:
            path = Path(self.wheel.svc("files", kind).rstrip("\n"))
            self.assertEqual(path, self.wheel.target / "svc" / "data" / kind)
            self.assertIn(f"{path}\n", table)
            for file in filter(Path.is_file, (FOLDER / kind).rglob("*")):
                self.assertEqual(file.read_bytes(), (path / file.relative_to(FOLDER / kind)).read_bytes())
        self.assertIn("# bash completion", self.wheel.svc("completion", "bash"))

    def test_the_test_vendor_is_refused(self) -> None:
        """What is installed shows a license of the test vendor, and does not accept it."""
        folder = self.enterContext(ExitStack())
        path = short_folder(folder) / "acme.license"
        path.write_text(text_of(envelope()))
        ran = self.wheel.run("license", "info", str(path))
        self.assertEqual(1, ran.returncode)
        self.assertTrue(ran.stdout.startswith(b"UNVERIFIED License "), ran.stdout)
        self.assertIn(b"(license_key_of_tests)", ran.stderr)

    def test_man_pages(self) -> None:
        """groff reads each man page without a warning, and prints its flags and examples as they are typed."""
        groff = find("groff")
        for page in Path(self.wheel.svc("files", "man").strip(), "man1").iterdir():
            ran = run([groff, "-man", "-ww", "-Tutf8", "-P-cbou", "-rHY=0", "-rLL=1000n", page])
            self.assertEqual((ran.returncode, ran.stderr), (0, b""), page.name)
            shown = {" ".join(line.split()) for line in ran.stdout.decode().splitlines()}
            # Two commands have a hyphen.
            name = page.stem.replace("dead-letters", "dead_letters").replace("bootstrap-package", "bootstrap_package")
            words = [each.replace("_", "-") for each in name.split("-")]
            text = self.wheel.svc("help", *words[1:])
            lines = re.findall(r"^ +((?:-\w, )?--\S+(?: \S+)?)   ", text, re.MULTILINE)
            lines += re.findall(r"^  (svc .*)$", text.partition("Examples:\n")[2], re.MULTILINE)
            self.assertGreater(len(lines), 5)
            for line in lines:
                # The text of a short flag follows on its line.
                self.assertTrue(any(f"{each} ".startswith(f"{line} ") for each in shown), (page.name, line))
