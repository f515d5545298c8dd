"""Which modules are loaded, by interpreters of their own: what a user waits for is light."""

from __future__ import annotations

import subprocess
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.cli.test_federation import FederationCase
from tests.cli.test_license import LicenseCase
from tests.license.material import envelope, text_of

#: Modules that are slow to import and that help texts do not need.
_HEAVY = ("twisted", "cryptography", "OpenSSL", "spiffe", "grpc", "rich", "pydantic", "jwt", "httptools", "asyncio")


class ImportTests(SynchronousTestCase):
    """The modules that a command imports."""

    def loaded(self, *words: str) -> list[str]:
        script = (
            "import sys; from svc.cli.main import main; "
            f"status = main({list(words)!r}); "
            f"print([name for name in {_HEAVY!r} if name in sys.modules], file=sys.stderr); sys.exit(status)"
        )
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        return ran.stderr.splitlines()

    def test_light_commands(self) -> None:
        """Help, version, completion and files import none of the slow modules."""
        for words in (
            ["--help"],
            ["help", "curl"],
            ["curl", "--help"],
            ["status", "-h"],
            ["version"],
            ["files"],
            ["completion", "bash"],
        ):
            self.assertEqual(self.loaded(*words), ["[]"], words)
        self.assertEqual(self.loaded("__complete", "curl", "--"), ["[]"])


class StatusTests(SynchronousTestCase):
    """The modules that ``svc status`` imports."""

    def test_light(self) -> None:
        """Asking the default addresses imports none of the slow modules."""
        slow = ("twisted", "cryptography", "OpenSSL", "pydantic", "asyncio")
        script = f"import sys, svc.cli.status.run; print([name for name in {slow!r} if name in sys.modules])"
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual("[]\n", ran.stdout)


class LicenseTests(LicenseCase):
    """The modules that ``svc license`` imports."""

    def test_info(self) -> None:
        """The command loads no reactor, no client of Kubernetes, and none of the libraries of configurations."""
        path = self.write("x.license", text_of(envelope()))
        unwanted = ("twisted", "kubernetes", "pydantic", "ruamel", "grpclib", "OpenSSL")
        code = (
            "import sys; from svc.cli.main import main; "
            f"status = main(['license', 'info', '-o', 'yaml', {path!r}]); "
            f"print([name for name in {unwanted!r} if name in sys.modules], status)"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(ran.stdout.splitlines()[-1], "[] 0")

    def test_install(self) -> None:
        """A dry run loads no client of Kubernetes; without it the other is refused in a sentence."""
        path = self.write("x.license", text_of(envelope()))
        code = (
            "import sys; from svc.cli.main import main; "
            f"status = main(['license', 'install', '-n', {path!r}]); "
            "print([name for name in ('twisted', 'kubernetes', 'aiohttp', 'asyncio') if name in sys.modules], status); "
            "sys.modules['kubernetes.aio.client'] = sys.modules['kubernetes'] = None; "
            f"print(main(['license', 'install', {path!r}]))"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(ran.stdout.splitlines()[-2:], ["[] 0", "1"])
        self.assertRegex(ran.stderr, r"there is no module kubernetes\S* \(kubernetes_missing\)\n +install it with pip")


class FederationTests(FederationCase):
    """The modules that ``svc federation`` imports."""

    def test_inspect(self) -> None:
        """The command loads no reactor, no client of Kubernetes, and none of the libraries of configurations."""
        unwanted = ("twisted", "kubernetes", "aiohttp", "asyncio", "pydantic", "ruamel", "grpclib", "OpenSSL")
        words = ["federation", "inspect", "bootstrap-package", "-f", f"{self.folder}/package-good.json"]
        code = (
            f"import sys; from svc.cli.main import main; status = main({words!r}); "
            f"print([name for name in {unwanted!r} if name in sys.modules], status)"
        )
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(ran.stdout.splitlines()[-1], "[] 0")


class PackageTests(SynchronousTestCase):
    """The modules that an import of a package brings with it."""

    def test_packages_load_lazily(self) -> None:
        """Importing a package of the shell loads no module of it."""
        for package in (
            "svc.embedding",
            "svc.transport",
            "svc.workload",
            "svc.notary",
            "svc.reports",
            "svc.broker",
            "svc.testing",
        ):
            code = f"import sys, {package}; print([m for m in sys.modules if m.startswith('{package}.')])"
            found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            self.assertEqual(found.stdout.strip(), "[]", package)

    def test_endpoint_strings(self) -> None:
        """Every program that reads endpoint strings loads this parser, and none of the proxy with it."""
        code = (
            "import sys; from twisted.internet.endpoints import serverFromString;"
            "from twisted.internet.testing import MemoryReactor; serverFromString(MemoryReactor(), 'tcp:1');"
            "from twisted.plugins import svc_endpoints;"
            "print(sorted(m for m in sys.modules if m.startswith('svc')))"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(found.stdout.strip(), "['svc', 'svc.embedding', 'svc.embedding.strings', 'svc.lazy']")
