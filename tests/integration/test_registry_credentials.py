"""The credentials of a machine for registries: files, and helpers that are programs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from twisted.internet import reactor

from svc.install.registry.credentials import Credentials
from svc.install.registry.discovery import find_credentials
from svc.install.registry.references import Host
from tests.integration.registry_rig import RegistryCase

HOST = Host("r.example.com")
ANSWER = '{"ServerURL":"r.example.com","Username":"helped","Secret":"secret"}'


class CredentialTests(RegistryCase):
    """A home folder with files."""

    def setUp(self) -> None:
        """Make the home folder and one for programs."""
        super().setUp()
        self.programs = self.folder / "bin"
        self.programs.mkdir()
        self.environment = {"HOME": str(self.folder), "PATH": f"{self.programs}:/usr/bin:/bin"}

    def write(self, name: str, document: dict[str, Any]) -> Path:
        """Write a configuration file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document))
        return path

    def helper(self, script: str, name: str = "x") -> None:
        """Write a helper, and name it for the registry."""
        program = self.programs / f"docker-credential-{name}"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        self.write(".docker/config.json", {"credHelpers": {"r.example.com": name}})

    async def found(self) -> Credentials | None:
        """Find the credentials."""
        return await find_credentials(reactor, HOST, "acme/svc", self.environment)

    async def test_order_of_files(self) -> None:
        """The first file with an entry for the registry decides; without any there are no credentials."""
        self.assertIsNone(await self.found())
        self.environment["REGISTRY_AUTH_FILE"] = str(self.folder / "missing.json")
        self.write(".config/containers/auth.json", {"auths": {"r.example.com": {"username": "c", "password": "p"}}})
        self.write(".docker/config.json", {"auths": {"other.example.com": {"username": "o", "password": "p"}}})
        found = await self.found()
        self.assertEqual(("c", True), (found.username, found.source.endswith("containers/auth.json")))
        path = self.write("a.json", {"auths": {"r.example.com": {"username": "a", "password": "p"}}})
        self.environment["REGISTRY_AUTH_FILE"] = str(path)
        self.assertEqual("a", (await self.found()).username)
        path.write_text("{")
        error = await self.refused("registry_credentials_unreadable", self.found())
        self.assertIn(str(path), str(error))
        path.unlink()
        path.mkdir()
        await self.refused("registry_credentials_unreadable", self.found())

    async def test_helper(self) -> None:
        """A helper gets the registry on its standard input and ``get``, and the variables."""
        self.helper(f'read server; [ "$1 $server $HOME" = "get r.example.com {self.folder}" ] && echo \'{ANSWER}\'')
        found = await self.found()
        self.assertEqual(("helped", "secret", "docker-credential-x"), (found.username, found.password, found.source))

    async def test_helper_without_credentials(self) -> None:
        """A helper that has none for the registry lets the next file decide."""
        self.write(".config/containers/auth.json", {"auths": {"r.example.com": {"username": "c", "password": "p"}}})
        self.helper("echo credentials not found in native keychain; exit 1")
        self.assertEqual("c", (await self.found()).username)

    async def test_failed_helper(self) -> None:
        """A helper that is missing, fails or writes something else is named; what may be a secret is not shown."""
        for script, part in (
            ("echo not logged in >&2; exit 3", "status 3: not logged in"),
            (f"echo '{ANSWER}'; exit 1", "status 1"),
            ("echo secret", "not a JSON object"),
            ("kill -9 $$", "the signal 9"),
            ("head -c 100000 /dev/zero", "65536 octets"),
        ):
            self.helper(script)
            error = await self.refused("credential_helper_failed", self.found())
            self.assertIn(part, str(error))
            self.assertNotIn("secret", f"{error}{error.evidence}")
        self.write(".docker/config.json", {"credsStore": "gone"})
        self.assertIn("no such program", str(await self.refused("credential_helper_failed", self.found())))

    async def test_slow_helper(self) -> None:
        """A helper that does not end, and whose child keeps its output, is given up."""
        self.helper("sleep 5 & sleep 5")
        begun = time.monotonic()
        finding = find_credentials(reactor, HOST, "acme/svc", self.environment, helper_seconds=0.2)
        self.assertIn("0.2 s", str(await self.refused("credential_helper_failed", finding)))
        self.assertLess(time.monotonic() - begun, 2.5)
